"""Traffic of a route's subscriptions in a range, counted in Spark's tasks and summed by Spark."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Final, Self

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.errors import PySparkException
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F

from turnout.base.caches import LruCache
from turnout.base.files import scratch_folder
from turnout.base.startup import paused_gc
from turnout.engine import Program, pieces
from turnout.errors import ConfigError, Mistake
from turnout.history.traffic import TrafficWatch, traffic_from
from turnout.routes import Route
from turnout.runtime.java import run_error
from turnout.runtime.offsets import records_of
from turnout.runtime.revisions import RunMatching
from turnout.runtime.task_index import IndexLocation
from turnout.spark.columns import map_in_arrow
from turnout.spark.history.diff import RecordSpan, check_source, recorded
from turnout.spark.session.jvm import driver_address
from turnout.subscriptions import Snapshot
from turnout.subscriptions.analysis import AnchorCounter, AnchorTraffic, Traffic

_COLUMNS: Final = (
    ("what", "string", pa.string()),
    ("id", "string", pa.string()),
    ("destination", "string", pa.string()),
    ("anchor", "bigint", pa.int64()),
    ("count", "bigint", pa.int64()),
    ("other", "bigint", pa.int64()),
)
_DDL: Final = ", ".join(f"`{name}` {kind}" for name, kind, _ in _COLUMNS)
_SCHEMA: Final = pa.schema([pa.field(name, kind) for name, _, kind in _COLUMNS])

_RECORDS, _FIRED, _DELIVERED, _ANCHOR = "records", "fired", "delivered", "anchor"
"""Kinds of counted rows: matched records; a subscription's matches; its deliveries to a destination, and those of them
that it alone causes; the messages that had an anchor, and the matches that resulted."""


def traffic_in_tasks(
    route: Route,
    spark: SparkSession,
    snapshot: Snapshot,
    anchors: AnchorTraffic,
    *,
    start: object | None = None,
    end: object | None = None,
) -> Traffic:
    """Compute `turnout.history.traffic.traffic_of` with the range split over Spark's tasks.

    Args:
        route: route with the records, which processes them; its source is NATS or Kafka. Nothing is sent.
        spark: session.
        snapshot: the subscriptions.
        anchors: anchors of the same subscriptions; collects the look-ups and their matches.
        start: the first place, ``earliest`` if not given.
        end: the place after the last record, ``latest`` if not given.

    Raises:
        ConfigError: the route has no subscriptions, or its source keeps no history, or a place is none.
        ConnectionLostError: the server cannot be reached.
        StreamError: the stream does not exist.
        RunError: the job failed.
    """
    source = route.source_with_history()
    if route.subscriptions is None:
        raise ConfigError(
            [Mistake("subscriptions", f"the route {route.name} has none, expected a store to match with")]
        )
    span = RecordSpan.parse(start, end)
    check_source(route)
    with (
        scratch_folder("analyze") as scratch,
        closing(RunMatching(route, driver_address(spark), scratch / "index", pinned=snapshot)) as matching,
    ):
        matching.learn()
        counting = _Counting.of(route, anchors, matching)
        rows = map_in_arrow(recorded(spark, source, span), counting, _DDL)
        try:
            sums = rows.groupBy("what", "id", "destination", "anchor").agg(
                F.sum("count").alias("count"), F.sum("other").alias("other")
            )
            return _traffic(sums.collect(), snapshot, anchors)
        except PySparkException as failure:
            raise run_error(f"the subscriptions of {route.name} could not be analysed", failure) from failure


def _traffic(rows: Iterable[Row], snapshot: Snapshot, anchors: AnchorTraffic) -> Traffic:
    sums: dict[str, dict[Any, tuple[int, int]]] = {kind: {} for kind in (_RECORDS, _FIRED, _DELIVERED, _ANCHOR)}
    for kind, id_, destination, anchor, count, other in rows:
        key = {_RECORDS: None, _FIRED: id_, _DELIVERED: (id_, destination), _ANCHOR: anchor}[kind]
        sums[kind][key] = count, other
    firsts, seconds = (
        {kind: {key: pair[at] for key, pair in own.items()} for kind, own in sums.items()} for at in (0, 1)
    )
    fired = firsts[_FIRED]
    anchors.counted(firsts[_ANCHOR], seconds[_ANCHOR], fired)
    ids = [subscription.id for subscription in snapshot]
    return traffic_from(firsts[_RECORDS].get(None, 0), fired, firsts[_DELIVERED], seconds[_DELIVERED], ids)


_CACHED_STATES: Final = 2
_cached_states = LruCache[str, "_WorkerState"](_CACHED_STATES)


@dataclass(frozen=True, slots=True)
class _WorkerState:
    """State of an analysis that a worker keeps for its next task."""

    program: Program
    indexes: Mapping[object, int]
    counter: AnchorCounter

    @classmethod
    def of(cls, pickled: bytes) -> Self:
        """Unpack the sent counts."""
        route, anchors, several = cloudpickle.loads(pickled)
        indexes = {anchor: index for index, anchor in enumerate(anchors)}
        return cls(Program.of(route), indexes, AnchorCounter(indexes.keys(), several))


@dataclass(frozen=True, slots=True)
class _Counting:
    """The count as a function for ``mapInArrow``: from a task's records a row for each thing that it counts.

    Attributes:
        index: location of the subscriptions' index.
        revision: its revision.
        pickled: the route, the anchors, and the terms of subscriptions with several.
        key: identifies them.
    """

    index: IndexLocation
    revision: int
    pickled: bytes = field(repr=False)
    key: str

    @classmethod
    def of(cls, route: Route, anchors: AnchorTraffic, matching: RunMatching) -> Self:
        """Return the count of a route's subscriptions."""
        pickled = cloudpickle.dumps((route, anchors.anchors, anchors.several))  # type: ignore[no-untyped-call]
        return cls(matching.index_location, matching.revisions.newest(), pickled, hashlib.sha256(pickled).hexdigest())

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Count a task's records."""
        with paused_gc(freeze=True):
            state = _cached_states.get_or_add(self.key, lambda: _WorkerState.of(self.pickled))
            state.counter.begin()
            index = self.index.open(self.revision)
            watch = TrafficWatch(state.program, index, state.counter)
            for records in chain.from_iterable(map(records_of, batches)):
                for piece in pieces(records):
                    state.program.trace(piece, index, watch)
            yield _rows(watch, state)


def _rows(watch: TrafficWatch, state: _WorkerState) -> pa.RecordBatch:
    """Return the counts of a task as rows."""
    rows: list[tuple[object, ...]] = [(_RECORDS, None, None, None, watch.records, 0)]
    rows += [(_FIRED, id_, None, None, count, 0) for id_, count in watch.fired.items()]
    only = watch.only
    rows += [(_DELIVERED, *owner, None, count, only[owner]) for owner, count in watch.deliveries.items()]
    messages, matched = state.counter.messages, state.counter.matched
    # An anchor that led to a match was there.
    rows += [(_ANCHOR, None, None, state.indexes[number], count, matched[number]) for number, count in messages.items()]
    columns = zip(*rows, strict=True)
    return pa.RecordBatch.from_arrays(
        [pa.array(column, item.type) for column, item in zip(columns, _SCHEMA, strict=True)], schema=_SCHEMA
    )
