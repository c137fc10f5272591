"""Values with a JSON Schema: of a file, and of a registry against Confluent's own serializer."""

from __future__ import annotations

import json
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema as ConfluentSchema
from confluent_kafka.schema_registry import SchemaReference, SchemaRegistryClient, header_schema_id_serializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from tests.codecs.blocks import ERROR, blocks_of, decoded, encoded
from tests.codecs.schema_registry.stand_in import StandIn, running_registry

from turnout.codecs import Codec, Format, codec_of, converters_of, notation_of
from turnout.codecs.json_schema.codec import validator_of
from turnout.codecs.json_schema.values import union_field
from turnout.codecs.schema_registry import RegistryCodec, RegistryOptions, registry_of
from turnout.errors import ConfigError, RecordError
from turnout.records import Block, Moment
from turnout.records.block import rows_of
from turnout.records.schema import DATE, DECIMAL

ORDER: Any = {
    "title": "shop.Order",
    "type": "object",
    "properties": {
        "n": {"type": "integer"},
        "total": {
            "type": "number", "title": DECIMAL, "connect.type": "bytes", "connect.parameters": {"scale": "2"},
        },
        "day": {"oneOf": [{"type": "null"}, {"type": "integer", "title": DATE, "connect.type": "int32"}]},
        "ref": {"oneOf": [{"type": "string"}, {"type": "integer"}, {"properties": {"id": {"type": "string"}}}]},
        "counts": {
            "type": "array",
            "connect.type": "map",
            "items": {"type": "object", "properties": {"key": {"type": "integer"}, "value": {"type": "string"}}},
        },
        "kind": {"type": "string", "default": "new"},
    },
}  # fmt: skip
TEXT = b'{"n":1,"total":12.50,"day":1,"ref":"a","counts":[{"key":1,"value":"x"}],"kind":"old"}'
CITY = {"title": "City", "type": "object", "properties": {"name": {"type": "string", "maxLength": 3}}}


@pytest.fixture
def registry() -> Iterator[StandIn]:
    with running_registry() as running:
        yield running


def of_file(folder: Path, document: Any = ORDER, **settings: Any) -> Codec:
    file = folder / "schema.json"
    file.write_text(json.dumps(document))
    return codec_of(Format("jsonSchema", schema=str(file), **settings))


def codec(registry: StandIn, **settings: Any) -> RegistryCodec:
    options = RegistryOptions.read({"url": registry.url, "retries": 0, "wait": 0})
    registry.clients.append(registry_of(options))
    made = codec_of(Format("jsonSchema", registry=options, **settings))
    assert isinstance(made, RegistryCodec)
    return made


def client(registry: StandIn) -> SchemaRegistryClient:
    made = SchemaRegistryClient({"url": registry.url})
    registry.clients.append(made)
    return made


def context(headers: Any = None, topic: str = "cities") -> SerializationContext:
    return SerializationContext(topic, MessageField.VALUE, headers)


def copied(block: Block) -> Block:
    """The same values, as a transform leaves them."""
    return block.with_columns(block.schema, block.columns)


def test_values_of_every_kind(tmp_path: Path) -> None:
    """Are typed by the schema; a changed value is written by it too, an unchanged one as it came."""
    own = of_file(tmp_path, decimal_format="NUMERIC")
    odd = b' {"ref": {"id": "b"}, "n": 2.0, "total": "BOI=", "more": true, "counts": []}'

    blocks, errors = blocks_of(own, TEXT, odd, None)

    union = [union_field(at) for at in range(3)]
    values = [value for block in blocks for value in block.whole()]
    assert errors == {}
    assert values == [
        {
            "n": 1, "total": Decimal("12.50"), "day": Moment(86_400_000),
            "ref": {**dict.fromkeys(union), union[0]: "a"}, "counts": {1: "x"}, "kind": "old",
        },
        {
            "n": 2, "total": Decimal("12.50"), "day": None, "ref": {**dict.fromkeys(union), union[2]: {"id": "b"}},
            "counts": {}, "kind": "new",
        },
        None,
    ]  # fmt: skip
    assert [text for block in blocks for text in own.encode(block)] == [TEXT, odd, None]
    again = [text for block in blocks if block.kind == "object" for text in own.encode(copied(block))]
    assert again == [TEXT, b'{"n":2,"total":12.50,"day":null,"ref":{"id":"b"},"counts":[],"kind":"new"}']


@pytest.mark.parametrize(
    ("document", "texts"),
    [
        ({"type": ["object", "string", "integer", "boolean", "null"], "properties": {"a": {"type": "string"}}},
         [b'{"a":"x"}', b'"x"', b"7", b"true", b"null", b"{}"]),
        ({"oneOf": [{"type": "null"}, {"type": "integer"}]}, [b"7", b"null"]),
        ({"anyOf": [{"type": "array", "items": {"type": "integer"}}, {"type": "number"}]}, [b"[1,2]", b"1.5", b"[]"]),
        ({"oneOf": [{"type": "integer"}, {"anyOf": [{"type": "string"}, {"type": "null"}]}]}, [b"1", b'"a"', b"null"]),
        ({"oneOf": [{"type": "string"}]}, [b'"a"']),
        ({"enum": [1, "a", None, True]}, [b"1", b'"a"', b"null", b"true"]),
        ({"type": "object", "properties": {"u": {"oneOf": [ORDER["properties"]["ref"], {"type": "boolean"}]}}},
         [b'{"u":"a"}', b'{"u":true}', b'{"u":{"id":"b"}}', b"{}"]),
    ],
)  # fmt: skip
def test_values_of_several_schemas(tmp_path: Path, document: Any, texts: list[bytes]) -> None:
    """Are written anew as they came, at the root and in a field: nothing of Connect's form of a union is seen."""
    own = of_file(tmp_path, document)

    blocks, errors = blocks_of(own, *texts)

    assert errors == {}
    written: dict[int, bytes | None] = {}
    for block in blocks:
        block.origin = None
        written |= dict(zip(block.rows.tolist(), own.encode(block), strict=True))
    assert texts == [written[row] for row in range(len(texts))]


@pytest.mark.parametrize(
    ("text", "about"),
    [
        (b"{", "expected JSON"),
        (b"[]", "expected an object"),
        (b'{"n": "1"}', 'n: expected an integer of 64 bits, found "1"'),
        (b'{"n": 1.5}', "n: expected an integer of 64 bits, found 1.5"),
        (TEXT.replace(b'"a"', b"true"), "ref: expected a value of one of the schemas of oneOf, found true"),
        (TEXT.replace(b'"key":1', b'"key":"k"'), "counts[0]: expected an integer"),
        (TEXT.replace(b'"key":1,', b""), "counts: expected a list of objects with key and value"),
        (TEXT.replace(b'"old"', b"7"), "kind: expected a text, found 7"),
    ],
)
def test_a_value_that_does_not_fit_fails_alone(tmp_path: Path, text: bytes, about: str) -> None:
    """With the path of what is wrong in it, and what was expected."""
    blocks, errors = blocks_of(of_file(tmp_path), text, TEXT)

    assert about in str(errors[0])
    assert [block.rows.tolist() for block in blocks] == [[1]]


def test_values_are_validated_where_they_should(tmp_path: Path) -> None:
    """On the way in and on the way out; the reason has the path and the rule."""
    own = of_file(tmp_path, CITY, json_fail_invalid_schema=True)

    blocks, errors = blocks_of(own, b'{"name":"Oulu"}', b'{"name":"Rio"}', b"{")
    assert [str(errors[row]).split(": ")[0] for row in (0, 2)] == ["the value is not valid", "the value is no JSON"]
    assert "name" in str(errors[0])
    assert [block.whole() for block in blocks] == [[{"name": "Rio"}]]
    assert encoded(own, own.schema(), {"name": "Oulu"}, {"name": "Rio"}) == [ERROR, b'{"name":"Rio"}']
    assert decoded(of_file(tmp_path, CITY), b'{"name":"Oulu"}') == [{"name": "Oulu"}]


def test_values_of_confluents_serializer(registry: StandIn) -> None:
    """Are read, and written so that its deserializer reads them, with ids before values and in headers."""
    for conf, settings in (
        ({}, {}),
        ({"schema.id.serializer": header_schema_id_serializer}, {"schema_id_serializer": "header"}),
    ):
        headers: list[Any] = []
        serializer = JSONSerializer(json.dumps(CITY), client(registry), conf=conf)
        text = serializer({"name": "Rio"}, context(headers))
        own = codec(registry, **settings)
        ids = [headers[-1][1]] if headers else None
        (block,), errors = own.decode_with(rows_of(1), [text], ids or [None])
        assert (errors, block.whole()) == ({}, [{"name": "Rio"}])
        assert own.encode_for(block, ["cities"]) == ([text], {}, ids)

        assert block.schema is not None
        renamed = block.with_columns(block.schema.with_(name="Town"), block.columns)
        written = own.encode_for(renamed, ["towns"])
        sent = [(own.header, written.headers[0])] if written.headers else None
        latest = client(registry).get_latest_version("towns-value").schema.schema_str
        deserializer = JSONDeserializer(latest, schema_registry_client=client(registry))
        assert deserializer(written.texts[0], context(sent, "towns")) == {"name": "Rio"}


def test_references(registry: StandIn) -> None:
    """Are resolved by their names, for values and for their validation."""
    registry.add("city", json.dumps(CITY), "JSON")
    trip = json.dumps({"title": "Trip", "type": "object", "properties": {"to": {"$ref": "city.json"}}})
    registry.add("trip-value", trip, "JSON", (("city.json", "city", 1),))
    reference = SchemaReference("city.json", "city", 1)
    serializer = JSONSerializer(
        ConfluentSchema(trip, "JSON", [reference]), client(registry), conf={"auto.register.schemas": False}
    )
    good = serializer({"to": {"name": "Rio"}}, context(None, "trip"))
    bad = good.replace(b"Rio", b"Oulu") if good else b""
    own = codec(registry, json_fail_invalid_schema=True)

    assert decoded(own, good, bad) == [{"to": {"name": "Rio"}}, ERROR]


def test_schemas_that_cannot_be_used(registry: StandIn) -> None:
    """Fail alone, with the reason."""
    avro = registry.add("a", '"string"')
    recursive = registry.add("r", json.dumps({"properties": {"next": {"$ref": "#"}}}), "JSON")
    texts = [b"\0" + number.to_bytes(4, "big") + b"{}" for number in (avro, recursive)]

    _, errors = blocks_of(codec(registry), *texts)

    assert "expected a schema in JSON Schema, found AVRO" in str(errors[0])
    assert "recursive schemas" in str(errors[1])


def test_a_changed_schema_needs_a_registry(tmp_path: Path) -> None:
    """Readers have only the file's schema."""
    own = of_file(tmp_path, CITY)
    notation = notation_of(Format("jsonSchema", schema=str(tmp_path / "schema.json")))
    assert (notation.encode({"name": "Rio"}), notation.decode(b'{"name":"Rio"}')) == (
        b'{"name":"Rio"}',
        {"name": "Rio"},
    )
    schema = own.schema()
    assert schema is not None
    with pytest.raises(Exception, match="the schema of the value was changed"):
        encoded(own, schema.with_(name="x"), {"name": "Rio"})


def test_a_connectors_converter_is_this_format() -> None:
    """Its properties are settings; those that have no meaning here are named."""
    prefix = "value.converter."
    found = converters_of(
        {
            "value.converter": "io.confluent.connect.json.JsonSchemaConverter",
            prefix + "schema.registry.url": "http://a",
            prefix + "json.fail.invalid.schema": "true",
            prefix + "use.optional.for.nonrequired": "true",
            prefix + "decimal.format": "numeric",
            prefix + "auto.register.schemas": "false",
            prefix + "json.oneof.for.nullables": "true",
            prefix + "generalized.sum.type.support": "true",
            prefix + "json.indent.output": "true",
        }
    )

    assert found.value == Format(
        "jsonSchema",
        registry=RegistryOptions.read("http://a"),
        json_fail_invalid_schema=True,
        use_optional_for_nonrequired=True,
        decimal_format="NUMERIC",
        auto_register_schemas=False,
    )
    assert sorted(mistake.path for mistake in found.mistakes) == [
        prefix + "generalized.sum.type.support",
        prefix + "json.indent.output",
    ]


@pytest.mark.parametrize(
    ("text", "about"),
    [("{", "no JSON"), ('{"type": "null"}', "has no Connect schema"), (None, "No such file")],
)
def test_files_that_are_no_schema(tmp_path: Path, text: str | None, about: str) -> None:
    """Are a mistake of the route."""
    file = tmp_path / "x.json"
    if text is not None:
        file.write_text(text)
    with pytest.raises(ConfigError, match=about):
        codec_of(Format("jsonSchema", schema=str(file)))


def doubled(word: str, levels: int, *, anchors: bool = False) -> dict[str, Any]:
    """A schema of levels of a keyword, each with the next one twice."""
    names = {f"a{at}": f"#n{at}" if anchors else f"#/$defs/a{at}" for at in range(levels + 1)}
    parts: dict[str, Any] = {
        f"a{at}": {word: [{"$ref": names[f"a{at + 1}"]}, {"$ref": names[f"a{at + 1}"]}]} for at in range(levels)
    }
    parts[f"a{levels}"] = {"type": "string"}
    if anchors:
        parts = {name: {"$anchor": names[name][1:], **part} for name, part in parts.items()}
    return {"$defs": parts, "$ref": names["a0"]}


@pytest.mark.parametrize("anchors", [False, True])
@pytest.mark.parametrize("word", ["anyOf", "allOf", "oneOf"])
def test_schemas_that_double_at_each_level_are_refused(word, anchors) -> None:
    """They are refused when they are loaded; a few levels are not."""
    with pytest.raises(ValueError, match="more than 20,000 schemas"):
        validator_of(json.dumps(doubled(word, 22, anchors=anchors)), ())
    validate = validator_of(json.dumps(doubled("anyOf", 8)), ())
    validate(b'"x"')
    with pytest.raises(RecordError, match="not valid"):
        validate(b"1")


def test_schemas_that_double_at_each_property_are_refused() -> None:
    """The part of a value is the same, by whichever way it is reached."""
    parts: dict[str, Any] = {
        f"a{at}": {"anyOf": [{"properties": {"n": {"$ref": f"#/$defs/a{at + 1}"}}, "minProperties": n} for n in (1, 2)]}
        for at in range(22)
    }
    parts["a22"] = {"type": "string"}
    with pytest.raises(ValueError, match="more than 20,000 schemas"):
        validator_of(json.dumps({"$defs": parts, "$ref": "#/$defs/a0"}), ())


def test_a_recursive_schema_bounds_the_depth_of_values() -> None:
    """Where it doubles at each level of a value, values of many levels are refused; others are validated."""
    node = {"anyOf": [{"required": ["n"], "properties": {"n": {"$ref": "#"}}, "minProperties": n} for n in (1, 2)]}
    validate = validator_of(json.dumps({"anyOf": [*node["anyOf"], {"type": "string"}]}), ())

    validate(b'{"n":{"n":"x"}}')
    with pytest.raises(RecordError, match="nests deeper than 14 levels"):
        validate(b'{"n":' * 25 + b"1" + b"}" * 25)


def test_usual_recursive_schemas_have_no_bound() -> None:
    """A tree has each part validated once."""
    tree = {"properties": {"left": {"$ref": "#"}, "right": {"$ref": "#"}, "n": {"type": "integer"}}}
    validator_of(json.dumps(tree), ())(b'{"left":' * 60 + b'{"n":1}' + b"}" * 60)


def test_a_schema_that_refers_to_itself() -> None:
    """It is refused where the validator would not end."""
    with pytest.raises(ValueError, match="refers to itself"):
        validator_of(json.dumps({"anyOf": [{"$ref": "#"}, {"type": "string"}]}), ())
