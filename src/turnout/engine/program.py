"""A route as a program: a batch of records in, messages, dead letters and counts out.

Every record takes the same way: decode, transforms, mapping, match (or what ``unmatched`` sets), fan-out, encode. A
record that fails on it leaves with the stage, the reason and its original bytes; the rest of the batch is not affected.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from turnout.base.caches import LruCache
from turnout.base.multivalued import single_texts
from turnout.codecs import Codec, codec_of
from turnout.codecs.plain_json import SchemalessJson
from turnout.engine.counts import (
    DEAD_LETTER,
    MAPPING,
    MATCH,
    SINK,
    Counts,
    StageCounter,
    Stages,
    numbers_of_outcomes,
    outcomes_of,
)
from turnout.engine.dead_letters import FailureLog, Rejection, dead_letters, rejected_deliveries, stop_at
from turnout.engine.deliveries import (
    NO_SUBSCRIPTION,
    Addresses,
    Fanout,
    FeedMatches,
    OutgoingDeliveries,
    OwnTopics,
    with_matches,
)
from turnout.engine.messages import (
    HeaderRules,
    LineageHeaders,
    ListedMessages,
    Messages,
    ids_of_listed,
    message_ids,
    record_columns,
)
from turnout.engine.metadata import Metadata, record_times, texts_of
from turnout.engine.reading import Consumed, SourceRules, batch_of
from turnout.engine.replay import Replay, Where
from turnout.engine.result import Result, Sent
from turnout.engine.scheduling import Scheduler
from turnout.engine.spans import RouteTracer, SpanCounter
from turnout.engine.trace import BatchOutcome, Trace, Watch, traced
from turnout.engine.writing import Outgoing, Writer, encode_block
from turnout.errors import RecordError
from turnout.expressions import BatchReader, Expression, ExpressionError, looking_up
from turnout.records import Batch, Positions, group
from turnout.records.batch import ListedRecords, as_batch
from turnout.records.block import rows_of
from turnout.records.types import ArrowArray, ArrowBatch, DynamicValue, RowIds
from turnout.routes import Route
from turnout.routes.endpoints.tables import MATCHES
from turnout.routes.rows import RowPlan
from turnout.subjects.arrays import Mapper, draws_of
from turnout.traces.spans import TraceSettings
from turnout.transforms.chain import ChainRunner

if TYPE_CHECKING:
    from turnout.subscriptions.index import Index

_JSON = SchemalessJson()


@dataclass(frozen=True, slots=True)
class Projections:
    """Bodies of a batch that are not the values of their records.

    Attributes:
        rows: rows of the record of each.
        values: values of each; None is a tombstone.
    """

    rows: Sequence[int] = ()
    values: Sequence[bytes | None] = ()


def project(
    records: Batch, deliveries: OutgoingDeliveries, index: Index | None
) -> tuple[OutgoingDeliveries, Projections]:
    """Return the deliveries with the numbers of their bodies, and the bodies; a failed projection gets a problem.

    Without projections the deliveries are unchanged.

    Args:
        records: records of the batch, as transformed and mapped.
        deliveries: deliveries of the batch.
        index: the subscriptions that they were matched with.

    Raises:
        MissingExtraError: there are projections, and no ``cel-expr-python`` to evaluate them.
    """
    if index is None or not index.projects or not len(deliveries):
        return deliveries, Projections()
    own = np.flatnonzero(deliveries.subscriptions != NO_SUBSCRIPTION)
    own = own[[number not in deliveries.problems for number in own.tolist()]]
    numbers = np.full(len(deliveries), -1, np.int64)
    rows: list[int] = []
    values: list[bytes | None] = []
    problems = dict(deliveries.problems)
    for text, indices in index.projections(deliveries.subscriptions[own]):
        own_indices = own[indices]
        distinct, codes = np.unique(deliveries.rows[own_indices], return_inverse=True)
        bodies, errors = bodies_of(Expression(text), records, distinct)
        numbers[own_indices] = codes + len(rows)
        rows += distinct.tolist()
        values += bodies
        if errors:
            wrong = (
                (number, errors.get(code)) for number, code in zip(own_indices.tolist(), codes.tolist(), strict=True)
            )
            problems |= {number: f"has no message by its projection: {error}" for number, error in wrong if error}
    return replace(deliveries, problems=problems, bodies=numbers if rows else None), Projections(rows, values)


def bodies_of(
    expression: Expression, records: Batch, rows: RowIds
) -> tuple[list[bytes | None], dict[int, RecordError]]:
    """Return the result of an expression for each of some records, and index → error for the others.

    A text is its characters in UTF-8, bytes are themselves, null is a tombstone, anything else is JSON.
    """
    errors: dict[int, RecordError] = {}
    found: list[DynamicValue] = []
    try:
        reader = BatchReader(records, expression.references.paths, rows)
        for number, row in enumerate(rows.tolist()):
            try:
                found.append(expression.evaluate(reader.inputs(row)))
            except RecordError as error:
                errors[number] = error
                found.append(None)
    except ExpressionError as error:
        # Another version of turnout may have stored it.
        return [None] * len(rows), dict.fromkeys(range(len(rows)), RecordError(str(error)))
    bodies: list[bytes | None] = [
        value.encode() if isinstance(value, str) else value if isinstance(value, bytes) else None for value in found
    ]
    others = [number for number, value in enumerate(found) if value is not None and not isinstance(value, str | bytes)]
    for block in group(rows_of(len(others)), None, [found[number] for number in others]):
        encoded, wrong = encode_block(records, _JSON, block)
        for index, (number, body) in enumerate(zip(block.rows.tolist(), encoded, strict=True)):
            bodies[others[number]] = body
            if index in wrong:
                errors[others[number]] = wrong[index]
    return bodies, errors


class Program:
    """Compiled route; it caches facts about schemas, topics and values between batches.

    One thread at a time may use it; pickling stores its arguments.

    Args:
        route: the route.
        replay: differences if earlier records are delivered again.
        plans: index of a sink → columns of the rows that Spark writes for it; without, its messages are bytes.
        traces: settings of the spans of sampled records; None for none.

    >>> from turnout.engine.sample_records import SampleRecord, record_batch
    >>> text = '''
    ... name: orders
    ... source: {format: nats, servers: "nats://127.0.0.1:4222", stream: ORDERS}
    ... value: {format: json}
    ... transforms: [{name: mask, type: MaskField$Value, fields: phone}]
    ... mappings: {"orders.*": "eu.{{wildcard(1)}}"}
    ... sink: {format: nats, servers: "nats://127.0.0.1:4222"}
    ... errors: {tolerance: all}
    ... deadLetter: {topic: dead}
    ... '''
    >>> good = SampleRecord.of({"topic": "orders.17", "value": {"n": 1, "phone": "555"}})
    >>> bad = SampleRecord.of({"topic": "orders.18", "value": "no object"})
    >>> result = Program.of(Route.parse(text)).run(record_batch([good, bad]))
    >>> result.messages.topics.to_pylist()
    ['eu.17', 'dead']
    >>> result.messages.column("value").to_pylist()
    [b'{"n":1,"phone":""}', b'no object']
    >>> result.counts.delivered, result.counts.dead_lettered
    (1, 1)
    """

    def __init__(
        self,
        route: Route,
        replay: Replay | None = None,
        plans: Mapping[int, RowPlan] | None = None,
        traces: TraceSettings | None = None,
    ) -> None:
        self.route = route = route.with_tables()
        self._tracer = None if traces is None else RouteTracer(route, traces)
        self._lookups = {name: table.rows for name, table in route.tables.items() if table.rows is not None}
        self._plans = plans or {}
        self._rows = {number for number, plan in self._plans.items() if plan.value.fields}
        names = list(route.sinks)
        self._matches = names.index(MATCHES) if MATCHES in names and names.index(MATCHES) in self._rows else None
        self.replay = replay
        self.key: Codec = codec_of(route.key)
        self.value: Codec = codec_of(route.value)
        self.rules = SourceRules.of(route.source, self.value)
        self.chain = ChainRunner(route.chain)
        self._stages = Stages.of(route)
        self.mapper = Mapper(route.mappings, route.cluster) if len(route.mappings) else None
        paths = route.subscriptions.metadata if route.subscriptions else {}
        self.metadata = Metadata(paths)
        self.where = Where(replay.where, paths) if replay is not None and replay.where is not None else None
        self.addresses = Addresses(route)
        self.header_rules = HeaderRules(route)
        self.writer = Writer(route, self.header_rules, self.key, self.value, self._plans)
        self.lineage = LineageHeaders(route)
        self.scheduler = Scheduler(route)
        # Two revisions are in use while the next micro-batch begins.
        self._fanouts = LruCache[int, Fanout](2)
        # With subscriptions, an unmatched record is sent under its own topic.
        self._own_topics = OwnTopics([route.name, ""] if route.subscriptions else [route.name], self.addresses)

    @classmethod
    def of(
        cls,
        route: Route,
        replay: Replay | None = None,
        plans: Mapping[int, RowPlan] | None = None,
        traces: TraceSettings | None = None,
    ) -> Program:
        """Return the program of a route."""
        return cls(route, replay, plans, traces)

    def __reduce__(self) -> tuple[object, ...]:
        traces = None if self._tracer is None else self._tracer.settings
        return Program.of, (self.route, self.replay, self._plans, traces)

    # One batch

    def run(self, batch: ArrowBatch | ListedRecords, index: Index | None = None) -> Result:
        """Run the whole route on a batch.

        Args:
            batch: a `pyarrow.RecordBatch` with the record's columns, ``stream`` for records of JetStream; or a few
                of these as lists.
            index: the subscriptions of the batch's revision; None for a route without subscriptions.

        Raises:
            RunError: a record failed, and the route tolerates no failures; names its position and the reason.
        """
        result, ended = self._run(batch, index, _UNWATCHED)
        stop_at(self.route, ended.rejections, ended.consumed)
        return result

    def results(self, batch: ArrowBatch | ListedRecords, index: Index | None = None) -> Iterator[Result]:
        """Yield results of the route on a batch, of its halves where its records are decompressed to too many bytes.

        Args:
            batch: as for `run`.
            index: likewise.

        Raises:
            RunError: as for `run`.
        """
        result, ended = self._run(batch, index, _UNWATCHED)
        if ended.records.has_overflow and len(ended.records) > 1:
            del result, ended
            whole = as_batch(batch)
            half = whole.num_rows // 2
            for part in (whole.slice(0, half), whole.slice(half)):
                yield from self.results(part, index)
            return
        stop_at(self.route, ended.rejections, ended.consumed)
        yield result

    def trace(self, batch: ArrowBatch | ListedRecords, index: Index | None = None, watch: Watch | None = None) -> Trace:
        """Run the route as `run` does, and return the outcome of each record; failures do not stop it.

        Args:
            batch: as for `run`.
            index: likewise.
            watch: is shown the records between the steps.
        """
        result, ended = self._run(batch, index, watch or _UNWATCHED)
        return traced(self.route, ended, result.counts, result.messages, index)

    def _run(self, batch: ArrowBatch | ListedRecords, index: Index | None, watch: Watch) -> tuple[Result, BatchOutcome]:
        stages = StageCounter(time.perf_counter()) if self._tracer is None else SpanCounter(self._tracer)
        records, consumed = batch_of(batch, self.key, self.value, self.rules)
        watch.decoded(records, consumed)
        log = FailureLog(self.route.errors, consumed)
        keys = sum(failure.stage == "KEY_CONVERTER" for failure in records.failures.values())
        stages.decoded(records, consumed, keys)
        with looking_up(self._lookups):
            for stage, name in zip(self.chain.stages, self._stages.transforms, strict=True):
                watch.before(stage, records)
                stages.enter(name, records.alive_count, len(records.failures))
                stage.apply(records)
                watch.after(stage, records)
                log.passed_over(stage.noted)
        watch.transformed(records)
        alive = records.alive
        if self.mapper is not None:
            stages.enter(MAPPING, len(alive), len(records.failures))
        lost = self._map(records, consumed, alive)
        watch.mapped(records)
        if self.where is not None:
            mapped = np.setdiff1d(alive, lost, assume_unique=True)
            records.filter(np.setdiff1d(mapped, self.where.chosen(records, mapped), assume_unique=True))
            alive = records.alive
        if self.route.subscriptions is not None:
            stages.enter(MATCH, len(alive) - len(lost), len(records.failures))
        deliveries, unmatched = self._deliver(records, alive, lost, index)
        refused = len(unmatched) if self.route.unmatched == "deadLetter" else 0
        stages.enter(SINK, len(alive) - len(lost) - len(unmatched), len(records.failures) + refused)
        return self._finish(records, consumed, lost, deliveries, unmatched, index, log, stages)

    def transformed(self, batch: ArrowBatch) -> Batch:
        """Return a batch decoded, transformed and mapped; records that the weights drop count as filtered."""
        records, consumed = batch_of(batch, self.key, self.value, self.rules)
        with looking_up(self._lookups):
            self.chain.apply(records)
        records.filter(self._map(records, consumed, records.alive))
        return records

    def sample(self, batch: ArrowBatch, keys: Sequence[str]) -> list[dict[str, str]]:
        """Return the metadata under *keys* of each record that would be matched, for the choice of anchors.

        Of several values of a key it is the first.
        """
        records = self.transformed(batch)
        alive = records.alive
        columns = self.metadata.columns(records, alive, keys)
        return [single_texts(texts_of(columns, number)) for number in range(len(alive))]

    def _map(self, records: Batch, consumed: Consumed, alive: Positions) -> RowIds:
        """Give the records their mapped topics; return the rows of the records that the weights drop."""
        if self.mapper is None:
            return _NO_ROWS
        topics = records.by_row(records.topics, alive)

        def draws(indices: list[int]) -> NDArray[np.float64]:
            rows = alive[np.array(indices, np.intp)].tolist()
            return draws_of(
                [consumed.topics[row] or "" for row in rows],
                [records.partitions[row] for row in rows],
                [records.offsets[row] if records.offsets is not None else None for row in rows],
            )

        mapped = self.mapper.apply([topic or "" for topic in topics], draws)
        if len(alive) == len(records):
            records.topics = mapped
        else:
            for row, topic in zip(alive.tolist(), mapped, strict=True):
                records.topics[row] = topic
        if None not in mapped:
            return _NO_ROWS
        lost = [number for number, topic in enumerate(mapped) if topic is None]
        return alive[np.array(lost, np.intp)].astype(np.int64)

    # Matching

    def _deliver(
        self, records: Batch, alive: Positions, lost: RowIds, index: Index | None
    ) -> tuple[OutgoingDeliveries, RowIds]:
        """Return the messages to send, and the rows of the records that no subscription matches."""
        rows = alive.astype(np.int64, copy=False)
        if index is None:
            rows = np.setdiff1d(rows, lost, assume_unique=True) if len(lost) else rows
            return self._own_topics.of(rows, records.by_row(records.topics, rows)), _NO_ROWS
        kept = ~np.isin(rows, lost) if len(lost) else np.ones(len(rows), np.bool_)
        # Few records are lost: keeping them costs less than removing them from every column.
        columns = self.metadata.columns(records, alive, index.keys)
        matches = index.match(columns, len(alive), times=record_times(records, alive, index))
        if len(lost):
            indices = np.flatnonzero(kept[matches.rows])
            matches = matches.take(indices)
        deliveries = self._fanout_of(index).of(index.deliveries(matches), rows)
        kept[matches.rows] = False
        unmatched = rows[kept]
        if len(unmatched) and self.route.unmatched == "pass":
            topics = [records.topics[row] for row in unmatched.tolist()]
            return deliveries.merged(self._own_topics.of(unmatched, topics)), unmatched[:0]
        return deliveries, unmatched

    def _fanout_of(self, index: Index) -> Fanout:
        # It holds the index, whose id no other object has as long as it is cached.
        return self._fanouts.get_or_add(id(index), lambda: Fanout(self.route.name, index, self.addresses))

    # Messages

    def _finish(
        self,
        records: Batch,
        consumed: Consumed,
        lost: RowIds,
        deliveries: OutgoingDeliveries,
        unmatched: RowIds,
        index: Index | None,
        log: FailureLog,
        stages: StageCounter,
    ) -> tuple[Result, BatchOutcome]:
        route = self.route
        deliveries, projections = project(records, deliveries, index)
        deliveries = self.scheduler.schedule(records, consumed, deliveries)
        if self._rows and deliveries.bodies is not None:
            deliveries = _without_bodies_in(deliveries, list(self._rows))
        undeliverable = rejected_deliveries(route, records.topics, index, deliveries, deliveries.problems)
        deliveries = deliveries.sendable()
        if index is not None and self._matches is not None:
            deliveries = with_matches(deliveries, index, self._matches)
        outgoing = self.writer.written_for(records, deliveries, repeated=index is not None)
        sent_rows = (
            outgoing[0].rows if len(outgoing) == 1 else np.unique(np.concatenate([one.rows for one in outgoing]))
        )
        if records.failures:
            # A record that could not be written is a dead letter, and none of its messages is sent.
            deliveries = deliveries.of_rows(sent_rows)
            undeliverable = [rejection for rejection in undeliverable if rejection.row not in records.failures]
        rejections = [*self._rejected_records(records, unmatched), *undeliverable]
        log.rejected(rejections)
        rejected = np.array([rejection.row for rejection in rejections], np.int64) if rejections else _NO_ROWS
        if undeliverable:
            # Other deliveries of their records are sent.
            rejected = np.setdiff1d(rejected, sent_rows)
        outcomes = outcomes_of(route, records, lost, unmatched, rejected, sent_rows)
        matched = None
        if index is not None and route.subscriptions is not None and route.subscriptions.feeds:
            matched = FeedMatches.of(consumed.batch, deliveries, index)
        if index is not None:
            deliveries = deliveries.to_sinks()
        numbers = numbers_of_outcomes(outcomes) | {
            "messages": len(deliveries),
            "undeliverable": len(undeliverable),
            "dropped_headers": sum(one.dropped_headers for one in outgoing),
            "reserved_headers": consumed.reserved_headers,
        }
        messages = stages.marked(self._outgoing(consumed, deliveries, outgoing, projections, index), deliveries.rows)
        if rejections and route.dead_letter is not None:
            whole = messages.whole if isinstance(messages, ListedMessages) else messages
            messages = whole.joined(dead_letters(route, self.addresses, self.header_rules, consumed, rejections))
        sent = Sent(route, self.addresses, self.header_rules, consumed, records.topics, index, deliveries)
        dead_lettered = numbers["dead_lettered"]
        stages.enter(DEAD_LETTER, dead_lettered, dead_lettered + numbers["discarded"])
        counts = Counts.of(numbers, stages.flow(self._stages.names))
        spans = stages.spans(outcomes, records.failures)
        return Result(counts, messages, log.lines(), sent, matched, spans=spans), BatchOutcome(
            records, consumed, outcomes, deliveries, rejections
        )

    def _rejected_records(self, records: Batch, unmatched: RowIds) -> list[Rejection]:
        """Return a rejection of each failed record, and of each unmatched one where the route sets those aside."""
        rows = {*records.failures}
        if self.route.unmatched == "deadLetter":
            rows.update(unmatched.tolist())
        return [Rejection(row, records.failures.get(row)) for row in sorted(rows)]

    def _outgoing(
        self,
        consumed: Consumed,
        deliveries: OutgoingDeliveries,
        outgoing: Sequence[Outgoing],
        projections: Projections,
        index: Index | None,
    ) -> Messages | ListedMessages:
        """Return the messages of the deliveries, as lists where they are few, all alike, and for one sink."""

        def make() -> Messages:
            return self._messages(consumed, deliveries, outgoing, projections, index)

        first = outgoing[0]
        listed, headers = consumed.source, first.header_pairs
        is_special = self.replay is not None or self.lineage.enabled or not self.writer.lists_keys
        is_special = is_special or deliveries.due is not None
        if is_special or len(outgoing) > 1 or deliveries.sinks is not None or deliveries.bodies is not None:
            return make()
        if not isinstance(listed, ListedRecords) or isinstance(headers, pa.Array):
            return make()
        rows = first.rows.tolist()
        indices = {row: at for at, row in enumerate(rows)}
        of_records = deliveries.rows.tolist()
        # A delivery without a topic has a problem, and is not here any more.
        return ListedMessages(
            cast("Sequence[str]", deliveries.topics.listed),
            ids_of_listed(listed, of_records, deliveries.suffixes.listed),
            [indices[row] for row in of_records],
            first.values.listed(first.rows),
            headers,
            first.keys.listed(first.rows),
            [listed.partitions[row] for row in rows],
            [listed.times[row] for row in rows],
            make,
        )

    def _messages(
        self,
        consumed: Consumed,
        deliveries: OutgoingDeliveries,
        outgoing: Sequence[Outgoing],
        projections: Projections,
        index: Index | None,
    ) -> Messages:
        """Return the messages of the deliveries."""
        # A record has an entry for each pair of formats that its messages have.
        rows = np.concatenate([one.rows for one in outgoing])
        indices, entries = np.zeros((len(outgoing), len(consumed.topics)), np.int64), 0
        for form, one in enumerate(outgoing):
            indices[form, one.rows] = np.arange(len(one.rows)) + entries
            entries += len(one.rows)
        values = _concatenated([one.values.array(one.rows) for one in outgoing])
        keys = _concatenated([one.keys.array(one.rows) for one in outgoing])
        headers = _concatenated([one.headers for one in outgoing])
        carried = indices[self.writer.forms_of(deliveries), deliveries.rows]
        if deliveries.bodies is not None:
            chosen = deliveries.bodies >= 0
            own, first, projected = np.unique(deliveries.bodies[chosen], return_index=True, return_inverse=True)
            # Beside its own body a message has the key and the headers of its record.
            beside = carried[chosen][first]
            carried[chosen] = projected + entries
            own_rows = [projections.rows[number] for number in own.tolist()]
            rows = np.concatenate([rows, np.array(own_rows, np.int64)])
            bodies = [projections.values[number] for number in own.tolist()]
            values = pa.concat_arrays([values, pa.array(bodies, pa.binary())])
            kept = pa.array(np.concatenate([np.arange(entries), beside]))
            keys, headers = keys.take(kept), headers.take(kept)
        messages = Messages(
            deliveries.topics.array,
            message_ids(consumed.batch, deliveries.rows, deliveries.suffixes.array),
            np.zeros(len(deliveries), np.int8) if deliveries.sinks is None else deliveries.sinks,
            carried,
            record_columns(consumed.batch, rows, values, headers, keys),
        )
        if self.replay is not None:
            messages = self.replay.with_replay_ids(messages)
        if self.lineage.enabled:
            messages = self.lineage.added(messages, rows, consumed, None if index is None else index.revision)
        return self.scheduler.waiting(messages, deliveries)


def _concatenated(arrays: Sequence[ArrowArray]) -> ArrowArray:
    return arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)


def _without_bodies_in(deliveries: OutgoingDeliveries, tables: list[int]) -> OutgoingDeliveries:
    """Return the deliveries, a problem for each with a body of its own to a table."""
    assert deliveries.bodies is not None
    sinks = np.zeros(len(deliveries), np.int8) if deliveries.sinks is None else deliveries.sinks
    wrong = np.flatnonzero((deliveries.bodies >= 0) & np.isin(sinks, tables)).tolist()
    reason = "has a projection, and a row of a table has the columns of the route"
    return replace(deliveries, problems={**dict.fromkeys(wrong, reason), **deliveries.problems})


_UNWATCHED = Watch()
_NO_ROWS: Final = np.zeros(0, np.int64)
