"""Times of deliveries: computed from the record, refused by name, and the form in which messages wait."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnout.conditions import parse
from turnout.engine import Program
from turnout.engine.sample_records import SampleRecord, record_batch
from turnout.engine.scheduling import token_of
from turnout.errors import RouteError
from turnout.routes import Route
from turnout.subscriptions import Subscription, open_store
from turnout.subscriptions.destinations import duration_of, moment_of, split_timing
from turnout.subscriptions.index import Index

BASE = 1_800_000_000_000
"""Time of the records, in milliseconds."""

ROUTE = """
name: later
source: {{format: nats, servers: "nats://a", stream: S}}
value: {{format: json}}
sink: {{format: nats, servers: "nats://a", {sink}}}
{more}
errors: {{tolerance: all}}
deadLetter: {{topic: dead}}
"""
TWO = """
name: later
source: {format: nats, servers: "nats://a", stream: S}
value: {format: json}
sinks:
  now: {format: nats, servers: "nats://a"}
  log: {format: kafka, servers: "b:9092", delay: 60}
scheduled: {stream: WAITING, id: value.id}
errors: {tolerance: all}
deadLetter: {topic: "now:dead"}
mappings: {"orders.*": "log:orders"}
"""


def route_of(sink: str = "delay: 1m", more: str = "") -> Route:
    return Route.parse(ROUTE.format(sink=sink, more=more))


def run(route: Route, *values: Any, index: Index | None = None, **more: Any) -> list[dict[str, Any]]:
    """Return the messages of records with these values: topic, id, and headers by name."""
    records = [
        SampleRecord.of({"topic": "orders.x", "offset": n, "stream": "S", "timestamp": BASE, "value": value, **more})
        for n, value in enumerate(values, 1)
    ]
    messages = Program.of(route).run(record_batch(records), index).messages
    listed = messages.column("headers").to_pylist()
    return [
        {
            "topic": topic,
            "id": id_,
            "sink": sink,
            "headers": {pair["key"]: (pair["value"] or b"").decode() for pair in pairs or ()},
        }
        for topic, id_, sink, pairs in zip(
            messages.topics.to_pylist(), messages.ids.to_pylist(), messages.sinks.tolist(), listed, strict=True
        )
    ]


NATS_SINK = 'sink: {format: nats, servers: "nats://a"'


def at(seconds: float) -> str:
    """Return the header of a time so many seconds behind that of the records."""
    from datetime import UTC, datetime, timedelta

    return f"{datetime.fromtimestamp(BASE / 1000, UTC) + timedelta(seconds=seconds):%Y-%m-%dT%H:%M:%S.%f}Z"


@pytest.mark.parametrize(
    ("sink", "value", "seconds"),
    [
        ("delay: 15m", {}, 900),
        ("delay: 1.5", {}, 1.5),
        ("delay: PT1H30M", {}, 5400),
        ("delay: value.wait", {"wait": 90}, 90),
        ("delay: value.wait", {"wait": "2h"}, 7200),
        ("delay: value.a.b", {"a": {"b": "250ms"}}, 0.25),
        ("delay: value.wait", {"wait": 0}, 0),
        ("deliverAt: value.due", {"due": "2027-01-15T09:00:00+01:00"}, 0),
        ("deliverAt: value.due", {"due": BASE // 1000 + 30}, 30),
        ("deliverAt: value.due", {"due": BASE + 30_500}, 30.5),
        ("deliverAt: value.due", {"due": BASE / 1000 + 30.5}, 30.5),
        ("delay: value.wait", {"wait": 0.25}, 0.25),
        ("deliverAt: value.due", {"due": "2027-01-15T08:00:00.123456Z"}, 0.123456),
        ("deliverAt: '2027-01-16T08:00:00Z'", {}, 86_400),
        ("deliverAt: value.due", {"due": BASE // 1000 - 3600}, -3600),
    ],
)
def test_times(sink: str, value: dict[str, Any], seconds: float) -> None:
    """A constant or a field gives the time, a delay counts from the record's own; the message waits on a subject."""
    (message,) = run(route_of(sink), value)

    assert message["headers"] == {"Turnout-Deliver-At": at(seconds), "Turnout-Deliver-To": "orders.x"}
    assert message["topic"].startswith("scheduled.~")
    assert message["id"].startswith("S:1:")


@pytest.mark.parametrize(
    ("sink", "value", "reason"),
    [
        ("delay: value.wait", {}, "delay: value.wait is missing or null, expected a number of seconds"),
        ("delay: value.wait", {"wait": None}, "value.wait is missing or null"),
        ("delay: value.wait", {"wait": ""}, "value.wait is '', expected"),
        ("delay: value.wait", {"wait": -5}, "value.wait is '-5', expected"),
        ("delay: value.wait", {"wait": True}, "value.wait is 'true', expected"),
        ("delay: value.wait", {"wait": "31d"}, "value.wait is '31d', more than 30 days after the record's time"),
        ("deliverAt: value.due", {"due": "soon"}, "deliverAt: value.due is 'soon', expected an ISO 8601 time"),
        ("deliverAt: value.due", {"due": "2027-01-15"}, "value.due is '2027-01-15', expected"),
        ("deliverAt: value.due", {"due": "2027-03-15T00:00:00Z"}, "more than 30 days"),
        ("deliverAt: value.due", {"due": BASE // 1000 - 3601}, "by more than the grace of 1h"),
        ("deliverAt: value.due", {"due": 0}, "value.due is '0', before the record's time"),
        ("deliverAt: value.due", {"due": "9" * 20}, "more than 30 days"),
        ("deliverAt: header.Due", {}, "header.Due is missing"),
    ],
)
def test_refused_values(sink: str, value: dict[str, Any], reason: str) -> None:
    """A value that is none, or beyond a limit, is a dead letter that names the field and the value."""
    (message,) = run(route_of(sink), value)

    assert message["topic"] == "dead"
    assert reason in message["headers"]["__connect.errors.exception.message"]


def test_header_and_identity() -> None:
    """A header gives the time, a field the id: the same id has the same subject, whatever the record."""
    route = route_of("deliverAt: header.Due", "scheduled: {id: value.id, grace: 2d}")
    first, second = run(route, {"id": "a-1"}, {"id": "a-1"}, headers={"Due": f"{BASE // 1000 - 90_000}"})

    assert first["topic"] == second["topic"]
    assert first["topic"].startswith("scheduled.a-1.")
    assert first["id"] != second["id"]
    (letter,) = run(route, {}, headers={"Due": f"{BASE // 1000}"})
    assert "scheduled.id: value.id is missing" in letter["headers"]["__connect.errors.exception.message"]


def test_destinations_with_times() -> None:
    """A destination's own time goes before its sink's; without a scheduled block it cannot be delivered."""
    store = open_store("memory://later")
    store.create(Subscription(["a?delay=2h", "b", "c?deliverAt=value.due"], parse("topic:orders*"), id="one"))
    index = Index.of(store)
    subscriptions = "subscriptions: {store: 'memory://later'}"
    route = route_of("delay: 1m", f"{subscriptions}\nscheduled: {{}}")
    messages = {m["headers"]["Turnout-Deliver-To"]: m for m in run(route, {"due": BASE + 5000}, index=index)}

    assert {to: m["headers"]["Turnout-Deliver-At"] for to, m in messages.items()} == {
        "a": at(7200), "b": at(60), "c": at(5),
    }  # fmt: skip
    assert len({m["topic"] for m in messages.values()}) == 3
    assert len({m["topic"].rpartition(".")[0] for m in messages.values()}) == 1
    plain = run(route_of("window: 10", subscriptions), {"due": BASE}, index=index)
    assert sorted(m["topic"] for m in plain) == ["b", "dead", "dead"]
    with pytest.raises(ValueError, match="cannot be delivered later"):
        store.create(Subscription(["a?delay=soon"], parse("a:1")))


def test_delay_stream() -> None:
    """With a delay stream, messages for every sink wait in one, with all that is needed to deliver them."""
    (message,) = run(Route.parse(TWO), {"id": 7}, key="k")

    assert (message["topic"].rpartition(".")[0], message["sink"]) == ("scheduled.7", 0)
    assert message["headers"] == {
        "Turnout-Deliver-At": at(60), "Turnout-Deliver-To": "orders", "Turnout-Deliver-Sink": "log",
        "Turnout-Deliver-Id": message["id"], "Turnout-Deliver-Key": "aw==",
        "Turnout-Deliver-Time": f"{BASE * 1000}",
    }  # fmt: skip


def test_what_waits_is_protected() -> None:
    """No record and no subscription can address the subjects of waiting messages."""
    (message,) = run(route_of(more='mappings: {"orders.*": "scheduled.x.y"}'), {})

    assert message["topic"] == "dead"
    assert "wait there, and nothing else" in message["headers"]["__connect.errors.exception.message"]


def test_what_waits_is_not_read_by_the_route() -> None:
    """A route that reads the stream of its own waiting messages would route them again."""
    from dataclasses import replace

    (message,) = run(replace(route_of(), reads={"": ("scheduled.>", "out.>")}), {})

    assert message["topic"] == "dead"
    assert "which the route itself reads" in message["headers"]["__connect.errors.exception.message"]


@pytest.mark.parametrize(
    ("sink", "more", "problem"),
    [
        ("delay: 1", "scheduled: {stream: a.b}", "scheduled.stream"),
        ("delay: soon", "", "sink.delay: found 'soon'"),
        ("delay: 31d", "", "30 days at most"),
        ("delay: 'value.a[]'", "", "path of one field"),
        ("deliverAt: 2027-01-15", "", "sink.deliverAt"),
        ("delay: 1, deliverAt: value.a", "", "exclude each other"),
        ("delay: 1", "scheduled: {id: nothing}", "scheduled.id: found 'nothing'"),
        ("delay: 1", "scheduled: {subject: 'a.>'}", "scheduled.subject"),
        ("delay: 1", "scheduled: {grace: long}", "scheduled.grace"),
        ("delay: 1", "scheduled: {sink: a}", "has no effect without stream"),
        ("delay: 1, messageId: none", "scheduled: {stream: W}", "found messageId: none"),
    ],
)
def test_mistakes(sink: str, more: str, problem: str) -> None:
    """What cannot be is a mistake at its place."""
    with pytest.raises(RouteError) as failure:
        route_of(sink, more)

    assert problem in str(failure.value)


def test_needs_of_the_stream() -> None:
    """The notes of a route say what the sink's stream needs; Kafka and files need a delay stream."""
    assert any("allow_msg_schedules: true, scheduled.>" in note for note in route_of().notes)
    for sink, text in (
        ("sink: {format: kafka, servers: 'b:1'", "add scheduled"),
        ("sink: {format: json, path: x", "delay"),
    ):
        with pytest.raises(RouteError, match=text):
            Route.parse(ROUTE.format(sink="delay: 1", more="").replace(NATS_SINK, sink))


@given(st.text(max_size=40))
def test_any_text_is_a_time_or_none(text: str) -> None:
    """No text fails: it is a time, a duration, or neither; a subject's token is always one."""
    for read in (duration_of, moment_of):
        found = read(text)
        assert found is None or isinstance(found, int)
    target, timing, problem = split_timing(f"a?delay={text}")
    assert (timing is None) == (problem is not None or target != "a")
    assert not set(token_of(text)) & set(".*> \t\r\n")
    assert token_of(text)
