"""What history's smaller tools find out, as frames: taps, dead letters, and where a message is from."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from turnout import spark as ts
from turnout.conditions import parse
from turnout.embedded import NatsServer
from turnout.engine import Program
from turnout.errors import ConfigError
from turnout.history.sending import Sinks
from turnout.nats.wire import Connection, Publisher, PullReader, Range, create_stream, delete_stream
from turnout.routes import Route
from turnout.subscriptions import Subscription, open_store
from turnout.subscriptions.index import Index

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROUTE = """
name: framed
source: {{format: nats, servers: "{url}", stream: IN_{name}}}
value: {{format: json}}
transforms: [{{name: number, type: Cast$Value, spec: "n:int32"}}]
subscriptions: {{store: "sqlite:///{folder}/subscriptions.db", metadata: {{n: value.n}}}}
sink: {{format: nats, servers: "{url}", lineage: true, allow: ["out-{name}.>"]}}
deadLetter: {{topic: "dead-{name}"}}
errors: {{tolerance: all}}
"""


@pytest.fixture
def route(nats_server: NatsServer, tmp_path: Path) -> Iterator[Route]:
    """A route behind a run over four records, of which the second and the fourth are dead letters."""
    name = uuid.uuid4().hex[:10]
    streams = {"IN": f"in-{name}.>", "OUT": f"out-{name}.>", "DEAD": f"dead-{name}"}
    (tmp_path / "route.yaml").write_text(ROUTE.format(url=nats_server.url, name=name, folder=tmp_path))
    route = Route.load(tmp_path / "route.yaml")
    with Connection.open(nats_server.url) as connection:
        for stream, subject in streams.items():
            create_stream(connection, {"name": f"{stream}_{name}", "subjects": [subject], "storage": "memory"})
        with Publisher(connection) as publisher:
            for n in (1, "two", 3, "four"):
                publisher.publish(f"in-{name}.a", json.dumps({"n": n}).encode())
        with open_store(f"sqlite:///{tmp_path}/subscriptions.db") as store:
            store.create(Subscription([f"out-{name}.all"], parse("n:*"), id="all"))
            index = Index.of(store)
        for batch in PullReader(connection, Range(f"IN_{name}", 1, 5)).batches():
            records = batch.append_column("stream", pa.array([f"IN_{name}"] * batch.num_rows))
            result = Program.of(route).run(records, index)
            Sinks(route).send(result.messages, range(len(result.messages)))
        yield route
        for stream in streams:
            delete_stream(connection, f"{stream}_{name}")


def rows(frame: Any, *names: str) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in frame.select(*names).collect()]


def test_a_tap(spark: SparkSession, route: Route) -> None:
    """Before and after as JSON, and the messages; a range of it, a condition, and so many at most."""
    frame = ts.tap(route, spark, "number", start=2)

    assert rows(frame, "offset", "outcome") == [(2, "failed"), (3, "unchanged"), (4, "failed")]
    (failed, kept, _) = frame.collect()
    assert json.loads(kept["before"])["value"] == json.loads(kept["after"])["value"] == {"n": 3}
    assert (failed["after"], "two" in failed["reason"]) == (None, True)
    (delivered,) = ts.tap(route, spark, where="n>1").collect()
    assert [(one["subscription"], one["dead_letter"]) for one in delivered["messages"]] == [("all", False)]
    assert ts.tap(route, spark, limit=2).count() == 2
    assert ts.tap(route, spark, start=5).collect() == []


def test_some_letters_of_a_dry_run(spark: SparkSession, route: Route, tmp_path: Path) -> None:
    """A dry run shows all; those rows of it that are chosen are delivered, and the others are left."""
    mended = Route.parse((tmp_path / "route.yaml").read_text().replace("n:int32", "n:string"), {})

    before = ts.redrive(route, spark, dry_run=True)
    assert rows(before.letters, "sequence", "offset", "outcome") == [(1, 2, "failed"), (2, 4, "failed")]
    assert "two" in before.letters.first()["first_reason"]
    one = ts.redrive(mended, spark, before.letters.where("offset = 4"))

    assert rows(one.letters, "sequence", "outcome", "messages") == [(2, "delivered", 1)]
    assert one.report.stored == 1
    assert rows(ts.redrive(mended, spark, dry_run=True).letters, "offset", "outcome") == [(2, "delivered")]


def test_where_messages_are_from(spark: SparkSession, route: Route) -> None:
    """Messages that Spark has read, or that are named: each with its record and its subscription."""
    sink = route.source.stream.replace("IN_", "OUT_")
    reader = spark.read.format("nats").options(**{**route.sinks[""].options(), "stream": sink})
    read = reader.option("includeStream", "true").load()

    with pytest.raises(ConfigError, match="no column stream; format nats adds stream with includeStream"):
        ts.lineage(reader.option("includeStream", "false").load(), spark, route=route)
    frame = ts.lineage(read, spark, route=route)

    source = route.source.stream
    assert sorted(rows(frame, "source", "source_value")) == [
        (f"{source}:1", '{"n": 1}'),
        (f"{source}:3", '{"n": 3}'),
    ]
    assert set(rows(frame, "route", "same", "subscription", "condition", "still")) == {
        ("framed", True, "all", "n:*", True)
    }
    (named,) = ts.lineage(f"{sink}:1", spark, server=route.source.options()["servers"]).collect()
    assert (named["source"], named["same"], named["subscription"]) == (f"{source}:1", None, None)
