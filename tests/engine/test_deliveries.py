"""One bad destination or header disturbs nothing else: what becomes of it, and of the others."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.engine.batches import DEAD, SINK, WANTED, batch, program, sent
from tests.engine.routed import OULU, RAUMA, TWO_SINKS, dead, to
from turnout.conditions import kiwi
from turnout.engine import Counts, Program, deliveries
from turnout.engine.dead_letters import DESTINATION, LEFT_OUT, SUBSCRIPTION
from turnout.errors import RouteError, RunError
from turnout.records.headers import headers_type
from turnout.routes import Route
from turnout.routes.endpoints import NatsSink
from turnout.subscriptions import destinations
from turnout.subscriptions.index import Index

TOLERANT = "errors: {tolerance: all}\n"

STORE = 'subscriptions: {store: "memory://engine"}\n'


def test_tolerance_none_names_subscription_destination_and_record() -> None:
    """The run stops at the first."""
    index = Index.of([to("out.a", id="good"), to("out..x", id="mine")])
    message = r"topic in\.a\.b, partition 0, offset 1: TASK_PUT: .*subscription 'mine': destination 'out\.\.x' cannot"

    with pytest.raises(RunError, match=message):
        program(SINK, WANTED).run(batch([{"value": OULU}]), index)


def test_a_name_that_no_sink_has() -> None:
    """It is no part of the topic: the delivery is a dead letter that says which sinks there are."""
    index = Index.of([to("two:b", "tow:b", "one:c d", id="s")])

    result = program(TWO_SINKS, DEAD, WANTED).run(batch([{"value": OULU}]), index)

    assert result.messages.of_sink(1).topics.to_pylist() == ["b"]
    assert sorted(letter[DESTINATION] for letter in dead(result.messages)) == ["one:c d", "tow:b"]
    reasons = [letter["__connect.errors.exception.message"] for letter in dead(result.messages)]
    assert any("there is no 'tow', only one, two" in reason for reason in reasons)
    assert result.counts.undeliverable == 2


@pytest.mark.parametrize(
    ("allow", "refused"), [("[deliver.>]", {"out.a", "$KV.b.k"}), ('["$KV.b.*", "out.*"]', {"deliver.a"})]
)
def test_a_sink_allows_what_its_patterns_name(allow: str, refused: set[str]) -> None:
    """With patterns, nothing else is reached."""
    sink = f'sink: {{format: nats, servers: "nats://a", allow: {allow}}}\n'
    index = Index.of([to("deliver.a", "out.a", "$KV.b.k", id="s")])

    result = program(sink, DEAD, WANTED).run(batch([{"value": OULU}]), index)

    assert {letter[DESTINATION] for letter in dead(result.messages)} == refused
    assert set(result.messages.topics.to_pylist()) == {"deliver.a", "out.a", "$KV.b.k", "dead"} - refused


def test_patterns_are_checked_with_the_route() -> None:
    """One that is no subject is a mistake with its place."""
    with pytest.raises(RouteError, match=r"sink\.allow\[0\].*'a\.\.b'"):
        program('sink: {format: nats, servers: "nats://a", allow: ["a..b"]}\n')


def test_what_the_route_reads_is_not_written_to() -> None:
    """The route would read its own messages endlessly, unless it allows this explicitly."""
    route = Route.parse(f"name: r\nsource: {{format: nats, servers: nats://a, stream: S}}\n{SINK}{DEAD}{STORE}", {})
    reading = replace(route, reads={"": ("in.>",)})
    index = Index.of([to("in.again", "out.a", id="s")])

    result = Program.of(reading).run(batch([{"value": b"{}"}]), index)

    assert [letter[DESTINATION] for letter in dead(result.messages)] == ["in.again"]
    assert "would read its own messages again" in dead(result.messages)[0]["__connect.errors.exception.message"]
    allowed = Route.parse(
        f"name: r\nsource: {{format: nats, servers: nats://a, stream: S}}\n{DEAD}{STORE}"
        'sink: {format: nats, servers: "nats://a", allow: ["in.again", ">"]}\n',
        {},
    )
    assert (
        Program.of(replace(allowed, reads={"": ("in.>",)})).run(batch([{"value": b"{}"}]), index).counts.messages == 2
    )


@pytest.mark.parametrize("topics", ["topics: [in.a, in.b]", "topicPattern: 'in\\..*'"])
def test_kafka_topics_that_the_route_reads(topics: str) -> None:
    """On one cluster the source's topics are known without asking; another cluster's may have the same names."""
    source = f"source: {{format: kafka, servers: 'k1:9092,k2:9092', {topics}}}"
    text = f"name: r\n{source}\nsink: {{format: kafka, servers: %s}}\n"
    index = Index.of([to("in.b", "out.b", "a:b", "__consumer_offsets", id="s")])
    records = batch([{"topic": "in.a", "value": b"x"}], stream=None)

    same = Program.of(Route.parse(text % "'k2:9092'" + DEAD + STORE, {})).run(records, index)
    other = Program.of(Route.parse(text % "'k3:9092'" + DEAD + STORE, {})).run(records, index)

    assert {letter[DESTINATION] for letter in dead(same.messages)} == {"in.b", "a:b", "__consumer_offsets"}
    assert {letter[DESTINATION] for letter in dead(other.messages)} == {"a:b", "__consumer_offsets"}


def test_mapped_topics_obey_the_same_rules() -> None:
    """Of a route without subscriptions; a record without a topic has nowhere to go either."""
    text = """
name: r
source: {format: nats, servers: "nats://a", stream: S}
mappings: {"api.*": "$JS.API.{{wildcard(1)}}"}
"""
    records = batch(
        [{"topic": "api.x", "value": b"1"}, {"topic": "a b", "value": b"2"}, {"topic": "ok", "value": b"3"}]
    )
    engine = Program.of(Route.parse(text + SINK + DEAD, {}))

    result = engine.run(records)

    assert Counter(result.messages.topics.to_pylist()) == {"ok": 1, "dead": 2}
    assert {letter[DESTINATION] for letter in dead(result.messages)} == {"$JS.API.x", "a b"}
    assert not any(SUBSCRIPTION in letter for letter in dead(result.messages))
    assert result.counts == Counts(read=3, delivered=1, dead_lettered=2, messages=1, undeliverable=2)


def test_a_record_without_a_topic() -> None:
    """NATS needs one, files do not."""
    text = "name: r\nsource: {format: json, path: /tmp/x}\n"
    records = batch([{"topic": None, "value": b"1"}], stream=None)

    to_nats = Program.of(Route.parse(text + SINK + DEAD, {})).run(records)
    to_files = Program.of(Route.parse(text + "sink: {format: json, path: /tmp/y}\n", {})).run(records)

    assert to_nats.counts == Counts(read=1, dead_lettered=1, undeliverable=1)
    assert to_files.counts == Counts(read=1, delivered=1, messages=1)


def test_what_is_passed_on_obeys_the_same_rules() -> None:
    """An unmatched record is passed on under its own topic, if that can be published to."""
    engine = program(SINK, DEAD, WANTED, "unmatched: pass\n")
    index = Index.of([to("out.a", "out..a", id="s", condition=kiwi("town", "Oulu"))])
    records = batch([{"topic": "$KV.a", "value": RAUMA}, {"value": OULU}, {"topic": "other", "value": RAUMA}])

    result = engine.run(records, index)

    assert Counter(result.messages.topics.to_pylist()) == {"out.a": 1, "other": 1, "dead": 2}
    assert result.counts == Counts(read=3, delivered=2, dead_lettered=1, messages=2, undeliverable=2)


def test_each_destination_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many records go to it, in however many batches: good ones cost nothing more."""
    counts: Counter[str] = Counter()
    judge, judge_topic = destinations.problem_of, NatsSink.topic_problem

    def counted(destination: str) -> str | None:
        counts[destination] += 1
        return judge(destination)

    def counted_topic(sink: NatsSink, topic: str) -> str | None:
        counts[topic] += 1
        return judge_topic(sink, topic)

    monkeypatch.setattr(deliveries, "problem_of", counted)
    monkeypatch.setattr(NatsSink, "topic_problem", counted_topic)
    index = Index.of([to("out.a", "a b", id="one"), to("out.a", id="two")])
    engine = program(SINK, DEAD, WANTED)
    for _ in range(2):
        assert engine.run(batch([{"value": OULU}] * 50), index).counts.undeliverable == 50
    # Once as a destination, and the good one as a subject of its sink.
    assert counts == {"out.a": 2, "a b": 1}


# What a server refuses


wanting = st.lists(st.sampled_from(["out.a", "out.b", "out.c", "a b", "out..x", "$KV.x"]), min_size=1, max_size=3)


@given(
    st.lists(st.tuples(wanting, st.sampled_from(["Oulu", "Rauma"])), max_size=4),
    st.lists(st.sampled_from([OULU, RAUMA, b"{"]), max_size=5),
    st.sets(st.sampled_from(["out.a", "out.b"])),
    st.booleans(),
)
def test_every_delivery_ends_somewhere(
    subscribers: list[tuple[list[str], str]], records: list[Any], gone: set[str], has_topic: bool
) -> None:
    """Sent, or a dead letter, or discarded: by the batch itself or when a server refuses it; records are conserved."""
    subscriptions = [
        to(*dict.fromkeys(destinations), id=f"s{n}", condition=kiwi("town", town))
        for n, (destinations, town) in enumerate(subscribers)
    ]
    result = program(SINK, DEAD if has_topic else TOLERANT, WANTED).run(
        batch([{"value": record} for record in records]), Index.of(subscriptions)
    )
    topics = result.messages.topics.to_pylist()
    refused = {at: "is gone" for at, topic in enumerate(topics) if topic in gone}
    correction = result.refused(refused) if refused else None
    counts = result.counts + (correction.counts if correction else Counts())

    expected = [
        destination
        for record in records
        for subscription in subscriptions
        for destination in subscription.destinations
        if isinstance(record, dict) and kiwi("town", record["city"]) == subscription.condition
    ]
    letters = [*dead(result.messages), *(dead(correction.messages) if correction else [])]
    sent_on = [topic for at, topic in enumerate(topics) if topic != "dead" and at not in refused]
    failed = [letter[DESTINATION] for letter in letters if DESTINATION in letter]
    assert counts.conserved
    assert counts.messages == len(sent_on)
    assert counts.messages + counts.undeliverable == len(expected)
    assert set(sent_on) <= {"out.a", "out.b", "out.c"} - gone
    if has_topic:
        assert Counter([*sent_on, *failed]) == Counter(expected)
        assert len({id_ for m in (result, correction) if m for id_ in m.messages.ids.to_pylist()}) == len(topics) + len(
            correction.messages if correction else ()
        )


# Headers


BAD_HEADERS = [
    ("a b", b"x", "'a b'"),
    ("tab\t", b"x", r"'tab\t'"),
    ("", b"x", "''"),
    ("a:b", b"x", "'a:b'"),
    ("ä", b"4", "'ä'"),
    ("no\xa0break", b"x", "'no\\xa0break'"),
    ("bell\x07", b"x", "'bell\\x07'"),
    ("del\x7f", b"x", "'del\\x7f'"),
    ("Good", b"two\r\nlines", "'Good'"),
    ("Good", b"a\nb", "'Good'"),
]


def with_headers(*headers: list[tuple[str, bytes]]) -> Any:
    records = batch([{"value": OULU} for _ in headers])
    lists = pa.array([[{"key": name, "value": value} for name, value in some] for some in headers], headers_type())
    return records.set_column(records.schema.get_field_index("headers"), "headers", lists)


@pytest.mark.parametrize(("name", "value", "shown"), BAD_HEADERS)
def test_a_header_that_cannot_be_written(name: str, value: bytes, shown: str) -> None:
    """Its record is a dead letter that can be written, and says which header it was; others go their way."""
    result = program().run(with_headers([("Kind", b"x")], [("Kind", b"x"), (name, value)], []))

    assert result.counts == Counts(read=3, delivered=2, dead_lettered=1, messages=2)
    (letter,) = dead(result.messages)
    assert letter["Kind"] == "x"
    assert name not in letter
    assert letter[LEFT_OUT] == shown
    assert f"header {shown} cannot be written" in letter["__connect.errors.exception.message"]


def test_a_bad_header_stops_a_strict_run() -> None:
    """Header and record are named."""
    with pytest.raises(RunError, match=r"topic in\.a\.b, partition 0, offset 2: HEADER_CONVERTER: .*header 'a b'"):
        program(SINK).run(with_headers([], [("a b", b"x")]))


def test_a_bad_header_may_be_dropped() -> None:
    """The record goes on without it; each that was left out is counted."""
    dropping = "deadLetter: {topic: dead}\nerrors: {tolerance: all, badHeaders: drop}\n"

    result = program(SINK, dropping).run(
        with_headers([("Kind", b"x"), ("a b", b"1"), ("Kind", b"a\nb")], [("Kind", b"y")])
    )

    assert [headers for _, _, _, headers in sent(result.messages)] == [[("Kind", b"x")], [("Kind", b"y")]]
    assert result.counts == Counts(read=2, delivered=2, messages=2, dropped_headers=2)


def test_headers_that_only_nats_cannot_carry() -> None:
    """Files take any."""
    result = program("sink: {format: json, path: /tmp/x}\n", DEAD).run(with_headers([("a b", b"1\n2")]))

    assert result.counts == Counts(read=1, delivered=1, messages=1)


def test_reasons_fit_on_one_line() -> None:
    """The headers of a dead letter can be written for every record."""
    result = program().run(batch([{"topic": "in.a\x01b", "value": b'{"n": "a\nb"}'}]))

    for value in dead(result.messages)[0].values():
        assert value.isprintable()
