"""Tables of Delta Lake and Iceberg as sources and sinks of routes: real tables, read back by their own libraries."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from tests.lake import Lake, flights
from tests.streams import own_stream

from turnout import spark as ts
from turnout.embedded import NatsServer
from turnout.errors import RunError, TurnoutError
from turnout.nats.wire import Connection
from turnout.nats.wire.streams import sample
from turnout.routes import Route
from turnout.spark.formats import lake

pytest.importorskip("deltalake")
pytest.importorskip("pyiceberg")


HEAVY = pytest.param("iceberg", marks=pytest.mark.heavy)


@pytest.fixture(params=["delta", "iceberg"])
def tables(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    """A folder for tables of one format."""
    return Lake(request.param, tmp_path)


RECORD = {"topic": "flights.{carrier}", "key": "carrier", "timestamp": "at", "headers": {"fare": "fare"}}


def copy(tables: Lake, sink: str, **more: Any) -> Route:
    source = tables.block("flights", **{"record": RECORD, **more})
    return Route.parse(
        f"name: copy\nsource: {source}\nsink: {sink}\ntrigger: {{availableNow: true}}\n"
        f"checkpoint: {tables.folder}/checkpoint"
    )


@pytest.mark.parametrize("tables", ["delta", HEAVY], indirect=True)
def test_a_table_to_a_table(spark: SparkSession, tables: Lake) -> None:
    """Rows that are there, and those of later commits, each once; decimals, times and dates as they were."""
    tables.add("flights", flights(1, 2, 3))
    tables.add("flights", flights(4))
    route = copy(tables, tables.block("out", partitionBy="carrier"))

    first = ts.run(route, spark)
    tables.add("flights", flights(5, 6))
    second = ts.run(route, spark)

    assert [run.counts.read for run in (first, second)] == [4, 2]
    assert [run.counts.conserved for run in (first, second)] == [True, True]
    rows = tables.rows("out")
    assert rows == flights(1, 2, 3, 4, 5, 6).to_pylist()
    assert "carrier" in str(
        tables.table("out").metadata().partition_columns
        if tables.kind == "delta"
        else tables.table("out").spec().fields
    )


@pytest.mark.parametrize("tables", ["delta", HEAVY], indirect=True)
def test_a_table_to_jetstream(
    spark: SparkSession, tables: Lake, nats_server: NatsServer, connection: Connection
) -> None:
    """Topics, keys, headers and times from columns; a repeated run from the beginning finds its messages there."""
    tables.add("flights", flights(1, 2))
    with own_stream(connection) as stream:
        sink = f'{{format: nats, servers: "{nats_server.url}", stream: {stream}}}'
        route = copy(tables, sink, record={**RECORD, "topic": f"{stream}.{{carrier}}"})

        first = ts.run(route, spark)
        again = ts.run(route, spark, checkpoint=tables.folder / "other")

        assert [(run.counts.delivered, run.counts.duplicates) for run in (first, again)] == [(2, 0), (2, 2)]
        rows = sample(connection, stream, 10).to_pylist()
    by_topic = {row["topic"].rpartition(".")[2]: json.loads(row["value"]) for row in rows}
    assert {header["key"]: header["value"] for header in rows[0]["headers"]}["fare"] == b"0.25"
    assert by_topic["AA"] == {
        "id": 1,
        "carrier": "AA",
        "fare": 0.25,
        "at": "2013-01-01T05:17:00.123Z",
        "day": "2013-01-01",
    }


@pytest.mark.parametrize("tables", ["delta", HEAVY], indirect=True)
def test_records_of_bytes_in_columns_of_texts(spark: SparkSession, tables: Lake) -> None:
    """They are in Base64, and a header says so; they come from a file that has them so as well."""
    mark = {"key": "__turnout.value.encoding", "value": b"base64"}
    row = {"topic": "t", "value": "//5iaW4=", "headers": [{**mark, "value": "YmFzZTY0"}]}
    (tables.folder / "in.json").write_text(
        f"{json.dumps(row)}\n{json.dumps({**row, 'value': 'text', 'headers': []})}\n"
    )
    route = Route.parse(
        f"name: archive\nsource: {{format: json, path: {tables.folder}/in.json}}\nvalue: {{format: bytes}}\n"
        f"sink: {tables.block('out', columns='record')}"
    )

    ts.run(route, spark)

    rows = {row["value"]: row["headers"] for row in tables.rows("out", "value")}
    assert rows == {"//5iaW4=": [mark], "text": []}


def test_a_commit_that_is_reported_as_failed_and_has_landed(
    spark: SparkSession, tables: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is recognised: no row is there twice, no file is removed, and the run goes on."""
    tables.add("flights", flights(1, 2))
    module = __import__(f"turnout.runtime.lake.{tables.kind}", fromlist=["Table"])
    append = module.Table.append

    def landed(self: Any, *arguments: Any) -> None:
        append(self, *arguments)
        raise OSError("the connection was closed before the answer")

    monkeypatch.setattr(module.Table, "append", landed)
    result = ts.run(copy(tables, tables.block("out")), spark)

    assert result.counts.delivered == 2
    assert tables.rows("out") == flights(1, 2).to_pylist()


@pytest.mark.parametrize("tables", ["delta", HEAVY], indirect=True)
def test_a_micro_batch_that_is_done_again(spark: SparkSession, tables: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a run that died between the commit and Spark's own, the next one counts its rows and adds none."""
    tables.add("flights", flights(1, 2))
    route = copy(tables, tables.block("out"))
    write_rows = lake.LakeEndpoint.write_rows

    def dies(self: Any, *arguments: Any) -> bool:
        write_rows(self, *arguments)
        raise RuntimeError("killed")

    monkeypatch.setattr(lake.LakeEndpoint, "write_rows", dies)
    with pytest.raises(RunError):
        ts.run(route, spark)
    monkeypatch.undo()
    commits = tables.commits("out")
    tables.add("flights", flights(3))

    result = ts.run(route, spark)

    assert (result.counts.read, result.counts.delivered) == (3, 3)
    assert tables.rows("out") == flights(1, 2, 3).to_pylist()
    assert tables.commits("out") == commits + 1


@pytest.mark.parametrize("tables", ["delta", HEAVY], indirect=True)
def test_columns_that_the_table_lacks(spark: SparkSession, tables: Lake) -> None:
    """They are refused unless the table may get them; a value that does not fit its column is a dead letter."""
    tables.add("flights", flights(1, 300))
    tables.add("out", pa.table({"id": pa.array([0], pa.int64()), "day": pa.array([None], pa.date32())}))
    columns = {"small": "value.id TINYINT"}
    letters = f"{{format: json, path: {tables.folder}/letters}}"

    def route(**more: Any) -> Route:
        text = (
            f"name: copy\nsource: {tables.block('flights', record=RECORD)}\n"
            f"sinks: {{out: {tables.block('out', columns=columns, **more)}, letters: {letters}}}\n"
            f"deadLetter: {{topic: 'letters:dead'}}\nerrors: {{tolerance: all}}\n"
            f"trigger: {{availableNow: true}}\ncheckpoint: {tables.folder}/checkpoint"
        )
        return Route.parse(text)

    with pytest.raises(TurnoutError, match="the table has no column small: schemaEvolution: true adds it"):
        ts.run(route(), spark)
    if tables.kind == "iceberg":
        columns["small"] = "value.id INT"
    result = ts.run(route(schemaEvolution=True), spark)

    assert result.counts.dead_lettered == (1 if tables.kind == "delta" else 0)
    rows = tables.rows("out")
    assert rows[1] == {"id": None, "day": None, "small": 1}
    if tables.kind == "delta":
        (letter,) = [
            json.loads(line)
            for file in (tables.folder / "letters").glob("*.json")
            for line in file.read_text().splitlines()
        ]
        assert json.loads(letter["value"])["id"] == 300


def test_messages_of_jetstream_in_a_table(
    spark: SparkSession, tables: Lake, nats_server: NatsServer, connection: Connection
) -> None:
    """JSON by the declared types of columns, exactly or as dead letters, with parts of the message beside it."""
    with own_stream(connection) as stream:
        good = {"id": 1, "fare": "12.50", "at": "2013-01-01T05:17:00.5Z", "to": {"city": "Oulu"}}
        for value in (good, {**good, "fare": "12.505"}, {"id": 2}):
            connection.request(f"{stream}.a", json.dumps(value).encode())
        columns = {"id": "value.id BIGINT", "fare": "value.fare DECIMAL(10,2)", "at": "value.at TIMESTAMP",
                   "city": "value.to.city STRING", "topic": "topic", "sequence": "offset"}  # fmt: skip
        route = Route.parse(
            f'name: save\nsource: {{format: nats, servers: "{nats_server.url}", stream: {stream}}}\n'
            "value: {format: json}\n"
            f"sink: {tables.block('out', columns=columns)}\nerrors: {{tolerance: all}}\n"
            f"trigger: {{availableNow: true}}\ncheckpoint: {tables.folder}/checkpoint"
        )
        result = ts.run(route, spark)

    assert (result.counts.read, result.counts.delivered, result.counts.discarded) == (3, 2, 1)
    at = datetime(2013, 1, 1, 5, 17, 0, 500_000, tzinfo=UTC)
    assert tables.rows("out") == [
        {"id": 1, "fare": Decimal("12.50"), "at": at, "city": "Oulu", "topic": f"{stream}.a", "sequence": 1},
        {"id": 2, "fare": None, "at": None, "city": None, "topic": f"{stream}.a", "sequence": 3},
    ]


@pytest.mark.heavy
def test_names_of_partitions(spark: SparkSession, tmp_path: Path) -> None:
    """Values with signs of paths, and none, are read back as they were."""
    tables = Lake("delta", tmp_path)
    odd = ["a/b c", "x=y%20", "Ä:1", None, "plain"]
    table = pa.table({"id": pa.array(range(5), pa.int64()), "carrier": odd})
    tables.add("flights", table)
    record = {"topic": "t"}

    ts.run(copy(tables, tables.block("out", partitionBy="carrier"), record=record), spark)
    back = Route.parse(
        f"name: back\nsource: {tables.block('out', record=record)}\nsink: {tables.block('again')}\n"
        f"trigger: {{availableNow: true}}\ncheckpoint: {tmp_path}/back"
    )
    ts.run(back, spark)

    assert tables.rows("out") == table.to_pylist()
    assert tables.rows("again") == table.to_pylist()
