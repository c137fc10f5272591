"""Explanation of one record's way through a route, by one observed run of the program."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final

from turnout.base.clocks import milliseconds_now
from turnout.base.multivalued import Metadata, readable_texts
from turnout.base.untrusted import JsonObject, is_whole
from turnout.codecs import Notation, TextNotation
from turnout.conditions import SeenLeaf, blame, format_condition, keys_of, true_leaves
from turnout.engine.counts import Outcome
from turnout.engine.metadata import texts_of
from turnout.engine.program import Program
from turnout.engine.reading import Consumed
from turnout.engine.trace import Mapped, StageReport, StageWatch, Trace, mapped_by
from turnout.engine.writing import MessageNotations
from turnout.errors import SubscriptionNotFoundError
from turnout.records import Batch, Failure
from turnout.records.text import iso_of, readable, text_of
from turnout.records.types import DynamicValue, Fields
from turnout.secrets import masked_url
from turnout.subjects.arrays import draws_of
from turnout.subscriptions.destinations import delivery_address

if TYPE_CHECKING:
    from turnout.routes.webhooks import WebhooksPart
    from turnout.subscriptions import Subscription
    from turnout.subscriptions.index import Index


_ACTIONS: Final = {
    "c": "insert",
    "u": "update",
    "d": "delete",
    "r": "read by a snapshot",
    "t": "truncate",
    "m": "message",
}
_CONTAINERS: Final = ("db", "schema", "table", "collection")
_POSITIONS: Final = ("lsn", "file", "pos", "gtid", "scn", "change_lsn", "commit_lsn", "row", "txId")
"""Fields of the source that say where in the database's log a change is."""

_NO_ROW_BEFORE: Final = "the event has no row before the change: the table's replica identity or the log leaves it out"


@dataclass(frozen=True, slots=True)
class ChangeEvent:
    """Parts of a change event.

    Attributes:
        action: ``insert``, ``update``, ``delete``, ``read by a snapshot``, ``truncate`` or ``message``.
        table: names of database, schema and table, as far as there are, with dots.
        origin: the connector, the position in the database's log, and the time there.
        before: the row before; None where there was none, or the event does not have it.
        after: the row after; None where there is none.
        remark: about a row that is missing; "" if none is.
    """

    action: str
    table: str
    origin: str
    before: DynamicValue
    after: DynamicValue
    remark: str = ""


def change_event(value: DynamicValue) -> ChangeEvent | None:
    """Return the parts of a value that is a change event; None for others.

    Args:
        value: as JSON has it.

    >>> event = change_event({"op": "d", "before": {"id": 7}, "after": None, "source": {"db": "shop", "table": "item"}})
    >>> event.action, event.table, event.before
    ('delete', 'shop.item', {'id': 7})
    >>> change_event({"op": "d", "source": "shop"}) is None
    True
    """
    if not isinstance(value, Mapping) or not isinstance(value.get("source"), Mapping):
        return None
    op, source = value.get("op"), value["source"]
    action = _ACTIONS.get(op) if isinstance(op, str) else None
    if action is None or not {"before", "after", "message"} & value.keys():
        return None
    before, after = value.get("before"), value.get("after")
    remark = ""
    if op in ("u", "d") and before is None:
        remark = _NO_ROW_BEFORE
    table = ".".join(str(source[name]) for name in _CONTAINERS if source.get(name) is not None)
    return ChangeEvent(action, table, ", ".join(_origin(source, value.get("ts_ms"))), before, after, remark)


def _origin(source: Mapping[str, DynamicValue], read_at: DynamicValue) -> Iterator[str]:
    """Yield the phrases about a change's origin."""
    connector, server, version = (source.get(name) for name in ("connector", "name", "version"))
    yield " ".join(
        [
            f"connector {connector}" if connector is not None else "a connector without a name",
            *([] if server is None else [f"of {server}"]),
            *([] if version is None else [f"(Debezium {version})"]),
        ]
    )
    if source.get("snapshot") not in (None, False, "false"):
        yield "in a snapshot"
    positions = [f"{name} {source[name]}" for name in _POSITIONS if source.get(name) is not None]
    if positions:
        yield " ".join(positions)
    changed_at = source.get("ts_ms")
    if is_whole(changed_at, 0):
        yield f"changed at {iso_of(int(changed_at))}"
        if is_whole(read_at, 0):
            yield f"read {(int(read_at) - int(changed_at)) / 1000:g} s later"


@dataclass(frozen=True, slots=True)
class LeafReport:
    """Leaf of a condition with the tested value.

    Attributes:
        test: the leaf as text, its negation included.
        value: the text under its key; None where there is none.
        holds: whether the leaf is true.
    """

    test: str
    key: str
    value: str | None
    holds: bool

    @classmethod
    def of(cls, checked: SeenLeaf) -> LeafReport:
        """Return the report of a leaf."""
        return cls(format_condition(checked.leaf), checked.leaf.key, checked.value, checked.holds)


@dataclass(frozen=True, slots=True)
class Subscriber:
    """Subscription that matches the record.

    Attributes:
        leaves: those that are true, left to right.
    """

    subscription: str
    destinations: tuple[str, ...]
    leaves: tuple[LeafReport, ...]


@dataclass(frozen=True, slots=True)
class RequestedSubscription:
    """Subscription that the explanation was requested for, and its result.

    Attributes:
        condition: as text.
        wants: whether it matches the record; None if the record did not reach the matching.
        blame: the fewest leaves that would have to be different for it to be true; None if no change of
            leaves makes it true, or `wants` is None.
        exact: whether it is known that no smaller set does.
        inactive: the reason that it matches nothing, whatever its condition says; "" if there is none.
    """

    subscription: str
    condition: str
    wants: bool | None
    blame: tuple[LeafReport, ...] | None
    exact: bool = True
    inactive: str = ""


@dataclass(frozen=True, slots=True)
class SentMessage:
    """Message that the route sends for the record.

    Attributes:
        sink: the sink's name; "" for a route's only one.
        id: the ``Nats-Msg-Id``; None where the record's origin is unknown.
        subscription: id of the subscription; None if no subscription caused it.
        dead_letter: whether it is the unchanged record as a dead letter.
        projected: whether the value is computed by the subscription's projection.
        url: where a delivery to a webhook is posted, or its name if the route has none of it; None for others.
    """

    topic: str
    sink: str
    id: str | None
    subscription: str | None
    dead_letter: bool
    key: str | None
    value: str | None
    headers: tuple[tuple[str, str | None], ...]
    projected: bool = False
    url: str | None = None


@dataclass(frozen=True, slots=True)
class RecordExplanation:
    """Outcome of one record, and the reasons.

    Attributes:
        record: as it was read.
        stages: each transform, in order; before them the decoding, where it failed.
        mapped: report of the mappings; None without mappings, or if the record was dropped before.
        metadata: values of the keys that conditions test.
        wanted: the subscriptions that match the record.
        asked: the requested subscription, if any.
        outcome: the label of an `Outcome`.
        failure: why it failed, where it did.
        messages: messages sent for it.
        notes: failed requests to the servers, because of which a run may differ; a sentence each.
    """

    record: Fields
    stages: tuple[StageReport, ...]
    mapped: Mapped | None
    metadata: Mapping[str, str]
    wanted: tuple[Subscriber, ...]
    asked: RequestedSubscription | None
    outcome: str
    failure: Failure | None
    messages: tuple[SentMessage, ...]
    notes: tuple[str, ...] = ()

    @property
    def change(self) -> ChangeEvent | None:
        """Return the record's value as a change event of Debezium; None for other values."""
        return change_event(self.record.get("value"))

    def as_dict(self) -> JsonObject:
        """Return the same as plain values, for JSON."""
        change = self.change
        return {**asdict(self), "change": None if change is None else asdict(change)}


def explain(
    program: Program,
    record: object,
    index: Index | None = None,
    subscriptions: Mapping[str, Subscription] | None = None,
    *,
    asked: str | None = None,
    notes: tuple[str, ...] = (),
) -> RecordExplanation:
    """Run one record through a route and explain the outcome.

    Args:
        program: the route's.
        record: a record batch of one record, as it was read.
        index: the subscriptions to match with; None for a route without any.
        subscriptions: the same by id.
        asked: id of the subscription to explain.
        notes: notes of the preflight of the program's route.

    Raises:
        SubscriptionNotFoundError: there is no subscription *asked*.
    """
    known = subscriptions or {}
    if asked is not None and asked not in known:
        raise SubscriptionNotFoundError(asked)
    watch = _RecordWatch(program, index, known, asked)
    trace = program.trace(record, index, watch)
    return RecordExplanation(
        record=watch.read,
        stages=tuple(watch.reports),
        mapped=watch.mapping(trace.topics[0]),
        metadata=readable_texts(watch.metadata),
        wanted=tuple(_subscriber(known[id_], watch.metadata) for id_ in watch.wanted),
        asked=None if asked is None else _blame_report(known[asked], watch),
        outcome=trace.outcome(0).label,
        failure=trace.failures.get(0),
        messages=tuple(_messages(program, trace)),
        notes=(*notes, *program.route.tables_notes),
    )


class _RecordWatch(StageWatch):
    """Observes the only record of a batch at every step.

    Attributes:
        matched: whether the record reached the matching.
        metadata: metadata for conditions at that point.
        wanted: the ids of the subscriptions that match it.
        time: time of the record, in milliseconds since 1970; None where it has none.
    """

    def __init__(
        self, program: Program, index: Index | None, subscriptions: Mapping[str, Subscription], asked: str | None
    ) -> None:
        super().__init__(program.route)
        self._program = program
        self._index = index
        self._keys = set(index.keys) if index is not None else set()
        self._keys |= keys_of(subscriptions[asked].condition).keys() if asked is not None else set()
        self._topic = ""
        self._published: tuple[str, float] | None = None
        self.matched = False
        self.metadata: Metadata = {}
        self.wanted: Sequence[str] = ()
        self.time: int | None = None

    def decoded(self, records: Batch, consumed: Consumed) -> None:
        """Keep the topic that the draw is derived from."""
        super().decoded(records, consumed)
        self._topic = consumed.topics[0] or ""

    def transformed(self, records: Batch) -> None:
        """Keep the topic before mapping and the draw."""
        if len(records.alive):
            offset = None if records.offsets is None else records.offsets[0]
            (draw,) = draws_of([self._topic], [records.partitions[0]], [offset])
            self._published = (records.topics[0] or "", float(draw))

    def mapped(self, records: Batch) -> None:
        """Keep the metadata that conditions use, and the ids of the matching subscriptions."""
        alive = records.alive
        if self._index is None or not len(alive) or records.topics[0] is None:
            return
        self.matched = True
        columns = self._program.metadata.columns(records, alive, sorted(self._keys))
        self.metadata = texts_of(columns, 0)
        self.time = records.timestamps[int(alive[0])]
        matches = self._index.match(columns, 1, times=[self.time])
        self.wanted = sorted(self._index.subscription_ids(matches.subscriptions).to_pylist())

    def mapping(self, mapped: str | None) -> Mapped | None:
        """Return the report of the mappings."""
        if self._published is None or not len(self._program.route.mappings):
            return None
        topic, draw = self._published
        return mapped_by(self._program.route, topic, draw, mapped)


def _subscriber(subscription: Subscription, metadata: Metadata) -> Subscriber:
    leaves = true_leaves(subscription.condition, metadata)
    return Subscriber(subscription.id, tuple(subscription.destinations), tuple(map(LeafReport.of, leaves)))


def _blame_report(subscription: Subscription, watch: _RecordWatch) -> RequestedSubscription:
    text = format_condition(subscription.condition)
    if not watch.matched:
        return RequestedSubscription(subscription.id, text, None, None)
    now = milliseconds_now()
    inactive = subscription.inactive(now if watch.time is None else watch.time, now)
    answer = blame(subscription.condition, watch.metadata)
    blamed = None if answer.leaves is None else tuple(map(LeafReport.of, answer.leaves))
    return RequestedSubscription(subscription.id, text, blamed == () and not inactive, blamed, answer.exact, inactive)


def _messages(program: Program, trace: Trace) -> list[SentMessage]:
    if trace.outcome(0) is Outcome.STOPPED:
        return []
    messages = trace.messages
    sinks = list(program.route.sinks)
    projected = set(trace.projected.tolist())
    notations = MessageNotations(program.route)
    keys, values, headers = (messages.column(name).to_pylist() for name in ("key", "value", "headers"))
    columns = zip(
        messages.topics.to_pylist(), messages.sinks.tolist(), messages.ids.to_pylist(),
        trace.subscriptions.to_pylist(), keys, values, headers, strict=True,
    )  # fmt: skip
    sent = []
    for number, (topic, sink, id_, subscription, key, value, pairs) in enumerate(columns):
        is_letter = trace.is_letter(number)
        key_notation, value_notation = notations.read if is_letter else notations.of_message(sink, topic)
        shown = tuple((header["key"], readable(header["value"])) for header in pairs or ())
        sent.append(
            SentMessage(
                topic, sinks[sink], id_, subscription, is_letter, _noted(key, key_notation),
                _noted(value, value_notation), shown, number in projected,
                None if is_letter else _url(program.route.webhooks, topic),
            )
        )  # fmt: skip
    return sent


def _url(webhooks: WebhooksPart | None, topic: str) -> str | None:
    """Return the URL to which a message under a topic is posted; None if it is no delivery to a webhook."""
    address = None if webhooks is None else delivery_address(webhooks.subject, topic)
    if webhooks is None or address is None:
        return None
    endpoint = webhooks.endpoint_of(address[0])
    return masked_url(address[0] if endpoint is None else endpoint.url)


def _noted(raw: bytes | None, notation: Notation) -> str | None:
    """Return a key or a value as text; in the notation of its format where the bytes are no text."""
    return readable(raw) if isinstance(notation, TextNotation) else text_of(notation.decode(raw))
