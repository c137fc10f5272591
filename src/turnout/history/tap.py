"""Observation of records without disturbing a run: before and after a stage, mapped, or delivered."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple

import numpy as np

from turnout.base.terminal import did_you_mean
from turnout.base.untrusted import JsonObject
from turnout.conditions import Condition, parse
from turnout.engine import Program, pieces
from turnout.engine.counts import Outcome, StageResult
from turnout.engine.reading import Consumed
from turnout.engine.replay import Where
from turnout.engine.trace import Trace, Watch
from turnout.errors import ConfigError, Mistake
from turnout.history.masking import Hidden, check_condition, hidden_anywhere, hidden_by_stage
from turnout.history.replay import StreamRange
from turnout.nats.protocol.errors import StreamReplacedError
from turnout.nats.wire.streams import StreamPosition, position_of
from turnout.records import ALIVE, FAILED, Batch
from turnout.records.types import ArrowBatch, RowIds
from turnout.routes import Route
from turnout.runtime.endpoints import EndpointAdapter, StreamEnd, adapter_of
from turnout.runtime.preflight import preflight
from turnout.subscriptions import open_store
from turnout.subscriptions.index import Index
from turnout.subscriptions.store_url import existing
from turnout.transforms.chain import StageRunner

_log = logging.getLogger(__name__)

_READ_SEQUENCES = 2_000
"""This many sequences are read at once."""


@dataclass(frozen=True, slots=True)
class StreamPart:
    """Some records of one stream, or partition, as record batches."""

    stream: str
    batches: Sequence[ArrowBatch]


def parts(
    route: Route, start: StreamPosition | None, end: StreamPosition | None, stop: threading.Event, *, newest: int | None
) -> Iterator[StreamPart]:
    """Return an iterator of the parts of a route's streams from one position to another, or without end.

    Args:
        route: route with the source.
        start: the first position; None for new records only.
        end: the position after the last record; None for no end.
        stop: set it to end.
        newest: maximum number of records to read of those since the last read, newest ones; None for all.

    Raises:
        ConfigError: the source keeps no history, or a position is none.
        StreamError: a stream does not exist, or cannot be read beside its consumers.
        ConnectionLostError: the server cannot be reached.
    """
    adapter = adapter_of(route.source_with_history())
    first = position_of("start", "latest" if start is None else start)
    last = None if end is None else position_of("end", end)
    return _parts(adapter, first, last, stop, newest)


def _report(stream: str, before: StreamEnd, bounds: StreamEnd, *, lasting: bool) -> None:
    """Warn that a stream is another one now, or has older data; a range of it is no more.

    Raises:
        StreamError: the tap is for a range.
    """
    former, present = (f"created at {end.created}, " if end.created else "" for end in (before, bounds))
    text = (
        f"the stream {stream!r} was made anew, or restored to older data: before it was {former}with the next position"
        f" {before.next:,}, now it is {present}with {bounds.next:,}"
    )
    if not lasting:
        raise StreamReplacedError(f"{text}; begin again with a position in it", code=404)
    _log.warning("%s; it is read from its first message", text)


def _parts(
    adapter: EndpointAdapter,
    first: StreamPosition,
    last: StreamPosition | None,
    stop: threading.Event,
    newest: int | None,
) -> Iterator[StreamPart]:
    with adapter.history() as history:
        positions = {stream: history.resolve(stream, first) for stream in history.streams}
        ends = None if last is None else {stream: history.resolve(stream, last) for stream in history.streams}
        seen = {stream: history.bounds(stream) for stream in history.streams}
        while not stop.is_set():
            idle = True
            for stream in history.streams:
                bounds, before = history.bounds(stream), seen[stream]
                if bounds.created != before.created or bounds.next < before.next:
                    _report(stream, before, bounds, lasting=ends is None)
                    positions[stream] = bounds.first
                seen[stream] = bounds
                end = bounds.next if ends is None else min(bounds.next, ends[stream])
                start = max(positions[stream], bounds.first, 0 if newest is None else end - newest)
                if start >= end:
                    continue
                idle = False
                positions[stream] = min(end, start + _READ_SEQUENCES)
                # Read to its end, so that a consumer is deleted, however long the caller processes its records.
                batches = list(history.read(stream, start, positions[stream]))
                yield StreamPart(stream, [batch for batch in batches if batch.num_rows])
            if idle and ends is not None:
                return
            if idle:
                history.wait(positions, stop)


SOURCE: Final = "source"
MAPPED: Final = "mapped"
DELIVERED: Final = "delivered"


_WHOLE: Final = Hidden()
"""Hides nothing: a stage may change hidden parts."""


class ObservedRecord(NamedTuple):
    """Record at the stage: its outcome there, its content before and after, and the reason of a failure."""

    outcome: str
    before: JsonObject
    after: JsonObject | None
    reason: str | None = None


class TapWatch(Watch):
    """Notes some records of a batch.

    Args:
        stage: the stage, as `turnout.history.tap` names it.
        choose: chooses the rows of a batch to record.
        before: hidden paths before the stage.
        after: hidden paths behind it.

    Attributes:
        rows: rows of the records that were chosen.
    """

    def __init__(self, stage: str, choose: Callable[[Batch, RowIds], RowIds], before: Hidden, after: Hidden) -> None:
        self._stage = stage
        self._choose = choose
        self._hidden = before
        self._hidden_after = after
        self._before: dict[int, JsonObject] = {}
        self._whole: dict[int, JsonObject] = {}
        self._topics: list[str | None] = []
        self._observed: dict[int, ObservedRecord] = {}
        self.rows: RowIds = np.zeros(0, np.int64)

    def seen_of(self, row: int) -> ObservedRecord:
        """Return the observations of a record."""
        return self._observed[row]

    def decoded(self, records: Batch, consumed: Consumed) -> None:
        """Note records as they were read."""
        if self._stage != SOURCE:
            return
        self.rows = self._choose(records, np.arange(len(records)))
        for row in self.rows.tolist():
            record = self._hidden.masked(records.record(row))
            if records.outcomes[row] == FAILED:
                raw = {"key": consumed.keys[row], "value": consumed.values[row]}
                record |= {side: self._hidden.text(side, content) for side, content in raw.items()}
                self._observed[row] = ObservedRecord(StageResult.FAILED, record, None, self._reason(records, row))
            else:
                self._observed[row] = ObservedRecord("read", record, record)

    def before(self, stage: StageRunner, records: Batch) -> None:
        """Note the records that reach the stage."""
        if stage.stage.name != self._stage:
            return
        self.rows = self._choose(records, records.alive.astype(np.int64))
        self._before = {row: self._hidden.masked(records.record(row)) for row in self.rows.tolist()}
        self._whole = {row: _WHOLE.masked(records.record(row)) for row in self.rows.tolist()}

    def after(self, stage: StageRunner, records: Batch) -> None:
        """Note the results of the stage."""
        if stage.stage.name == self._stage:
            self._observed = {row: self._after_stage(records, row, before) for row, before in self._before.items()}

    def _after_stage(self, records: Batch, row: int, before: JsonObject) -> ObservedRecord:
        ended = StageResult.of_ended(records, row)
        if ended is not None:
            reason = self._reason(records, row) if ended is StageResult.FAILED else None
            return ObservedRecord(ended, before, None, reason)
        record = records.record(row)
        return ObservedRecord(
            _change(_WHOLE.masked(record) != self._whole[row]), before, self._hidden_after.masked(record)
        )

    def transformed(self, records: Batch) -> None:
        """Note topics before they are mapped."""
        self._topics = list(records.topics)

    def mapped(self, records: Batch) -> None:
        """Note records with their mapped topics."""
        if self._stage not in (MAPPED, DELIVERED):
            return
        self.rows = self._choose(records, records.alive.astype(np.int64))
        if self._stage == MAPPED:
            self._observed = {row: self._of_mapping(records, row) for row in self.rows.tolist()}

    def _of_mapping(self, records: Batch, row: int) -> ObservedRecord:
        after = self._hidden.masked(records.record(row))
        before = {**after, "topic": self._topics[row]}
        if after["topic"] is None:
            return ObservedRecord(Outcome.LOST_BY_WEIGHT.label, before, None)
        return ObservedRecord(_change(after != before), before, after)

    def _reason(self, records: Batch, row: int) -> str:
        failure = records.failures[row]
        return f"{failure.stage}: {self._hidden.failure(failure.message)}"


def _change(changed: bool) -> StageResult:
    return StageResult.CHANGED if changed else StageResult.UNCHANGED


_SAMPLE = 100
"""Of a live stream that is faster than it is shown, a second's records are chosen among this many of the newest."""
_SEARCHED = 2_000
"""Records searched per look if a condition or filter selects some of them."""
_UNSEEN_RECORDS = 1_000
"""Records without a name of the condition, behind which a tap without end says so."""
_UNSEEN_SECONDS = 30.0
"""Likewise seconds, if there were any records."""
_LOOK_SECONDS = 0.5
"""Seconds to wait after an empty look, so that waiting for a rare record does not occupy a core."""


@dataclass(frozen=True, slots=True)
class TapMessage:
    """Outgoing message of a record.

    Attributes:
        topic: topic in its sink.
        id: the message id.
        subscription: its subscription; None for a record under its own topic.
        dead_letter: whether it is the unchanged record as a dead letter.
    """

    topic: str
    id: str | None
    subscription: str | None
    dead_letter: bool


@dataclass(frozen=True, slots=True)
class Tapped:
    """Record at one stage of a route.

    Attributes:
        stream: its stream; in Kafka ``topic:partition``.
        sequence: likewise.
        stage: ``source``, the name of a transform, ``mapped`` or ``delivered``.
        outcome: of a transform ``changed``, ``unchanged``, ``filtered`` or ``failed``; of the source ``read`` or
            ``failed``; of the mappings ``changed``, ``unchanged`` or ``lost_by_weight``; of what is delivered as
            `turnout.engine.trace.Outcome` names it.
        before: the record, as plain JSON.
        after: the same behind the stage; None if the record ended there.
        reason: why it failed.
        messages: of what is delivered.
    """

    stream: str
    sequence: int
    stage: str
    outcome: str
    before: JsonObject
    after: JsonObject | None
    reason: str | None = None
    messages: tuple[TapMessage, ...] = ()

    def as_dict(self) -> JsonObject:
        """Return the record as ``--json`` prints it."""
        messages = [
            {
                "topic": message.topic,
                "id": message.id,
                "subscription": message.subscription,
                "deadLetter": message.dead_letter,
            }
            for message in self.messages
        ]
        return {
            "stream": self.stream,
            "sequence": self.sequence,
            "stage": self.stage,
            "outcome": self.outcome,
            "before": self.before,
            "after": self.after,
            **({} if self.reason is None else {"reason": self.reason}),
            **({"messages": messages} if self.stage == DELIVERED else {}),
        }


def stages_of(route: Route) -> tuple[str, ...]:
    """Return the stages at which a route can be tapped, in order."""
    return (SOURCE, *(stage.name for stage in route.chain.stages), MAPPED, DELIVERED)


def taps(
    route: Route,
    stage: str = DELIVERED,
    *,
    where: str | Condition | None = None,
    start: StreamPosition | None = None,
    end: StreamPosition | None = None,
    rate: float | None = None,
    limit: int | None = None,
    unmasked: bool = False,
    strict: bool = False,
    stop: threading.Event | None = None,
    index: Index | None = None,
    warn: Callable[[str], None] = lambda _: None,
) -> Iterator[Tapped]:
    """Watch records at one stage of a route. Nothing is delivered, and the state of runs is not changed.

    The stream is read independently of the run, by temporary consumers that acknowledge nothing. Parts that the route
    masks later are hidden. Subscriptions are those of the store at the start.

    Args:
        route: route to tap; its source is NATS or Kafka.
        stage: one of `stages_of`.
        where: only records that match this condition, over the metadata at that stage.
        start: first position; only new records if not given.
        end: the position after the last record; without it there is no end.
        rate: how many records a second at most. Of live records the others are passed over; a range is slowed down.
        limit: how many records in all.
        unmasked: show masked parts, too.
        strict: refuse a condition on hidden parts, which would reveal them.
        stop: set it to end.
        index: existing index of the subscriptions, so that a store of millions need not be read.
        warn: called once by a tap without end if the condition has a name that is not listed, and no header's of the
            first records.

    Raises:
        ConfigError: there is no such stage, or the source keeps no history; *where* has a name that is not listed, and
            is none of a header. A header that no record has is found behind the last record.
        ConditionError: *where* cannot be read.
        TurnoutError: the server or the store cannot be reached.
    """
    if stage not in stages_of(route):
        stages = stages_of(route)
        problem = f"there is no stage {stage!r}{did_you_mean(stage, stages)} (there are {', '.join(stages)})"
        raise ConfigError([Mistake("stage", problem)])
    condition = parse(where) if isinstance(where, str) else where
    if strict and not unmasked and condition is not None:
        check_condition(route, _around(route, stage)[0], condition)
    if stage == DELIVERED and index is None:
        index = _index(route)
    tap = _Tap(route, stage, condition, index, unmasked=unmasked)
    pace = _Pace(rate, stop or threading.Event(), live=start is None)
    newest = None if pace.allowed is None else _SEARCHED if condition or route.source.filters else _SAMPLE
    read = parts(route, start, end, pace.stop, newest=newest)
    return _limited(_tapped(tap, read, pace, warn if end is None else None), limit, pace.stop)


def newest_taps(route: Route, count: int, *, unmasked: bool = False, index: Index | None = None) -> list[Tapped]:
    """Return the last records of a route's streams as they would be delivered now, the newest of each stream first.

    Args:
        route: as in `taps`.
        count: how many sequences in all, shared by the streams or partitions.
        unmasked: show masked parts, too.
        index: the subscriptions, if the route has any.

    Raises:
        TurnoutError: the source keeps no history, or the server cannot be reached.
    """
    tap = _Tap(route, DELIVERED, None, index, unmasked=unmasked)
    found: list[Tapped] = []
    with adapter_of(route.source_with_history()).history() as history:
        each = max(1, count // max(1, len(history.streams)))
        for stream in list(history.streams)[:count]:
            bounds = history.bounds(stream)
            for batch in history.read(stream, max(bounds.first, bounds.next - each), bounds.next):
                for piece in pieces(batch):
                    found += tap.observe(piece, stream, None)
    return found[::-1]


def check_names(route: Route, where: Condition, ranges: Iterable[StreamRange]) -> None:
    """Check that records in some ranges, of which a condition chose none, have the names that it tests.

    It reads until each name was found.

    Raises:
        ConfigError: a name is not listed, and no record has a header of that name.
        TurnoutError: the server cannot be reached.
    """
    tap = _Tap(route, MAPPED, where, None, unmasked=True)
    with adapter_of(route.source_with_history()).history() as history:
        for range_ in ranges:
            for start in range(range_.start, range_.end, _SEARCHED):
                for batch in history.read(range_.stream, start, min(start + _SEARCHED, range_.end)):
                    for piece in pieces(batch):
                        tap.observe(piece, range_.stream, None)
                if tap.observed and not tap.unseen():
                    return
    tap.check_seen()


def _limited(records: Iterator[Tapped], limit: int | None, stop: threading.Event) -> Iterator[Tapped]:
    for count, record in enumerate(records, start=1):
        if stop.is_set():
            return
        yield record
        if count == limit:
            return


class _Pace:
    """Rate limit of shown records."""

    def __init__(self, rate: float | None, stop: threading.Event, *, live: bool) -> None:
        self._rate = rate
        self.stop = stop
        # A second's worth, as a look costs about the same however few records it shows.
        self.allowed = max(1, int(rate)) if live and rate is not None else None
        """Maximum number of the available records to show, the others are skipped; None for all."""

    def missed(self) -> None:
        """Pause before the next read, as the last one showed no record."""
        if self.allowed is not None:
            self.stop.wait(_LOOK_SECONDS)

    def shown(self) -> None:
        """Wait until the next record may be shown."""
        if self._rate is not None:
            self.stop.wait(1 / self._rate)


def _tapped(tap: _Tap, read: Iterator[StreamPart], pace: _Pace, warn: Callable[[str], None] | None) -> Iterator[Tapped]:
    """Yield the observed records.

    Args:
        tap: observes them.
        read: parts of the streams.
        pace: rate of the records.
        warn: see `taps`; None where the end says it.
    """
    begun = time.monotonic()
    for part in read:
        missed = True
        for tapped in _of_part(tap, part, pace.allowed):
            missed = False
            yield tapped
            pace.shown()
        if missed:
            pace.missed()
        if warn is not None and (tap.observed >= _UNSEEN_RECORDS or time.monotonic() - begun > _UNSEEN_SECONDS):
            for name in tap.unseen():
                warn(
                    f"{name!r} is not listed under metadata, and no header of the first {tap.observed:,} records has it"
                )
            warn = None
    if not pace.stop.is_set():
        tap.check_seen()


def _of_part(tap: _Tap, part: StreamPart, remaining: int | None) -> Iterator[Tapped]:
    for batch in part.batches:
        for piece in pieces(batch):
            shown = tap.observe(piece, part.stream, remaining)
            yield from shown
            if remaining is not None:
                remaining -= len(shown)
                if remaining == 0:
                    return


class _Tap:
    """Route's program, watched at one stage.

    Attributes:
        observed: number of records that were inspected.
    """

    def __init__(
        self, route: Route, stage: str, where: Condition | None, index: Index | None, *, unmasked: bool
    ) -> None:
        self.observed = 0
        self._stage = stage
        self._program = Program.of(preflight(route) if stage == DELIVERED else route)
        self._index = index
        paths = route.subscriptions.metadata if route.subscriptions else {}
        self._where = None if where is None else Where(where, paths)
        before, after = _around(route, stage)
        hidden = hidden_by_stage(route.chain)
        self._hidden, self._hidden_after = (Hidden() if unmasked else hidden[at] for at in (before, after))
        # A failure shows the record at its stage.
        self._hidden_anywhere = Hidden() if unmasked else hidden_anywhere(route.chain)

    def unseen(self) -> list[str]:
        """Return the names of the condition that no record had so far; see `Where.unseen`."""
        return [] if self._where is None else self._where.unseen()

    def check_seen(self) -> None:
        """Check, behind the last record, the names of the condition; see `Where.check_seen`."""
        if self._where is not None:
            self._where.check_seen()

    def observe(self, batch: ArrowBatch, stream: str, most: int | None) -> list[Tapped]:
        """Return the observed records of a record batch, at most *most*."""
        self.observed += batch.num_rows
        watch = TapWatch(self._stage, partial(self._choose, most), self._hidden, self._hidden_after)
        trace = self._program.trace(batch, self._index, watch)
        sequences = batch.column("offset").to_pylist()
        if self._stage != DELIVERED:
            return [Tapped(stream, sequences[row], self._stage, *watch.seen_of(row)) for row in watch.rows.tolist()]
        rows = watch.rows if self._where is not None else _spread(np.arange(len(trace)), most)
        return [self._delivered(trace, row, stream, sequences[row]) for row in rows.tolist()]

    def _choose(self, most: int | None, records: Batch, rows: RowIds) -> RowIds:
        if self._where is not None:
            # A record that failed, or was lost by weight, has nothing to show.
            rows = rows[[bool(records.outcomes[row] == ALIVE and records.topics[row]) for row in rows.tolist()]]
            rows = self._where.chosen(records, rows)
        return _spread(rows, most)

    def _delivered(self, trace: Trace, row: int, stream: str, sequence: int) -> Tapped:
        outcome, failure = trace.outcome(row), trace.failures.get(row)
        record = self._hidden.masked(trace.records.record(row))
        reason = None if failure is None else f"{failure.stage}: {self._hidden_anywhere.failure(failure.message)}"
        messages = tuple(
            TapMessage(
                trace.messages.topics[number].as_py(),
                trace.messages.ids[number].as_py(),
                trace.subscriptions[number].as_py(),
                trace.is_letter(number),
            )
            for number in trace.messages_of(row).tolist()
        )
        after = record if outcome is Outcome.DELIVERED else None
        return Tapped(stream, sequence, DELIVERED, outcome.label, record, after, reason, messages)


def _around(route: Route, stage: str) -> tuple[int, int]:
    """Return the number of transforms before a stage, and before its successor."""
    names = [stage.name for stage in route.chain.stages]
    if stage == SOURCE:
        return 0, 0
    if stage in (MAPPED, DELIVERED):
        return len(names), len(names)
    return names.index(stage), names.index(stage) + 1


def _spread(rows: RowIds, most: int | None) -> RowIds:
    """Return at most *most* of the rows, evenly spaced."""
    if most is None or len(rows) <= most:
        return rows
    return rows[np.linspace(0, len(rows) - 1, most).astype(np.intp)]


def _index(route: Route) -> Index | None:
    if route.subscriptions is None:
        return None
    with closing(open_store(existing(route.subscriptions.store))) as store:
        return Index.of(store)
