"""Engine as a stage of a DataFrame: input is record batches; output is counts, or messages with counts.

A stage is sent to the workers with each task. A worker caches a route's program.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Self

import pyarrow as pa
from pyspark import TaskContext, cloudpickle

from turnout.base.caches import LruCache
from turnout.base.startup import paused_gc, pc
from turnout.codecs.arrow_columns import arrow_type
from turnout.engine.counts import Counts
from turnout.engine.messages import RECORDS
from turnout.engine.spans import messaging, span_name, system_of
from turnout.errors import StreamError
from turnout.nats.wire.records import SCHEMA, with_stream
from turnout.records import Schema
from turnout.routes import Route
from turnout.routes.rows import RowPlan
from turnout.runtime.kafka.publisher import KafkaLimits, KafkaSinkOptions, Slot, fitting
from turnout.runtime.leases import Fence, fence_of_process
from turnout.runtime.offsets import open_split_of, readers_of, splits_of
from turnout.runtime.open_task import OpenTask
from turnout.runtime.publishing import TALLY, TALLY_SCHEMA, Publishers, PublishingOptions, TaskTally
from turnout.runtime.task_index import IndexLocation
from turnout.spark.endpoints import endpoint_of
from turnout.traces.spans import TaskSpan, TraceSettings, micro_batch_context, task_span

if TYPE_CHECKING:
    from turnout.engine import Messages, Program, Result
    from turnout.engine.replay import Replay
    from turnout.records.batch import ListedRecords
    from turnout.runtime.task_index import MatchRecorder
    from turnout.subscriptions.index import Index

MESSAGE_ID: Final = "_message_id"
"""The column of `MESSAGES` with a message's id; null where the record's origin is unknown."""

SINK: Final = "_sink"
"""The column of `MESSAGES` with the place of a message's sink among the route's; null in rows that only count."""

ROW: Final = "_row"
"""The column of `SparkStage.rows` with the row of a table, before the index of its sink."""

MESSAGES: Final = (
    f"topic string, {MESSAGE_ID} string, value binary, headers array<struct<key:string,value:binary>>, key binary,"
    f" partition int, offset bigint, timestamp timestamp, {SINK} tinyint, {TALLY}"
)
"""The columns of `SparkStage.rows`: messages, with null counts; and rows of `TALLY` that are no messages."""

_MESSAGES_SCHEMA: Final = pa.schema(
    [
        pa.field("topic", pa.string()),
        pa.field(MESSAGE_ID, pa.string()),
        *RECORDS,
        pa.field(SINK, pa.int8()),
        *TALLY_SCHEMA,
    ]
)

_CACHED_PROGRAMS: Final = 4
_programs = LruCache[str, "Program"](_CACHED_PROGRAMS)


@dataclass(frozen=True, slots=True)
class ReplayPart:
    """Part of a replay whose splits are transactions.

    Attributes:
        query: name of the replay, for the ids of its transactions.
        number: number of the part.
        text: range and splitting of the part, which stay the same when it is repeated.
    """

    query: str
    number: int
    text: str


@dataclass(frozen=True, slots=True)
class SparkStage:
    """Functions of one route for ``mapInArrow``.

    Attributes:
        splits: whether a row is a split, to be read here, with its revision; if not, rows are records.
        index: location of the subscriptions' index; None for a route without subscriptions.
        revision: revision for records without one.
        route: the pickled route, and the replay that this is: workers read them once, and not for each task.
        key: identifies them.
        sinks: publishers of the route's sinks; None for sinks that receive rows.
        limits: size limits of each of the route's sinks; None for other sinks than Kafka.
        stores_matches: whether the matches of splits are stored for feeds, beside the index.
        part: part of a replay into transactions; None in a streaming query, and without.
        fence: address of the fence that tasks ask before they write; None where no other server may lead.
        traces: settings of spans; None where none are made.
        task: span of the task; None outside of one, and where none are made.
        plans: index of a sink → columns of the rows that it receives.
    """

    splits: bool
    index: IndexLocation | None
    revision: int | None
    route: bytes = field(repr=False)
    key: str
    sinks: tuple[PublishingOptions | None, ...] = field(repr=False)
    limits: tuple[KafkaLimits | None, ...] = ()
    stores_matches: bool = False
    part: ReplayPart | None = None
    fence: str | None = field(default_factory=fence_of_process, repr=False)
    traces: TraceSettings | None = field(default_factory=TraceSettings.of_process, repr=False)
    task: TaskSpan | None = field(default=None, repr=False, compare=False)
    plans: Mapping[int, RowPlan] = field(default_factory=dict)

    @classmethod
    def of(cls, route: Route, *, splits: bool, replay: Replay | None = None) -> Self:
        """Return the stage of a route, or of a replay of its history.

        Raises:
            ConfigError: an option of a sink is wrong, or a variable of OpenTelemetry.
        """
        pickled = cloudpickle.dumps((route.with_tables(), replay))  # type: ignore[no-untyped-call]
        endpoints = [endpoint_of(sink) for sink in route.sinks.values()]
        sinks = tuple(endpoint.publishing() for endpoint in endpoints)
        limits = tuple(endpoint.limits() for endpoint in endpoints)
        return cls(splits, None, None, pickled, hashlib.sha256(pickled).hexdigest(), sinks, limits)

    def at(self, revision: int) -> Self:
        """Return the stage for records that are matched with this revision."""
        return replace(self, revision=revision)

    def with_index(self, index: IndexLocation, *, stores_matches: bool = False) -> Self:
        """Return the stage with the location of its subscriptions' index, and of its feeds if it stores matches."""
        return replace(self, index=index, stores_matches=stores_matches)

    def with_plans(self, plans: Mapping[int, RowPlan]) -> Self:
        """Return the stage for sinks that receive rows in columns, each by its index."""
        return replace(self, plans=plans)

    @property
    def columns(self) -> dict[int, Schema]:
        """Index of a sink → schema of the fields of the value that it receives in columns."""
        return {number: plan.value for number, plan in self.plans.items() if plan.value.fields}

    def with_limits(self, limits: tuple[KafkaLimits | None, ...]) -> Self:
        """Return the stage with the record size limits of its sinks."""
        sinks = tuple(
            sink.with_limits(limit) if limit is not None and isinstance(sink, KafkaSinkOptions) else sink
            for sink, limit in zip(self.sinks, limits, strict=True)
        )
        return replace(self, limits=limits, sinks=sinks)

    def held_to_brokers(self, route: Route) -> Self:
        """Return the stage with the sizes that the brokers of the route's Kafka sinks take."""
        limits = [
            None if limit is None else endpoint_of(sink).broker_limits(limit)
            for limit, sink in zip(self.limits, route.sinks.values(), strict=True)
        ]
        return self.with_limits(tuple(limits))

    # For mapInArrow

    def publish(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Publish, and give the task's counts when every message is acknowledged, and every transaction committed.

        Raises:
            RunError: a record failed, or a message was refused, and the route tolerates no failures.
            StreamError: a server accepts no messages at all; stored ones stay, and a retry with ids does no harm.
        """
        tally = TaskTally()
        slot, check = _slot(self.part), None if self.fence is None else Fence(self.fence).check
        with paused_gc(freeze=True), self._traced(slot) as stage, Publishers(self.sinks, slot, check) as publishers:
            for rows in batches:
                open_split = open_split_of(rows) if self.splits else None
                if open_split is not None:
                    stage.open_task(*open_split, publishers, tally).run()
                    continue
                split = ", ".join(repr(part) for _, part in splits_of(rows)) if self.splits else ""
                stage.publish_split(rows, (slot and slot.part) or split, publishers, tally)
            tally.acknowledged(publishers.delivery, publishers.duplicates)
        yield tally.rows()

    def publish_split(self, rows: pa.RecordBatch, split: str, publishers: Publishers, tally: TaskTally) -> None:
        """Publish the records of some rows; of a task's split, which is one row, each transaction holds all.

        A transaction with a message that a broker refuses is made again, with a dead letter in its place.
        """
        is_committed = False
        while not is_committed:
            done = publishers.begin(split)
            if done is not None:
                tally.resume(Counts.of_json(done))
                return
            attempt = TaskTally()
            for result in self.results([rows]):
                for part in fitting(result, self.limits):
                    attempt.add(part, *publishers.publish(part))
            attempt.add(*publishers.flush())
            is_committed = publishers.commit(split, (tally.counts + attempt.counts).to_json())
        tally.include(attempt)

    def rows(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Give the messages, and behind them the task's counts.

        Raises:
            RunError: a record failed, or is too large for its Kafka sink, and the route tolerates no failures.
        """
        tally = TaskTally()
        with paused_gc(freeze=True), self._traced(_slot(self.part)) as stage:
            for result in stage.results(batches):
                for part in fitting(result, self.limits):
                    tally.add(part)
                    if len(part.messages):
                        yield self._message_rows(part.messages)
        counted = tally.rows()
        schema = self._schema
        nulls = {item.name: pa.nulls(counted.num_rows, item.type) for item in schema}
        columns = nulls | dict(zip(counted.schema.names, counted.columns, strict=True))
        yield pa.RecordBatch.from_arrays(list(columns.values()), schema=schema)

    @property
    def _schema(self) -> pa.Schema:
        rows = [pa.field(f"{ROW}{number}", arrow_type(schema)) for number, schema in self.columns.items()]
        return pa.schema([*_MESSAGES_SCHEMA, *rows])

    def _message_rows(self, messages: Messages) -> pa.RecordBatch:
        """Return messages in the columns of `MESSAGES`, and the rows of tables beside them."""
        rows = _message_rows(messages)
        for number in self.columns:
            is_own = pa.array(messages.sinks == number)
            values = rows.column("value")
            taken = self._program().writer.rows[number].taken(pc.if_else(is_own, values, None))
            rows = rows.set_column(rows.schema.get_field_index("value"), "value", pc.if_else(is_own, None, values))
            rows = rows.append_column(f"{ROW}{number}", taken)
        return rows.cast(self._schema) if self.columns else rows

    def nothing(self) -> Iterator[pa.RecordBatch]:
        """Make this worker's program of the route, and give the counts of no record."""
        self._program()
        yield TaskTally().rows()

    def results(self, batches: Iterable[pa.RecordBatch]) -> Iterator[Result]:
        """Yield the result of each batch, without publishing it."""
        from turnout.engine import Messages, Result

        recorder = self._recorder()
        for rows in batches:
            if not self.splits:
                yield from self._outcomes(rows, self._index(self.revision))
                continue
            for reader in readers_of(rows):
                index = self._index(self.revision if reader.revision is None else reader.revision)
                for records in reader.batches_with_stream():
                    for result in self._outcomes(records, index):
                        if recorder is not None:
                            recorder.add(result)
                        yield result
                if recorder is not None and reader.stream:
                    recorder.store(reader.stream, reader.start, reader.end)
                if reader.not_read:
                    yield Result(Counts(not_read=reader.not_read), Messages.none())

    def open_task(self, options: Any, split: Any, publishers: Publishers, tally: TaskTally) -> OpenTask:
        """Return the task of an open split."""
        publishers.make_open()
        return OpenTask(options.open_splits, split, split.opens(options), self, publishers, tally, self._recorder())

    def prepare(self, revision: int | None) -> None:
        """Make the program, open the index of a revision, and run once without records: the first takes longest."""
        empty_batch = with_stream(pa.RecordBatch.from_pylist([], schema=SCHEMA), "")
        for _ in self.outcomes(empty_batch, revision):
            pass

    def outcomes(self, records: pa.RecordBatch | ListedRecords, revision: int | None) -> Iterator[Result]:
        """Yield the results for records that are matched with a revision of the subscriptions."""
        return self._outcomes(records, self._index(revision))

    def _outcomes(self, records: pa.RecordBatch | ListedRecords, index: Index | None) -> Iterator[Result]:
        from turnout.engine import pieces

        program = self._program()
        for piece in pieces(records):
            results = program.results(piece, index)
            yield from results if self.task is None else self.task.traced(results)

    def _recorder(self) -> MatchRecorder | None:
        from turnout.runtime.task_index import MatchRecorder

        return MatchRecorder(self.index) if self.stores_matches and self.index is not None else None

    def _index(self, revision: int | None) -> Index | None:
        """Return the subscriptions of a revision; None for a route without."""
        if self.index is None:
            return None
        if revision is None:
            raise StreamError("records without the revision of the subscriptions to match them with")
        return self.index.open(revision)

    def _program(self) -> Program:
        """Return the worker's own program of the route."""
        from turnout.engine import Program

        def program() -> Program:
            route, replay = cloudpickle.loads(self.route)
            return Program.of(route, replay, self.plans, self.traces)

        more = (tuple(self.plans.items()), self.traces)
        key = f"{self.key}{hash(more)}" if any(more) else self.key
        return _programs.get_or_add(key, program)

    @contextmanager
    def _traced(self, slot: Slot | None) -> Iterator[SparkStage]:
        """Record the block as a task; yields the stage that makes the spans of its records, or this one."""
        if self.traces is None:
            yield self
            return
        route = self._program().route
        parent = None if slot is None else micro_batch_context(slot.query, slot.batch)
        facts = messaging(system_of(route.source), "receive", route.source.only_stream)
        with task_span(self.traces, span_name(facts), parent, {**facts, "turnout.route": route.name}) as task:
            yield replace(self, task=task)


def _slot(part: ReplayPart | None) -> Slot | None:
    """Return the slot of this task in a streaming query, or in a part of a replay; None outside of both."""
    context = TaskContext.get()
    if context is not None and part is not None:
        return Slot(part.query, part.number, context.partitionId(), part.text)
    query = None if context is None else context.getLocalProperty("sql.streaming.queryId")
    batch = None if context is None else context.getLocalProperty("streaming.sql.batchId")
    if context is None or query is None or batch is None:
        return None
    return Slot(query, int(batch), context.partitionId())


def _message_rows(messages: Messages) -> pa.RecordBatch:
    """Messages in the columns of `MESSAGES`."""
    count = len(messages)
    columns = {"topic": messages.topics, MESSAGE_ID: messages.ids, SINK: pa.array(messages.sinks, pa.int8())}
    for name in ("value", "headers", "key", "partition", "offset", "timestamp"):
        columns[name] = messages.column(name)
    nulls = (item for item in _MESSAGES_SCHEMA if item.name not in columns)
    columns |= {item.name: pa.nulls(count, item.type) for item in nulls}
    arrays = [
        columns[item.name] if columns[item.name].type.equals(item.type) else columns[item.name].cast(item.type)
        for item in _MESSAGES_SCHEMA
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=_MESSAGES_SCHEMA)
