"""Matches of subscriptions in a range of records: Spark's tasks count the same as one process."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.streams import own_stream

from turnout.cli.subscriptions.queries import records_between
from turnout.conditions import parse
from turnout.embedded import NatsServer
from turnout.engine import Program
from turnout.errors import ConfigError
from turnout.history.traffic import traffic_of
from turnout.nats.wire import Connection, Publisher
from turnout.routes import Route
from turnout.spark.history.traffic import traffic_in_tasks
from turnout.subscriptions import Snapshot, Subscription, open_store
from turnout.subscriptions.analysis import AnchorTraffic, Catalogue, Traffic, analysis_of
from turnout.subscriptions.index import Index

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RECORDS = 6_000
CITIES = ("Oulu", "Turku", "Vaasa", "Kemi")
WANTED = {
    "oulu": ("city:Oulu", ("a", "shared")),
    "large": ("city:Oulu AND n>=3000", ("shared",)),
    "either": ("city:Turku OR (kind:odd AND n<100)", ("b", "a")),
    "prefix": ("city:Va*", ("c",)),
    "many": ("NOT city:Oulu", ("d",)),
    "never": ("city:Rovaniemi", ("e",)),
}
ROUTE = """
name: counted
source: {{format: nats, servers: "{url}", stream: {stream}, partitions: 3, maxRecordsPerTrigger: 10}}
value: {{format: json}}
transforms:
  - {{name: old, type: Filter, predicate: {{type: HasHeaderKey, name: Old}}}}
subscriptions: {{store: "{store}", metadata: {{city: value.city, n: value.n, kind: value.kind}}}}
sink: {{format: nats, servers: "{url}"}}
errors: {{tolerance: all}}
"""


@pytest.fixture(scope="module")
def stream(nats_server: NatsServer) -> Iterator[str]:
    """A stream of records, every 97th of which is no JSON and every 11th old."""
    with Connection.open(nats_server.url) as connection, own_stream(connection, "*") as name:
        with Publisher(connection) as publisher:
            for n in range(1, RECORDS + 1):
                record = {"city": CITIES[n % 4], "n": n, "kind": ("even", "odd")[n % 2]}
                payload = b"{" if n % 97 == 0 else json.dumps(record).encode()
                publisher.publish(f"{name}.{n % 3}", payload, [("Old", "1")] if n % 11 == 0 else [])
        yield name


@pytest.fixture
def route(nats_server: NatsServer, stream: str, tmp_path: Path) -> Route:
    store = f"sqlite:///{tmp_path}/subscriptions.db"
    with open_store(store) as opened:
        for id_, (condition, destinations) in WANTED.items():
            opened.create(Subscription(destinations, parse(condition), id=id_))
    return Route.parse(ROUTE.format(url=nats_server.url, stream=stream, store=store), {})


def snapshot_of(route: Route) -> Snapshot:
    assert route.subscriptions is not None
    with open_store(route.subscriptions.store) as store:
        return store.snapshot()


@pytest.mark.parametrize(("start", "end"), [("earliest", None), ("1000", "4500"), (str(RECORDS + 1), None)])
def test_the_same_as_in_one_process(spark: SparkSession, route: Route, start: str, end: str | None) -> None:
    """Every number of the report, of a whole stream, of a part, and of nothing."""
    snapshot = snapshot_of(route)
    catalogue = Catalogue(snapshot)
    here, there = AnchorTraffic(catalogue.terms()), AnchorTraffic(catalogue.terms())
    batches = records_between(route, start, end)

    alone = traffic_of(
        Program.of(route), batches, Index.of(snapshot), [subscription.id for subscription in snapshot], here
    )
    split = traffic_in_tasks(route, spark, snapshot, there, start=start, end=end)

    assert split == alone
    assert +there.messages == +here.messages
    assert +there.matched == +here.matched
    reports = [
        analysis_of(catalogue, anchors=anchors, traffic=traffic) for anchors, traffic in ((here, alone), (there, split))
    ]
    assert reports[0] == reports[1]
    if end is None and start == "earliest":
        usable = [n for n in range(1, RECORDS + 1) if n % 97 and n % 11]
        assert (alone.records, alone.never) == (len(usable), ("never",))
        assert there.matched.total() == alone.matches > RECORDS
    if start == str(RECORDS + 1):
        assert split == Traffic(0, 0, tuple(sorted(WANTED)), ())


def test_what_tasks_cannot_count(spark: SparkSession, route: Route) -> None:
    """Without subscriptions there is nothing to match with."""
    text = ROUTE.format(url="nats://127.0.0.1:1", stream="S", store="sqlite:///s.db")
    lines = [line for line in text.splitlines() if not line.startswith("subscriptions")]
    snapshot = snapshot_of(route)

    with pytest.raises(ConfigError, match="the route counted has none"):
        traffic_in_tasks(Route.parse("\n".join(lines), {}), spark, snapshot, AnchorTraffic({}))
