"""History through the present route: deliveries that its subscribers would have received."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field, replace
from functools import reduce
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from turnout.base.files import scratch_folder
from turnout.engine.counts import Counts
from turnout.engine.dead_letters import IN_FULL, reasons_of
from turnout.engine.deliveries import NO_SUBSCRIPTION
from turnout.engine.result import Result, Sent
from turnout.history.replay import ReplayPlan, ReplayState, Splitting, StreamRange, claimed, plan_replay
from turnout.history.tap import check_names
from turnout.records.headers import headers_type
from turnout.routes import Route
from turnout.runtime.checkpoint import checkpoint_of
from turnout.runtime.java import run_error
from turnout.runtime.lake.lookups import as_processed
from turnout.runtime.offsets import Progress, encoded, even_spans
from turnout.runtime.preflight import with_stored_topics
from turnout.runtime.publishing import TALLY, TALLY_SCHEMA, TaskTally, log_failures, sum_of
from turnout.runtime.revisions import RunMatching
from turnout.spark.columns import map_in_arrow
from turnout.spark.endpoints import endpoint_of, publishes
from turnout.spark.formats.nats.source import register
from turnout.spark.running.counts import counts_of, write_all
from turnout.spark.session.build import local_copy
from turnout.spark.session.jvm import driver_address
from turnout.spark.stage import ReplayPart, SparkStage

_COLUMNS: Final = (
    ("subscription", "string", pa.string()),
    ("destination", "string", pa.string()),
    ("topic", "string", pa.string()),
    ("message_id", "string", pa.string()),
    ("stream", "string", pa.string()),
    ("partition", "int", pa.int32()),
    ("offset", "bigint", pa.int64()),
    ("timestamp", "timestamp", pa.timestamp("us", tz="UTC")),
    ("key", "binary", pa.binary()),
    ("value", "binary", pa.binary()),
    ("headers", "array<struct<key:string,value:binary>>", headers_type()),
)
_NAMES: Final = [name for name, _, _ in _COLUMNS]

DELIVERIES: Final = f"{', '.join(f'`{name}` {kind}' for name, kind, _ in _COLUMNS)}, {TALLY}"
"""The columns of `Rehearsal`: messages, with null counts; and rows of counts that are no messages."""

_SCHEMA: Final = pa.schema([*(pa.field(name, kind) for name, _, kind in _COLUMNS), *TALLY_SCHEMA])


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """A stage for ``mapInArrow`` that gives what another one would send.

    Attributes:
        stage: the other one.
    """

    stage: SparkStage

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Give the deliveries of each batch, and behind them the task's counts."""
        tally = TaskTally()
        for result in self.stage.results(batches):
            tally.add(result)
            if len(result.messages):
                yield _delivery_rows(result)
        counts = tally.rows()
        yield _batch(dict(zip(counts.schema.names, counts.columns, strict=True)), counts.num_rows)


def _delivery_rows(result: Result) -> pa.RecordBatch:
    sent, messages = result.sent, result.messages
    assert sent is not None, "a replay sends no dead letters"
    rows = pa.array(sent.deliveries.rows)
    read = sent.consumed.batch
    columns = {"topic": messages.topics, "message_id": messages.ids}
    columns |= {name: messages.column(name) for name in ("partition", "offset", "timestamp", "key", "value", "headers")}
    columns["subscription"], columns["destination"] = _addressed(sent, messages.topics)
    if "stream" in read.schema.names:
        columns["stream"] = read.column("stream").take(rows)
    return _batch(columns, len(messages))


def _addressed(sent: Sent, topics: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Return the subscription and the destination of each delivery; null, and the topic, for a record under its own."""
    deliveries, index = sent.deliveries, sent.index
    of_index = np.flatnonzero(deliveries.subscriptions != NO_SUBSCRIPTION)
    if index is None or len(of_index) < len(deliveries):
        return pa.nulls(len(deliveries), pa.string()), topics
    return index.subscription_ids(deliveries.subscriptions), index.destinations(deliveries.destinations)


def _batch(columns: dict[str, pa.Array], count: int) -> pa.RecordBatch:
    arrays = [columns[item.name] if item.name in columns else pa.nulls(count, item.type) for item in _SCHEMA]
    arrays = [
        array if array.type.equals(item.type) else array.cast(item.type)
        for array, item in zip(arrays, _SCHEMA, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA)


def deliveries_of(rows: DataFrame) -> DataFrame:
    """Return the deliveries of a rehearsal."""
    return rows.where(F.col("counts").isNull()).select(*_NAMES)


def counted(rows: DataFrame) -> tuple[Counts, dict[str | None, int]]:
    """Return the counts of a rehearsal, and the number of messages for each subscription."""
    (total,) = rows.agg(F.collect_list("counts")).collect()
    groups = deliveries_of(rows).groupBy("subscription").count().collect()
    by_subscription = {row["subscription"]: int(row["count"]) for row in groups}
    ordered = sorted(by_subscription.items(), key=lambda counted: (-counted[1], counted[0] or ""))
    return sum_of(total[0]), dict(ordered)


def _reasons(rows: DataFrame) -> str:
    """Return the first reasons of a rehearsal's failures."""
    (total,) = rows.agg(F.sum("failures")).collect()[0]
    lines = rows.where(F.col("failure").isNotNull()).limit(IN_FULL).select("failure").collect()
    return reasons_of((json.loads(line["failure"]) for line in lines), total or 0)


AT_ONCE = 500_000
"""Number of sequences delivered between two checks of the clock and of stop requests, and writes of the state file."""


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """Result of a replay.

    Attributes:
        plan: plan of the replay.
        counts: outcomes of the records; if it was stopped, of those done.
        seconds: duration of this part.
        resumed: it continued an interrupted one, whose counts are included.
        skipped: the records that were done before, and are not read again.
        stopped: it was stopped on request; a repetition continues it.
        deliveries: deliveries of a dry run, the messages that would have been sent, a row each.
        by_subscription: in a dry run, number of messages by subscription; None for those without one.
        notes: in a dry run, the servers that did not report their streams, and the first reasons of failures.
    """

    plan: ReplayPlan
    counts: Counts
    seconds: float
    resumed: bool = False
    skipped: int = 0
    stopped: bool = False
    deliveries: DataFrame | None = field(default=None, repr=False)
    by_subscription: Mapping[str | None, int] | None = None
    notes: tuple[str, ...] = ()


def replay(route: Route, spark: SparkSession, *, dry_run: bool = False, **options: Any) -> ReplayResult:
    """Deliver a route's history again through the present route.

    Messages have the ids that a run would give them with the replay's behind: within the duplicate window of the sink's
    stream a replay that is interrupted and continued, or repeated, stores nothing twice. A Kafka sink with
    ``exactlyOnce`` has each split in a transaction, and a repeated replay delivers only newer records;
    other Kafka sinks get the last part of a replay that was killed again. Each message has the header
    ``Turnout-Replay``. Failures are counted, and not dead-lettered again.

    Args:
        route: route whose history is replayed, and that processes it; its source is NATS or Kafka.
        spark: session.
        dry_run: deliver nothing, only report the deliveries.
        **options: arguments of `turnout.history.replay.plan_replay`: ``start``, ``end``, ``subscriptions``,
            ``subscriptions_as_of``, ``where``, ``sink``, ``id``, ``folder``.

    Raises:
        TurnoutError: as `plan_replay` and `carry_out`.
    """
    plan = plan_replay(route, **options)
    return rehearse(plan, spark) if dry_run else carry_out(plan, spark)


def carry_out(
    plan: ReplayPlan,
    spark: SparkSession,
    *,
    stop: threading.Event | None = None,
    on_progress: Callable[[Progress], None] | None = None,
    at_once: int = AT_ONCE,
) -> ReplayResult:
    """Deliver a planned replay, part by part; continue an interrupted replay of this id.

    A part is delivered when each of its messages is acknowledged, and then noted in the replay's folder: one that is
    killed does its last part again.

    Args:
        plan: plan of the replay.
        spark: session.
        stop: set it to end the replay behind the part that is under way.
        on_progress: called behind each part.
        at_once: how many sequences are one part.

    Raises:
        RunError: a record failed and the route tolerates no failures, or a sink takes nothing.
        ConfigError: another process carries out this replay, or one of its id that is not finished was another; or
            nothing was delivered, and no record had a header that the condition names.
        ConnectionLostError: the connection was lost.
    """
    stop = stop or threading.Event()
    begun, last, parts = time.monotonic(), time.monotonic(), 0
    with ExitStack() as resources:
        resources.enter_context(claimed(plan.folder))
        state = ReplayState.of(plan)
        stage = resources.enter_context(_stage_of(plan, spark, plan.folder / "subscriptions", state.ranges))
        if plan.is_exact and publishes(plan.route.sinks):
            stage = stage.held_to_brokers(plan.route)
            for sink in plan.route.sinks.values():
                endpoint_of(sink).prepare()
            state = state.with_splitting(Splitting.of(plan.route, at_once))
        resumed, skipped = state.begun, state.counts.read
        state.write(plan.folder)
        while (range_ := state.left(at_once)) is not None and not stop.is_set():
            state = state.after(range_.stream, range_.end, _deliver(plan, spark, state, range_, stage))
            state.write(plan.folder)
            parts, before, last = parts + 1, last, time.monotonic()
            if on_progress is not None:
                on_progress(Progress(parts - 1, state.counts, last - begun, last - before, None))
    plan = replace(plan, ranges=state.ranges)
    if state.done:
        _check_names(plan, state.counts)
    return ReplayResult(plan, state.counts, time.monotonic() - begun, resumed, skipped, stopped=not state.done)


def rehearse(plan: ReplayPlan, spark: SparkSession) -> ReplayResult:
    """Determine the deliveries of a replay from its beginning, as far as the sinks' servers store them."""
    begun = time.monotonic()
    route, notes = with_stored_topics(plan.route)
    # The reasons are reported, not logged.
    errors = replace(route.errors, log=True, log_messages=False)
    plan = replace(plan, route=replace(route, chain=replace(route.chain, errors=errors)))
    with scratch_folder("replay") as scratch, _stage_of(plan, spark, scratch / "index", plan.ranges) as stage:
        ranges = [_rows(plan, spark, range_) for range_ in plan.ranges]
        rows = map_in_arrow(reduce(DataFrame.union, ranges), Rehearsal(stage), DELIVERIES)
        try:
            # The index is freed with this block, the rows are kept.
            rows = rows.localCheckpoint(eager=True)
            counts, by_subscription = counted(rows)
            reasons = _reasons(rows)
        except PySparkException as failure:
            raise run_error(f"the dry run of {plan.route.name} failed", failure) from failure
    _check_names(plan, counts)
    notes += (reasons,) if reasons else ()
    seconds = time.monotonic() - begun
    return ReplayResult(
        plan, counts, seconds, deliveries=deliveries_of(rows), by_subscription=by_subscription, notes=notes
    )


def _check_names(plan: ReplayPlan, counts: Counts) -> None:
    """Check the names of a condition that are not listed, if it may have chosen no record for their sake."""
    if plan.headers and plan.replay.where is not None and counts.read and not counts.delivered:
        check_names(plan.route, plan.replay.where, plan.ranges)


@contextmanager
def _stage_of(
    plan: ReplayPlan, spark: SparkSession, folder: Path, ranges: Iterable[StreamRange]
) -> Iterator[SparkStage]:
    """The stage of a replay, with the index of its subscriptions, and its tables as they were when the ranges were run.

    Raises:
        ConfigError: a table has changed within a range.
    """
    register(spark)
    route = plan.route
    if route.tables:
        with local_copy(spark, str(checkpoint_of(route))) as copy:
            route = as_processed(route, [(one.stream, one.start, one.end) for one in ranges], copy)
    stage = SparkStage.of(route, splits=True, replay=plan.replay)
    if plan.subscriptions is None:
        yield stage
        return
    with closing(RunMatching(plan.route, driver_address(spark), folder, pinned=plan.subscriptions)) as matching:
        matching.learn()
        location = matching.index_location
        yield stage.with_index(location, stores_matches=plan.stores_matches).at(plan.subscriptions.revision)


def _rows(plan: ReplayPlan, spark: SparkSession, part: StreamRange, stage: str | None = None) -> DataFrame:
    """Return a part of a stream: its splits, or the counts of an encoded stage."""
    return endpoint_of(plan.route.source).part(spark, part, plan.filters, stage)


def _exact_rows(
    plan: ReplayPlan, spark: SparkSession, exact: Splitting, part: StreamRange, stage: str | None
) -> DataFrame:
    """Return what `_rows` does, of splits that are the same when the part is repeated."""
    source = endpoint_of(plan.route.source_with_history().model_copy(update={"partitions": 1}))
    spans = even_spans(part.start, part.end, exact.tasks)
    parts = (replace(part, start=start, end=end) for start, end in spans)
    rows = [source.part(spark, range_, plan.filters, stage) for range_ in parts]
    return reduce(DataFrame.union, rows)


def _in_part(plan: ReplayPlan, state: ReplayState, part: StreamRange, stage: SparkStage) -> SparkStage:
    """Return the stage with the name of its part, where splits are transactions."""
    if state.exact is None:
        return stage
    text = f"{part.stream}[{part.start}, {part.end}) in {state.exact.tasks}"
    return replace(stage, part=ReplayPart(f"replay.{plan.route.name}.{plan.replay.id}", state.parts, text))


def _deliver(plan: ReplayPlan, spark: SparkSession, state: ReplayState, part: StreamRange, stage: SparkStage) -> Counts:
    """Deliver a part of a stream, and return its counts."""
    stage = _in_part(plan, state, part, stage)
    encoded_stage = encoded(stage) if publishes(plan.route.sinks) else None
    try:
        if state.exact is None:
            rows = _rows(plan, spark, part, encoded_stage)
        else:
            rows = _exact_rows(plan, spark, state.exact, part, encoded_stage)
        metrics = write_all(plan.route, rows, stage)
    except PySparkException as failure:
        raise run_error(f"the replay {plan.replay.id} of {plan.route.name} failed", failure) from failure
    log_failures(metrics, route=plan.route.name)
    return counts_of(metrics)
