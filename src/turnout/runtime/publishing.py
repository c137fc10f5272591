"""Publishing of a task's messages to the route's sinks, dead letters for refused messages, and the task's counts.

All counts of a task are one text: Spark would plan, compile and run a sum for each number, in each micro-batch and
task anew.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol, Self, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from turnout.base.files import FileChanges
from turnout.base.histogram import Histogram
from turnout.base.untrusted import JsonMapping
from turnout.engine.counts import Counts, Flow
from turnout.engine.dead_letters import IN_FULL
from turnout.engine.result import Result
from turnout.errors import StreamError
from turnout.kafka.clients import INVALID_RECORD, INVALID_TIMESTAMP
from turnout.records.published import TOO_LARGE, Published, Refuse
from turnout.runtime.kafka.publisher import GATHER_SECONDS, KafkaPublisher, KafkaSinkOptions, Slot

if TYPE_CHECKING:
    from turnout.engine import Messages
    from turnout.engine.messages import ListedMessages


TALLY: Final = "counts string, failures bigint, failure string"
"""The columns of a task's counts: a JSON object; the number of failures to log; and one of them, a JSON object too."""

TALLY_SCHEMA: Final = pa.schema([("counts", pa.string()), ("failures", pa.int64()), ("failure", pa.string())])

_NO_COUNTS: Final = "{}"


def sum_of(texts: Iterable[str]) -> Counts:
    """Return the sum of the column ``counts``."""
    return sum((Counts.of_json(json.loads(text)) for text in texts), Counts())


class TaskTally:
    """Counts of one task, and the first of the failures to log."""

    def __init__(self) -> None:
        self.counts = Counts()
        self._failures = 0
        self._shown: list[Mapping[str, object]] = []

    def add(self, *results: Result) -> None:
        """Count batches, and changes of counted batches."""
        for result in results:
            self.counts += result.counts
            self._failures += len(result.failures)
            # Beyond the first of a batch failures are empty: they only count.
            shown = [failure for failure in result.failures[:IN_FULL] if failure]
            self._shown += shown[: IN_FULL - len(self._shown)]

    def include(self, other: TaskTally) -> None:
        """Add the counts and failures of a part of the task."""
        self.counts += other.counts
        self._failures += other._failures
        self._shown += other._shown[: IN_FULL - len(self._shown)]

    def resume(self, counts: Counts) -> None:
        """Add what earlier attempts have counted."""
        self.counts += counts

    def acknowledged(self, delivery: Histogram, duplicates: int) -> None:
        """Add how long messages took until they were acknowledged, and how many the sinks had before."""
        self.counts += Counts(duplicates=duplicates, flow=Flow(delivery=delivery))

    def rows(self) -> pa.RecordBatch:
        """Return the counts in one row of `TALLY`, with the first failure; the others in rows of their own."""
        shown: list[str | None] = [json.dumps(failure) for failure in self._shown] or [None]
        more = len(shown) - 1
        counts = [json.dumps(self.counts.to_json()), *[_NO_COUNTS] * more]
        return pa.RecordBatch.from_arrays(
            [pa.array(counts), pa.array([self._failures, *[0] * more]), pa.array(shown, pa.string())],
            schema=TALLY_SCHEMA,
        )


FAILURES: Final = "_failures"
"""Name of the observed column of a micro-batch's first failures, each a JSON object."""

FAILURES_COUNT: Final = "_failures_count"
"""Name of the observed column of the number of all failures."""

_POSITION = ("topic", "partition", "offset", "timestamp")

_log = logging.getLogger("turnout.errors")


def log_failures(metrics: JsonMapping, *, route: str) -> None:
    """Write the observation to the logger ``turnout.errors``, at the level ERROR."""
    count = metrics.get(FAILURES_COUNT) or 0
    failures = metrics.get(FAILURES) or []
    for failure in failures:
        read = json.loads(failure)
        ids = {name: read[name] for name in ("trace_id", "span_id") if name in read}
        _log.error("route %s: %s", route, _sentence(read), extra=ids)
    if count > len(failures):
        _log.error("route %s: %d more records failed in this micro-batch", route, count - len(failures))


def _sentence(failure: Mapping[str, object]) -> str:
    """Return the sentence of Connect's log reporter for one failure."""
    position = ", ".join(f"{name}={failure[name]!r}" for name in _POSITION if failure.get(name) is not None)
    sentence = (
        f"Error encountered. Executing stage '{failure['stage']}' with class '{failure['class_name']}', "
        f"where consumed record is {{{position}}}: {failure['exception']}: {failure['message']}"
    )
    if failure.get("value") is None and failure.get("key") is None:
        return sentence
    return f"{sentence} (key={failure.get('key')!r}, value={failure.get('value')!r})"


_REDUCED: Final = frozenset({TOO_LARGE, INVALID_TIMESTAMP, INVALID_RECORD})
"""Codes of refusals of dead letters that may be stored without their values or times."""

_Address: TypeAlias = tuple[int, str, str | None]
"""Sink, topic and id of a message."""

_KEPT_BACK: Final = 16
"""This many batches with refused messages are held in memory, before their dead letters are published."""


class SinkPublisher(Protocol):
    """Publisher of one sink."""

    def guard(self, check: Callable[[], None]) -> None:
        """Call *check* before each write from now on, also before messages are sent again; it raises to refuse one."""

    def send(self, messages: Messages | ListedMessages, refuse: Refuse) -> None:
        """Send messages; *refuse* is called, now or later, for those that will never be stored."""

    def mark(self) -> Callable[[], bool] | None:
        """Return a function that says whether all messages until now are stored or refused; None if `flush` alone does.

        It may be called directly after `collect`.
        """

    def collect(self) -> Published:
        """Process the acknowledgements that have arrived, without a wait for others; return what is known by them."""

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
        check: raises where nothing may be written any more; called before each write.
    """

    def __init__(
        self,
        sinks: tuple[PublishingOptions | None, ...],
        slot: Slot | None = None,
        check: Callable[[], None] | None = None,
    ) -> None:
        self._check = check
        self._sinks = sinks if slot is not None else tuple(map(_without_transactions, sinks))
        self._slot = slot
        clients = [sink.client for sink in sinks if isinstance(sink, KafkaSinkOptions)]
        self._certificates = FileChanges(file for client in clients for file in client.files.values())
        self._open: dict[int, SinkPublisher] = {}
        self._connections = ExitStack()
        self._refused: dict[int, tuple[Result, dict[int, str]]] = {}
        self._reduced: list[Messages] = []
        """Refused dead letters without the part that they are refused for."""
        self._left_out: dict[_Address, StreamError] = {}
        """Messages that brokers have refused in transactions of the split → why."""
        self._known = 0
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

    def begin(self, split: str) -> Mapping[str, object] | None:
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
        self._refused.clear()
        self._reduced.clear()
        self._known = len(self._left_out)
        counts = [publisher.begin(split) for publisher in self._transactional()]
        if not counts or None in counts or len(counts) < len(self._sinks):
            return None
        return counts[0]

    @property
    def transaction_seconds(self) -> float | None:
        """Longest time between two commits of an open split, which has one sink with transactions; None without."""
        sinks = (sink for sink in self._sinks if isinstance(sink, KafkaSinkOptions) and sink.is_transactional)
        return next((sink.transaction_seconds for sink in sinks), None)

    @property
    def gather_seconds(self) -> float:
        """Pause behind many records of an open split; 0 without a Kafka sink, which has fewer requests by it."""
        return GATHER_SECONDS if any(isinstance(sink, KafkaSinkOptions) for sink in self._sinks) else 0.0

    @property
    def is_outdated(self) -> bool:
        """True once after a change of certificates' files: later publishers have the new ones."""
        return self._certificates.found()

    def make_open(self) -> None:
        """Publish without delay from now on, for an open split; called before anything is published."""
        self._sinks = tuple(sink.undelayed() if isinstance(sink, KafkaSinkOptions) else sink for sink in self._sinks)

    def resume(self, split: str) -> Mapping[str, object] | None:
        """Begin a transaction of an open split, after the end of all earlier ones of its slot.

        Args:
            split: the split, as text.

        Returns:
            The progress that was committed last; None before the first.

        Raises:
            StreamError: a broker refuses it, or the notes of earlier attempts do not fit.
            ConnectionLostError: no broker answers.
        """
        self._refused.clear()
        self._reduced.clear()
        self._known = len(self._left_out)
        (publisher,) = self._transactional()
        return publisher.resume(split)

    def commit(self, split: str, counts: Mapping[str, object], *, follows: bool = False) -> bool:
        """Commit the transactions of a split with its counts.

        Args:
            split: the split, as text.
            counts: counts of the split; of an open one its progress.
            follows: begin another transaction.

        Returns:
            False if a broker has refused messages and nothing is committed: the split has to be published again, from
            `begin` on. These messages are then left out, as ones that were refused.

        Raises:
            StreamError: one is not committed, as another attempt has taken over, or a broker refuses it.
            ConnectionLostError: no broker answers: the next attempt determines what is committed.
        """
        publishers = self._transactional()
        if any(publisher.is_incomplete for publisher in publishers):
            if len(self._left_out) == self._known:
                raise StreamError("a broker refuses the transaction of a split, and none of its messages alone")
            return False
        for publisher in publishers:
            publisher.commit(split, counts, follows=follows)
        self._left_out.clear()
        return True

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
        corrections = self._send(result)
        if len(self._refused) + len(self._reduced) >= _KEPT_BACK:
            corrections += self.flush()
        return corrections

    def mark(self) -> Callable[[], bool] | None:
        """Return a function that says whether all messages until now are stored; None if `flush` alone does.

        It may be called directly after a `collect` that returns nothing.
        """
        marks = [publisher.mark() for publisher in self._open.values()]
        known = [mark for mark in marks if mark is not None]
        return None if len(known) < len(marks) else lambda: all(mark() for mark in known)

    def collect(self) -> list[Result]:
        """Process the acknowledgements that have arrived; wait only if messages were refused.

        Returns:
            As `flush`.

        Raises:
            RunError: as `publish`.
        """
        for publisher in self._open.values():
            self._count(publisher.collect())
        return self.flush() if self._refused or self._reduced else []

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
        reduced, self._reduced = self._reduced, []
        for messages in reduced:
            self._send(Result(Counts(), messages), whole=False)
        self._wait()
        return corrections

    def _wait(self) -> None:
        for publisher in self._open.values():
            self._count(publisher.flush())

    def _count(self, published: Published) -> None:
        self.delivery += published.delivery
        self.duplicates += published.duplicates

    def _send(self, result: Result, *, whole: bool = True) -> list[Result]:
        """Send the messages of a batch; of its dead letters, *whole* ones may be cut.

        Returns:
            What messages that are left out change in the counts of the batch.
        """
        corrections: list[Result] = []
        if self._left_out and whole:
            result, corrections = self._without_refused(result)
        if not len(result.outgoing):
            return corrections
        if len(self._sinks) == 1:
            self._send_to(0, result.outgoing, partial(self._refuse, result, whole, None))
            return corrections
        messages = result.messages
        for sink in np.unique(messages.sinks).tolist():
            indexes = np.flatnonzero(messages.sinks == sink)
            self._send_to(sink, messages.of_sink(sink), partial(self._refuse, result, whole, indexes))
        return corrections

    def _without_refused(self, result: Result) -> tuple[Result, list[Result]]:
        """Return a batch without messages that the last transaction had refused; their replacements are sent."""
        messages = result.messages
        addresses = zip(messages.sinks.tolist(), messages.topics.to_pylist(), messages.ids.to_pylist(), strict=True)
        known = {index: self._left_out[address] for index, address in enumerate(addresses) if address in self._left_out}
        if not known:
            return result, []
        for index, reason in known.items():
            if result.is_dead_letter(index):
                self._send(Result(Counts(), _reduced(messages, index, reason)), whole=False)
        refused = {index: str(reason) for index, reason in known.items() if not result.is_dead_letter(index)}
        corrections = [result.refused(refused)] if refused else []
        for correction in corrections:
            self._send(correction)
        return result.without(known), corrections

    def _send_to(self, sink: int, messages: Messages | ListedMessages, refuse: Refuse) -> None:
        self._publisher(sink).send(messages, refuse)

    def _refuse(
        self, result: Result, whole: bool, indexes: NDArray[np.int64] | None, at: int, reason: StreamError
    ) -> None:
        """Note a refused message: index *at* among those of its sink, which have *indexes* in the batch."""
        index = at if indexes is None else int(indexes[at])
        is_reducible = whole and result.is_dead_letter(index) and reason.code in _REDUCED
        if not is_reducible:
            result.check(index, str(reason))
        self._note_left_out(result.messages, index, reason)
        if is_reducible:
            self._reduced.append(_reduced(result.messages, index, reason))
            return
        self._refused.setdefault(id(result), (result, {}))[1][index] = str(reason)

    def _note_left_out(self, messages: Messages, index: int, reason: StreamError) -> None:
        """Note a message that a broker refuses in a transaction, as it will be left out of the next one.

        Raises:
            StreamError: its record has no position, by which it could be found again.
        """
        sink = int(messages.sinks[index])
        if self._slot is None or not _is_transactional(self._sinks[sink]):
            return
        identity = messages.ids[index].as_py()
        if identity is None:
            problem = "a message without the position of its record cannot be left out of a transaction"
            raise StreamError(f"{problem}: {reason}", code=reason.code)
        self._left_out[sink, messages.topics[index].as_py(), identity] = reason

    def _publisher(self, sink: int) -> SinkPublisher:
        publisher = self._open.get(sink)
        if publisher is None:
            options = self._sinks[sink]
            assert options is not None, "messages for a sink that the stage does not deliver to are rows"
            publisher = self._open[sink] = options.publisher(self._slot)
            self._connections.callback(publisher.close)
            if self._check is not None:
                publisher.guard(self._check)
        return publisher


def _reduced(messages: Messages, index: int, reason: StreamError) -> Messages:
    """Return a refused dead letter without its value if that is too large, else without its time.

    The record is kept at its source, and the dead letter has its position.
    """
    indices = np.array([index])
    return messages.emptied(indices) if reason.code == TOO_LARGE else messages.take(indices).without_times()


def _is_transactional(sink: PublishingOptions | None) -> bool:
    return isinstance(sink, KafkaSinkOptions) and sink.is_transactional


def _without_transactions(sink: PublishingOptions | None) -> PublishingOptions | None:
    return sink.at_least_once() if isinstance(sink, KafkaSinkOptions) else sink
