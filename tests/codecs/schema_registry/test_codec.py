"""Schema ids in headers, subjects by topic: against Confluent's own serializers, of Avro and Protobuf."""

from __future__ import annotations

import json
import struct
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import (
    Schema,
    SchemaRegistryClient,
    dual_schema_id_deserializer,
    header_schema_id_serializer,
    prefix_schema_id_serializer,
)
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from hypothesis import given
from hypothesis import strategies as st
from tests.codecs.protobuf.schemas import class_of
from tests.codecs.schema_registry.stand_in import StandIn

from turnout.codecs import Format, codec_of, converters_of
from turnout.codecs.schema_registry import RegistryCodec, RegistryOptions, registry_of
from turnout.codecs.schema_registry.codec import MAX_TOPICS, frame, ids_of, unframe
from turnout.records import Block
from turnout.records.block import rows_of


def _reference(text: bytes) -> int:
    if len(text) < 5 or text[0] != 0:
        return -1
    (number,) = struct.unpack(">i", text[1:5])
    return number if number >= 0 else -1


@given(st.lists(st.binary(max_size=8) | st.binary(max_size=8).map(lambda rest: b"\0\0\0" + rest)))
def test_ids_equal_the_reference(texts: list[bytes]) -> None:
    expected = [_reference(text) for text in texts]
    framed = unframe(texts)
    assert framed.ids.tolist() == expected
    assert sorted(framed.errors) == [index for index, number in enumerate(expected) if number < 0]
    column = pa.array([b"before", *texts, None], pa.binary())[1:]
    assert ids_of(column).tolist() == [*expected, -1]


@given(st.integers(0, 2**31 - 1), st.lists(st.binary(max_size=5)))
def test_frames_are_read_again(number: int, payloads: list[bytes]) -> None:
    texts = frame(number, payloads)
    assert unframe(texts).ids.tolist() == [number] * len(payloads)
    assert [text[5:] for text in texts] == payloads


ORDER = {"type": "record", "name": "Order", "namespace": "shop", "fields": [{"name": "n", "type": "long"}]}
PROTO = 'syntax = "proto3"; package shop; message Other {int32 a = 1;} message Item {int32 n = 1; string city = 2;}'

BIG = 2**40


def codec(registry: StandIn, format_name: str = "avro", *, of_keys: bool = False, **settings: Any) -> RegistryCodec:
    options = RegistryOptions.read({"url": registry.url, "retries": 0, "wait": 0})
    registry.clients.append(registry_of(options))
    made = codec_of(Format(format_name, registry=replace(options, of_keys=of_keys), **settings))
    assert isinstance(made, RegistryCodec)
    return made


def client(registry: StandIn) -> SchemaRegistryClient:
    made = SchemaRegistryClient({"url": registry.url})
    registry.clients.append(made)
    return made


def confluents(registry: StandIn, place: Any, *values: int, field: Any = MessageField.VALUE) -> list[tuple[Any, Any]]:
    """Values as Confluent's serializer writes them, with their headers."""
    serializer = AvroSerializer(client(registry), json.dumps(ORDER), conf={"schema.id.serializer": place})
    written = []
    for value in values:
        headers: list[Any] = []
        text = serializer({"n": value}, SerializationContext("orders", field, headers))
        written.append((text, headers[-1][1] if headers else None))
    return written


def renamed(block: Block) -> Block:
    """A block with a schema that was never read."""
    assert block.schema is not None
    return block.with_columns(block.schema.with_(name="shop.Mine"), block.columns)


def test_ids_of_headers_are_read(registry: StandIn) -> None:
    """Of values with a GUID in a header, an id before them, and none, in one batch; the schema is fetched once."""
    pairs = [
        *confluents(registry, header_schema_id_serializer, 1, 2),
        *confluents(registry, prefix_schema_id_serializer, 3),
    ]
    texts, headers = [*(text for text, _ in pairs), None, b"x"], [*(header for _, header in pairs), None, b"\7"]
    own = codec(registry)
    before = len(registry.requests)

    blocks, errors = own.decode_with(rows_of(5), texts, headers)

    found = {row: value for block in blocks for row, value in zip(block.rows.tolist(), block.whole(), strict=True)}
    assert found == {0: {"n": 1}, 1: {"n": 2}, 2: {"n": 3}, 3: None}
    assert str(errors[4]).startswith("expected a header with the byte 0 and a schema id of 4 bytes, or the byte 1")
    assert len(registry.requests) - before == 1


@pytest.mark.parametrize("of_keys", [False, True])
def test_ids_go_into_headers(registry: StandIn, *, of_keys: bool) -> None:
    """With ``schema.id.serializer: header``: the bytes that came, and what Confluent's deserializer reads."""
    field = MessageField.KEY if of_keys else MessageField.VALUE
    # Confluent's deserializer wants more than five bytes, wherever the id is.
    ((text, header),) = confluents(registry, header_schema_id_serializer, BIG, field=field)
    own = codec(registry, of_keys=of_keys, schema_id_serializer="header")
    (block,), _ = own.decode_with(rows_of(1), [text], [header])

    assert own.encode_for(block, ["orders"]) == ([text], {}, [header])

    written = own.encode_for(renamed(block), ["sales"])
    deserializer = AvroDeserializer(client(registry), conf={"schema.id.deserializer": dual_schema_id_deserializer})
    assert written.headers is not None
    context = SerializationContext("sales", field, [(own.header, written.headers[0])])
    assert deserializer(written.texts[0], context) == {"n": BIG}
    assert f"POST /subjects/sales-{field}/versions?normalize=False" in registry.requests


def test_ids_move_between_headers_and_values(registry: StandIn) -> None:
    """The schema is registered as it is, under the subject of the topic, to learn its other id."""
    ((text, header),) = confluents(registry, header_schema_id_serializer, 1)
    (framed,) = (framed for framed, _ in confluents(registry, prefix_schema_id_serializer, 1))
    prefixed, headed = codec(registry), codec(registry, schema_id_serializer="header")

    (block,), _ = prefixed.decode_with(rows_of(1), [text], [header])
    assert prefixed.encode_for(block, ["orders"]) == ([framed], {}, None)
    (block,), _ = headed.decode(rows_of(1), [framed])
    assert headed.encode_for(block, ["orders"]) == ([text], {}, [header])


def test_a_registry_without_guids(registry: StandIn) -> None:
    """Older ones have none: values for which a header needs one fail, and say so."""
    registry.guids = False
    ((text, _),) = confluents(registry, prefix_schema_id_serializer, 1)
    own = codec(registry, schema_id_serializer="header")
    (block,), _ = own.decode(rows_of(1), [text])

    _, errors, _ = own.encode_for(block, ["orders"])

    assert str(errors[0]) == "the schema registry has no GUID for the schema, which a header needs"


def test_messages_with_ids_in_headers(registry: StandIn) -> None:
    """The header has Protobuf's message indexes behind the GUID."""
    registry.add("items-value", PROTO, "PROTOBUF")
    message = class_of(PROTO, "shop.Item")(n=1, city="Oulu")
    latest = client(registry).get_latest_version("items-value")
    assert latest.guid is not None
    assert latest.schema_id is not None
    header = bytes([1]) + bytes.fromhex(latest.guid.replace("-", "")) + b"\2\2"
    own = codec(registry, "protobuf", schema_id_serializer="header")

    (block,), _ = own.decode_with(rows_of(1), [message.SerializeToString()], [header])

    assert block.whole() == [{"n": 1, "city": "Oulu"}]
    assert own.encode_for(block, ["items"]) == ([message.SerializeToString()], {}, [header])
    prefixed = codec(registry, "protobuf")
    (block,), _ = prefixed.decode_with(rows_of(1), [message.SerializeToString()], [header])
    expected = b"\0" + latest.schema_id.to_bytes(4, "big") + b"\2\2" + message.SerializeToString()
    assert prefixed.encode_for(block, ["items"]) == ([expected], {}, None)


def test_protobuf_headers_are_confluents(registry: StandIn) -> None:
    """Its serializer's header is read, and written again."""
    message = class_of(PROTO, "shop.Item")(n=1)
    conf = {"schema.id.serializer": header_schema_id_serializer, "use.deprecated.format": False}
    headers: list[Any] = []
    context = SerializationContext("other", MessageField.VALUE, headers)
    text = ProtobufSerializer(type(message), client(registry), conf=conf)(message, context)
    header: bytes = headers[-1][1]
    number = registry.add("x", PROTO, "PROTOBUF")
    guid = client(registry).get_latest_version("x").guid
    own = codec(registry, "protobuf", schema_id_serializer="header")

    # The serializer registers the schema as a descriptor in base64; the text form of it is what registries answer with.
    readable = header[:1] + bytes.fromhex(str(guid).replace("-", "")) + header[17:]
    (block,), errors = own.decode_with(rows_of(1), [text], [readable])

    assert (number > 0, errors, block.whole()) == (True, {}, [{"n": 1, "city": ""}])
    assert own.encode_for(block, ["other"]).headers == [readable]


def test_subjects_are_those_of_the_topics(registry: StandIn) -> None:
    """Of the records in one batch, by distinct topic; a record's name with the other strategies."""
    ((text, _),) = confluents(registry, prefix_schema_id_serializer, 1)
    for strategy, subjects in {
        "topic": ["a-value", "b-value"],
        "topicRecord": ["a-shop.Mine", "b-shop.Mine"],
        "record": ["shop.Mine"],
    }.items():
        own = codec(registry, subject_name_strategy=strategy)
        (block,), _ = own.decode(rows_of(4), [text] * 4)
        before = len(registry.requests)
        written = own.encode_for(renamed(block), ["a", "b", "a", "b"])
        assert written.errors == {}
        assert [f"POST /subjects/{one}/versions?normalize=False" for one in subjects] == registry.requests[before:]


def test_one_topic_is_not_compatible(registry: StandIn) -> None:
    """Its records fail with the registry's reason, those of the other topic are written."""
    registry.add("a-value", json.dumps({**ORDER, "fields": []}))
    ((text, _),) = confluents(registry, prefix_schema_id_serializer, 1)
    own = codec(registry)
    (block,), _ = own.decode(rows_of(3), [text] * 3)

    written = own.encode_for(renamed(block), ["b", "a", "b"])

    assert list(written.errors) == [1]
    assert "is not compatible with the versions that the subject 'a-value' has" in str(written.errors[1])
    assert [text is None for text in written.texts] == [False, True, False]


def test_topics_are_bounded(registry: StandIn) -> None:
    """Records cannot fill the registry with a subject for each of any number of topics."""
    ((text, _),) = confluents(registry, prefix_schema_id_serializer, 1)
    own = codec(registry, auto_register_schemas=False)
    own._topics.update(f"t{number}" for number in range(MAX_TOPICS))
    (block,), _ = own.decode(rows_of(1), [text])

    _, errors, _ = own.encode_for(renamed(block), ["another"])

    assert "under 1,000 topics already" in str(errors[0])


def test_properties_of_converters() -> None:
    """The classes of Confluent's serializers are settings; one that reads no headers is named."""
    package = "io.confluent.kafka.serializers.schema.id."
    found = converters_of(
        {
            "value.converter": "io.confluent.connect.avro.AvroConverter",
            "value.converter.schema.registry.url": "http://a",
            "value.converter.value.schema.id.serializer": package + "HeaderSchemaIdSerializer",
            "value.converter.value.schema.id.deserializer": package + "DualSchemaIdDeserializer",
            "value.converter.key.schema.id.deserializer": package + "PrefixSchemaIdDeserializer",
        }
    )

    assert found.value is not None
    assert found.value.settings["schema.id.serializer"] == "header"
    assert [str(mistake.problem) for mistake in found.mistakes] == ["only DualSchemaIdDeserializer is supported"]


def test_a_schema_is_registered_with_its_references(registry: StandIn) -> None:
    """The references are those of the original; the registry needs them."""
    registry.add("money", json.dumps({"type": "record", "name": "shop.Money", "fields": []}))
    text = json.dumps({**ORDER, "fields": [{"name": "total", "type": "shop.Money"}]})
    number = registry.add("s", text, references=(("shop.Money", "money", 1),))
    own = codec(registry, schema_id_serializer="header")
    (block,), _ = own.decode(rows_of(1), [b"\0" + number.to_bytes(4, "big")])

    assert own.encode_for(block, ["s2"]).errors == {}
    assert client(registry).get_latest_version("s2-value").schema == Schema(
        text, "AVRO", client(registry).get_schema(number).references
    )


def test_a_process_requests_each_schema_once(registry: StandIn) -> None:
    """For keys and values of several routes, in eight threads: three requests for three schemas."""
    ids = [registry.add("s", json.dumps({**ORDER, "name": name})) for name in "ABC"]
    texts = [b"\0" + ids[n % 3].to_bytes(4, "big") + b"\2" for n in range(300)]
    codecs = [codec(registry, of_keys=bool(n % 2)) for n in range(8)]

    def rewritten(own: RegistryCodec) -> int:
        blocks = [block for _ in range(20) for block in own.decode(rows_of(300), texts)[0]]
        return sum(len(own.encode(block)) for block in blocks)

    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(rewritten, codecs)) == [20 * 300] * 8

    assert sorted(registry.requests) == [f"GET /schemas/ids/{number}" for number in ids]
