"""Plain JSON of a test, and the same value by another program's encoder: a route makes the same of both."""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import fastavro
import jsonschema_rs
import msgspec
import pytest

from tests.codecs.protobuf.schemas import class_of
from turnout.engine import Program
from turnout.engine.sample_records import SampleRecord, record_batch
from turnout.routes import Route

PLAIN = {"id": 1, "name": "x", "price": 1.5, "tags": ["a", "b"]}
MASKED = {**PLAIN, "name": ""}
AVRO: Any = {
    "type": "record", "name": "Item", "fields": [
        {"name": "id", "type": "int"}, {"name": "name", "type": "string"}, {"name": "price", "type": "double"},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
    ],
}  # fmt: skip
PROTO = """syntax = "proto3"; message Item {
    int32 id = 1; string name = 2; double price = 3; repeated string tags = 4;
}"""
JSON_SCHEMA = {
    "type": "object",
    "properties": {
        "id": {"type": "integer"}, "name": {"type": "string"}, "price": {"type": "number"}, "note": {"type": "string"},
        "tags": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["id"],
}  # fmt: skip
PACKED = "84a2696401a46e616d65a178a57072696365cb3ff8000000000000a47461677392a161a162"
"""`PLAIN`, by msgpack 1.2.4 of PyPI."""

MASK = [{"type": "MaskField$Value", "fields": "name"}]


def in_avro(value: Any) -> bytes:
    file = BytesIO()
    fastavro.schemaless_writer(file, fastavro.parse_schema(AVRO), value)
    return file.getvalue()


def of_avro(content: bytes) -> Any:
    return fastavro.schemaless_reader(BytesIO(content), fastavro.parse_schema(AVRO), None)


def of_protobuf(content: bytes) -> Any:
    item = class_of(PROTO).FromString(content)
    return {"id": item.id, "name": item.name, "price": item.price, "tags": list(item.tags)}


def in_json(value: Any) -> bytes:
    return json.dumps(value).encode()


def of_json_schema(content: bytes) -> Any:
    jsonschema_rs.validator_for(JSON_SCHEMA).validate(json.loads(content))
    return json.loads(content)


def route_of(value: dict[str, Any], transforms: list[dict[str, Any]]) -> Route:
    document = {
        "name": "items",
        "source": {"format": "kafka", "servers": "127.0.0.1:1", "topics": ["a"]},
        "value": value,
        "transforms": transforms,
        "mappings": {"a": "b"},
        "sink": {"format": "kafka", "servers": "127.0.0.1:1"},
    }
    return Route.parse(json.dumps(document))


def delivered(route: Route, **value: Any) -> bytes:
    record = SampleRecord.of({"topic": "a", **value}, route=route)
    (content,) = Program.of(route).run(record_batch([record])).messages.column("value").to_pylist()
    assert isinstance(content, bytes)
    return content


@pytest.mark.parametrize(
    ("format_name", "file", "write", "read"),
    [
        ("avro", ("item.avsc", json.dumps(AVRO)), in_avro, of_avro),
        ("protobuf", ("item.proto", PROTO), lambda value: class_of(PROTO)(**value).SerializeToString(), of_protobuf),
        (
            "jsonSchema",
            ("item.json", json.dumps(JSON_SCHEMA)),
            lambda value: json.dumps(value).encode(),
            of_json_schema,
        ),
        ("msgpack", None, lambda _: bytes.fromhex(PACKED), msgspec.msgpack.decode),
        ("json", None, in_json, json.loads),
    ],
)
def test_plain_json_is_what_other_encoders_write(
    format_name: str,
    file: tuple[str, str] | None,
    write: Callable[[Any], bytes],
    read: Callable[[bytes], Any],
    tmp_path: Path,
) -> None:
    """A record of a test and the record of a producer become the same bytes, which the other decoder reads."""
    value = {"format": format_name}
    if file is not None:
        (tmp_path / file[0]).write_text(file[1])
        value["schema"] = str(tmp_path / file[0])
    route = route_of(value, MASK)

    for given in ({"value": PLAIN}, {"value": write(PLAIN)}, {"valueBase64": base64.b64encode(write(PLAIN)).decode()}):
        assert read(delivered(route, **given)) == MASKED


def test_a_field_that_is_left_out_of_json_is_absent(tmp_path: Path) -> None:
    """The value of a test is the JSON that a producer writes, with what the schema does not have."""
    (tmp_path / "item.json").write_text(json.dumps(JSON_SCHEMA))
    route = route_of({"format": "jsonSchema", "schema": str(tmp_path / "item.json")}, [])

    assert delivered(route, value={"id": 7, "more": [1]}) == b'{"id":7,"more":[1]}'


@pytest.mark.parametrize(
    ("format_name", "plain", "content"),
    [
        ("short", 7, struct.pack(">h", 7)),
        ("integer", -7, struct.pack(">i", -7)),
        ("long", 1 << 40, struct.pack(">q", 1 << 40)),
        ("double", 1.5, struct.pack(">d", 1.5)),
        ("boolean", True, b"\1"),
        ("string", "ä", "ä".encode()),
    ],
)
def test_plain_values_are_those_of_kafkas_serializers(format_name: str, plain: Any, content: bytes) -> None:
    """Big-endian numbers of fixed width, and texts in UTF-8."""
    route = route_of({"format": format_name}, [])

    assert content == delivered(route, value=plain)
    assert content == delivered(route, valueBase64=base64.b64encode(content).decode())


def test_msgpack_of_another_library_is_read_to_its_last_nanosecond() -> None:
    """Times, extensions, numbers beyond 64 bits with a sign and keys that are numbers, packed by msgpack of PyPI."""
    packed = bytes.fromhex(
        "8aa2696401a46e616d65a178a57072696365cb3ff8000000000000a3626967cf8000000000000000a3726177c40200ffa26174d7ff"
        "1d6f345400000005a3646179d6ff00015180a46c6973749301c0c3a36d61708107a178a3657874d5096162"
    )
    route = route_of({"format": "msgpack"}, MASK)

    written = delivered(route, value=packed)

    assert packed.replace(b"\xa4name\xa1x", b"\xa4name\xa0") == written
    texts = route_of(
        {"format": "msgpack"}, [{"type": "TimestampConverter$Value", "field": "at", "target.type": "unix"}]
    )
    assert msgspec.msgpack.decode(delivered(texts, value=packed), strict=False, ext_hook=lambda *_: None)["at"] == 5123
