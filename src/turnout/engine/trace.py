"""Outcome of each record of a batch, and of each stage for one record: for tests, ``explain`` and comparisons."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from turnout.base.untrusted import JsonObject
from turnout.conditions import format_condition
from turnout.engine.counts import Counts, Outcome, Outcomes, StageResult
from turnout.engine.dead_letters import Rejection, failures_of
from turnout.engine.deliveries import NO_SUBSCRIPTION, OutgoingDeliveries
from turnout.engine.messages import Messages
from turnout.engine.reading import Consumed
from turnout.records import Batch, Failure, Record
from turnout.records.text import iso_of, json_of, readable, text_of
from turnout.records.types import Fields, RowIds, Strings
from turnout.routes import Route
from turnout.subjects.mapping import MappingTable, Share, SubjectMapping
from turnout.transforms.base import Errors, Predicate
from turnout.transforms.chain import Guard, StageRunner
from turnout.transforms.community.condition import Condition, texts_of
from turnout.transforms.predicates import HasHeaderKey, RecordIsTombstone

if TYPE_CHECKING:
    from turnout.subscriptions.index import Index


class Watch:
    """Observer of a batch's records between the steps of a program; this base class does nothing."""

    def decoded(self, records: Batch, consumed: Consumed) -> None:
        """Observe the records after their keys and values have been decoded."""

    def before(self, stage: StageRunner, records: Batch) -> None:
        """Observe the records before a stage is applied."""

    def after(self, stage: StageRunner, records: Batch) -> None:
        """Observe the records after a stage has been applied."""

    def transformed(self, records: Batch) -> None:
        """Observe the records after all stages, before topics are mapped."""

    def mapped(self, records: Batch) -> None:
        """Observe the records after mapping; the topic of a record that the weights drop is null."""


@dataclass(frozen=True, slots=True)
class BatchOutcome:
    """Outcomes of a batch's records, the deliveries to send, and the rejections.

    Attributes:
        records: as the transforms and mappings left them.
        consumed: the records as they were read.
        outcomes: by row; none is `Outcome.STOPPED`.
        deliveries: the deliveries to send.
        rejections: failed and unmatched records first, then deliveries.
    """

    records: Batch
    consumed: Consumed
    outcomes: Outcomes
    deliveries: OutgoingDeliveries
    rejections: Sequence[Rejection]


@dataclass(frozen=True, slots=True)
class Trace:
    """Outcomes and messages of each record of a batch.

    Attributes:
        outcomes: by row, an `Outcome` each.
        topics: by row, as transformed and mapped; None where the weights lose the record.
        rows: the row of each message; messages are in the order of `Messages`, dead letters last.
        subscriptions: of each message, the id of the subscription that it is for, as Arrow text; null for none.
        destinations: destinations of each message, as the subscription names it (``sink:topic`` where it names a sink).
        messages: messages to send: topics, ids, encoded values. A record that stops the run has its dead letter among
            them if the route has a topic for it, although a run does not send it.
        letters: how many of the messages are dead letters.
        projected: indices of the messages with a body of their own.
        failures: row → why it failed.
        records: keys, values and headers after the transforms, of the remaining records.
        counts: counts of the batch.
    """

    outcomes: Outcomes
    topics: Sequence[str | None]
    rows: RowIds
    subscriptions: Strings
    destinations: Strings
    messages: Messages
    letters: int
    projected: RowIds
    failures: Mapping[int, Failure]
    records: Batch
    counts: Counts

    def __len__(self) -> int:
        return len(self.outcomes)

    def outcome(self, row: int) -> Outcome:
        """Return the outcome of one record."""
        return Outcome(int(self.outcomes[row]))

    def messages_of(self, row: int) -> RowIds:
        """Return the indices of one record's messages, its dead letter among them."""
        return np.flatnonzero(self.rows == row)

    def is_letter(self, number: int) -> bool:
        """Return True if the message at an index is a dead letter."""
        return number >= len(self.rows) - self.letters


def traced(route: Route, ended: BatchOutcome, counts: Counts, messages: Messages, index: Index | None) -> Trace:
    """Return the trace of a batch that has been run.

    Args:
        route: the route.
        ended: the outcomes.
        counts: counts of the batch.
        messages: messages to send.
        index: the subscriptions that the batch was matched with.
    """
    letters = ended.rejections if route.dead_letter is not None else ()
    rows = np.concatenate([ended.deliveries.rows, np.array([letter.row for letter in letters], np.int64)])
    assert len(rows) == len(messages), "a message for each delivery, and for each dead letter"
    subscriptions, destinations = _addressed(ended, index)
    if route.dead_letter is not None:
        subscriptions += [letter.subscription for letter in letters]
        destinations += [route.dead_letter.topic] * len(letters)
    failures = failures_of(ended.rejections)
    outcomes = ended.outcomes
    if route.errors.tolerance == "none":
        outcomes = outcomes.copy()
        outcomes[list(failures)] = Outcome.STOPPED
    return Trace(
        outcomes,
        list(ended.records.topics),
        rows,
        pa.array(subscriptions, pa.string()),
        pa.array(destinations, pa.string()),
        messages,
        len(letters),
        np.flatnonzero(np.zeros(0) if ended.deliveries.bodies is None else ended.deliveries.bodies >= 0),
        failures,
        ended.records,
        counts,
    )


def _addressed(ended: BatchOutcome, index: Index | None) -> tuple[list[str | None], list[str | None]]:
    """Return each delivery's subscription id, None for a record under its own topic, and its destination."""
    sent = ended.deliveries
    ids: list[str | None] = [None] * len(sent)
    destinations: list[str | None] = [ended.records.topics[row] for row in sent.rows.tolist()]
    of_index = np.flatnonzero(sent.subscriptions != NO_SUBSCRIPTION)
    if index is None or not len(of_index):
        return ids, destinations
    subscriptions = index.subscription_ids(sent.subscriptions[of_index]).to_pylist()
    texts = index.destinations(sent.destinations[of_index]).to_pylist()
    for number, id_, text in zip(of_index.tolist(), subscriptions, texts, strict=True):
        ids[number], destinations[number] = id_, text
    return ids, destinations


@dataclass(frozen=True, slots=True)
class ChosenMapping:
    """The mapping that a topic takes.

    Attributes:
        mapping: the first whose source matches.
        group: the cluster whose destinations apply, "" for the default ones.
        share: the one that the draw falls into; None if it falls into the lost share.
    """

    mapping: SubjectMapping
    group: str
    share: Share | None


def chosen_by(table: MappingTable, cluster: str | None, topic: str, draw: float) -> ChosenMapping | None:
    """Return the mapping that *topic* takes with this draw; None where nothing maps it."""
    mapping = table.find(topic)
    if mapping is None:
        return None
    group = cluster if cluster and cluster in mapping.groups else ""
    return ChosenMapping(mapping, group, mapping.choose(cluster, draw))


@dataclass(frozen=True, slots=True)
class Mapped:
    """Result of the mappings for a record's topic.

    Attributes:
        topic: before.
        source: source of the mapping that was taken; None where none matches.
        group: the cluster whose destinations apply, "" for the default ones.
        destination: the one that was chosen; None where the record is lost.
        share: how often it is chosen, in percent; of a lost record, how often that happens.
        draw: the record's number in [0, 1), from its topic, partition and offset.
        drawn: whether the draw made a difference.
        mapped: the topic afterwards; None where the record is lost.
    """

    topic: str
    source: str | None
    group: str
    destination: str | None
    share: int
    draw: float
    drawn: bool
    mapped: str | None


def mapped_by(route: Route, topic: str, draw: float, mapped: str | None) -> Mapped:
    """Return the report of the route's mappings, which turned *topic* into *mapped*."""
    chosen = chosen_by(route.mappings, route.cluster, topic, draw)
    if chosen is None:
        return Mapped(topic, None, "", topic, 100, draw, drawn=False, mapped=mapped)
    shares = chosen.mapping.group(route.cluster)
    share = chosen.share
    weight = 100 - sum(each.weight for each in shares) if share is None else share.weight
    is_random = weight < 100 or any(each.transform.is_random for each in shares)
    destination = None if share is None else share.transform.destination
    return Mapped(topic, chosen.mapping.source, chosen.group, destination, weight, draw, is_random, mapped)


@dataclass(frozen=True, slots=True)
class PredicateAnswer:
    """Result of one predicate.

    Attributes:
        predicate: the predicate with its options.
        negate: whether its answer was turned around.
        holds: its own answer, before that.
        saw: the values that it read, by name.
    """

    alias: str
    predicate: str
    negate: bool
    holds: bool
    saw: Mapping[str, str | None]


@dataclass(frozen=True, slots=True)
class StageReport:
    """Report on one stage for the record.

    Attributes:
        outcome: how `StageResult` is explained: ``applied``, ``not matched``, ``dropped``, ``failed`` or ``skipped``.
        error: why it failed.
    """

    name: str
    transform: str
    answers: tuple[PredicateAnswer, ...]
    outcome: str
    before: Fields
    after: Fields
    error: str | None = None


class StageWatch(Watch):
    """Reports the effects of the stages on the only record of a batch.

    Attributes:
        reports: a report for each stage, and one before them where the record cannot be decoded.
        read: the record as it was read, decoded if it can be.
    """

    def __init__(self, route: Route) -> None:
        self._route = route
        self._answers: tuple[PredicateAnswer, ...] = ()
        self._dead = False
        self._now: Fields = {}
        self.reports: list[StageReport] = []
        self.read: Fields = {}

    def decoded(self, records: Batch, consumed: Consumed) -> None:
        """Keep the record as it was read, and report a failure to decode it."""
        self._now = self.read = _as_read(records, consumed) if records.failures else record_as_json(records.record(0))
        if records.failures:
            failure = records.failures[0]
            side, codec = ("key", self._route.key) if failure.stage == "KEY_CONVERTER" else ("value", self._route.value)
            self.reports.append(
                StageReport(side, codec.format, (), StageResult.FAILED, self.read, self.read, failure.message)
            )

    def before(self, stage: StageRunner, records: Batch) -> None:
        """Evaluate the predicates of the stage before it is applied."""
        self._dead = bool(records.outcomes[0])
        self._answers = () if self._dead else tuple(_answer(guard, records) for guard in stage.stage.guards)

    def after(self, stage: StageRunner, records: Batch) -> None:
        """Report the effect of the stage."""
        result = StageResult.SKIPPED if self._dead else _result(stage, self._answers, records)
        after = self._now if records.outcomes[0] else record_as_json(records.record(0))
        error = records.failures[0].message if result is StageResult.FAILED else None
        label = stage.stage.transform.label
        report = StageReport(stage.stage.name, label, self._answers, result.explained, self._now, after, error)
        self.reports.append(report)
        self._now = after


def _result(runner: StageRunner, answers: tuple[PredicateAnswer, ...], records: Batch) -> StageResult:
    ended = StageResult.of_ended(records, 0)
    if ended is not None:
        return ended
    if runner.noted:
        return StageResult.NOT_MATCHED
    applies = all(answer.holds != answer.negate for answer in answers) != (runner.stage.negate and bool(answers))
    return StageResult.APPLIED if applies else StageResult.NOT_MATCHED


def _answer(guard: Guard, records: Batch) -> PredicateAnswer:
    errors: Errors = {}
    holds = bool(np.asarray(guard.predicate.test(records, errors))[0])
    return PredicateAnswer(
        guard.alias, predicate_text(guard.predicate), guard.negate, holds, _operands(guard.predicate, records)
    )


def predicate_text(predicate: Predicate) -> str:
    """Return a predicate with its options."""
    return f"Condition({format_condition(predicate.tree)})" if isinstance(predicate, Condition) else repr(predicate)


def _operands(predicate: Predicate, records: Batch) -> dict[str, str | None]:
    """Return the predicate's inputs from the only record of a batch; the topic for an unknown predicate."""
    match predicate:
        case Condition():
            return {key: texts_of(records, key)[0] for key in predicate.keys}
        case HasHeaderKey():
            return {"headers": ", ".join(header.name for header in records.headers.of(0))}
        case RecordIsTombstone():
            record = records.record(0)
            return {"value": text_of(record.value, record.value_schema)}
    return {"topic": records.topics[0]}


def record_as_json(record: Record) -> JsonObject:
    """Return a record as plain JSON."""
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "key": text_of(record.key, record.key_schema),
        "value": readable(record.value)
        if isinstance(record.value, bytes)
        else json_of(record.value, record.value_schema),
        "headers": [
            [
                header.name,
                readable(header.value) if isinstance(header.value, bytes) else text_of(header.value, header.schema),
            ]
            for header in record.headers
        ],
        "timestamp": None if record.timestamp is None else iso_of(record.timestamp),
    }


def _as_read(records: Batch, consumed: Consumed) -> JsonObject:
    """Return the only record of a batch before anything was decoded."""
    parts = {"topic": consumed.topics[0], "key": readable(consumed.keys[0]), "value": readable(consumed.values[0])}
    return {**record_as_json(records.record(0)), **parts}
