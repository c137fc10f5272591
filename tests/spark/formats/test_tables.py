"""Avro object files as a source of a route: types of each file's schema, and damaged files among others."""

from __future__ import annotations

import json
from base64 import b64decode
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pytest
from pyspark.sql import SparkSession

from turnout import spark as ts
from turnout.errors import RouteError, RunError
from turnout.routes import Route

ROUTE = """
name: files
source: {{format: avro, path: "{work}/in", {more}}}
value: {{format: {value}}}
transforms: [{{name: via, type: InsertField$Value, "static.field": via, "static.value": turnout}}]
sink: {{format: json, path: "{work}/out"}}
checkpoint: "{work}/checkpoint"
{errors}
"""
TOLERANT = "deadLetter: {topic: dead}\nerrors: {tolerance: all}"


def schema(name: str, **types: Any) -> Any:
    fields = [{"name": field, "type": type_} for field, type_ in types.items()]
    return fastavro.parse_schema({"type": "record", "name": name, "fields": fields})


ORDER = schema(
    "shop.Order",
    n="long",
    price={"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2},
    at={"type": "long", "logicalType": "timestamp-millis"},
)
RETURN = schema("shop.Return", n="long", why=["null", "string"])
AT = datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A folder with two files of orders and one of returns."""
    folder = tmp_path / "in"
    folder.mkdir()
    for name, part in (("a", range(3)), ("b", range(3, 5))):
        orders = [{"n": n, "price": Decimal("12.50"), "at": AT} for n in part]
        with (folder / f"{name}.avro").open("wb") as file:
            fastavro.writer(file, ORDER, orders, codec="deflate")
    with (folder / "r.avro").open("wb") as file:
        fastavro.writer(file, RETURN, [{"n": 7, "why": None}])
    return tmp_path


def route(work: Path, value: str = "json", more: str = "", errors: str = "") -> Route:
    return Route.parse(ROUTE.format(work=work, value=value, more=more, errors=errors), {})


def delivered(work: Path) -> list[dict[str, Any]]:
    lines = [line for file in (work / "out").glob("*.json") for line in file.read_text().splitlines()]
    return sorted(map(json.loads, lines), key=lambda row: str(row.get("value")))


def test_values_have_the_types_of_their_files(spark: SparkSession, files: Path) -> None:
    """The schema of each file applies to its values, decimals and times included, and names their topic."""
    result = ts.run(route(files, "connect-json", "schemas: true"), spark)

    rows = delivered(files)
    assert (result.counts.read, result.counts.delivered, [row["topic"] for row in rows]) == (
        6,
        6,
        ["shop.Order"] * 5 + ["shop.Return"],
    )
    value = json.loads(rows[0]["value"])
    assert {field["field"]: field.get("name", field["type"]) for field in value["schema"]["fields"]} == {
        "n": "int64",
        "price": "org.apache.kafka.connect.data.Decimal",
        "at": "org.apache.kafka.connect.data.Timestamp",
        "via": "string",
    }
    assert value["payload"] == {"n": 0, "price": "BOI=", "at": int(AT.timestamp() * 1000), "via": "turnout"}


def test_values_as_plain_json(spark: SparkSession, files: Path) -> None:
    """Without schemas a value is JSON that people read; the topic may be given."""
    ts.run(route(files, more="topic: orders"), spark)

    rows = delivered(files)
    assert {row["topic"] for row in rows} == {"orders"}
    assert json.loads(rows[0]["value"]) == {"n": 0, "price": 12.50, "at": "2023-11-14T22:13:20.000Z", "via": "turnout"}
    assert json.loads(rows[-1]["value"]) == {"n": 7, "why": None, "via": "turnout"}


def test_damaged_files(spark: SparkSession, files: Path) -> None:
    """A file that is truncated, or not Avro, is one dead letter with its name; other files are not affected."""
    whole = (files / "in" / "a.avro").read_bytes()
    (files / "in" / "c.avro").write_bytes(whole[:-7])
    (files / "in" / "d.avro").write_bytes(b"PAR1")

    result = ts.run(route(files, errors=TOLERANT), spark)

    assert (result.counts.read, result.counts.delivered, result.counts.dead_lettered) == (8, 6, 2)
    dead = [row for row in delivered(files) if row["topic"] == "dead"]
    reasons = sorted(
        b64decode(header["value"]).decode()
        for row in dead
        for header in row["headers"]
        if header["key"] == "__connect.errors.exception.message"
    )
    assert [reason.rpartition("/")[2].partition(" ")[0] for reason in reasons] == ["c.avro:", "d.avro:"]
    with pytest.raises(RunError, match=r"c\.avro: the block at byte|d\.avro: expected an Avro object file"):
        ts.run(route(files), spark)


def test_new_files_as_they_come(spark: SparkSession, files: Path) -> None:
    """With a stream a file is read once, in the order of its rows."""
    following = route(files, more="stream: true")
    first = ts.run(following, spark, once=True)
    (files / "in" / "e.avro").write_bytes((files / "in" / "b.avro").read_bytes())

    second = ts.run(following, spark, once=True)

    assert (first.counts.read, second.counts.read, second.counts.delivered) == (6, 2, 2)


def test_value_format_is_checked(tmp_path: Path) -> None:
    """Values are JSON, with a schema if the source says so; other formats, and options of other files, are mistakes."""
    for value, more, problem in (
        ("raw", "", "value: values of these Avro files are json, found format: raw"),
        ("json", "schemas: true", "values of these Avro files are connect-json, found format: json"),
    ):
        with pytest.raises(RouteError, match=problem):
            route(tmp_path, value, more)
    text = ROUTE.format(work=tmp_path, value="json", more="topic: a", errors="").replace("format: avro", "format: csv")
    with pytest.raises(RouteError, match="topic: only Avro files need it"):
        Route.parse(text, {})


JSON_LINES = """
{"topic":"a.1","value":"good","timestamp":"2026-01-01T00:00:00Z"}
{"topic":"a.2","value":"bro
{"topic":"a.3","value":"p","partition":"abc"}
{"topic":"a.4","value":"t","timestamp":"yesterday"}
{"topic":"a.5","value":"h","headers":[{"key":"x","value":"not base64!"}]}
{"tpic":"a.6","valu":"misspelt"}
[{"topic":"a.7","value":{"n":1}}]
no JSON
"""
CSV_LINES = """
c.1,0,1,k,good,,2026-01-01T00:00:00Z
c.2,abc,1,k,bad partition,,2026-01-01T00:00:00Z
c.3,0,1,k,bad time,,yesterday
c.4,0,1,k,too,many,2026-01-01T00:00:00Z,columns,here
c.5,0
c.6,0,1,k,bad headers,{nojson,2026-01-01T00:00:00Z
"""


@pytest.mark.parametrize(
    ("kind", "lines", "delivered_topics"), [("json", JSON_LINES, ["a.1", "a.7"]), ("csv", CSV_LINES, ["c.1"])]
)
def test_lines_that_are_no_records(
    spark: SparkSession, tmp_path: Path, kind: str, lines: str, delivered_topics: list[str]
) -> None:
    """They are dead letters with their line: Spark makes what it cannot read null, and the rest would be delivered."""
    (tmp_path / f"in.{kind}").write_text(lines.strip())
    source = f"{{format: {kind}, path: {tmp_path}/in.{kind}}}"
    sinks = f"{{main: {{format: json, path: {tmp_path}/out}}, letters: {{format: json, path: {tmp_path}/letters}}}}"
    more = "deadLetter: {topic: 'letters:dead'}\nerrors: {tolerance: all}"

    result = ts.run(Route.parse(f"name: r\nsource: {source}\nvalue: {{format: bytes}}\nsinks: {sinks}\n{more}"), spark)

    letters = [
        json.loads(line) for file in (tmp_path / "letters").glob("*.json") for line in file.read_text().splitlines()
    ]
    assert [row["topic"] for row in delivered(tmp_path)] == delivered_topics
    read = [line for line in lines.strip().splitlines() if delivered_topics[0] not in line and "a.7" not in line]
    assert (result.counts.dead_lettered, len(letters)) == (len(read), len(read))
    # A row without a column of a record, and one with bad headers, are read: there is no line of theirs.
    assert {letter.get("value") for letter in letters} == {
        None if "misspelt" in line else "bad headers" if "nojson" in line else line for line in read
    }
    assert result.counts.conserved


@pytest.mark.parametrize("kind", ["json", "parquet"])
@pytest.mark.parametrize("stream", [False, True])
def test_names_that_no_part_of_a_record_has(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture, kind: str, stream: bool
) -> None:
    """They are not read, as before; a warning says so, for a misspelt value is a null one."""
    files = tmp_path / "in"
    spark.createDataFrame([("a", "v", 1)], "topic string, vlaue string, partition int").write.format(kind).save(
        str(files)
    )
    source = f"{{format: {kind}, path: {files}, stream: {str(stream).lower()}}}"
    route = (
        f"name: r\nsource: {source}\nsink: {{format: json, path: {tmp_path}/out}}\ncheckpoint: {tmp_path}/checkpoint"
    )

    ts.run(Route.parse(route), spark, once=True)

    warnings = [record.getMessage() for record in caplog.records if record.name == "turnout.spark.formats.tables"]
    parts = "topic, partition, offset, key, value, headers, timestamp"
    assert warnings == [f"{files}: 'vlaue' is not read; did you mean \"value\"? (a record has {parts})"]
    assert [row["topic"] for row in delivered(tmp_path)] == ["a"]


def test_names_in_the_header_of_a_csv_file(spark: SparkSession, tmp_path: Path) -> None:
    """Columns in another order are refused: by their positions values would be topics."""
    (tmp_path / "in.csv").write_text("value,topic,partition,offset,key,headers,timestamp\nv,t,0,1,k,,\n")
    source = f"{{format: csv, path: {tmp_path}/in.csv, options: {{header: true}}}}"

    with pytest.raises(RunError, match="CSV header does not conform to the schema"):
        ts.run(Route.parse(f"name: r\nsource: {source}\nsink: {{format: json, path: {tmp_path}/out}}"), spark)
