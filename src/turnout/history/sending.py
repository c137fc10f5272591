"""Some messages of a batch into a route's NATS sinks, from this process."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from turnout.engine import Messages
from turnout.errors import ConfigError, Mistake, StreamError
from turnout.nats.wire import Connection, Published, Publisher
from turnout.routes import Route
from turnout.routes.endpoints import NatsSink
from turnout.runtime.publishing import lines_of
from turnout.runtime.sink_options import SinkOptions


class SendResult:
    """Result of sending messages: the numbers of stored and duplicate ones, and the refused ones with their reasons."""

    def __init__(self) -> None:
        self.published = Published()
        self.refused: dict[int, str] = {}


class Sinks:
    """The NATS sinks of a route; a connection to each is opened for each call.

    Args:
        route: the route.

    Raises:
        ConfigError: an option of a sink is wrong.
    """

    def __init__(self, route: Route) -> None:
        self._sinks = list(route.sinks.items())
        self._options = [
            SinkOptions.from_mapping(sink.options()) if isinstance(sink, NatsSink) else None for _, sink in self._sinks
        ]

    def send(self, messages: Messages, indices: Sequence[int]) -> SendResult:
        """Publish the messages at *indices*, and wait until each is stored or refused.

        Raises:
            ConfigError: one is for a sink that is not NATS.
            StreamError: a server takes no messages at all.
            ConnectionLostError: a server does not come back in time.
        """
        sent = SendResult()
        chosen = np.array(sorted(indices), np.int64)
        for sink in np.unique(messages.sinks[chosen]).tolist():
            self._send_to(sink, messages, chosen[messages.sinks[chosen] == sink], sent)
        return sent

    def _send_to(self, sink: int, messages: Messages, indices: NDArray[np.int64], sent: SendResult) -> None:
        options = self._options[sink]
        name, endpoint = self._sinks[sink]
        if options is None:
            problem = f"is {endpoint.format}: messages go from this process to sinks of format nats alone"
            raise ConfigError([Mistake(f"sinks.{name}" if name else "sink", problem)])
        some = messages.take(indices)
        lines = lines_of(some, options, with_ids=getattr(endpoint, "message_id", None) != "none")
        with Connection.open(options.connection) as connection:
            publisher = Publisher(connection, options.window, options.stream)
            refuse = partial(_refuse, sent, indices.tolist())
            publisher.publish_columns(some.topics, some.column("value").fill_null(b""), lines, refuse)
            sent.published += publisher.flush()


def _refuse(sent: SendResult, indices: Sequence[int], at: int, reason: StreamError) -> None:
    sent.refused[indices[at]] = str(reason)
