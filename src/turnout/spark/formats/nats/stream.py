"""Streaming side of the NATS source: offsets, admission, and the lag reported to Spark."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, cast

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from turnout.errors import ConnectionLostError, StreamError
from turnout.nats.protocol.errors import StreamNotFoundError
from turnout.nats.protocol.positions import Position, StreamIdentity
from turnout.nats.wire import Acknowledger, Connection
from turnout.nats.wire.streams import StoredSequences, position_problem, resolve, state_of, time_before
from turnout.runtime.driver import AskedRevisions, ask_plan
from turnout.runtime.nats.source import HoleCounter, SourceOptions, lost_error, report_loss, wait_for_more
from turnout.runtime.offsets import (
    REVISION,
    WARNING,
    Backlog,
    NatsOffset,
    begin_keys,
    begins,
    closed,
    identity_in,
    number_in,
    opened,
    position_keys,
    shares,
    time_in,
)
from turnout.runtime.open_splits import Plan
from turnout.spark.formats.nats.reading import OpenSplit, Rows, Split, only, planned, split

_PLAN: Final = "splits.shared"
"""The key of an offset with the most splits of its micro-batch, where a repeated one must have the same."""

_FORMER_PLAN: Final = "splits.most"
"""That key in offsets of earlier releases, whose streams have the same number of splits."""

_PAUSE_SECONDS: Final = 0.05
"""Poll interval of a stream that is not there, in seconds."""

_log = logging.getLogger(__name__)


class NatsStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads the streams in micro-batches. Spark keeps one instance for a query, in its own process."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._rows = Rows.of(options, schema)
        self._connection: Connection | None = None
        self._initial: NatsOffset | None = None
        self._target: dict[str, int] | None = None
        self._latest: dict[str, int] | None = None
        self._released: dict[str, int] = {}
        self._warnings: dict[str, str] = {}
        self._holes = HoleCounter()
        self._revisions = AskedRevisions(options.revisions_url) if options.revisions_url else None
        self._backlog = Backlog()

    def __getstate__(self) -> dict[str, object]:
        # The tasks get a copy; a socket stays where it is.
        return {**self.__dict__, "_connection": None}

    def _server(self) -> Connection:
        if self._connection is None:
            self._connection = Connection.open(self._options.connection)
        return self._connection

    def _states(self) -> dict[str, StoredSequences]:
        return {stream: self._state(stream) for stream in self._options.streams}

    def _state(self, stream: str) -> StoredSequences:
        """Return the state of a stream; without ``failOnDataLoss``, one that is being made anew is waited for."""
        until = time.monotonic() + self._options.connection.reconnect_timeout
        while True:
            try:
                return state_of(self._server(), stream)
            except StreamNotFoundError:
                if self._options.fail_on_data_loss or self._latest is None or time.monotonic() > until:
                    raise
                time.sleep(_PAUSE_SECONDS)

    # Spark's names

    def initialOffset(self) -> NatsOffset:  # noqa: N802
        """Return the start of a query without a checkpoint, resolved once so that ``latest`` does not move."""
        if self._initial is None:
            options, starts = self._options, {}
            for name, state in self._states().items():
                if options.ack_consumer is not None:
                    first = max(state.first, self._acknowledger(name).floor)
                else:
                    first = resolve(self._server(), name, options.start)
                starts[name] = Position(StreamIdentity.of(state.created), first)
            self._initial = position_keys(starts)
        return self._initial

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return the read limit of the options."""
        if self._options.max_records is not None:
            return ReadMaxRows(self._options.max_records)
        if self._options.max_bytes is not None:
            return ReadMaxBytes(self._options.max_bytes)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Fix the end of the run; later messages belong to the next run."""
        self._target = {stream: state.next for stream, state in self._states().items()}

    def latestOffset(self, start: NatsOffset, limit: ReadLimit) -> NatsOffset:  # noqa: N802
        """Return the end of the next micro-batch: all stored messages, or as many as the limits admit.

        Raises:
            StreamError: a stream is another one than that of *start*, or has older data, and ``failOnDataLoss`` is on.
        """
        plan = self._plan(start)
        states = self._states()
        # Spark reads from here on only when everything below is in its commit log. Its own call of commit() comes a
        # batch later, and after the last batch of an availableNow run not at all.
        self._release(start, states)
        starts = {stream: self._start(start, stream, state, plan) for stream, state in states.items()}
        # An open split waits for messages itself, and the position that one has reached is committed at once.
        waits = plan is None or not (plan.opens or number_in(start) is not None)
        if self._options.poll_wait and self._target is None and waits:
            states = self._wait(starts, states)
        self._latest = {stream: state.next for stream, state in states.items()}
        if self._options.pause_file and Path(self._options.pause_file).exists():
            # The offset left by a stop has the position of the run.
            return closed(start, starts)
        before = starts
        starts = {stream: self._checked(stream, before[stream], state) for stream, state in states.items()}
        replaced = {stream for stream in starts if starts[stream] is not before[stream]}
        for stream in replaced:
            self._released.pop(stream, None)
        ends = dict(self._latest)
        if self._target is not None:
            # Of a new stream everything belongs to this run.
            ends |= {name: min(end, ends[name]) for name, end in self._target.items() if name not in replaced}
        waiting = {stream: max(0, end - starts[stream].next) for stream, end in ends.items()}
        total = sum(waiting.values())
        if plan is not None and plan.opens and self._target is None and not self._backlog.is_large(total):
            return opened(starts, plan.number) | self._with_revision()
        if not (total or replaced) and all(start.get(stream) == at.next for stream, at in starts.items()):
            # Spark compares texts: without the first micro-batch's place it would run another for nothing.
            return start
        admitted = self._admitted(limit, states, total)
        offsets = position_keys(
            {
                stream: self._end(stream, starts[stream], _share(admitted, count, total), states[stream])
                for stream, count in waiting.items()
            }
        )
        if (total and start == self._initial) or number_in(start) is not None or replaced:
            # No checkpoint has the place where a query begins, or the one that an open split has reached. A query that
            # dies in this micro-batch repeats it from here, and not from the latest position by then.
            offsets |= begin_keys(starts)
        # Only where there is something to do: a new subscription alone starts no micro-batch.
        plan_key = {_PLAN: self._options.partitions} if self._options.fixed_plan else {}
        return offsets | self._with_revision() | plan_key

    def _with_revision(self) -> NatsOffset:
        return {} if self._revisions is None else {REVISION: self._revisions.newest()}

    def _plan(self, start: NatsOffset) -> Plan | None:
        """Return the driver's plan for the open split that *start* names, and for the next; None without any."""
        number, address = number_in(start), self._options.open_splits
        if address is None or (number is None and not self._options.stays_open):
            return None
        plan = ask_plan(address, number)
        return plan if self._options.stays_open else replace(plan, opens=False)

    def _wait(self, starts: Mapping[str, Position], states: dict[str, StoredSequences]) -> dict[str, StoredSequences]:
        """Return the states when a stream has new messages, or after the poll timeout."""
        if any(starts[stream].next != state.next for stream, state in states.items()):
            return states
        positions = {stream: position.next for stream, position in starts.items()}
        wait_for_more(self._server(), positions, self._options.filters, self._options.poll_wait)
        return self._states()

    def _report(self, stream: str, missing: StreamError) -> None:
        if self._options.fail_on_data_loss:
            raise missing
        # A loss is found at each poll until the next micro-batch begins behind it.
        if self._warnings.get(stream) != str(missing):
            self._warnings[stream] = str(missing)
            report_loss(self._options, missing)

    def _start(self, start: NatsOffset, stream: str, state: StoredSequences, plan: Plan | None = None) -> Position:
        """Return the position in *stream*; the start option decides for a stream without a checkpointed offset.

        Of an open split the offset has the beginning, and the driver the place that it has reached. If that is lost,
        its records are read again. An offset of an earlier release has no identity: it adopts the present stream.
        """
        if stream not in start:
            first = resolve(self._server(), stream, self._options.start)
            return Position(StreamIdentity.of(state.created), first)
        identity = identity_in(start, stream) or StreamIdentity.adopted(state.created)
        if plan is not None and plan.next is not None and number_in(start, stream) is not None:
            return Position(identity, cast("int", plan.next), plan.time)
        return Position(identity, int(start[stream]), time_in(start, stream))

    def _checked(self, stream: str, position: Position, state: StoredSequences) -> Position:
        """Return the position if it is one in the present stream; the beginning of another stream, after a report.

        Raises:
            StreamError: it is another stream, or has older data, and ``failOnDataLoss`` is on.
        """
        problem = position_problem(self._server(), stream, position, state)
        if problem is None:
            return position
        self._report(stream, problem)
        return Position(StreamIdentity.of(state.created), state.first)

    def _end(self, stream: str, start: Position, count: int, state: StoredSequences) -> Position:
        """Return the position behind so many sequences from *start* on."""
        if not count:
            return start
        end = start.next + count
        stored = state.time if end == state.next else time_before(self._server(), stream, end, state)
        return Position(start.identity, end, stored)

    def _admitted(self, limit: ReadLimit, states: dict[str, StoredSequences], total: int) -> int:
        if isinstance(limit, ReadAllAvailable):
            return total
        most = total
        if self._options.max_records is not None:
            most = min(most, self._options.max_records)
        if self._options.max_bytes is not None:
            # A stream knows its bytes and its messages, not those of a range: the mean has to do.
            mean = max(state.mean_bytes for state in states.values())
            most = min(most, max(1, int(self._options.max_bytes / mean)) if mean else most)
        return most

    def reportLatestOffset(self) -> NatsOffset | None:  # noqa: N802
        """Return the ends of the streams as the last poll saw them: Spark shows them in the query's progress.

        ``STREAM.missing`` beside them counts the holes that were stepped over, and ``STREAM.warning`` is the last loss
        that was stepped over: this process has no log of the query's own. A stream's name has no dot.
        """
        if self._latest is None:
            return None
        holes = {f"{stream}.missing": count for stream, count in self._holes.missing.items()}
        return self._latest | holes | {f"{stream}{WARNING}": text for stream, text in self._warnings.items()}

    def partitions(self, start: NatsOffset, end: NatsOffset) -> Sequence[InputPartition]:
        """Return the ranges between two offsets, after a check that their messages are still stored.

        Raises:
            StreamError: when they are not and ``failOnDataLoss`` is on.
        """
        parts: list[InputPartition] = []
        revision = self._revision(end)
        filters, recorded = self._filters(revision), begins(end)
        spans: list[tuple[str, Position, StoredSequences, int, int]] = []
        for stream, stop in end.items():
            if "." in stream:
                continue
            state = self._state(stream)
            position = self._start(end, stream, state)
            number, identity = number_in(end, stream), position.identity
            if number is not None:
                if self._options.open_splits is not None:
                    parts.append(OpenSplit(stream, int(stop), number, revision, identity, position.time))
                continue
            begin = recorded[stream] if stream in recorded else self._start(start, stream, state).next
            spans.append((stream, position, state, begin, int(stop)))
        own, most = self._options.filters, int(end.get(_PLAN, self._options.partitions))
        tasks = shares({stream: stop - begin for stream, _, _, begin, stop in spans}, most)
        if _FORMER_PLAN in end:
            tasks = dict.fromkeys(tasks, int(end[_FORMER_PLAN]) // len(self._options.streams))
        for stream, position, state, begin, stop in spans:
            present = self._present(stream, begin, position, state)
            identity = position.identity
            splits = _from(present, split(self._options, stream, begin, stop, tasks[stream], revision, identity))
            if filters is None:
                parts += planned(splits, self._server(), own)
            else:
                parts += only(self._server(), splits, filters, own)
        return parts or [Split(self._options.streams[0], 0, 0)]

    def _revision(self, end: NatsOffset) -> int | None:
        """Return the revision for the micro-batch with this end; the newest if it was planned without one.

        A checkpoint is read by a run that has subscriptions now and had none, or the other way round.
        """
        if self._revisions is None:
            return None
        return self._revisions.usable(end[REVISION]) if REVISION in end else self._revisions.newest()

    def _filters(self, revision: int | None) -> tuple[str, ...] | None:
        """Return the subjects to read for a micro-batch of this revision: also for one that is done again."""
        if self._revisions is None or revision is None or not self._options.push_down:
            return None
        return self._revisions.filters(revision)

    def _present(self, stream: str, start: int, stop: Position, state: StoredSequences) -> int:
        """Return the first sequence of the range that the stream may still have, and count the holes after it."""
        end = stop.next
        if start == end:
            return start
        problem = position_problem(self._server(), stream, stop, state)
        if problem is not None:
            # The next micro-batch begins with the first message of the present stream.
            self._report(stream, problem)
            return end
        if start < state.first:
            self._report(stream, lost_error(stream, start, min(state.first, end)))
            start = min(state.first, end)
        self._holes.count(self._server(), stream, start, end, state.deleted)
        return start

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield one range as Arrow record batches."""
        return self._rows.read(partition)

    def commit(self, end: NatsOffset) -> None:
        """Acknowledge processed messages if a consumer is configured; only the checkpoint holds the position."""
        if self._options.ack_consumer is not None:
            with contextlib.suppress(StreamNotFoundError):
                # Without the stream there is nothing to acknowledge; the next poll reports it.
                self._release(end, {stream: state_of(self._server(), stream) for stream in self._options.streams})

    def _release(self, end: NatsOffset, states: Mapping[str, StoredSequences]) -> None:
        """Acknowledge everything below *end*, once, and nothing of another stream, whose messages are unread.

        A failure here is logged and not raised: the batch is done, and the next call acknowledges its messages too.
        """
        if self._options.ack_consumer is None:
            return
        for stream in self._options.streams:
            sequence, state = int(end.get(stream, 0)), states[stream]
            position = Position(identity_in(end, stream) or StreamIdentity.adopted(state.created), sequence)
            if sequence <= self._released.get(stream, 0) or position_problem(self._server(), stream, position, state):
                continue
            try:
                self._acknowledger(stream).acknowledge(sequence)
                self._released[stream] = sequence
            except (StreamError, ConnectionLostError) as failure:
                _log.warning("messages of %s below %d are not acknowledged yet: %s", stream, sequence, failure)

    def _acknowledger(self, stream: str) -> Acknowledger:
        assert self._options.ack_consumer is not None
        return Acknowledger(self._server(), stream, self._options.ack_consumer, self._options.filters)

    def stop(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()


def _from(first: int, splits: Sequence[Split]) -> list[Split]:
    """Return the splits without sequences below *first*; their bounds are kept."""
    return [replace(part, start=max(part.start, first)) for part in splits if part.end > first]


def _share(admitted: int, waiting: int, total: int) -> int:
    """Return the part of *admitted* for a stream that has *waiting* of *total*; at least one, so that none starves."""
    return min(waiting, max(1, admitted * waiting // total)) if waiting else 0
