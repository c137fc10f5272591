"""The table of what a pair of formats changes: it is compared with what the codecs write and read again."""

from __future__ import annotations

import json
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pytest

from turnout.codecs import Codec, EncodeErrors, Format, codec_of
from turnout.codecs.avro.connect_schema import avro_schema_of
from turnout.codecs.conversion import writing_codec
from turnout.codecs.json_schema.codec import definition_of
from turnout.codecs.json_schema.kind import JsonSchemaOptions
from turnout.codecs.pairs import BECOME, Feature, Pair, losses, name_of, pair_of
from turnout.errors import RecordError
from turnout.records import Field, Float32, Moment, Schema, group
from turnout.records.block import rows_of
from turnout.records.schema import DATE, DECIMAL, TIME, TIMESTAMP

ENUM = "io.confluent.connect.avro.Enum"


@dataclass(frozen=True)
class Sample:
    """A value of a feature, with its schema; schemaless where that is None."""

    schema: Schema | None
    value: Any


MEMBERS = (Field("string", Schema("string", True)), Field("long", Schema("int64", True)))
SAMPLES = {
    Feature.INT64: Sample(Schema("int64"), 2**53 + 1),
    Feature.WIDTHS: Sample(Schema("int32"), 7),
    Feature.NAN: Sample(Schema("float64"), float("inf")),
    Feature.BYTES: Sample(Schema("bytes"), b"\xff\x00"),
    Feature.DECIMALS: Sample(Schema("bytes", name=DECIMAL, version=1, parameters=(("scale", "2"),)), Decimal("12.50")),
    Feature.DATES: Sample(Schema("int32", name=DATE, version=1), Moment(86_400_000)),
    Feature.TIMES: Sample(Schema("int32", name=TIME, version=1), Moment(1000)),
    Feature.TIMESTAMPS: Sample(Schema("int64", name=TIMESTAMP, version=1), Moment(1_700_000_000_123)),
    Feature.FINE_TIMES: Sample(
        Schema("int64", parameters=(("turnout.avro.logicalType", "timestamp-micros"),)), 1_700_000_000_123_456
    ),
    Feature.ENUMS: Sample(Schema("string", name="E", parameters=((ENUM, "E"), (f"{ENUM}.A", "A"))), "A"),
    Feature.UNIONS: Sample(
        Schema("struct", True, name="io.confluent.connect.avro.Union", fields=MEMBERS), {"string": "x", "long": None}
    ),
    Feature.KEYS: Sample(Schema("map", keys=Schema("int32"), values=Schema("string")), {3: "x"}),
    Feature.NULLS: Sample(Schema("string", True), None),
}
SCHEMALESS = {
    Feature.INT64: Sample(None, 2**53 + 1),
    Feature.WIDTHS: Sample(None, Float32(0.5)),
    Feature.NAN: Sample(None, float("inf")),
    Feature.BYTES: Sample(None, b"\xff\x00"),
    Feature.TIMESTAMPS: Sample(None, Moment(1_700_000_000_123)),
    Feature.KEYS: Sample(None, {3: "x"}),
    Feature.NULLS: Sample(None, None),
}
FORMATS = {
    "json": Format("json"),
    "json, mapping: protobuf": Format("json", mapping="PROTOBUF"),
    "connect-json": Format("connect-json"),
    "connect-json, schemas.enable: false": Format("connect-json", schemas_enable=False),
    "msgpack": Format("msgpack"),
}
FOR_OTHERS = {
    "json": {Feature.INT64},
    "connect-json, schemas.enable: false": {Feature.INT64},
    "jsonSchema": {Feature.NAN},
}
"""Features that come back here and that readers of other programs may have otherwise."""

OWN_TYPES: dict[type, set[tuple[str, str | None]]] = {
    int: {("int64", None)},
    float: {("float64", None)},
    str: {("string", None)},
    bytes: {("bytes", None)},
    Moment: {("int64", TIMESTAMP)},
    dict: {("map", None)},
}
"""Types and names of schemas that values without one are of."""

READ = Format("long")
"""No format of these, so that each of them is one that is written."""


def writer_of(name: str, schema: Schema | None) -> Codec:
    """The codec that values of a schema are written with; Avro and JSON Schema by the schema that a registry gets."""
    if schema is not None and name == "avro":
        return writing_codec(Format("avro", schema=avro_schema_of(schema)), READ, codec_of(READ))
    if schema is not None and name == "jsonSchema":
        document = json.loads(definition_of(schema, JsonSchemaOptions()))
        return writing_codec(Format("jsonSchema", schema=document), READ, codec_of(READ))
    return writing_codec(FORMATS[name], READ, codec_of(READ))


def is_kept(name: str, sample: Sample) -> bool:
    """Whether a field is of the same value and schema after it was written and read again."""
    struct = None
    if sample.schema is not None:
        struct = Schema("struct", name="R", fields=(Field("f", sample.schema),))
    (block,) = group(rows_of(1), struct, [{"f": sample.value}], checked=False)
    try:
        codec = writer_of(name, struct)
        (text,) = codec.encode(block)
    except (EncodeErrors, RecordError):
        return False
    blocks, errors = codec.decode(rows_of(1), [text])
    assert not errors
    (again,) = (one for one in blocks if len(one))
    (value,) = again.whole()
    schema = again.schema and again.schema.field("f")
    if "f" not in value or type(value["f"]) is not type(sample.value) or value["f"] != sample.value:
        return False
    if again.schema is None and sample.schema is not None:
        # What has no schema in the format has the type of the value's own class.
        own = (sample.schema.type, sample.schema.name) in OWN_TYPES.get(type(sample.value), ())
        return sample.value is None or (own and not sample.schema.parameters)
    return schema is None or schema.with_(omissible=False) == sample.schema


@pytest.mark.parametrize("name", [*FORMATS, "avro", "jsonSchema"])
@pytest.mark.parametrize("feature", list(SAMPLES), ids=lambda one: one.name)
def test_values_with_a_schema(name: str, feature: Feature) -> None:
    """What the table names is changed or refused, anything else comes back."""
    said = {lost for lost, _ in losses("avro", name)} - FOR_OTHERS.get(name, set())

    assert is_kept(name, SAMPLES[feature]) == (feature not in said)


@pytest.mark.parametrize("name", list(FORMATS))
@pytest.mark.parametrize("feature", list(SCHEMALESS), ids=lambda one: one.name)
def test_schemaless_values(name: str, feature: Feature) -> None:
    """The same of values without a schema, which no format of JSON gives one."""
    said = {lost for lost, _ in losses("msgpack", name)} - {Feature.INT64}
    if feature is Feature.WIDTHS:
        assert not is_kept(name, SCHEMALESS[feature])
        return

    assert is_kept(name, SCHEMALESS[feature]) == (feature not in said)


def test_notes_name_what_the_schema_has() -> None:
    """Where the schema of all values is known, features that it does not have are left out."""
    schema = Schema("struct", fields=(Field("f", SAMPLES[Feature.DECIMALS].schema or Schema("bytes")),))
    avro = Format("avro", schema={"type": "string"})

    assert pair_of(avro, Format("json"), schema).notes == (
        "decimals are numbers with their digits",
        "the schema is not written",
    )
    assert len(pair_of(avro, Format("json")).notes) == len(BECOME["json"]) + 1
    assert pair_of(avro, avro) == Pair()


@pytest.mark.parametrize(
    ("read", "written", "about"),
    [
        (Format(), Format("json"), "values are read as bytes"),
        (Format("json", schema="n INT"), Format("long"), "values are objects, which long does not write"),
        (Format("string"), Format("protobuf", schema="x.proto"), "values are no objects"),
    ],
)
def test_warnings(read: Format, written: Format, about: str) -> None:
    """A pair that is probably meant otherwise says what to do, and nothing else."""
    pair = pair_of(read, written)

    assert not pair.notes
    assert [about in warning for warning in pair.warnings] == [True]


def test_a_schema_that_is_needed() -> None:
    """The note says which one values without a schema are written with."""
    given, looked_up = Format("avro", schema="order.avsc"), Format("avro", registry="http://127.0.0.1:1")

    assert "the one that is given" in pair_of(Format("json"), given).notes[-1]
    assert "the last version of the subject" in pair_of(Format("json"), looked_up).notes[-1]
    assert name_of(given) == "avro"
