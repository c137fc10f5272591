"""Tables in route files: what is refused before a session is there, and what is said of their exactness."""

from __future__ import annotations

import pytest

from turnout.errors import RouteError
from turnout.routes import Route
from turnout.routes.endpoints.tables import MATCHES

SPARK = "{format: spark, provider: parquet, options: {path: in}, record: {topic: t}}"
NATS = '{format: nats, servers: "nats://127.0.0.1:4222", stream: S}'
FILES = "{format: json, path: out}"


def route(source: str, sink: str, more: str = "") -> Route:
    return Route.parse(f"name: r\nsource: {source}\nsink: {sink}\n{more}", {})


@pytest.mark.parametrize(
    ("source", "sink", "more", "problem"),
    [
        ("{format: spark, provider: jdbc, stream: true, record: {topic: t}}", FILES, "",
         "stream: Spark reads jdbc once"),
        ("{format: spark, provider: csv, stream: true, record: {topic: t}}", FILES, "",
         "schema: Spark needs the columns"),
        ("{format: spark, provider: rate, record: {topic: 't.{}'}}", FILES, "", "empty placeholder"),
        ("{format: spark, provider: rate}", FILES, "", "source.record"),
        ("{format: delta, path: x, record: {topic: t, value: a}}", FILES, "", "record.value: a record has all columns"),
        ("{format: iceberg, catalog: {type: sql}, table: x, record: {topic: t}}", FILES, "", "source.table"),
        (NATS, "{format: spark, provider: orc}", "value: {format: json}", "sink.columns: found none, expected them"),
        (NATS, "{format: spark, provider: orc, columns: {a: value.a}}", "value: {format: json}",
         "columns.a: found no type"),
        (NATS, "{format: spark, provider: orc, columns: {a: value.a INTT}}", "", "expected a type; did you mean INT?"),
        (NATS, "{format: spark, provider: orc, columns: {a: headers.N INT}}", "",
         "a: found headers.N as int32, expected STRING or BINARY: a Set transform makes a field of it, value.a: int("),
        (NATS, "{format: delta, path: x, columns: {a: key DOUBLE}}", "", "value.a: int(key)"),
        (NATS, "{format: delta, path: x, columns: {a: offset INT}}", "", "found offset as int32, expected BIGINT or"),
        (NATS, "{format: delta, path: x, columns: {a: timestamp BIGINT}}", "", "found a time as int64, expected TIME"),
        (NATS, "{format: spark, provider: orc, columns: {a: valu.a}}", "", "found 'valu.a', expected value.FIELD"),
        (NATS, "{format: spark, provider: orc, columns: {a: topic}, partitionBy: b}", "",
         "found 'b', expected one of a"),
        (NATS, "{format: spark, provider: orc, columns: {a: topic}, mode: overwrite}", "",
         "found overwrite, expected append"),
        (NATS, "{format: spark, provider: orc, columns: {a: topic}}", "deadLetter: {topic: dead}", "leads to a table"),
        (NATS, "{format: spark, provider: orc, upsertBy: a, columns: {a: topic}}", "", "only jdbc to PostgreSQL"),
        (SPARK, "{format: delta, path: x, value: {format: json}}", "", "sink.value: a row has columns and no format"),
        (SPARK, FILES, "subscriptions: {store: 'memory://', feeds: {table: {format: delta, path: m}}}",
         "have positions"),
        (NATS, FILES, "subscriptions: {store: 'memory://', feeds: {table: {format: json, path: m}}}",
         "format: found 'json'"),
        (
            NATS, FILES,
            "subscriptions: {store: 'memory://', feeds: {table: {format: delta, path: m, columns: {time: topic}}}}",
            "a match has a column of this name",
        ),
    ],
)  # fmt: skip
def test_mistakes(source: str, sink: str, more: str, problem: str) -> None:
    """Each names its place and the cure."""
    with pytest.raises(RouteError) as raised:
        route(source, sink, more)
    assert problem in str(raised.value)


@pytest.mark.parametrize(
    ("sink", "note"),
    [
        ("{format: delta, path: x}", "sink: exactly once: a commit has the micro-batch"),
        ("{format: iceberg, catalog: {type: sql}, table: a.b}", "sink: exactly once: a commit has the micro"),
        ("{format: spark, provider: orc}", "sink: at least once: a micro-batch that is done again appends"),
        (
            "{format: spark, provider: jdbc, upsertBy: id, options: {url: 'jdbc:postgresql://h/d', dbtable: t}}",
            "sink: exactly once by the key id",
        ),
    ],
)  # fmt: skip
def test_exactness_is_said(sink: str, note: str) -> None:
    """By `check`, as a note."""
    assert [one for one in route(SPARK, sink).notes if one.startswith(note)]


def test_a_table_of_matches() -> None:
    """It is a sink that no destination can name, with the columns of a match before its own."""
    feeds = "feeds: {table: {format: delta, path: m, columns: {city: value.city STRING}}}"
    found = route(NATS, FILES, f"value: {{format: json}}\nsubscriptions: {{store: 'memory://', {feeds}}}")

    specs = found.sinks[MATCHES].specs  # type: ignore[attr-defined]
    assert [spec.name for spec in specs] == ["time", "position", "subscription", "revision", "destination", "city"]
    assert found.subscriptions is not None
    assert found.subscriptions.feeds is False


def test_values_of_tables_are_written_as_json() -> None:
    """Unless the route says else; nothing is read by that format."""
    assert route(SPARK, FILES).value.format == "json"
    assert route(SPARK, FILES, "value: {format: connect-json}").value.format == "connect-json"
