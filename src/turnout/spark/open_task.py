"""Task of an open split: reads, runs the engine and publishes as messages arrive, until the split is closed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from turnout.engine.counts import Counts
from turnout.engine.flow import Flow
from turnout.nats.wire import Connection
from turnout.nats.wire.open_pull import OpenReader
from turnout.nats.wire.positions import state_of
from turnout.nats.wire.records import with_stream
from turnout.runtime.gaps import LossWatch
from turnout.runtime.open_splits.client import OpenSession
from turnout.runtime.open_splits.progress import OpenProgress
from turnout.spark.formats.nats.open_offsets import LARGE_BACKLOG
from turnout.untrusted import LARGEST_SEQUENCE

if TYPE_CHECKING:
    from turnout.engine import Result
    from turnout.records.types import ArrowBatch
    from turnout.runtime.publishing import Publishers
    from turnout.runtime.source_options import SourceOptions
    from turnout.spark.formats.nats.reading import OpenSplit
    from turnout.spark.stage import TaskTally

RECORD_SECONDS: Final = 1.0
"""Seconds of work that are repeated, at most, after a task has been killed."""

_PAUSE_SECONDS: Final = 0.002
"""Seconds without a message after which the task waits for acknowledgements: until then messages come first."""

_COLLECT_SECONDS: Final = 0.02
"""Seconds between two looks at acknowledgements while messages keep coming."""

Outcomes = Callable[["ArrowBatch", int | None], Iterable["Result"]]
"""Results of the engine for the records of a batch, matched with a revision of the subscriptions."""


class OpenTask:
    """One attempt to read an open split.

    Args:
        options: how to read the source, and where the driver's ledger is.
        split: what to read.
        outcomes: runs the engine.
        publishers: of the route's sinks.
        tally: where the task's counts are added up.
    """

    def __init__(
        self,
        options: SourceOptions,
        split: OpenSplit,
        outcomes: Outcomes,
        publishers: Publishers,
        tally: TaskTally,
    ) -> None:
        self._options = options
        self._split = split
        self._outcomes = outcomes
        self._publishers = publishers
        self._tally = tally
        self._collect_at: float | None = None

    def run(self) -> None:
        """Read until the time of the split is over, or the driver closes it, and have its position recorded.

        Raises:
            ConnectionLostError: the driver is gone or has given the split to another task; or nats-server is away.
            StreamError: messages are gone and ``failOnDataLoss`` is on.
            RunError: a record failed, and the route tolerates no failures.
        """
        assert self._options.open_splits is not None
        split = self._split
        with OpenSession(self._options.open_splits) as session:
            progress = session.begin(split.number, split.start, split.revision)
            self._tally.resume(progress.counts)
            self._next, self._revision, self._recorded = progress.next, progress.revision, progress
            if session.seconds > 0:
                with Connection(self._options.connection) as connection:
                    # A task may begin while the server restarts: it waits as long as a task that is under way.
                    connection.reconnect()
                    self._follow(session, connection)
            session.record(self._progress(), final=True)

    def _follow(self, session: OpenSession, connection: Connection) -> None:
        options, split = self._options, self._split
        filters, until = options.filters, time.monotonic() + session.seconds
        # What an earlier attempt did after its last record is done again with the revision that it was done with.
        again = state_of(connection, split.stream).next if self._revision is not None else 0
        reader = OpenReader(connection, split.stream, self._next, filters, calls=session.socket, tick=RECORD_SECONDS)
        due = time.monotonic() + RECORD_SECONDS
        with LossWatch(options, split.stream, LARGEST_SEQUENCE, passing_by=bool(filters)) as watch:
            for batch in reader.batches():
                if batch.num_rows:
                    if reader.hole is not None:
                        watch.note(reader.hole)
                    self._publish(batch)
                    self._next = reader.next
                session.listen()
                now = time.monotonic()
                if self._collect_at is not None and not batch.num_rows:
                    self._flush()
                elif self._collect_at is not None and now >= self._collect_at:
                    self._tally.add(*self._publishers.collect())
                    self._collect_at = now + _COLLECT_SECONDS
                reader.tick = RECORD_SECONDS if self._collect_at is None else _PAUSE_SECONDS
                if session.revision != self._revision and (self._next >= again or not reader.pending):
                    self._revision = session.revision
                    session.record(self._progress(), wait=True)
                elif now >= due:
                    due = now + RECORD_SECONDS
                    self._record_changes(session)
                if session.closing or now >= until or reader.pending > LARGE_BACKLOG:
                    break
            watch.look()
        reader.close()

    def _publish(self, batch: ArrowBatch) -> None:
        """Publish what becomes of a batch, without a wait for acknowledgements."""
        for result in self._outcomes(with_stream(batch, self._split.stream), self._revision):
            self._tally.add(result, *self._publishers.publish(result))
        if self._collect_at is None:
            self._collect_at = time.monotonic() + _COLLECT_SECONDS

    def _flush(self) -> None:
        """Wait for every acknowledgement."""
        self._tally.add(*self._publishers.flush())
        self._collect_at = None

    def _record_changes(self, session: OpenSession) -> None:
        """Report the progress unless nothing has happened since the last report."""
        if self._next != self._recorded.next:
            self._recorded = self._progress()
            session.record(self._recorded)

    def _progress(self) -> OpenProgress:
        """Return the progress when everything up to it is acknowledged."""
        self._flush()
        delivery = Counts(flow=Flow(delivery=self._publishers.delivery))
        return OpenProgress(self._next, self._tally.counts + delivery, self._revision)
