"""Values of many shapes on their way to a codec: each codec gets blocks that it can write."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest

from tests.engine.batches import SINK, batch, program, sent
from tests.engine.routed import dead, to
from turnout.codecs import EncodeErrors
from turnout.codecs.arrow_columns import arrow_blocks
from turnout.engine import Program
from turnout.engine.writing import Rows
from turnout.errors import ConfigError
from turnout.records import Schema, group
from turnout.records.headers import headers_type
from turnout.routes import Route
from turnout.routes.endpoints import TableSink
from turnout.routes.endpoints.tables import ColumnSpec, struct_of
from turnout.routes.rows import ColumnRule, RowPlan, plan_rows
from turnout.subscriptions.index import Index

AT = datetime(2013, 1, 1, 5, 17, 0, 123_456, tzinfo=UTC)
VALUE = pa.struct(
    [("id", pa.int32()), ("fare", pa.decimal128(10, 2)), ("at", pa.timestamp("us", "UTC")), ("no", pa.string())]
)


def schema(**types: str) -> Schema:
    specs = (ColumnSpec.of(name, f"value.{name} {type_}") for name, type_ in types.items())
    return struct_of((spec.path, kind) for spec in specs if (kind := spec.schema) is not None)


def rows(read: pa.DataType | None, wanted: Schema, *values: Any) -> tuple[list[Any], dict[int, str]]:
    """The rows of values, and the errors by index."""
    codec = Rows(wanted)
    errors: dict[int, str] = {}
    places: list[bytes | None] = [None] * len(values)
    blocks = (
        group(np.arange(len(values)), None, list(values)) if read is None else arrow_blocks(pa.array(values, read))[0]
    )
    for block in blocks:
        try:
            texts = codec.encode(block)
        except EncodeErrors as failed:
            texts = failed.texts
            errors |= {int(block.rows[at]): str(error) for at, error in failed.errors.items()}
        for row, text in zip(block.rows.tolist(), texts, strict=True):
            places[row] = text
    return codec.taken(pa.array(places, pa.binary())).to_pylist(), errors


def test_columns_stay_as_they_are() -> None:
    """Microseconds and digits, also beside a column of another type; a null has no row."""
    found, errors = rows(
        VALUE, schema(id="TINYINT", fare="DECIMAL(5,2)", at="TIMESTAMP"),
        {"id": 1, "fare": Decimal("1.25"), "at": AT, "no": "x"}, None, {"id": 300, "fare": None, "at": None},
        {"id": 2, "fare": Decimal("99999.99"), "at": AT},
    )  # fmt: skip

    assert found == [{"id": 1, "fare": Decimal("1.25"), "at": AT}, None, None, None]
    assert "a null has no columns" in errors[1]
    assert "id: expected" in errors[2]
    assert "300" in errors[2]
    assert "precision" in errors[3]


def test_schemaless_values() -> None:
    """Read by the types of the columns, exactly or not at all; fields that are no columns are left out."""
    wanted = schema(id="BIGINT", fare="DECIMAL(10,2)", day="DATE", tags="ARRAY<STRING>")
    good = {"id": 7, "fare": "12.50", "day": "2013-01-01", "tags": ["a", None], "more": {"x": 1}}

    found, errors = rows(None, wanted, good, {"id": 8}, {**good, "fare": 1.005}, {**good, "id": "x"})

    assert [row and row["id"] for row in found] == [7, 8, None, None]
    assert (found[0]["fare"], found[0]["tags"], found[1]["fare"]) == (Decimal("12.50"), ["a", None], None)
    assert "fare" in errors[2]
    assert "id" in errors[3]


def test_what_would_change_is_refused() -> None:
    """Bytes are no text, and a decimal no double."""
    kind = pa.struct([("raw", pa.binary()), ("fare", pa.decimal128(4, 1))])

    assert "bytes do not fit a string" in rows(kind, schema(raw="STRING"), {"raw": b"x"})[1][0]
    assert "does not fit float64 exactly" in rows(kind, schema(fare="DOUBLE"), {"fare": Decimal(1)})[1][0]


def sink(text: str) -> TableSink:
    found = Route.parse(
        f"name: r\nsource: {{format: spark, provider: rate, record: {{topic: t}}}}\nsink: {{format: spark, {text}}}"
    ).sinks[""]
    assert isinstance(found, TableSink)
    return found


def test_types_of_columns() -> None:
    """That of the table goes before the declared one, and that before the field's."""
    value = struct_of(iter([(("a",), Schema("int32", True)), (("b", "c"), Schema("string", True))]))
    plan = plan_rows(sink("provider: jdbc, columns: {x: value.a, y: value.b.c, z: value.d SMALLINT, t: topic}"), value,
                     {"x": Schema("int64", True)})  # fmt: skip

    assert {name: schema.type for name, schema in plan.types.items()} == {
        "x": "int64", "y": "string", "z": "int16", "t": "string",
    }  # fmt: skip
    assert [field.name for field in plan.value.fields] == ["a", "b", "d"]


@pytest.mark.parametrize("more", ["whole: value.a TINYINT", "part: value.a.b INT"])
def test_a_field_is_read_in_one_type(more: str) -> None:
    """Spark would cast what the engine has read, and fail the run for one value."""
    with pytest.raises(ConfigError, match="in another type than the column first does"):
        plan_rows(sink(f"provider: jdbc, columns: {{first: value.a BIGINT, {more}}}"), None)


def test_rows_beside_messages() -> None:
    """One sink has bytes, the other rows; a dead letter has the JSON of its row."""
    route = Route.parse(
        """
name: r
source: {format: spark, provider: rate, record: {topic: t}}
mappings: {"1": "rows:a", "2": "letters:b"}
sinks:
  rows: {format: spark, provider: noop, columns: {id: value.id TINYINT}}
  letters: {format: json, path: out}
deadLetter: {topic: "letters:dead"}
errors: {tolerance: all}
"""
    )
    value = pa.array([{"id": 1}, {"id": 2}, {"id": 300}], pa.struct([("id", pa.int32())]))
    batch = pa.RecordBatch.from_pydict(
        {"topic": ["1", "2", "1"], "partition": [0, 0, 0], "offset": [0, 1, 2], "value": value}
    )
    program = Program.of(route, None, {0: RowPlan(schema(id="TINYINT"), ())})

    result = program.run(batch)

    messages = result.messages
    assert messages.sinks.tolist() == [0, 1, 1]
    assert messages.column("value").to_pylist()[1:] == [b'{"id":2}', b'{"id":300}']
    places = pa.array([messages.column("value")[0].as_py(), None], pa.binary())
    assert program.writer.rows[0].taken(places).to_pylist() == [{"id": 1}, None]
    assert (result.counts.delivered, result.counts.dead_lettered) == (2, 1)


def test_rows_that_their_table_refuses() -> None:
    """They are dead letters with the column and the reason, wherever the column's text comes from."""
    columns = "{a: value.a.b STRING, k: key STRING, h: headers.x STRING}"
    route = Route.parse(
        f"""
name: r
source: {{format: spark, provider: rate, record: {{topic: t}}}}
sinks:
  rows: {{format: spark, provider: noop, columns: {columns}}}
  letters: {{format: json, path: out}}
mappings: {{t: "rows:t"}}
deadLetter: {{topic: "letters:dead"}}
errors: {{tolerance: all}}
"""
    )
    sink = route.sinks["rows"]
    assert isinstance(sink, TableSink)
    rule = ColumnRule(required=True, longest=3, refuses_nul=True)
    plan = plan_rows(sink, None, rules=dict.fromkeys("akh", rule))
    good: list[dict[str, Any]] = [{"a": {"b": "abc"}}, {"k": "äöü"}, {"h": b"xyz"}]
    bad: list[tuple[dict[str, Any], str]] = [
        ({"a": {"b": None}}, "the column a has no nulls"),
        ({"a": None}, "the column a has no nulls"),
        ({"a": {"b": "abcd"}}, "the column a has at most 3 characters, found 4"),
        ({"a": {"b": "a\0"}}, "the column a has no texts with the character U+0000"),
        ({"k": None}, "the key in the column k, which has no nulls"),
        ({"k": "a\0"}, "the key in the column k, which has no texts with the character U+0000"),
        ({"h": None}, "the header x in the column h, which has no nulls"),
        ({"h": "äöüß".encode()}, "the header x in the column h, which has at most 3 characters, found 4"),
    ]
    several = [{"a": {"b": "v"}, "k": "k", "h": b"h", **one} for one in (*good, *(changed for changed, _ in bad))]
    rows = pa.RecordBatch.from_pydict(
        {
            "topic": ["t"] * len(several),
            "partition": [0] * len(several),
            "offset": list(range(len(several))),
            "key": [one["k"] for one in several],
            "value": pa.array([{"a": one["a"]} for one in several]),
            "headers": pa.array([[("x", one["h"])] if one["h"] else [] for one in several], headers_type()),
        }
    )

    result = Program.of(route, None, {0: plan}).run(rows)

    assert (result.counts.delivered, result.counts.dead_lettered) == (len(good), len(bad))
    reasons = [letter["__connect.errors.exception.message"] for letter in dead(result.messages)]
    assert reasons == [reason for _, reason in bad]


def test_rows_of_matches() -> None:
    """Each match is a row, of messages that are sent at once or wait; a record that does not fit has none of both."""
    route = Route.parse(
        """
name: r
source: {format: nats, servers: "nats://a", stream: S}
value: {format: json}
subscriptions:
  store: "memory://"
  feeds: {table: {format: delta, path: m, columns: {n: value.n TINYINT}}}
sink: {format: nats, servers: "nats://a", delay: 1m}
deadLetter: {topic: dead}
errors: {tolerance: all}
"""
    )
    index = Index.of([to("out.a", "out.b", id="one"), to("out.c", id="two")])
    program = Program.of(route, None, {1: RowPlan(schema(n="TINYINT"), ())})

    result = program.run(batch([{"value": {"n": 1}}, {"value": {"n": 300}}, {"value": {"n": 3}}]), index)

    messages, ids = result.messages, result.messages.ids.to_pylist()
    matches = [number for number, sink in enumerate(messages.sinks.tolist()) if sink == 1]
    assert [ids[number].split("\n")[2] for number in matches] == ["one", "one", "two"] * 2
    assert messages.topics.take(pa.array(matches)).to_pylist() == ["out.a", "out.b", "out.c"] * 2
    places = messages.column("value").take(pa.array(matches))
    assert [row["n"] for row in program.writer.rows[1].taken(places).to_pylist()] == [1, 1, 1, 3, 3, 3]
    others = messages.of_sink(0)
    assert sum(topic.startswith("scheduled.") for topic in others.topics.to_pylist()) == 6
    assert others.column("value").to_pylist().count(b'{"n": 300}') == 1
    assert (result.counts.delivered, result.counts.dead_lettered, result.counts.messages) == (2, 1, 12)


ROUTE = """
name: shapes
source: {format: nats, servers: "nats://127.0.0.1:4222", stream: S}
value: %s
transforms:
  - {name: rename, type: ReplaceField$Value, renames: "city:town"}
"""


def to_json(value: Any) -> bytes:
    return json.dumps(value).encode()


@pytest.mark.parametrize(
    ("form", "write", "read"),
    [
        ("{format: json}", to_json, json.loads),
        ("{format: connect-json, schemas.enable: false}", to_json, json.loads),
        ("{format: msgpack}", msgspec.msgpack.encode, msgspec.msgpack.decode),
    ],
)
def test_values_of_own_shapes_are_written_by_every_codec(
    form: str, write: Callable[[Any], bytes], read: Callable[[bytes], Any]
) -> None:
    """Each record has a shape of its own, and its value is the renamed one, in any format."""
    values = [{f"n{number}": number, "city": "Oulu"} for number in range(5)]

    result = program(SINK, text=ROUTE % form).run(batch([{"value": write(value)} for value in values]))

    expected = [[(f"n{number}", number), ("town", "Oulu")] for number in range(5)]
    assert expected == [list(read(value or b"").items()) for _, _, value, _ in sent(result.messages)]


@pytest.mark.parametrize(
    ("transforms", "given", "expected"),
    [
        ("FromJson$Value", b'{"a": [1, null], "b": {"c": "x"}}', b'{"a":[1,null],"b":{"c":"x"}}'),
        ("FromJson$Value", b'[1, {"a": 2}]', b'[1,{"a":2}]'),
        ("FromJson$Value", b'"x"', b"x"),
        ("FromJson$Value", b"1.50", b"1.5"),
        ("HoistField$Value, field: f", b"x", b'{"f":"x"}'),
    ],
)
@pytest.mark.parametrize("copies", [1, 20])
def test_objects_are_json_where_values_are_texts(transforms: str, given: bytes, expected: bytes, copies: int) -> None:
    """No reader takes what Java prints of a map; plain values are their texts."""
    text = f"""
name: texts
source: {{format: nats, servers: "nats://127.0.0.1:4222", stream: S}}
value: {{format: string}}
transforms: [{{type: {transforms}}}]
"""

    result = program(SINK, text=text).run(batch([{"value": given}] * copies))

    assert [expected] * copies == [value for _, _, value, _ in sent(result.messages)]


@pytest.mark.parametrize("records", [1, 400])
def test_keys_and_headers_that_are_no_texts(records: int) -> None:
    """A table with columns of texts gets none of them: their records are dead letters, and the others are rows."""
    route = Route.parse(
        """
name: r
source: {format: json, path: in}
value: {format: json}
sinks:
  rows: {format: spark, provider: noop, columns: {k: key STRING, trace: headers.trace}}
  letters: {format: json, path: out}
deadLetter: {topic: "letters:dead"}
errors: {tolerance: all, log: true}
"""
    )
    sink = route.sinks["rows"]
    assert isinstance(sink, TableSink)
    program = Program.of(route, None, {0: plan_rows(sink, None)})
    good = {"key": b"k", "value": {"n": 1}, "headers": [("trace", "t"), ("other", b"\xff")]}
    bad = [{**good, "key": b"\xff"}, {**good, "headers": [("trace", b"\xff")]}]

    result = program.run(batch([*bad, *[good] * records]))

    assert (result.counts.delivered, result.counts.dead_lettered) == (records, 2)
    assert [failure["message"] for failure in result.failures] == [
        f"the {part} is no UTF-8, and its column has texts: declare it as BINARY" for part in ("key", "header trace")
    ]
