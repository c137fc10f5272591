"""Messages in Confluent's wire format, with schemas of a registry."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.codecs.blocks import ERROR, blocks_of, decoded, encoded
from tests.codecs.protobuf.schemas import OLD, WIDE, class_of
from tests.codecs.schema_registry.stand_in import StandIn, running_registry

from turnout.codecs import Codec, EncodeErrors, Format, codec_of, converters_of
from turnout.codecs.schema_registry import RegistryOptions, RegistryUnavailableError, registry_of
from turnout.errors import ConfigError
from turnout.records import Block

HEAD = 'syntax = "proto3"; package shop; '
FIRST = HEAD + "message Item {int32 n = 1;} message Box {message Lid {string color = 1;} Lid lid = 1;}"
SECOND = HEAD + "message Item {int32 n = 1; string city = 2;}"


@pytest.fixture(scope="module")
def registry() -> Any:
    with running_registry() as running:
        yield running


def options(registry: StandIn, **more: Any) -> RegistryOptions:
    found = RegistryOptions.read({"url": registry.url, "retries": 0, "wait": 0, **more})
    registry.clients.append(registry_of(found))
    return found


def codec(registry: StandIn, **settings: Any) -> Codec:
    return codec_of(Format("protobuf", registry=options(registry), **settings))


def framed(number: int, payload: bytes, indexes: bytes = b"\0") -> bytes:
    return b"\0" + number.to_bytes(4, "big") + indexes + payload


def changed(block: Block) -> Block:
    return block.with_columns(block.schema, block.columns)


def test_indexes_say_which_message_a_value_is(registry: StandIn) -> None:
    """Of several versions, in one batch; the long form of the first message is read as well."""
    first, second = registry.add("a-value", FIRST, "PROTOBUF"), registry.add("a-value", SECOND, "PROTOBUF")
    texts = [
        framed(first, b"\x08\x01"),
        framed(second, b"\x08\x02\x12\x01x"),
        framed(first, b"\x0a\x01r", b"\x04\x02\x00"),
        None,
        framed(first, b"", b"\x02\x00"),
    ]
    own = codec(registry)

    assert decoded(own, *texts) == [{"n": 1}, {"n": 2, "city": "x"}, {"color": "r"}, None, {"n": 0}]

    blocks, _ = blocks_of(own, *texts)
    kept = {row: text for block in blocks for row, text in zip(block.rows.tolist(), own.encode(block), strict=True)}
    again = {
        row: text
        for block in blocks
        for row, text in zip(
            block.rows.tolist(), own.encode(block if block.kind == "null" else changed(block)), strict=True
        )
    }
    assert texts == [kept[row] for row in range(5)]
    assert [*texts[:4], framed(first, b"")] == [again[row] for row in range(5)]


def test_a_changed_schema_is_written_as_the_last_version(registry: StandIn) -> None:
    """It is written as the message of its name; a field that this does not have is reported."""
    registry.add("b-value", FIRST, "PROTOBUF")
    last = registry.add("b-value", SECOND + " ", "PROTOBUF")
    own = codec(registry, topic="b")
    (block,), _ = blocks_of(own, framed(registry.add("x", FIRST, "PROTOBUF"), b"\x08\x01"))
    schema = block.schema
    assert schema is not None
    grown = schema.with_(fields=(*schema.fields, type(schema.fields[0])("city", schema.fields[0].schema)))

    assert [framed(last, b"\x08\x01\x12\x01x")] == own.encode(block.with_columns(grown, {"n": [1], "city": ["x"]}))
    with pytest.raises(EncodeErrors, match=r"the message shop\.Item has no field town; it has city, n"):
        own.encode(block.with_columns(grown.with_(doc="x"), {"n": [1], "town": ["x"]}))
    with pytest.raises(EncodeErrors, match="needs the setting 'topic'"):
        codec(registry).encode(block.with_columns(grown, {"n": [1], "city": ["x"]}))
    assert encoded(own, grown, {"n": "x", "city": None}) == [ERROR]
    with pytest.raises(EncodeErrors, match="has no schema"):
        own.encode(Block(np.arange(1), None, values=[1]))


@pytest.mark.parametrize(
    ("text", "about"),
    [
        (b"", "expected a zero byte and a schema id"),
        (b"\x00\x00\x00", "expected a zero byte and a schema id"),
        (framed(99_999, b""), "does not know the schema with the id 99999"),
        (framed(1, b"", b""), "expected a message index at byte 5, found b''"),
        (framed(1, b"", b"\xff" * 9), "expected a message index at byte 5"),
        (framed(1, b"", b"\x04\x02"), "expected a message index at byte 7"),
        (framed(1, b"", b"\xfe\xff\xff\xff\x0f"), "expected at most 32 message indexes"),
        (framed(1, b"", b"\x01"), "expected at most 32 message indexes"),
        (framed(1, b"", b"\x02\x10"), "no message at the indexes [8]"),
        (framed(1, b"", b"\x02\x01"), "no message at the indexes [-1]"),
        (framed(1, b"\x08"), "the value is no message shop.Item"),
    ],
)
def test_a_value_that_cannot_be_read_fails_alone(text: bytes, about: str) -> None:
    """With what was expected, and at which byte."""
    with running_registry() as registry:
        number = registry.add("c-value", FIRST, "PROTOBUF")
        blocks, errors = blocks_of(codec(registry), text, framed(number, b"\x08\x07"))

        assert (number, blocks[0].whole()) == (1, [{"n": 7}])
        assert about in str(errors[0])


def test_a_schema_that_cannot_be_used_is_asked_for_once(registry: StandIn) -> None:
    """Of another type, no Protobuf, or recursive."""
    avro = registry.add("d", '"string"')
    broken = registry.add("e", "message {", "PROTOBUF")
    recursive = registry.add("f", HEAD + "message A {A a = 1;}", "PROTOBUF")
    own = codec(registry)
    before = len(registry.requests)

    for _ in range(2):
        _, errors = blocks_of(own, *[framed(number, b"") for number in (avro, broken, recursive)] * 5)

    assert before + 3 == len(registry.requests)
    for at, about in enumerate(("found AVRO", "cannot be compiled", "contains itself")):
        assert about in str(errors[at])


def test_references_are_fetched(registry: StandIn) -> None:
    """By the names of the imports."""
    registry.add("city", HEAD + "message City {string name = 1;}", "PROTOBUF")
    text = HEAD + 'import "city.proto"; message Trip {City to = 1;}'
    number = registry.add("trip", text, "PROTOBUF", (("city.proto", "city", 1),))

    assert decoded(codec(registry), framed(number, b"\x0a\x03\x0a\x01x")) == [{"to": {"name": "x"}}]


def test_a_registry_that_is_down_is_waited_for() -> None:
    """Or its records fail, as the route says."""
    with running_registry() as registry:
        number = registry.add("s", FIRST, "PROTOBUF")
        registry.failing = 503

        with pytest.raises(RegistryUnavailableError):
            decoded(codec(registry), framed(number, b""))


def test_every_type_goes_through_a_registry(registry: StandIn) -> None:
    """With the imports that need no reference."""
    order, old = registry.add("wide", WIDE, "PROTOBUF"), registry.add("old", OLD, "PROTOBUF")
    message = class_of(WIDE)(i32=5, word="w", lines=[class_of(WIDE, "shop.Order.Line")(name="x")])
    texts = [framed(order, message.SerializeToString()), framed(old, class_of(OLD)(id=3).SerializeToString())]
    own = codec(registry)

    blocks, errors = blocks_of(own, *texts)

    assert errors == {}
    assert texts == [text for block in blocks for text in own.encode(changed(block))]


def test_a_connectors_converter_is_this_format() -> None:
    """Its properties are settings; those that have no meaning here are named."""
    name = "io.confluent.connect.protobuf.ProtobufConverter"
    properties = {
        "value.converter": name,
        "value.converter.schema.registry.url": "http://localhost:8081",
        "value.converter.int.for.enums": "true",
        "value.converter.use.latest.version": "true",
        "value.converter.auto.register.schemas": "true",
        "value.converter.scrub.invalid.names": "true",
        "value.converter.latest.cache.size": "5",
    }

    found = converters_of(properties)

    assert found.value == Format("protobuf", registry=RegistryOptions.read("http://localhost:8081"), int_for_enums=True)
    prefix = "value.converter."
    assert [
        prefix + option for option in ("auto.register.schemas", "latest.cache.size", "scrub.invalid.names")
    ] == sorted(mistake.path for mistake in found.mistakes)


def test_a_registry_excludes_a_file() -> None:
    """One of them says what the schema is."""
    for settings in (
        {"registry": "http://localhost:1", "schema": "x.proto"},
        {},
        {"registry": "http://localhost:1", "message": "A"},
    ):
        with pytest.raises(ConfigError):
            codec_of(Format.from_config({"format": "protobuf", **settings}))


def test_apicurio_writes_the_name_of_the_message(registry: StandIn) -> None:
    """Instead of indexes: values of one name, beside others; written with the name again, unless the schema changed."""
    number = registry.add("names-value", FIRST, "PROTOBUF")
    names = (b"\x06\n\x04Item", b"\x05\n\x03Box", b"\x06\n\x04None", b"\0", b"\x06\n\x09Item")
    texts = [framed(number, b"\x08\x01" if b"Box" not in name else b"\x0a\0", name) for name in names]
    own = codec(registry)

    assert decoded(own, *texts) == [{"n": 1}, {"lid": {"color": ""}}, ERROR, {"n": 1}, ERROR]
    blocks, errors = blocks_of(own, *texts)
    assert str(errors[2]).endswith("cannot be used: no message 'None' in the schema; there are Box, Item")
    for block in blocks:
        rows = block.rows.tolist()
        assert own.encode(block) == own.encode(changed(block)) == [texts[row] for row in rows]
