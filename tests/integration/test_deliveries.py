"""One bad destination disturbs nothing else: a whole route on a real server, with one of each kind."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.integration.routes import Streams

from turnout.conditions import exists
from turnout.engine import Counts
from turnout.errors import RunError
from turnout.nats.wire import Connection
from turnout.routes import Route
from turnout.subscriptions import Subscription, open_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GOOD = 45
ROUTE = """
name: deliveries
source: {{format: nats, servers: "{url}", stream: {source}}}
subscriptions: {{store: "{store}"}}
sinks: {{main: {{format: nats, servers: "{url}"}}}}
deadLetter: {{topic: "main:out-{name}.dead"}}
errors: {{tolerance: {tolerance}}}
"""


def bad(streams: Streams) -> dict[str, str]:
    """A destination of each kind that nothing can be delivered to, and what its dead letter has to say."""
    return {
        "a b": "no subject can hold ' '",
        streams.out(">"): "the wildcard '>'",
        streams.out(".x"): "an empty token",
        streams.out("x\r\nPUB " + streams.out("injected") + " 1\r\nx"): "no subject can hold",
        streams.out("\x00"): "no subject can hold",
        streams.out("x" * 5000): "at most 2,048 are taken",
        f"nowhere-{streams.name}.x": "no stream listens",
        f"other:{streams.out('x')}": "there is no 'other', only main",
        f"$JS.API.STREAM.PURGE.{streams.sink}": "the server's own",
        streams.subject("again"): "would read its own messages again",
    }


def store_of(folder: Path, streams: Streams, destinations: list[str]) -> str:
    """A store of one subscription for each destination, the bad ones as they may lie there since older versions."""
    path = folder / "subscriptions.db"
    url = f"sqlite:///{path}"
    with open_store(url) as store:
        store.create_many(
            Subscription([f"stand.in.{number}"], exists("subject"), id=f"s{number}")
            for number in range(len(destinations))
        )
    with sqlite3.connect(path) as connection:
        for number, destination in enumerate(destinations):
            connection.execute(
                "UPDATE subscription SET record = replace(record, ?, ?) WHERE id = ?",
                (json.dumps(f"stand.in.{number}"), json.dumps(destination), f"s{number}"),
            )
    connection.close()
    return url


def run_route(route: Route, spark: SparkSession, folder: Path) -> Any:
    from turnout.spark.running.job import run

    return run(route, spark, once=True, checkpoint=folder / "checkpoint")


def test_one_bad_delivery_of_each_kind(spark: SparkSession, streams: Streams, tmp_path: Path) -> None:
    """The good subscriptions get theirs; each bad delivery is a dead letter of its own, a bad header too."""
    kinds = bad(streams)
    destinations = [streams.out(f"good.{number}") for number in range(GOOD)] + list(kinds)
    store = store_of(tmp_path, streams, destinations)
    streams.publish([("one", b"first", [("Kind", "x")]), ("two", b"second", [])])
    with Connection.open(streams.url) as connection:
        block = b"NATS/1.0\r\nbad name: x\r\nKind: y\r\n\r\n"
        connection.send(
            b"HPUB %b %d %d\r\n%bthird\r\n" % (streams.subject("three").encode(), len(block), len(block) + 5, block)
        )
        connection.ping()
    names = {"url": streams.url, "source": streams.source, "name": streams.name}

    result = run_route(Route.parse(ROUTE.format(**names, store=store, tolerance="all"), {}), spark, tmp_path)

    assert result.counts == Counts(
        read=3, delivered=2, dead_lettered=1, messages=2 * GOOD, undeliverable=2 * len(kinds)
    )
    assert result.counts.conserved
    rows = streams.delivered()
    dead = [row for row in rows if row["rest"] == "dead"]
    assert Counter(row["rest"] for row in rows if row["rest"] != "dead") == {f"good.{n}": 2 for n in range(GOOD)}
    of_deliveries = [row for row in dead if "__turnout.subscription" in row["headers"]]
    assert Counter(row["headers"]["__turnout.subscription"] for row in of_deliveries) == {
        f"s{GOOD + number}": 2 for number in range(len(kinds))
    }
    for row in of_deliveries:
        destination = destinations[int(row["headers"]["__turnout.subscription"][1:])]
        shown = "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in destination)
        assert row["headers"]["__turnout.destination"] == shown
        assert kinds[destination] in row["headers"]["__connect.errors.exception.message"]
        assert row["value"] in (b"first", b"second")
    (of_record,) = [row for row in dead if row not in of_deliveries]
    assert of_record["value"] == b"third"
    assert of_record["headers"]["Kind"] == "y"
    assert "'bad name'" in of_record["headers"]["__connect.errors.exception.message"]
    assert streams.stored(streams.source) == 3


def test_a_refused_delivery_stops_a_strict_run(spark: SparkSession, streams: Streams, tmp_path: Path) -> None:
    """This includes refusals by the server; the error names subscription, destination and record."""
    store = store_of(tmp_path, streams, [streams.out("good"), f"nowhere-{streams.name}.x"])
    streams.publish([("one", b"first", [])])
    names = {"url": streams.url, "source": streams.source, "name": streams.name}
    expected = r"topic in-\S+\.one, partition 0, offset 1: TASK_PUT: .*'s1': destination 'nowhere-.*no stream"

    with pytest.raises(RunError, match=expected):
        run_route(Route.parse(ROUTE.format(**names, store=store, tolerance="none"), {}), spark, tmp_path)
