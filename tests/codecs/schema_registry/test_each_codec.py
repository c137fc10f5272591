"""Codecs with each registry: two stand-ins, and the server that TURNOUT_REGISTRY_URL names."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka.schema_registry import header_schema_id_serializer
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext, SerializationError
from tests.codecs.blocks import blocks_of, decoded
from tests.codecs.protobuf.schemas import OLD, WIDE, class_of
from tests.codecs.schema_registry.tested_registry import TestedRegistry

from turnout.codecs.schema_registry import RegistryError, SchemaText
from turnout.records import Block, Schema
from turnout.records.block import rows_of

UNKNOWN_ID = 2**31 - 1
ORDER: Any = {
    "type": "record", "name": "Order", "namespace": "shop",
    "fields": [{"name": "n", "type": "long"}, {"name": "city", "type": "string", "default": "-"}],
}  # fmt: skip
CITY: Any = {
    "title": "City", "type": "object", "properties": {"name": {"type": "string"}, "area": {"type": "integer"}},
}  # fmt: skip
HEAD = 'syntax = "proto3"; package shop; '
ITEM = HEAD + "message Item {int32 n = 1;} message Box {message Lid {string color = 1;} Lid lid = 1;}"


def framed(number: int, payload: bytes) -> bytes:
    return b"\0" + number.to_bytes(4, "big") + payload


def context(registry: TestedRegistry, topic: str, headers: Any = None) -> SerializationContext:
    return SerializationContext(registry.subject(topic), MessageField.VALUE, headers)


def renamed(block: Block, name: str = "shop.Mine") -> Block:
    """A block with a schema that was never read."""
    assert block.schema is not None
    return block.with_columns(block.schema.with_(name=name), block.columns)


def test_references_of_avro(each_registry: TestedRegistry) -> None:
    """The schemas that a schema refers to are fetched with it."""
    city = {"type": "record", "name": "shop.City", "fields": [{"name": "name", "type": "string"}]}
    trip = {"type": "record", "name": "shop.Trip", "fields": [{"name": "to", "type": "shop.City"}]}
    each_registry.add("city", json.dumps(city))
    number = each_registry.add("trip", json.dumps(trip), "AVRO", (("shop.City", "city", 1),))

    assert decoded(each_registry.codec("avro"), framed(number, b"\x06Rio")) == [{"to": {"name": "Rio"}}]


def test_references_of_protobuf(each_registry: TestedRegistry) -> None:
    """They are the imports."""
    each_registry.add("city", HEAD + "message City {string name = 1;}", "PROTOBUF")
    trip = HEAD + 'import "city.proto"; message Trip {City to = 1;}'
    number = each_registry.add("trip", trip, "PROTOBUF", (("city.proto", "city", 1),))
    own = each_registry.codec("protobuf")

    assert decoded(own, framed(number, b"\0\x0a\x05\x0a\x03Rio")) == [{"to": {"name": "Rio"}}]


def test_references_of_json_schema(each_registry: TestedRegistry) -> None:
    """Karapace has none, and says so when the schema is registered."""
    each_registry.add("city", json.dumps(CITY), "JSON")
    trip = json.dumps({"title": "Trip", "type": "object", "properties": {"to": {"$ref": "city.json"}}})
    schema = SchemaText("JSON", trip, uses=(("city.json", each_registry.subject("city"), 1),))
    refusal = ""
    try:
        number = each_registry.schemas().register(each_registry.subject("trip"), schema).id
    except RegistryError as error:
        number, refusal = None, str(error)

    if number is None:
        assert refusal == (
            f"the schema registry refuses the subject '{each_registry.subject('trip')}': "
            "Schema references are not supported for 'JSON' schema type"
        )
    else:
        text = framed(number, b'{"to":{"name":"Rio","area":1}}')
        assert decoded(each_registry.codec("jsonSchema"), text) == [{"to": {"name": "Rio", "area": 1}}]


def test_versions_of_one_topic(each_registry: TestedRegistry) -> None:
    """Values of two versions in one batch are written with the ids that they were read with."""
    first = each_registry.add("s-value", json.dumps({**ORDER, "fields": ORDER["fields"][:1]}))
    second = each_registry.add("s-value", json.dumps(ORDER))
    texts = [framed(first, b"\x02"), framed(second, b"\x04\x02a"), None, framed(first, b"\x06")]
    own = each_registry.codec("avro")

    blocks, errors = blocks_of(own, *texts, framed(UNKNOWN_ID, b""))

    written = {row: text for one in blocks for row, text in zip(one.rows.tolist(), own.encode(one), strict=True)}
    assert [written[row] for row in range(4)] == texts
    assert list(errors) == [4]
    assert decoded(own, *texts) == [{"n": 1}, {"n": 2, "city": "a"}, None, {"n": 3}]


@pytest.mark.parametrize(
    ("strategy", "subjects"),
    [("topic", ["a-value", "b-value"]), ("topicRecord", ["a-shop.Mine", "b-shop.Mine"]), ("record", ["shop.Mine"])],
)
def test_subject_strategies(each_registry: TestedRegistry, strategy: str, subjects: list[str]) -> None:
    """A changed schema is registered under the subjects of its records' topics, or of its name."""
    text = framed(each_registry.add("s", json.dumps(ORDER)), b"\x02\x02a")
    own = each_registry.codec("avro", subject_name_strategy=strategy)
    (block,), _ = own.decode(rows_of(2), [text] * 2)
    name = "shop.Mine" if strategy != "record" else f"shop.{each_registry.prefix.replace('-', '_')}Mine"

    written = own.encode_for(renamed(block, name), [each_registry.subject(topic) for topic in ("a", "b")])

    assert written.errors == {}
    client = each_registry.client()
    for subject in subjects if strategy != "record" else [name]:
        found = client.get_latest_version(subject if strategy == "record" else each_registry.subject(subject))
        assert json.loads(found.schema.schema_str or "")["name"] in (name, name.rpartition(".")[2])
        assert framed(found.schema_id or 0, b"\x02\x02a") in written.texts
    if strategy == "record":
        client.delete_subject(name)
        client.delete_subject(name, permanent=True)


def test_an_incompatible_topic_fails_alone(each_registry: TestedRegistry) -> None:
    """The records of the other topic are written."""
    each_registry.add("a-value", json.dumps({**ORDER, "name": "Mine", "fields": [{"name": "id", "type": "long"}]}))
    fields = [{"name": "n", "type": "long"}]
    text = framed(each_registry.add("s", json.dumps({**ORDER, "fields": fields})), b"\x02")
    own = each_registry.codec("avro")
    (block,), _ = own.decode(rows_of(3), [text] * 3)

    written = own.encode_for(renamed(block), [each_registry.subject(topic) for topic in ("b", "a", "b")])

    assert list(written.errors) == [1]
    assert f"versions that the subject '{each_registry.subject('a-value')}' has" in str(written.errors[1])
    assert [text is None for text in written.texts] == [False, True, False]


def test_a_schema_that_must_exist_already(each_registry: TestedRegistry) -> None:
    """With ``auto.register.schemas: false`` it is looked up, and not registered."""
    text = framed(each_registry.add("s", json.dumps(ORDER)), b"\x02\x02a")
    own = each_registry.codec("avro", auto_register_schemas=False)
    (block,), _ = own.decode(rows_of(1), [text])

    written = own.encode_for(renamed(block), [each_registry.subject("none")])
    assert "does not know this schema under the subject" in str(written.errors[0])

    registered = each_registry.codec("avro").encode_for(renamed(block), [each_registry.subject("t")])
    again = each_registry.codec("avro", auto_register_schemas=False)
    (block,), _ = again.decode(rows_of(1), [text])
    assert again.encode_for(renamed(block), [each_registry.subject("t")]) == registered


def test_avro_of_confluents_serializer(each_registry: TestedRegistry) -> None:
    """Its values are read, and what is written is read by its deserializer."""
    serializer = AvroSerializer(each_registry.client(), json.dumps(ORDER))
    text = serializer({"n": 2**40, "city": "Oulu"}, context(each_registry, "orders"))
    own = each_registry.codec("avro")
    (block,), errors = blocks_of(own, text)
    assert (errors, block.whole()) == ({}, [{"n": 2**40, "city": "Oulu"}])
    assert own.encode_for(block, [each_registry.subject("orders")]).texts == [text]

    written = own.encode_for(renamed(block), [each_registry.subject("sales")])

    read = AvroDeserializer(each_registry.client())(written.texts[0], context(each_registry, "sales"))
    assert read == {"n": 2**40, "city": "Oulu"}


def test_json_of_confluents_serializer(each_registry: TestedRegistry) -> None:
    """Its values are read, and what is written is read by its deserializer."""
    serializer = JSONSerializer(json.dumps(CITY), each_registry.client())
    text = serializer({"name": "Rio", "area": 1200}, context(each_registry, "cities"))
    own = each_registry.codec("jsonSchema")
    (block,), errors = blocks_of(own, text)
    assert (errors, block.whole()) == ({}, [{"name": "Rio", "area": 1200}])
    assert own.encode_for(block, [each_registry.subject("cities")]).texts == [text]

    written = own.encode_for(renamed(block, "Town"), [each_registry.subject("towns")])

    latest = each_registry.client().get_latest_version(each_registry.subject("towns-value")).schema.schema_str
    deserializer = JSONDeserializer(latest, schema_registry_client=each_registry.client())
    assert deserializer(written.texts[0], context(each_registry, "towns")) == {"name": "Rio", "area": 1200}


def test_protobuf_of_confluents_serializer(each_registry: TestedRegistry) -> None:
    """It registers a descriptor in base64; the registry answers with the text where it can read it."""
    message_class = class_of(ITEM, "shop.Box.Lid")
    conf = {"use.deprecated.format": False}
    text = ProtobufSerializer(message_class, each_registry.client(), conf=conf)(
        message_class(color="red"), context(each_registry, "lids")
    )
    assert text is not None
    own = each_registry.codec("protobuf")
    schema = each_registry.client().get_latest_version(each_registry.subject("lids-value")).schema.schema_str or ""

    blocks, errors = blocks_of(own, text)

    if "message" in schema:
        assert (errors, blocks[0].whole()) == ({}, [{"color": "red"}])
        (again,) = own.encode(renamed(blocks[0], "shop.Box.Lid").with_columns(blocks[0].schema, blocks[0].columns))
        assert ProtobufDeserializer(message_class, conf)(again, context(each_registry, "lids")).color == "red"
    else:
        assert "cannot be compiled" in str(errors[0])


def test_message_indexes(each_registry: TestedRegistry) -> None:
    """They count the messages as the registry writes the schema."""
    number = each_registry.add("items-value", ITEM, "PROTOBUF")
    texts = [framed(number, b"\0\x08\x01"), framed(number, b"\x04\x02\x00\x0a\x01r"), framed(number, b"\x02\x02\x0a\0")]
    own = each_registry.codec("protobuf")

    assert decoded(own, *texts) == [{"n": 1}, {"color": "r"}, {"lid": {"color": ""}}]
    blocks, _ = blocks_of(own, *texts)
    assert [text for one in blocks for text in own.encode(one)] == [
        texts[row] for one in blocks for row in one.rows.tolist()
    ]


def test_a_changed_message_is_written_as_the_latest_version(each_registry: TestedRegistry) -> None:
    """As the message of its name."""
    first = each_registry.add("a-value", HEAD + "message Other {} message Item {int32 n = 1;}", "PROTOBUF")
    last = each_registry.add(
        "b-value", HEAD + "message Other {} message Item {int32 n = 1; string city = 2;}", "PROTOBUF"
    )
    own = each_registry.codec("protobuf")
    (block,), _ = blocks_of(own, framed(first, b"\x02\x02\x08\x01"))
    schema = block.schema
    assert schema is not None
    grown = schema.with_(fields=(*schema.fields, replace(schema.fields[0], name="city", schema=Schema("string"))))

    written = own.encode_for(
        block.with_columns(grown, {**block.columns, "city": ["Rio"]}), [each_registry.subject("b")]
    )

    assert (written.errors, written.texts) == ({}, [framed(last, b"\x02\x02\x08\x01\x12\x03Rio")])


@pytest.mark.parametrize("text", [WIDE, OLD], ids=["proto3", "proto2"])
def test_every_type_of_protobuf(each_registry: TestedRegistry, text: str) -> None:
    """A schema is used as the registry writes it."""
    number = each_registry.add("wide", text, "PROTOBUF")
    message = class_of(text)()
    if text == OLD:
        message.id = 3
    else:
        message.i32, message.word, message.by_number[7].name = 5, "w", "y"
        message.lines.add(name="x")
    value = framed(number, b"\0" + message.SerializeToString())
    own = each_registry.codec("protobuf")

    (block,), errors = blocks_of(own, value)

    assert errors == {}
    assert own.encode(block.with_columns(block.schema, block.columns)) == [value]


def test_ids_of_headers(each_registry: TestedRegistry) -> None:
    """Ids are read from headers; a GUID is written there if the registry has them, else the reason is given."""
    number = each_registry.add("s-value", json.dumps(ORDER))
    own = each_registry.codec("avro", schema_id_serializer="header")
    (block,), errors = own.decode_with(rows_of(1), [b"\x02\x02a"], [framed(number, b"")])
    assert (errors, block.whole()) == ({}, [{"n": 1, "city": "a"}])

    written = own.encode_for(renamed(block), [each_registry.subject("t")])

    if each_registry.has_guids():
        assert written.headers is not None
        (again,), _ = each_registry.codec("avro").decode_with(rows_of(1), written.texts, written.headers)
        assert (len(written.headers[0]), again.whole()) == (17, [{"n": 1, "city": "a"}])
    else:
        assert str(written.errors[0]) == "the schema registry has no GUID for the schema, which a header needs"


def test_guids_of_confluents_serializer(each_registry: TestedRegistry) -> None:
    """Where the registry has GUIDs, they are read; without them the serializer writes none."""
    conf = {"schema.id.serializer": header_schema_id_serializer}
    serializer = AvroSerializer(each_registry.client(), json.dumps(ORDER), conf=conf)
    headers: list[Any] = []

    def serialized() -> bytes | None:
        return serializer({"n": 1, "city": "a"}, context(each_registry, "orders", headers))

    if each_registry.has_guids():
        assert serialized() == b"\x02\x02a"
        own = each_registry.codec("avro")
        (block,), _ = own.decode_with(rows_of(1), [b"\x02\x02a"], [headers[-1][1]])
        assert block.whole() == [{"n": 1, "city": "a"}]
    else:
        with pytest.raises(SerializationError, match="GUID"):
            serialized()
