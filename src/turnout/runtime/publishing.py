"""Publishing of a task's messages to the route's NATS sinks, and dead letters for refused messages."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from turnout.engine import Counts, Result
from turnout.histogram import Histogram
from turnout.nats.wire import Connection, Publisher
from turnout.nats.wire.packing import header_lines, id_lines
from turnout.records.published import TOO_LARGE
from turnout.runtime.sink_options import SinkOptions

if TYPE_CHECKING:
    from collections.abc import Callable

    from turnout.engine import Messages
    from turnout.errors import StreamError

_KEPT_BACK: Final = 16
"""This many batches with refused messages are held in memory, before their dead letters are published."""


class Publishers:
    """A publisher for each NATS sink that messages go to, opened with the first of them.

    Args:
        sinks: how to publish to each of the route's sinks.
    """

    def __init__(self, sinks: tuple[SinkOptions | None, ...]) -> None:
        self._sinks = sinks
        self._open: dict[int, Publisher] = {}
        self._connections = ExitStack()
        self._refused: dict[int, tuple[Result, dict[int, str]]] = {}
        self._too_large: list[Messages] = []
        self.delivery = Histogram()
        """Histogram of times from publish to acknowledgement; complete after `flush`."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self._connections.close()

    def open(self) -> None:
        """Connect to all sinks, before there is anything to publish."""
        for sink, options in enumerate(self._sinks):
            if options is not None:
                self._publisher(sink, options)

    def publish(self, result: Result) -> list[Result]:
        """Send the messages of a batch, each to its sink.

        Returns:
            As `flush`, where it had to be called meanwhile.

        Raises:
            RunError: a server refused a message, and that stops the run.
        """
        self._send(result)
        return self.flush() if len(self._refused) + len(self._too_large) >= _KEPT_BACK else []

    def collect(self) -> list[Result]:
        """Process the acknowledgements that have arrived; wait only if messages were refused.

        Returns:
            As `flush`.

        Raises:
            RunError: as `publish`.
        """
        for publisher in self._open.values():
            publisher.collect()
        return self.flush() if self._refused or self._too_large else []

    def flush(self) -> list[Result]:
        """Wait for every acknowledgement, and publish dead letters instead of the messages that were refused.

        Returns:
            What that changes in the counts of the batches, and the failures to log.

        Raises:
            RunError: as `publish`.
        """
        self._wait()
        refused, self._refused = self._refused, {}
        corrections = [result.refused(reasons) for result, reasons in refused.values()]
        for correction in corrections:
            self._send(correction)
        self._wait()
        too_large, self._too_large = self._too_large, []
        for messages in too_large:
            self._send(Result(Counts(), messages), whole=False)
        self._wait()
        return corrections

    def _wait(self) -> None:
        for publisher in self._open.values():
            self.delivery += publisher.flush().delivery

    def _send(self, result: Result, *, whole: bool = True) -> None:
        """Send the messages of a batch; of its dead letters, *whole* ones may be cut."""
        messages = result.messages
        if not len(messages):
            return
        if len(self._sinks) == 1:
            self._send_to(0, messages, partial(self._refuse, result, whole, None))
            return
        for sink in np.unique(messages.sinks).tolist():
            indexes = np.flatnonzero(messages.sinks == sink)
            self._send_to(sink, messages.of_sink(sink), partial(self._refuse, result, whole, indexes))

    def _send_to(self, sink: int, messages: Messages, refuse: Callable[[int, StreamError], None]) -> None:
        values = messages.column("value").fill_null(b"")
        options = self._sinks[sink]
        assert options is not None, "messages for another sink than NATS are rows"
        lines = lines_of(messages, options)
        self._publisher(sink, options).publish_columns(messages.topics, values, lines, refuse)

    def _refuse(
        self, result: Result, whole: bool, indexes: NDArray[np.int64] | None, at: int, reason: StreamError
    ) -> None:
        """Note a refused message: index *at* among those of its sink, which have the indices *places* in the batch."""
        index = at if indexes is None else int(indexes[at])
        if whole and reason.code == TOO_LARGE and result.is_dead_letter(index):
            # The record stays where it was read, and the dead letter says where that is.
            self._too_large.append(result.messages.emptied(np.array([index])))
            return
        result.check(index, str(reason))
        self._refused.setdefault(id(result), (result, {}))[1][index] = str(reason)

    def _publisher(self, sink: int, options: SinkOptions) -> Publisher:
        publisher = self._open.get(sink)
        if publisher is None:
            connection = self._connections.enter_context(Connection(options.connection))
            # A task may begin while the server restarts: it waits as long as a task that is under way.
            connection.reconnect()
            publisher = self._open[sink] = Publisher(connection, options.window, options.stream)
        return publisher


def lines_of(messages: Messages, options: SinkOptions) -> pa.Array | None:
    """Return the header lines of each message, None if no message has any; those of a record are encoded once."""
    parts = [id_lines(messages.ids)] if options.message_id != "none" and messages.ids.null_count < len(messages) else []
    headers = messages.records.column("headers")
    if headers.null_count < len(headers):
        parts.append(header_lines(headers, options.withholds).take(pa.array(messages.rows)))
    if len(parts) == 2:
        return pc.binary_join_element_wise(*parts, pa.scalar(b"", type=pa.binary()))
    return parts[0] if parts else None
