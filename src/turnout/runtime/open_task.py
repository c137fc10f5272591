"""Task of an open split: it delivers records as they arrive, and has its position recorded.

Into a Kafka sink with transactions the position is committed with the messages: decision 48
(docs/decisions/0048-open-splits-of-kafka.md).
"""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from turnout.base.untrusted import JsonMapping
from turnout.engine.counts import Counts, Flow
from turnout.errors import StreamError
from turnout.runtime.driver import OpenSession
from turnout.runtime.offsets import LARGE_BACKLOG
from turnout.runtime.open_splits import OpenPosition, OpenProgress
from turnout.runtime.publishing import TaskTally

if TYPE_CHECKING:
    from turnout.base.histogram import Histogram
    from turnout.engine import Result
    from turnout.records.batch import ListedRecords
    from turnout.records.types import ArrowBatch
    from turnout.runtime.task_index import MatchRecorder


RECORD_SECONDS: Final = 1.0
"""Seconds of work that are repeated, at most, after a task has been killed."""

_PAUSE_SECONDS: Final = 0.01
"""Seconds without a message after which the task asks for all acknowledgements: until then messages come first."""

_COLLECT_SECONDS: Final = 0.02
"""Seconds between two checks of acknowledgements while messages arrive."""


_MANY_RECORDS: Final = 8
"""Records of a batch, behind which others are gathered for `OpenSink.gather_seconds`."""

_HELD_RECORDS: Final = 10_000
"""Records of a transaction, about, after which it is committed early: they are held to make it again if it fails."""

_ATTEMPTS: Final = 8
"""Attempts to commit a transaction that brokers abort."""

_log = logging.getLogger(__name__)


class OpenRange(Protocol):
    """Part of a source from a position on.

    Attributes:
        label: stream of the messages, with its identity if it is known; partitions of a topic.
        start: the first position, unless the driver knows the position of an earlier task.
        number: number of the split, among the open ones of a checkpoint.
        group: number of the first split of the same micro-batch.
        revision: revision of the subscriptions at the beginning; None without.
        time: when the record before *start* was stored, in microseconds since 1970; None if that is unknown.
    """

    @property
    def label(self) -> str: ...  # noqa: D102 - described above
    @property
    def start(self) -> OpenPosition: ...  # noqa: D102
    @property
    def number(self) -> int: ...  # noqa: D102
    @property
    def group(self) -> int: ...  # noqa: D102
    @property
    def revision(self) -> int | None: ...  # noqa: D102
    @property
    def time(self) -> int | None: ...  # noqa: D102


class OpenRecords(Protocol):
    """Records of a source as they arrive, for one task."""

    @property
    def next(self) -> OpenPosition:
        """The position behind the last batch; it may take a while to make."""

    @property
    def repeats(self) -> bool:
        """True for records that the source had at the beginning: an earlier attempt may have delivered them."""

    @property
    def time(self) -> int | None:
        """Time of the record before the next position, in microseconds since 1970; None if unknown."""

    @property
    def pending(self) -> int:
        """Number of records that the source had beyond the last batch."""

    def batches(self) -> Iterator[ArrowBatch | ListedRecords]:
        """Yield the records as they arrive, and a batch without any when a wait ends."""

    def check(self) -> bool:
        """Return False if the split has to end, as its source has changed: the driver decides what follows.

        The reader does the same by itself, but not before each commit.
        """

    def wait_at_most(self, seconds: float) -> None:
        """Set the length of the longest wait."""


OpensRecords = Callable[[Any, socket.socket, float, int | None], AbstractContextManager[OpenRecords]]
"""Opens the source at a position; bytes on the socket end a wait, which lasts so many seconds at most. The last one is
the time of the record before the position, if it is known."""


class OpenSink(Protocol):
    """Delivery of results: see `turnout.runtime.publishing.Publishers`.

    Attributes:
        delivery: histogram of times from publish to acknowledgement.
        duplicates: number of messages that the sink had already.
        is_outdated: True once after a change of certificates: another task connects with the new ones.
        transaction_seconds: longest time between two commits of a sink with transactions; None without.
        gather_seconds: pause behind a batch of many records, so that the next one has as many; 0 for none.
    """

    delivery: Histogram
    duplicates: int

    @property
    def is_outdated(self) -> bool: ...  # noqa: D102 - described above

    @property
    def transaction_seconds(self) -> float | None: ...  # noqa: D102 - described above

    @property
    def gather_seconds(self) -> float: ...  # noqa: D102 - described above

    def open(self) -> None:
        """Connect before there is anything to deliver."""

    def publish(self, result: Result) -> list[Result]:
        """Deliver the messages of a batch, without waiting for acknowledgements."""

    def mark(self) -> Callable[[], bool] | None:
        """Return a function that says whether all messages until now are stored; None if `flush` alone does.

        It may be called directly after a `collect` that returns nothing.
        """

    def collect(self) -> list[Result]:
        """Take the acknowledgements that have arrived."""

    def flush(self) -> list[Result]:
        """Wait for every acknowledgement."""

    def resume(self, split: str) -> JsonMapping | None:
        """Begin a transaction, after the end of all earlier ones; return the progress that was committed last."""

    def commit(self, split: str, counts: JsonMapping, *, follows: bool = False) -> bool:
        """Commit the transaction with a progress; False if it has to be made again. Another one *follows*."""


class OpenEngine(Protocol):
    """Engine of a route with the revisions of its subscriptions."""

    def prepare(self, revision: int | None) -> None:
        """Create the objects that the first batch would have to wait for."""

    def outcomes(self, batch: ArrowBatch | ListedRecords, revision: int | None) -> Iterable[Result]:
        """Return the results for the records of a batch, matched with a revision of the subscriptions."""


class OpenTask:
    """One attempt to read an open split.

    Args:
        address: address of the driver's ledger.
        split: split to read.
        opens: opens its source.
        engine: engine of the route.
        sink: sink of the messages.
        tally: sums of the task's counts.
        recorder: of matches for feeds; None for a route without feeds.
    """

    def __init__(
        self,
        address: str,
        split: OpenRange,
        opens: OpensRecords,
        engine: OpenEngine,
        sink: OpenSink,
        tally: TaskTally,
        recorder: MatchRecorder | None = None,
    ) -> None:
        self._address = address
        self._split = split
        self._opens = opens
        self._engine = engine
        self._sink = sink
        self._tally = tally
        self._recorder = recorder
        self._collect_at: float | None = None
        self._published_at = 0.0
        self._marked: tuple[Callable[[], bool], OpenProgress] | None = None
        self._transaction = None if sink.transaction_seconds is None else _Transaction(self, sink, repr(split))

    def run(self) -> None:
        """Read until the time of the split is over, or the driver closes it, and have its position recorded.

        Raises:
            ConnectionLostError: the driver has ended or has given the split to another task; or a server is
                unreachable.
            StreamError: messages were deleted and ``failOnDataLoss`` is on.
            RunError: a record failed, and the route tolerates no failures.
        """
        split = self._split
        with OpenSession(self._address) as session:
            progress = session.begin(split.number, split.start, split.revision, split.group)
            if self._transaction is not None:
                # What was committed after the driver's last record is done.
                progress = self._transaction.resumed(progress)
            self._tally.resume(progress.counts)
            self._stored = progress.next
            self._next, self._revision, self._recorded = progress.next, progress.revision, progress
            self._time = split.time if progress.time is None and progress.next == split.start else progress.time
            if session.seconds > 0:
                self._engine.prepare(self._revision)
                self._sink.open()
                longest = min(RECORD_SECONDS, session.seconds)
                with self._opens(self._next, session.socket, longest, self._time) as records:
                    self._follow(session, records)
            session.record(self._progress(), final=True)

    def _follow(self, session: OpenSession, records: OpenRecords) -> None:
        now = time.monotonic()
        due, until = now + RECORD_SECONDS, now + session.seconds
        session.reads()
        for batch in records.batches():
            if batch.num_rows:
                self._publish(batch)
            session.listen()
            now = time.monotonic()
            self._collect(session, now)
            # What an earlier attempt did after its last record is done again with the revision that it was done with.
            again = records.repeats and self._revision is not None
            turns = session.revision != self._revision and (not again or not records.pending)
            is_due = turns or now >= due
            if (is_due or (self._transaction and self._transaction.is_due(now))) and not self._commit(session, records):
                return
            if turns:
                self._revision = session.revision
                session.record(self._progress(), wait=True)
            elif is_due:
                due = now + RECORD_SECONDS
                self._record_changes(session)
            if session.closing or now >= until or records.pending > LARGE_BACKLOG or self._sink.is_outdated:
                break
            longest = RECORD_SECONDS if self._collect_at is None else _PAUSE_SECONDS
            if self._transaction is not None:
                longest = self._transaction.wait(now)
            records.wait_at_most(max(0.0, min(longest, until - now)))
            if batch.num_rows >= _MANY_RECORDS and not records.pending:
                time.sleep(self._sink.gather_seconds)
        self._commit(session, records)

    def _publish(self, batch: ArrowBatch | ListedRecords) -> None:
        """Publish what becomes of a batch, without a wait for acknowledgements."""
        if self._transaction is not None:
            self._transaction.publish(batch, self._revision)
            return
        self.deliver(batch, self._revision, self._tally)
        self._published_at = time.monotonic()
        if self._collect_at is None:
            self._collect_at = self._published_at + _COLLECT_SECONDS

    def deliver(self, batch: ArrowBatch | ListedRecords, revision: int | None, tally: TaskTally) -> None:
        """Publish what becomes of a batch, matched with a revision, and count it."""
        for result in self._engine.outcomes(batch, revision):
            # Messages come before counts.
            self._correct(tally, self._sink.publish(result))
            tally.add(result)
            if self._recorder is not None:
                self._recorder.add(result)

    def _correct(self, tally: TaskTally, corrections: list[Result]) -> None:
        """Count the dead letters of refused messages; a progress with former counts is not reported."""
        if corrections:
            tally.add(*corrections)
            self._marked = None

    def _collect(self, session: OpenSession, now: float) -> None:
        """Take acknowledgements now and then, all of them when no record arrives; report what is stored by them.

        Only a sink that does not say what is stored is waited for.
        """
        if self._collect_at is None:
            return
        # A wait may also end with an answer of the driver.
        is_idle = now >= self._published_at + _PAUSE_SECONDS
        if is_idle or self._marked is not None or now >= self._collect_at:
            self._correct(self._tally, self._sink.collect())
            self._collect_at = now + _COLLECT_SECONDS
        if is_idle:
            is_stored = self._sink.mark()
            if is_stored is None:
                self._flush()
            elif is_stored():
                self._collect_at = None
        if self._marked is not None and self._marked[0]():
            self._recorded, self._marked = self._marked[1], None
            session.record(self._recorded)

    def _flush(self) -> None:
        """Wait for every acknowledgement."""
        self._correct(self._tally, self._sink.flush())
        self._collect_at = None

    def _commit(self, session: OpenSession, records: OpenRecords) -> bool:
        """Commit what is published, if there are transactions; return False if the source ends the split."""
        self._next, self._time = records.next, records.time
        if self._transaction is not None and not self._transaction.is_empty:
            # The records of a topic that was made anew are not the split's.
            if not records.check():
                self._next = self._transaction.abort()
                return False
            self._transaction.commit(session, self._next, self._tally)
        return True

    def _record_changes(self, session: OpenSession) -> None:
        """Report the progress unless nothing has happened since the last report, or that waits for its messages.

        Records do not wait for messages if the sink says later that these are stored.
        """
        if self._next == self._recorded.next or self._marked is not None:
            return
        is_stored = self._sink.mark() if self._collect_at is not None and self._recorder is None else None
        if is_stored is not None:
            self._marked = is_stored, self.progress_at(self._next, self._tally.counts)
            return
        self._recorded = self._progress()
        session.record(self._recorded)

    def _progress(self) -> OpenProgress:
        """Return the progress when everything up to it is acknowledged."""
        self._flush()
        self._marked = None
        if self._recorder is not None:
            # The source of a route with feeds is one stream.
            self._recorder.store(self._split.label, cast("int", self._stored), cast("int", self._next))
            self._stored = self._next
        return self.progress_at(self._next, self._tally.counts)

    def progress_at(self, position: OpenPosition, counts: Counts) -> OpenProgress:
        """Return the progress with a position and the counts up to it."""
        sent = Counts(duplicates=self._sink.duplicates, flow=Flow(delivery=self._sink.delivery))
        return OpenProgress(position, counts + sent, self._revision, time=self._time)


class _Transaction:
    """Transactions of an open split, one after the other, each with the position and the counts behind it.

    The records of the one that is open are held: if brokers abort it, or refuse one of its messages, it is made again.

    Args:
        task: delivers records.
        sink: sink of the messages.
        split: the split, as text.
    """

    def __init__(self, task: OpenTask, sink: OpenSink, split: str) -> None:
        self._task = task
        self._sink = sink
        self._split = split
        self._committed: OpenPosition = 0
        self._begin()

    def _begin(self) -> None:
        self._held: list[tuple[ArrowBatch | ListedRecords, int | None]] = []
        self._records, self._due = 0, 0.0
        self._tally = TaskTally()
        self._problem: StreamError | None = None

    def resumed(self, progress: OpenProgress) -> OpenProgress:
        """Begin the first transaction; return the progress that an earlier attempt has committed, if there is one."""
        written = self._sink.resume(self._split)
        progress = progress if written is None else OpenProgress.from_dict(written)
        self._committed = progress.next
        return progress

    @property
    def is_empty(self) -> bool:
        """True if there is nothing to commit."""
        return not self._held

    def is_due(self, now: float) -> bool:
        """Return True if the transaction is to be committed."""
        return bool(self._held) and (now >= self._due or self._records >= _HELD_RECORDS)

    def wait(self, now: float) -> float:
        """Return the seconds until the transaction is to be committed."""
        return max(0.0, self._due - now) if self._held else RECORD_SECONDS

    def publish(self, batch: ArrowBatch | ListedRecords, revision: int | None) -> None:
        """Publish what becomes of a batch in the transaction."""
        if not self._held:
            self._due = time.monotonic() + (self._sink.transaction_seconds or 0.0)
        self._held.append((batch, revision))
        self._records += batch.num_rows
        if self._problem is None:
            try:
                self._task.deliver(batch, revision, self._tally)
            except StreamError as failure:
                self._problem = failure

    def abort(self) -> OpenPosition:
        """Give up what is not committed, and return the position that is."""
        self._sink.flush()
        self._begin()
        return self._committed

    def commit(self, session: OpenSession, position: OpenPosition, tally: TaskTally) -> None:
        """Commit the transaction, made again if it failed, and begin the next.

        Args:
            session: ends the attempt if another has the split.
            position: position behind the records of the transaction.
            tally: gets the counts of the transaction.

        Raises:
            StreamError: brokers abort each attempt.
            ConnectionLostError: no broker answers, or another attempt has the split.
        """
        for attempt in range(_ATTEMPTS):
            try:
                if attempt:
                    if self._is_committed(session, position):
                        break
                    self._tally, self._problem = TaskTally(), None
                    for batch, revision in self._held:
                        self._task.deliver(batch, revision, self._tally)
                elif self._problem is not None:
                    raise self._problem
                self._tally.add(*self._sink.flush())
                progress = self._task.progress_at(position, tally.counts + self._tally.counts)
                if self._sink.commit(self._split, progress.as_dict(), follows=True):
                    break
            except StreamError as failure:
                if attempt == _ATTEMPTS - 1:
                    raise
                _log.warning("the transaction of %s is made again: %s", self._split, failure)
                time.sleep(_COLLECT_SECONDS * 2**attempt)
        else:
            raise StreamError(f"brokers refuse messages of {self._split} in each of {_ATTEMPTS} transactions")
        tally.include(self._tally)
        self._committed = position
        self._begin()

    def _is_committed(self, session: OpenSession, position: OpenPosition) -> bool:
        """Begin a transaction, and return True if the last one is committed: its end was not known."""
        # Another attempt is not to be fenced.
        session.listen()
        written = self._sink.resume(self._split)
        return written is not None and written["next"] == position
