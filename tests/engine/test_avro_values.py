"""Avro values whose logical types only Connect's names tell, by the results of AvroData (Apicurio's copy, 2.6.13)."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.codecs.blocks import encoded
from turnout.codecs import Format, codec_of
from turnout.codecs.avro.codec import Plan
from turnout.codecs.avro.connect_schema import avro_schema_of, connect_schema_of
from turnout.codecs.avro.types import parse_schema
from turnout.engine import Program
from turnout.engine.sample_records import SampleRecord, record_batch
from turnout.records import Moment
from turnout.routes import Route

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "avro" / "connect_names.json").read_text())
each_vector = pytest.mark.parametrize("vector", VECTORS, ids=lambda one: one["id"])


def schema_of(type_: Any) -> str:
    fields = [{"name": "id", "type": "int"}, {"name": "f", "type": type_}, {"name": "name", "type": "string"}]
    return json.dumps({"type": "record", "name": "R", "fields": fields})


@each_vector
@pytest.mark.parametrize("count", [1, 20])
def test_schema_and_value_are_those_of_avro_data(vector: dict[str, Any], count: int) -> None:
    """Both follow Connect's name, one by one and by column; the schema that is written anew means the same."""
    plan = Plan(parse_schema(schema_of(vector["schema"])))
    datum = bytes.fromhex(vector["datum"])

    (block,), errors = plan.decode(np.arange(count), [datum] * count)

    assert not errors
    assert block.schema is not None
    field = block.schema.field("f")
    assert field is not None
    assert vector["connect"] == field.to_json()
    written = encoded(codec_of(Format("connect-json", schemas_enable=True)), block.schema, *block.whole())
    assert [vector["payload"]] * count == [json.loads(text)["payload"]["f"] for text in written]
    again = Plan(parse_schema(json.dumps(avro_schema_of(block.schema))))
    assert again.schema == block.schema
    assert [datum] * count == plan.encode(block.with_columns(block.schema, dict(block.columns)))


@each_vector
def test_a_transform_of_another_field_leaves_the_value(vector: dict[str, Any], tmp_path: Path) -> None:
    """The value is valid by its schema, so that a copy of the struct is one too."""
    (tmp_path / "r.avsc").write_text(schema_of(vector["schema"]))
    route = f"""
name: r
source: {{format: kafka, servers: "127.0.0.1:1", topics: [a]}}
value: {{format: avro, schema: {tmp_path}/r.avsc}}
transforms:
  - {{name: mask, type: MaskField$Value, fields: name}}
  - {{name: rename, type: Cast$Value, spec: "id:int32"}}
mappings: {{a: out}}
sink: {{format: kafka, servers: "127.0.0.1:1"}}
"""
    datum = bytes.fromhex(vector["datum"])

    result = Program.of(Route.parse(route)).run(record_batch([SampleRecord("a", value=datum)]))

    assert [datum[:-2] + b"\0"] == result.messages.column("value").to_pylist()


def test_values_are_of_their_python_types() -> None:
    """A Decimal has its scale, and a Date is a day."""
    decimal = {
        "type": "bytes", "scale": 127, "precision": 64, "logicalType": "decimal",
        "connect.name": "org.apache.kafka.connect.data.Decimal",
    }  # fmt: skip
    day = {"type": "int", "connect.name": "org.apache.kafka.connect.data.Date"}
    for type_, datum, expected in ((decimal, b"\4\1\2", Decimal("258E-127")), (day, b"\x0a", Moment(5 * 86_400_000))):
        (block,), _ = Plan(parse_schema(json.dumps(type_))).decode(np.arange(1), [datum])
        assert block.whole() == [expected]


@pytest.mark.parametrize(
    ("type_", "about"),
    [
        ({"type": "bytes", "connect.name": "org.apache.kafka.connect.data.Decimal"}, "expected the scale"),
        (
            {
                "type": "bytes",
                "connect.name": "org.apache.kafka.connect.data.Decimal",
                "connect.parameters": {"scale": "1000000000"},
            },
            "expected the scale",
        ),
    ],
)
def test_a_decimal_needs_its_scale(type_: Any, about: str) -> None:
    """AvroData fails at each value; here the schema cannot be used, and the reason says what is missing."""
    with pytest.raises(ValueError, match=about):
        parse_schema(schema_of(type_))


@pytest.mark.parametrize(
    "type_",
    [
        {"type": "fixed", "name": "a.Money", "size": 4, "logicalType": "decimal", "precision": 9, "scale": 2},
        {"type": "fixed", "name": "a.Span", "size": 12, "logicalType": "duration"},
        {"type": "fixed", "name": "a.Id", "size": 16, "logicalType": "uuid"},
        {"type": "long", "logicalType": "local-timestamp-millis"},
        {"type": "long", "logicalType": "local-timestamp-micros"},
        {"type": "long", "logicalType": "local-timestamp-nanos"},
        {"type": "long", "logicalType": "timestamp-nanos"},
        {"type": "enum", "name": "a.Kind", "symbols": ["A", "B"], "default": "B"},
    ],
)
def test_a_schema_that_is_written_anew_keeps_its_types(type_: dict[str, Any]) -> None:
    """Fixed decimals, times that Connect does not know, and the default of an enum."""
    for given in (type_, ["null", type_], {"type": "array", "items": type_}):
        written = json.dumps(avro_schema_of(connect_schema_of(parse_schema(schema_of(given)))))
        inner = json.loads(written)["fields"][1]["type"]
        inner = inner[1] if isinstance(inner, list) else inner.get("items", inner)
        assert type_ == {name: value for name, value in inner.items() if not name.startswith("connect.")}
        assert parse_schema(schema_of(given)).fields[1].type.kind == parse_schema(written).fields[1].type.kind


def test_the_default_of_a_union_is_kept() -> None:
    """It is of the first type of the union, as Avro has it."""
    for union, default in ((["string", "int"], "x"), (["int", "null", "string"], 5), (["null", "int", "string"], None)):
        record = {"type": "record", "name": "R", "fields": [{"name": "u", "type": union, "default": default}]}
        (field,) = avro_schema_of(connect_schema_of(parse_schema(json.dumps(record))))["fields"]
        assert field["default"] == default
        assert field["type"][0] == union[0]
        assert sorted(field["type"]) == sorted(union)
