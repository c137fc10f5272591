"""Reader of an open split of a NATS stream."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Final, Protocol

from turnout.base.untrusted import LARGEST_SEQUENCE
from turnout.engine.counts import Counts
from turnout.engine.flow import Flow
from turnout.nats.protocol.identity import StreamIdentity
from turnout.nats.wire import Connection
from turnout.nats.wire.open_pull import OpenReader
from turnout.nats.wire.positions import state_of
from turnout.records.listed import ListedRecords
from turnout.records.types import ArrowBatch
from turnout.runtime.driver import OpenSession
from turnout.runtime.nats.source import SourceOptions
from turnout.runtime.nats.stream import LossWatch, until_replaced
from turnout.runtime.offsets import LARGE_BACKLOG
from turnout.runtime.open_splits import OpenProgress

if TYPE_CHECKING:
    from turnout.base.histogram import Histogram
    from turnout.engine import Result
    from turnout.records.listed import ListedRecords
    from turnout.records.types import ArrowBatch
    from turnout.runtime.publishing import TaskTally
    from turnout.runtime.task_index import MatchRecorder


class NatsOpenReader:
    """Records of a stream as they arrive; see `turnout.runtime.open_task.OpenRecords`.

    Attributes:
        end: the sequence behind the stream's last at the beginning.
    """

    def __init__(self, reader: OpenReader, options: SourceOptions, watch: LossWatch, end: int) -> None:
        self._reader = reader
        self._options = options
        self._watch = watch
        self.end = end

    @property
    def next(self) -> int:
        """The next sequence."""
        return self._reader.next

    @property
    def time(self) -> int | None:
        """Time of the message before the next sequence, in microseconds since 1970; None if unknown."""
        return self._reader.time

    @property
    def pending(self) -> int:
        """Number of messages that the server had beyond the last batch."""
        return self._reader.pending

    def batches(self) -> Iterator[ArrowBatch | ListedRecords]:
        """Yield the records as they arrive, and a batch without any when a wait ends.

        Raises:
            StreamError: messages were deleted, or the stream is another one, and ``failOnDataLoss`` is on.
            ConnectionLostError: no reconnection in time.
        """
        for batch in until_replaced(self._reader.batches(), self._options):
            if batch.num_rows and self._reader.hole is not None:
                self._watch.note(self._reader.hole)
            yield batch

    def wait_at_most(self, seconds: float) -> None:
        """Set the length of the longest wait."""
        self._reader.tick = seconds


@contextmanager
def opened(
    options: SourceOptions,
    stream: str,
    start: int,
    calls: socket.socket,
    seconds: float,
    time: int | None = None,
    *,
    identity: StreamIdentity | None = None,
) -> Iterator[NatsOpenReader]:
    """Open the reader of a split; its consumer is removed at the end.

    Args:
        options: how the source is read.
        stream: stream to read.
        start: the first sequence.
        calls: bytes on it end a wait for messages.
        seconds: the longest wait.
        time: when the message before *start* was stored, in microseconds since 1970; None if that is unknown.
        identity: identity of the stream; another one of the name is not read. None for any.
    """
    with Connection(options.connection) as connection:
        # A task may begin while the server restarts: it waits as long as a task that is under way.
        connection.reconnect()
        end, filters = state_of(connection, stream).next, options.filters
        reader = OpenReader(connection, stream, start, filters, calls=calls, tick=seconds, identity=identity, time=time)
        with LossWatch(options, stream, LARGEST_SEQUENCE, passing_by=bool(filters)) as watch:
            yield NatsOpenReader(reader, options, watch, end)
            watch.look()
        reader.close()


RECORD_SECONDS: Final = 1.0
"""Seconds of work that are repeated, at most, after a task has been killed."""

_PAUSE_SECONDS: Final = 0.002
"""Seconds without a message after which the task waits for acknowledgements: until then messages come first."""

_COLLECT_SECONDS: Final = 0.02
"""Seconds between two checks of acknowledgements while messages arrive."""


class OpenRange(Protocol):
    """Part of a stream from a sequence on.

    Attributes:
        label: stream of the messages, with its identity if it is known.
        start: the first sequence, unless the driver knows the position of an earlier task.
        number: number of the split, among the open ones of a checkpoint.
        revision: revision of the subscriptions at the beginning; None without.
        time: when the record before *start* was stored, in microseconds since 1970; None if that is unknown.
    """

    @property
    def label(self) -> str: ...  # noqa: D102 - described above
    @property
    def start(self) -> int: ...  # noqa: D102
    @property
    def number(self) -> int: ...  # noqa: D102
    @property
    def revision(self) -> int | None: ...  # noqa: D102
    @property
    def time(self) -> int | None: ...  # noqa: D102


class OpenRecords(Protocol):
    """Records of a source as they arrive, for one task.

    Attributes:
        end: the position behind the last record at the start.
    """

    end: int

    @property
    def next(self) -> int:
        """The next position."""
        ...

    @property
    def time(self) -> int | None:
        """Time of the record before the next position, in microseconds since 1970; None if unknown."""
        ...

    @property
    def pending(self) -> int:
        """Number of records that the source had beyond the last batch."""
        ...

    def batches(self) -> Iterator[ArrowBatch | ListedRecords]:
        """Yield the records as they arrive, and a batch without any when a wait ends."""
        ...

    def wait_at_most(self, seconds: float) -> None:
        """Set the length of the longest wait."""
        ...


OpensRecords = Callable[[int, socket.socket, float, int | None], AbstractContextManager[OpenRecords]]
"""Opens the source at a position; bytes on the socket end a wait, which lasts so many seconds at most. The last one is
the time of the record before the position, if it is known."""


class OpenSink(Protocol):
    """Delivery of results: see `turnout.runtime.publishing.Publishers`.

    Attributes:
        delivery: histogram of times from publish to acknowledgement.
        duplicates: number of messages that the sink had already.
    """

    delivery: Histogram
    duplicates: int

    def open(self) -> None:
        """Connect before there is anything to deliver."""
        ...

    def publish(self, result: Result) -> list[Result]:
        """Deliver the messages of a batch, without waiting for acknowledgements."""
        ...

    def collect(self) -> list[Result]:
        """Take the acknowledgements that have arrived."""
        ...

    def flush(self) -> list[Result]:
        """Wait for every acknowledgement."""
        ...


class OpenEngine(Protocol):
    """Engine of a route with the revisions of its subscriptions."""

    def prepare(self, revision: int | None) -> None:
        """Create the objects that the first batch would have to wait for."""
        ...

    def outcomes(self, batch: ArrowBatch | ListedRecords, revision: int | None) -> Iterable[Result]:
        """Return the results for the records of a batch, matched with a revision of the subscriptions."""
        ...


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
            progress = session.begin(split.number, split.start, split.revision)
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
        # What an earlier attempt did after its last record is done again with the revision that it was done with.
        again = records.end if self._revision is not None else 0
        session.reads()
        for batch in records.batches():
            if batch.num_rows:
                self._publish(batch)
                self._next, self._time = records.next, records.time
            session.listen()
            now = time.monotonic()
            if self._collect_at is not None and not batch.num_rows:
                self._flush()
            elif self._collect_at is not None and now >= self._collect_at:
                self._tally.add(*self._sink.collect())
                self._collect_at = now + _COLLECT_SECONDS
            if session.revision != self._revision and (self._next >= again or not records.pending):
                self._revision = session.revision
                session.record(self._progress(), wait=True)
            elif now >= due:
                due = now + RECORD_SECONDS
                self._record_changes(session)
            if session.closing or now >= until or records.pending > LARGE_BACKLOG:
                break
            longest = RECORD_SECONDS if self._collect_at is None else _PAUSE_SECONDS
            records.wait_at_most(min(longest, until - now))

    def _publish(self, batch: ArrowBatch | ListedRecords) -> None:
        """Publish what becomes of a batch, without a wait for acknowledgements."""
        for result in self._engine.outcomes(batch, self._revision):
            self._tally.add(result, *self._sink.publish(result))
            if self._recorder is not None:
                self._recorder.add(result)
        if self._collect_at is None:
            self._collect_at = time.monotonic() + _COLLECT_SECONDS

    def _flush(self) -> None:
        """Wait for every acknowledgement."""
        self._tally.add(*self._sink.flush())
        self._collect_at = None

    def _record_changes(self, session: OpenSession) -> None:
        """Report the progress unless nothing has happened since the last report."""
        if self._next != self._recorded.next:
            self._recorded = self._progress()
            session.record(self._recorded)

    def _progress(self) -> OpenProgress:
        """Return the progress when everything up to it is acknowledged."""
        self._flush()
        if self._recorder is not None:
            self._recorder.store(self._split.label, self._stored, self._next)
            self._stored = self._next
        sent = Counts(duplicates=self._sink.duplicates, flow=Flow(delivery=self._sink.delivery))
        return OpenProgress(self._next, self._tally.counts + sent, self._revision, time=self._time)
