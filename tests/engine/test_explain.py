"""One record explained, from its bytes to its messages."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.engine.batches import DEAD, ROUTE, SINK, WANTED, program, sent
from tests.outcomes import outcomes_of
from turnout.cli.history.messages import explanation_lines
from turnout.conditions import parse
from turnout.demo.flights import generated, hand_written, messages
from turnout.engine import Program
from turnout.engine.explain import RecordExplanation, change_event, explain
from turnout.engine.sample_records import SampleRecord, record_batch
from turnout.errors import SubscriptionNotFoundError
from turnout.history.masking import masked_explanation
from turnout.routes import Route
from turnout.subscriptions import Subscription
from turnout.subscriptions.index import Index

POSTGRES = {
    "connector": "postgresql",
    "name": "inventory",
    "ts_ms": 1_700_000_000_123,
    "snapshot": "false",
    "db": "shop",
    "schema": "public",
    "table": "orders",
    "txId": 5,
    "lsn": 240,
    "xmin": None,
}
MYSQL = {
    "connector": "mysql",
    "version": "3.6.1.Final",
    "name": "m",
    "snapshot": "last",
    "db": "shop",
    "table": "item",
    "file": "b.1",
    "pos": 4,
}
CHANGES = """
name: changes
source: {format: nats, servers: "nats://127.0.0.1:4222", stream: S}
value: {format: json}
transforms: [{name: private, type: MaskField$Value, fields: card}]
"""


def lines(value: dict[str, Any]) -> list[str]:
    return list(explanation_lines(explained(program(SINK, text=CHANGES), topic="a", value=value)))


def test_an_update() -> None:
    """The fields that differ are shown, with the position in the log and both times."""
    rows = {"before": {"id": 1, "state": "new"}, "after": {"id": 1, "state": "paid"}}

    shown = lines({**rows, "source": POSTGRES, "op": "u", "ts_ms": 1_700_000_001_323})

    assert shown[1:4] == [
        "change  update of shop.public.orders",
        "    connector postgresql of inventory, lsn 240 txId 5, changed at 2023-11-14T22:13:20.123Z, read 1.2 s later",
        '    ~ row.state: "new" → "paid"',
    ]


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (
            {"op": "r", "before": None, "after": {"id": 1}, "source": MYSQL},
            [
                "read by a snapshot of shop.item",
                "connector mysql of m (Debezium 3.6.1.Final), in a snapshot, file b.1 pos 4",
                "+ row.id: 1",
            ],
        ),
        (
            {"op": "d", "before": {"id": 1}, "after": None, "source": {"connector": "mysql", "table": "item"}},
            ["delete of item", "connector mysql", "- row.id: 1"],
        ),
        (
            {"op": "u", "before": None, "after": {"id": 1}, "source": {"table": "item"}},
            [
                "update of item",
                "a connector without a name",
                "the event has no row before the change: the table's replica identity or the log leaves it out",
                "+ row.id: 1",
            ],
        ),
        (
            {"op": "t", "before": None, "after": None, "source": {"db": "shop"}},
            ["truncate of shop", "a connector without a name"],
        ),
    ],
)
def test_other_changes(event: dict[str, Any], expected: list[str]) -> None:
    """Rows that are not there are not shown, and a remark says why where there should be one."""
    shown = [line.removeprefix("change  ").strip() for line in lines(event)[1 : 1 + len(expected)]]

    assert shown == expected


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["db", "ts_ms", "name"]), inner),
    max_leaves=6,
)


@given(
    st.fixed_dictionaries(
        {},
        optional=dict.fromkeys(("before", "after", "source", "ts_ms"), VALUES)
        | {"op": st.sampled_from("cudrtm") | VALUES, "source": st.dictionaries(st.sampled_from(list(MYSQL)), VALUES)},
    )
)
def test_whatever_looks_like_one(value: dict[str, Any]) -> None:
    """Values of any type in an envelope's places are described, or are none."""
    event = change_event(value)

    assert event is None or (event.action and event.origin)


def test_masked() -> None:
    """Fields that the route masks are in no row of the change."""
    engine = program(SINK, text=CHANGES)
    rows = {"before": {"card": "4929"}, "after": {"card": "4930"}}
    explanation = explained(engine, topic="a", value={**rows, "source": POSTGRES, "op": "u"})

    masked = masked_explanation(explanation, engine.route)

    assert explanation.as_dict()["change"]["before"] == {"card": "4929"}
    assert masked.as_dict()["change"]["before"] == {"card": "***"}
    assert "4929" not in str(masked.change)


STAGES = """
name: stages
source: {format: nats, servers: "nats://127.0.0.1:4222", stream: S}
value: {format: json}
transforms:
  - {name: far, type: MaskField$Value, fields: tail, predicate: {when: {key: value.miles, ">": 9}}}
  - {name: near, type: Filter, predicate: {type: TopicNameMatches, pattern: b}}
  - {name: bad, type: "Cast$Value", spec: "tail:int32"}
  - {name: after, type: DropHeaders, headers: h, predicate: {type: HasHeaderKey, name: h}}
"""
HANDS = {
    "oulu": Subscription(("out.oulu",), parse("town:Oulu AND NOT Kind:odd"), id="oulu"),
    "many": Subscription(("out.many", "out.more"), parse("n>5 OR Kind exists"), id="many"),
}


def explained(
    engine: Program, subscription: str | None = None, known: dict[str, Subscription] | None = None, **record: Any
):
    known = HANDS if known is None else known
    index = Index.of(known.values()) if engine.route.subscriptions is not None else None
    return explain(engine, record_batch([SampleRecord.of(record, stream="S")]), index, known, asked=subscription)


def test_each_stage_says_what_it_did_and_why() -> None:
    """Answers come with what the predicate saw; after a failure stages are skipped."""
    explanation = explained(
        program(SINK, DEAD, text=STAGES), topic="a", value={"miles": 10, "tail": "N1"}, headers={"h": "x"}
    )

    assert [report.outcome for report in explanation.stages] == ["applied", "not matched", "failed", "skipped"]
    (answer,) = explanation.stages[0].answers
    assert (answer.holds, answer.predicate, answer.saw) == (True, "Condition(value.miles>9)", {"value.miles": "10"})
    assert explanation.stages[0].before["value"] == {"miles": 10, "tail": "N1"}
    assert explanation.stages[0].after["value"] == {"miles": 10, "tail": ""}
    assert not explanation.stages[1].answers[0].holds
    assert str(explanation.stages[2].error).startswith("bad: ")
    assert explanation.stages[3].after["headers"] == [["h", "x"]]
    assert explanation.outcome == "dead_lettered"


def test_a_dropped_record_and_a_broken_value() -> None:
    """A drop is explanation where it happens, a value that is no JSON before the first stage."""
    engine = program(SINK, DEAD, text=STAGES)
    dropped = explained(engine, topic="b", value={"miles": 1})
    broken = explained(engine, topic="b", value="{")

    assert [report.outcome for report in dropped.stages] == ["not matched", "dropped", "skipped", "skipped"]
    assert (dropped.outcome, dropped.mapped, dropped.messages) == ("filtered", None, ())
    assert [report.outcome for report in broken.stages] == ["failed", "skipped", "skipped", "skipped", "skipped"]
    assert broken.record["value"] == "{"


def test_a_dead_letter_comes_with_its_headers() -> None:
    """Topic, id and Connect's context, as the message has them."""
    explanation = explained(program(SINK, DEAD), topic="in.a.b", value="{", headers={"Kind": "odd"})

    (letter,) = explanation.messages
    headers = dict(letter.headers)
    assert (explanation.outcome, letter.topic, letter.value, letter.dead_letter) == ("dead_lettered", "dead", "{", True)
    assert explanation.failure is not None
    assert headers["__connect.errors.exception.message"] == explanation.failure.message
    assert headers["Kind"] == "odd"


def test_the_mapping_with_its_share_and_draw() -> None:
    """The chosen destination, its share, and the draw that chose it; a lost record likewise."""
    engine = program()
    explanation = {offset: explained(engine, topic="half.x", offset=offset, value={}).mapped for offset in range(1, 21)}
    plain = explained(engine, topic="in.a.b", value={}).mapped
    none = explained(engine, topic="other", value={}).mapped

    assert plain is not None
    assert (plain.source, plain.mapped, plain.share, plain.drawn) == ("in.*.*", "mapped.b.a", 100, False)
    assert none is not None
    assert (none.source, none.mapped) == (None, "other")
    for mapped in explanation.values():
        assert mapped is not None
        assert (mapped.share, mapped.drawn) == (50, True)
        assert (mapped.mapped is None) == (mapped.draw >= 0.5)
    assert {mapped.mapped for mapped in explanation.values() if mapped} == {"half.x", None}


def test_who_wants_it_and_who_does_not() -> None:
    """Matching subscriptions have their true leaves; the requested one has the leaves that prevent a match."""
    explanation = explained(
        program(SINK, DEAD, WANTED),
        subscription="many",
        topic="in.a.b",
        offset=7,
        value={"n": 3, "city": "Oulu"},
    )

    (subscriber,) = explanation.wanted
    assert [(leaf.test, leaf.value) for leaf in subscriber.leaves] == [("town:Oulu", "Oulu"), ("NOT Kind:odd", None)]
    assert explanation.asked is not None
    assert explanation.asked.wants is False
    assert [(leaf.test, leaf.value) for leaf in explanation.asked.blame or ()] == [("n>5", "3")]
    assert explanation.metadata == {"town": "Oulu", "n": "3"}
    (message,) = explanation.messages
    assert (message.topic, message.subscription) == ("out.oulu", "oulu")
    assert str(message.id).startswith("S:7:")


def test_several_values_are_seen_as_an_array() -> None:
    """A leaf says all that it saw under its key."""
    known = {"a": Subscription(("out.a",), parse("sku:A* AND sku:C*"), id="a")}
    wanted = 'subscriptions: {store: "memory://engine", metadata: {sku: "value.items[].sku"}}\n'
    engine = program(SINK, DEAD, wanted, text=ROUTE.replace(', schema: "n INT, city STRING, secret STRING"', ""))

    explanation = explained(engine, "a", known, topic="in.a.b", value={"items": [{"sku": "A1"}, {"sku": "B2"}]})

    assert explanation.metadata == {"sku": '["A1","B2"]'}
    assert explanation.asked is not None
    assert [(leaf.test, leaf.value) for leaf in explanation.asked.blame or ()] == [("sku:C*", '["A1","B2"]')]


def test_asking_about_a_record_that_was_not_matched() -> None:
    """Nobody is to blame for a record that was filtered before."""
    engine = program(SINK, DEAD, WANTED)
    explanation = explained(engine, subscription="many", topic="in.a.b", value={}, headers={"Old": "1"})

    assert explanation.asked is not None
    assert (explanation.asked.wants, explanation.asked.blame, explanation.wanted) == (None, None, ())
    with pytest.raises(SubscriptionNotFoundError):
        explained(engine, subscription="nobody", topic="in.a.b", value={})


def test_a_route_that_tolerates_no_failure_is_stopped() -> None:
    """Explaining raises nothing, and says that a run would end here."""
    for engine in (program(SINK), program(SINK, "deadLetter: {topic: dead}\n")):
        explanation = explained(engine, topic="in.a.b", value="{")

        assert (explanation.outcome, explanation.messages) == ("stopped", ())


@pytest.fixture(scope="module")
def flights() -> tuple[Program, list[Subscription], list[SampleRecord]]:
    """The demo's route, subscriptions from its data, and 400 of its messages, cut-off ones among them."""
    route = Route.load(Path("examples/flights.yaml"), {})
    subscriptions = [one.identified() for one in (*hand_written(), *generated(400, limit=20_000))]
    sent_messages = list(enumerate(messages(20_000), start=1))
    cut = [pair for pair in sent_messages if pair[1].message_id.endswith("cut-off")]
    drawn = [*cut, *random.Random(17).sample(sent_messages, 400 - len(cut))]
    records = [
        SampleRecord(
            message.subject,
            message.payload,
            headers=tuple((name, text.encode()) for name, text in message.headers),
            offset=sequence,
            timestamp=1_357_000_000_000_000 + sequence,
            stream="FLIGHTS",
        )
        for sequence, message in dict(drawn).items()
    ]
    return Program.of(route), subscriptions, records


def test_explaining_hundreds_of_flights_gives_what_running_them_does(flights: Any) -> None:
    """One by one and all at once: the same messages, and as many records of each outcome as the run counts."""
    engine, subscriptions, records = flights
    index, by_id = Index.of(subscriptions), {subscription.id: subscription for subscription in subscriptions}
    result = engine.run(record_batch(records), index)

    explanations: list[RecordExplanation] = [
        explain(engine, record_batch([record]), index, by_id) for record in records
    ]

    outcomes = Counter(explanation.outcome for explanation in explanations)
    assert outcomes == outcomes_of(result.counts)
    assert min(outcomes[name] for name in ("delivered", "filtered", "unmatched", "dead_lettered")) > 0
    explained_messages = sorted(
        (message.topic, message.id, message.value, message.headers)
        for explanation in explanations
        for message in explanation.messages
    )
    ran = sorted(
        (topic, id_, (value or b"").decode(), tuple((name, text.decode()) for name, text in headers))
        for topic, id_, value, headers in sent(result.messages)
    )
    assert explained_messages == ran
    assert all(leaf.holds for explanation in explanations for part in explanation.wanted for leaf in part.leaves)
    assert all(len(explanation.wanted) <= len(explanation.messages) for explanation in explanations)


def test_the_trace_of_a_batch_is_that_of_its_records(flights: Any) -> None:
    """Outcomes, mapped topics and pairs of record and subscription do not depend on the batch."""
    engine, subscriptions, records = flights
    index = Index.of(subscriptions)
    whole = engine.trace(record_batch(records), index)

    for row, record in enumerate(records[:300]):
        single = engine.trace(record_batch([record]), index)
        places = pa.array(whole.messages_of(row))
        assert whole.outcome(row) == single.outcome(0)
        assert whole.topics[row] == single.topics[0]
        # The messages of a record have no order.
        pairs = zip(
            whole.subscriptions.take(places).to_pylist(), whole.destinations.take(places).to_pylist(), strict=True
        )
        single_pairs = zip(single.subscriptions.to_pylist(), single.destinations.to_pylist(), strict=True)
        assert sorted(pairs, key=repr) == sorted(single_pairs, key=repr)


def test_a_trace_names_each_messages_row_and_subscription() -> None:
    """Dead letters and what is passed on belong to no subscription."""
    engine = program(SINK, DEAD, WANTED, "unmatched: pass\n", text=ROUTE)
    records = [
        SampleRecord("in.a.b", b'{"n": 9, "city": "Oulu"}', offset=1),
        SampleRecord("in.a.b", b'{"n": 1, "city": "Rauma"}', offset=2),
        SampleRecord("in.a.b", b"{", offset=3),
        SampleRecord("in.a.b", b"{}", headers=(("Old", b"1"),), offset=4),
    ]

    trace = engine.trace(record_batch(records), Index.of(HANDS.values()))

    assert [trace.outcome(row).label for row in range(4)] == ["delivered", "delivered", "dead_lettered", "filtered"]
    columns = (trace.rows.tolist(), trace.subscriptions.to_pylist(), trace.destinations.to_pylist())
    assert sorted(zip(*columns, strict=True)) == [
        (0, "many", "out.many"), (0, "many", "out.more"), (0, "oulu", "out.oulu"), (1, None, "mapped.b.a"),
        (2, None, "dead"),
    ]  # fmt: skip
    assert trace.topics[0] == "mapped.b.a"
