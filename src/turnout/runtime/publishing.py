"""Publishing of a task's messages to the route's sinks, and dead letters for refused messages."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from turnout.engine import Counts, Result
from turnout.histogram import Histogram
from turnout.kafka.control import Slot
from turnout.records.published import TOO_LARGE, Published, Refuse
from turnout.runtime.kafka_publisher import KafkaPublisher, KafkaSinkOptions

if TYPE_CHECKING:
    from collections.abc import Mapping

    from turnout.engine import Messages
    from turnout.engine.messages import ListedMessages
    from turnout.errors import StreamError

_KEPT_BACK: Final = 16
"""This many batches with refused messages are held in memory, before their dead letters are published."""


class SinkPublisher(Protocol):
    """Publisher of one sink."""

    def send(self, messages: Messages | ListedMessages, refuse: Refuse) -> None:
        """Send messages; *refuse* is called, now or later, for those that will never be stored."""

    def collect(self) -> None:
        """Process the acknowledgements that have arrived, without a wait for others."""

    def flush(self) -> Published:
        """Wait until every message is stored or refused."""

    def close(self) -> None:
        """Close the connections."""


class PublishingOptions(Protocol):
    """Options of a sink that the stage delivers to by itself."""

    def publisher(self, slot: Slot | None = None) -> SinkPublisher:
        """Return a publisher for a task."""


class Publishers:
    """A publisher for each sink that messages go to, opened with the first of them.

    Args:
        sinks: how to publish to each of the route's sinks.
        slot: slot of the task, for transactions; None without micro-batches, which have none.
    """

    def __init__(self, sinks: tuple[PublishingOptions | None, ...], slot: Slot | None = None) -> None:
        self._sinks = sinks if slot is not None else tuple(map(_without_transactions, sinks))
        self._slot = slot
        self._open: dict[int, SinkPublisher] = {}
        self._connections = ExitStack()
        self._refused: dict[int, tuple[Result, dict[int, str]]] = {}
        self._too_large: list[Messages] = []
        self.delivery = Histogram()
        """Histogram of times from publish to acknowledgement; complete after `flush`."""
        self.duplicates = 0
        """Number of messages that the sinks had already, by their ids; complete after `flush`."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self._connections.close()

    def open(self) -> None:
        """Connect to all sinks, before there is anything to publish."""
        for sink, options in enumerate(self._sinks):
            if options is not None:
                self._publisher(sink)

    def begin(self, split: str) -> Mapping[str, Any] | None:
        """Begin the transactions of a split.

        Args:
            split: the split, as text.

        Returns:
            The counts of the split if all sinks have it from an earlier attempt: nothing is left to do. Sinks that have
            it get nothing if others have not.

        Raises:
            StreamError: a broker refuses it, or the notes of earlier attempts do not fit.
            ConnectionLostError: no broker answers.
        """
        counts = [publisher.begin(split) for publisher in self._transactional()]
        if not counts or None in counts or len(counts) < len(self._sinks):
            return None
        return counts[0]

    def commit(self, split: str, counts: Mapping[str, Any]) -> None:
        """Commit the transactions of a split with its counts.

        Raises:
            StreamError: one is not committed, as another attempt has taken over, or a broker refuses it.
            ConnectionLostError: no broker answers: the next attempt determines what is committed.
        """
        for publisher in self._transactional():
            publisher.commit(split, counts)

    def _transactional(self) -> list[KafkaPublisher]:
        """Return the publishers of the sinks with transactions."""
        indexes = [index for index, sink in enumerate(self._sinks) if _is_transactional(sink)]
        return [publisher for publisher in map(self._publisher, indexes) if isinstance(publisher, KafkaPublisher)]

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
            published = publisher.flush()
            self.delivery += published.delivery
            self.duplicates += published.duplicates

    def _send(self, result: Result, *, whole: bool = True) -> None:
        """Send the messages of a batch; of its dead letters, *whole* ones may be cut."""
        if not len(result.outgoing):
            return
        if len(self._sinks) == 1:
            self._send_to(0, result.outgoing, partial(self._refuse, result, whole, None))
            return
        messages = result.messages
        for sink in np.unique(messages.sinks).tolist():
            indexes = np.flatnonzero(messages.sinks == sink)
            self._send_to(sink, messages.of_sink(sink), partial(self._refuse, result, whole, indexes))

    def _send_to(self, sink: int, messages: Messages | ListedMessages, refuse: Refuse) -> None:
        self._publisher(sink).send(messages, refuse)

    def _refuse(
        self, result: Result, whole: bool, indexes: NDArray[np.int64] | None, at: int, reason: StreamError
    ) -> None:
        """Note a refused message: index *at* among those of its sink, which have the indices *places* in the batch."""
        index = at if indexes is None else int(indexes[at])
        if whole and reason.code == TOO_LARGE and result.is_dead_letter(index):
            # The record is kept at its source, and the dead letter has its position.
            self._too_large.append(result.messages.emptied(np.array([index])))
            return
        result.check(index, str(reason))
        self._refused.setdefault(id(result), (result, {}))[1][index] = str(reason)

    def _publisher(self, sink: int) -> SinkPublisher:
        publisher = self._open.get(sink)
        if publisher is None:
            options = self._sinks[sink]
            assert options is not None, "messages for a sink that the stage does not deliver to are rows"
            publisher = self._open[sink] = options.publisher(self._slot)
            self._connections.callback(publisher.close)
        return publisher


def _is_transactional(sink: PublishingOptions | None) -> bool:
    return isinstance(sink, KafkaSinkOptions) and sink.is_transactional


def _without_transactions(sink: PublishingOptions | None) -> PublishingOptions | None:
    return sink.at_least_once() if isinstance(sink, KafkaSinkOptions) else sink
