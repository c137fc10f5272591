"""Messages say of which record, by which route and with which subscriptions they were made, if a sink asks for it."""

from __future__ import annotations

from tests.engine.batches import DEAD, ROUTE, SINK, WANTED, batch, program, sent
from turnout.conditions import kiwi
from turnout.engine.lineage import REVISION, SOURCE
from turnout.engine.lineage import ROUTE as ROUTE_HEADER
from turnout.routes import digest_of
from turnout.subscriptions import Snapshot, Subscription
from turnout.subscriptions.index import Index

SAYS = 'sink: {format: nats, servers: "nats://127.0.0.1:4222", lineage: true}\n'
TWO = (
    'sinks:\n  first: {format: nats, servers: "nats://127.0.0.1:4222"}\n'
    '  second: {format: json, path: "out", lineage: true}\n'
)
OULU = {"n": 1, "city": "Oulu"}
LOST = {"value": b"{"}


def test_a_delivery_says_where_it_is_from() -> None:
    """Route, revision and record; what an earlier route said of itself is replaced; dead letters have none."""
    index = Index.of(Snapshot((Subscription(("out",), kiwi("town", "*"), id="s"),), 7))
    ran = program(SAYS, DEAD, WANTED)
    earlier = [("Kind", "odd"), (SOURCE, "OTHER:9"), (REVISION, "1")]

    result = ran.run(batch([LOST, {"value": OULU, "headers": earlier}, {"value": OULU}]), index)

    first, second, letter = (headers for _, _, _, headers in sent(result.messages))
    route = f"test@{digest_of(ROUTE + SAYS + DEAD + WANTED)}".encode()
    assert first == [("Kind", b"odd"), (ROUTE_HEADER, route), (REVISION, b"7"), (SOURCE, b"S:2")]
    assert second == [(ROUTE_HEADER, route), (REVISION, b"7"), (SOURCE, b"S:3")]
    assert not {ROUTE_HEADER, SOURCE} & {name for name, _ in letter}


def test_without_subscriptions_and_from_kafka() -> None:
    """There is no revision then, and a record's place is its topic, partition and offset."""
    result = program(SAYS, DEAD).run(batch([{"value": OULU}], stream=None))

    ((_, _, _, headers),) = sent(result.messages)
    assert [name for name, _ in headers] == [ROUTE_HEADER, SOURCE]
    assert dict(headers)[SOURCE] == b"in.a.b:0:1"


def test_only_where_it_is_asked_for() -> None:
    """A sink that does not ask gets the records as they are, from the same batch."""
    subscription = Subscription(("first:a", "second:b"), kiwi("town", "*"), id="s")
    result = program(TWO, DEAD.replace("dead}", "first:dead}"), WANTED).run(
        batch([{"value": OULU, "headers": [("Kind", "odd")]}, LOST]), Index.of([subscription])
    )

    names = {topic: [name for name, _ in headers] for topic, _, _, headers in sent(result.messages)}
    assert (names["a"], names["b"]) == (["Kind"], ["Kind", ROUTE_HEADER, REVISION, SOURCE])
    assert SOURCE not in names["dead"]


def test_off_is_off() -> None:
    """Without the option nothing is added."""
    result = program(SINK, DEAD).run(batch([{"value": OULU}]))

    assert [headers for _, _, _, headers in sent(result.messages)] == [[]]
