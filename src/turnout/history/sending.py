"""Some messages of a batch into a route's sinks, from this process."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from turnout.engine import Messages
from turnout.errors import StreamError
from turnout.records.published import Published
from turnout.routes import Route
from turnout.runtime.endpoints import adapter_of


class SendResult:
    """Result of sending messages: the numbers of stored and duplicate ones, and the refused ones with their reasons."""

    def __init__(self) -> None:
        self.published = Published()
        self.refused: dict[int, str] = {}


class Sinks:
    """Sinks of a route that this process can publish to; a connection to each is opened for each call.

    Args:
        route: the route.
    """

    def __init__(self, route: Route) -> None:
        self._sinks = [(name, adapter_of(sink)) for name, sink in route.sinks.items()]

    def send(self, messages: Messages, indices: Sequence[int]) -> SendResult:
        """Publish the messages at *indices*, and wait until each is stored or refused.

        Raises:
            ConfigError: only Spark can write to the sink of one of them, or an option of a sink is wrong.
            StreamError: a server takes no messages at all.
            ConnectionLostError: a server does not come back in time.
        """
        sent = SendResult()
        chosen = np.array(sorted(indices), np.int64)
        for sink in np.unique(messages.sinks[chosen]).tolist():
            rows = chosen[messages.sinks[chosen] == sink]
            name, adapter = self._sinks[sink]
            sent.published += adapter.send(messages.take(rows), partial(_refuse, sent, rows.tolist()), name)
        return sent


def _refuse(sent: SendResult, indices: Sequence[int], at: int, reason: StreamError) -> None:
    sent.refused[indices[at]] = str(reason)
