"""Our codecs beside Kafka's own converters."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator, Sequence
from struct import pack
from typing import Any

import numpy as np
import pytest
from tests.codecs.blocks import ERROR, codec
from tests.codecs.converter_host import ConverterHost
from tests.codecs.test_connect_json import enveloped, wire

from turnout.codecs import Codec, EncodeErrors, Format, codec_of
from turnout.codecs.conversion import writing_codec
from turnout.errors import RecordError
from turnout.records.schema import DATE, DECIMAL, TIME, TIMESTAMP

pytestmark = pytest.mark.kafka
JSON = "org.apache.kafka.connect.json.JsonConverter"
PLAIN = ("string", "bytes", "short", "integer", "long", "float", "double", "boolean")


@pytest.fixture(scope="module")
def kafka() -> Iterator[ConverterHost]:
    """Kafka's converters in a JVM of their own."""
    with ConverterHost() as host:
        yield host


def schema(type_: str, *, optional: bool = True, **more: Any) -> dict[str, Any]:
    return {"type": type_, "optional": optional, **more}


def decimal(scale: int, **more: Any) -> dict[str, Any]:
    return schema("bytes", name=DECIMAL, version=1, parameters={"scale": str(scale)}, **more)


def struct(**fields: dict[str, Any]) -> dict[str, Any]:
    return schema("struct", fields=[{"field": name, **of} for name, of in fields.items()])


INNER = struct(x=schema("int32", default=3), y=schema("string", optional=False, default="y"))
# Of everything with a default but structs, whose defaults JsonConverter cannot read itself.
SCHEMA = struct(
    tiny=schema("int8", default=-8),
    text=schema("string", default="ü"),
    real=schema("double", default=0.25),
    single=schema("float"),
    flag=schema("boolean", default=True),
    raw=schema("bytes", default=base64.b64encode(b"\x00\xff").decode()),
    price=decimal(2, default=wire(-1250)),
    exact=decimal(0),
    below=decimal(-3),
    day=schema("int32", name=DATE, version=1, default=19000),
    time=schema("int32", name=TIME, version=1, default=1000),
    at=schema("int64", name=TIMESTAMP, version=1, default=1_356_998_400_123),
    must=schema("int64", optional=False),
    list=schema("array", items=schema("int32", default=5), default=[1, 2]),
    map=schema(
        "map", keys=schema("string", optional=False), values=decimal(1, default=wire(7)), default={"k": wire(9)}
    ),
    numbered=schema("map", keys=schema("int32", optional=False), values=schema("string")),
    strict=schema("array", items=schema("string", optional=False)),
    inner=INNER,
    items=schema("array", items=INNER),
)
WHOLE: dict[str, Any] = {
    "tiny": 1, "text": "", "real": 1.5, "single": 0.1, "flag": False, "raw": "AA==", "price": wire(5),
    "exact": wire(-(10**38) + 1), "below": wire(12), "day": -1, "time": 0, "at": -1, "must": 1, "list": [], "map": {},
    "numbered": [], "strict": ["a"], "inner": {"x": 1, "y": ""}, "items": [],
}  # fmt: skip
PAYLOADS: dict[str, Any] = {
    "whole": WHOLE,
    "nothing but what must be": {"must": 1},
    "nulls": dict.fromkeys(WHOLE) | {"must": 1},
    "null where one must not be": dict.fromkeys(WHOLE),
    "nothing": {},
    "null": None,
    "nulls in nested values": WHOLE
    | {"list": [None, 1], "map": {"a": None}, "items": [None, {}, {"x": None, "y": None}], "inner": {}},
    "a null element that must not be": WHOLE | {"strict": ["a", None]},
    "extremes": WHOLE
    | {
        "price": wire(10**38 - 1),
        "exact": wire(2**63),
        "day": -(2**31),
        "at": 2**63 - 1,
        "map": {"a": wire(-(2**63)), "b": wire(-(2**64)), "c": wire(1 - 10**38), "d": wire(10**60)},
    },
    "39 digits": WHOLE | {"exact": wire(10**38)},
    "39 digits below zero": WHOLE | {"exact": wire(-(10**38))},
    "decimals as numbers": WHOLE | {"price": 12.25, "exact": 5},
    "a decimal of another scale": WHOLE | {"price": 12.5},
    "single precision": WHOLE | {"single": 16_777_217.5, "real": 1e300},
    "a time beyond a day": WHOLE | {"time": 86_400_001},
    "bytes that only repeat the sign": WHOLE | {"exact": base64.b64encode(b"\xff" * 40).decode()},
    "fields that the schema does not have": WHOLE | {"more": 1},
    "keys that are no strings": WHOLE | {"numbered": [[1, "a"], [2, None], [1, "b"]]},
    "no pairs": WHOLE | {"numbered": [[1]]},
    "no array of pairs": WHOLE | {"numbered": {"1": "a"}},
    "no struct": [1],
    "a text for a struct": WHOLE | {"inner": "x"},
}
NO_ENVELOPES = ['{"payload": {"must": 1}}', '{"must": 1}', "{}", "[]", "5", "{", "", "null",
                '{"schema": null, "payload": {"a": [1, null]}}', '{"schema": null, "payload": null}',
                '{"schema": null, "payload": 1, "x": 2}', '{"schema": {}, "payload": 1}']  # fmt: skip
BEYOND = {
    "a number beyond its type": WHOLE | {"tiny": 300},
    "a text for a number": WHOLE | {"tiny": "x"},
    "a fraction for an integer": WHOLE | {"must": 1.5},
}


def ours(reads: Codec, writes: Codec, texts: Sequence[bytes | None]) -> list[bytes | str | None]:
    """Each value read by one codec and written by another; the word ``error`` where one of them fails."""
    blocks, errors = reads.decode(np.arange(len(texts)), texts)
    values: list[bytes | str | None] = [ERROR if row in errors else None for row in range(len(texts))]
    for block in blocks:
        try:
            written: Sequence[bytes | str | None] = writes.encode(block)
        except EncodeErrors as failures:
            written = [ERROR if at in failures.errors else text for at, text in enumerate(failures.texts)]
        except RecordError:
            written = [ERROR] * len(block)
        for row, text in zip(block.rows.tolist(), written, strict=True):
            values[row] = text
    return values


def parsed(texts: Sequence[Any]) -> list[Any]:
    return [json.loads(text) if isinstance(text, bytes) else text for text in texts]


@pytest.mark.parametrize("given", [True, False], ids=["given schema", "own schema"])
@pytest.mark.parametrize("replace_null", [True, False], ids=["defaults", "nulls kept"])
def test_what_is_read_is_written_as_kafka_writes_it(kafka: ConverterHost, replace_null: bool, given: bool) -> None:
    """Payload and schema, defaults of every type in it, are JsonConverter's; what it refuses is refused."""
    of = codec_of(Format("connect-json", schema=SCHEMA if given else None, replace_null_with_default=replace_null))
    texts: dict[str, bytes | None] = {name: enveloped(SCHEMA, payload) for name, payload in PAYLOADS.items()}
    if not given:
        texts |= {text: text.encode() for text in NO_ENVELOPES}
    texts["tombstone"] = None
    converter = (JSON, {"replace.null.with.default": str(replace_null).lower()})

    own = ours(of, of, list(texts.values()))

    expected = kafka.rewritten(converter, converter, list(texts.values()))
    assert dict(zip(texts, parsed(expected), strict=True)) == dict(zip(texts, parsed(own), strict=True))


NUMBERS = ("0", "-0", "0.00", "-0.0", "12.25", "-1250", "1E5", "1e-7", "0.0000001", "1.50", "100", "1E+30", "-7.5E-10",
           "123456789012345678901234567890.123456789", '"AA=="', '"BOI="', '"x"', "null", "true", "[]")  # fmt: skip


@pytest.mark.parametrize("reads", ["BASE64", "NUMERIC"])
@pytest.mark.parametrize("given", [True, False], ids=["given schema", "own schema"])
def test_decimals_as_numbers_are_written_as_kafka_writes_them(kafka: ConverterHost, given: bool, reads: str) -> None:
    """Digit by digit, in values, lists, maps and the schema's defaults, whatever form they were read in (KIP-481)."""
    numbers = struct(
        price=decimal(2, default=1.25), list=schema("array", items=decimal(0)),
        map=schema("map", keys=schema("string", optional=False), values=decimal(-3)),
        real=schema("double", default=0.25),
    )  # fmt: skip
    of = codec_of(Format("connect-json", schema=numbers if given else None, decimal_format="NUMERIC"))
    head = f'{{"schema":{json.dumps(numbers)},"payload":'
    texts = [
        f'{head}{{"price":{number},"list":[{number}],"map":{{"k":{number}}},"real":1.5}}}}'.encode()
        for number in NUMBERS
    ] + [f'{head}{{"real":null}}}}'.encode(), None]
    converter = (JSON, {"decimal.format": "NUMERIC"})

    expected = kafka.rewritten((JSON, {"decimal.format": reads}), converter, texts)

    assert exactly(expected) == exactly(ours(of, of, texts))


def exactly(texts: Sequence[Any]) -> list[Any]:
    """JSON with its fractions as they are written."""
    return [json.loads(text, parse_float=str, parse_int=str) if isinstance(text, bytes) else text for text in texts]


@pytest.mark.parametrize("payload", BEYOND.values(), ids=BEYOND)
def test_what_breaks_its_schema_is_refused(kafka: ConverterHost, payload: Any) -> None:
    """JsonConverter writes another number in these cases; the difference is deliberate."""
    of = codec(format="connect-json")
    text = enveloped(SCHEMA, payload)

    assert ours(of, of, [text]) == [ERROR]
    assert kafka.rewritten((JSON, {}), (JSON, {}), [text]) != [ERROR]


def test_schemaless_values_are_written_as_kafka_writes_them(kafka: ConverterHost) -> None:
    """Any JSON within its numbers."""
    texts = [
        '{"a":[1,null,{"b":1.5}],"":"ü","c":{}}',
        "5",
        "1.0",
        "true",
        '"x"',
        "null",
        "[]",
        "{",
        "1e400",
        "-0",
        "x",
        '{"a":1,"a":2}',
    ]
    of = codec(format="connect-json", schemas__enable=False)
    converter = (JSON, {"schemas.enable": "false"})
    payloads = [*[text.encode() for text in texts], None]

    assert parsed(kafka.rewritten(converter, converter, payloads)) == parsed(ours(of, of, payloads))


@pytest.mark.parametrize("name", PLAIN)
def test_plain_values_are_read_and_written_as_kafka_does(kafka: ConverterHost, name: str) -> None:
    """Read by each converter of one value, written by it and as JSON with its schema."""
    of, as_json = codec(format=name), codec(format="connect-json")
    texts = [b"", b"\0", b"\1", b"\2", b"\xff\xfe", b"\0\0\0\5", b"\xff" * 4, b"\x3f\xc0\0\0", b"\x80" + b"\0" * 7,
             b"\xff" * 8, b"\x3f\xf8" + b"\0" * 6, b"\0" * 9, "ü😀".encode(), b"a\xffb\xc3",
             b"\xed\xa0\x80x", b"\xf0\x9f\x98", None]  # fmt: skip
    own: tuple[str, dict[str, str]] = (of.class_name, {})

    assert kafka.rewritten(own, own, texts) == ours(of, of, texts)
    assert parsed(kafka.rewritten(own, (JSON, {}), texts)) == parsed(ours(of, as_json, texts))


@pytest.mark.parametrize("name", PLAIN)
def test_what_a_plain_converter_does_not_write_is_refused(kafka: ConverterHost, name: str) -> None:
    """Values of every type, with and without schemas."""
    types: dict[str, Any] = {
        "int8": 1, "int16": 2, "int32": 3, "int64": 4, "float": 1.5, "double": 2.5, "boolean": True, "string": "x",
    }  # fmt: skip
    texts = [enveloped(schema(type_), value) for type_, value in types.items()]
    texts += [enveloped(schema(type_), None) for type_ in types]
    texts += [enveloped(None, value) for value in (1, 1.5, True, "x")]
    texts += [enveloped(SCHEMA["fields"][-2] | {"field": None}, {"x": 1, "y": "z"}), enveloped(INNER, {"x": None})]
    texts += [enveloped(None, [1, "a", None, 1.0]), enveloped(None, {"a": [True]}), enveloped(decimal(1), wire(15))]
    of, reads = codec(format=name), codec(format="connect-json")

    assert kafka.rewritten((JSON, {}), (of.class_name, {}), texts) == ours(reads, of, texts)


_TYPED = [
    *(enveloped(schema(type_), value) for type_, value in {
        "int8": -3, "int16": 300, "int32": 7, "int64": 2**53 + 1, "float": 0.1, "double": 2.5, "boolean": True,
        "string": "x", "bytes": "AP8=",
    }.items()),
    enveloped(decimal(2), wire(1250)), enveloped(SCHEMA, WHOLE), enveloped(INNER, {"x": None, "y": "a"}),
    enveloped(schema("array", items=schema("int32")), [1, None]),
    enveloped(schema("map", keys=schema("int32", optional=False), values=schema("string")), [[1, "a"]]),
    enveloped(schema("int64", name=TIMESTAMP, version=1), 86_400_123),
    enveloped(schema("int32", name=DATE, version=1), 19000), enveloped(schema("int32", name=TIME, version=1), 1500),
]  # fmt: skip
_DOUBLES = (1.5, 0.1, float("inf"), float("nan"), 1e300)
TEXTS: dict[str, list[bytes]] = {
    "string": [b"", b"x", "ü".encode(), b"5"],
    "bytes": [b"", b"\0\xff", b"abc"],
    "short": [b"\0\5", b"\x80\0"],
    "integer": [b"\0\0\0\5", b"\x80\0\0\0"],
    "long": [pack(">q", 2**53 + 1), pack(">q", -5)],
    "float": [pack(">f", number) for number in (1.5, 0.1, float("nan"), float("inf"))],
    "double": [pack(">d", number) for number in _DOUBLES],
    "boolean": [b"\0", b"\1"],
    "connect-json": _TYPED,
    "numbers for decimals": _TYPED,
    "schemaless": [
        json.dumps(value).encode() for value in (1, 1.5, True, "x", [1, None], {"a": [True, {"b": 1.25}]}, None)
    ],
}
CONVERTERS: dict[str, tuple[Format, tuple[str, dict[str, str]]]] = {
    **{name: (Format(name), (codec(format=name).class_name, {})) for name in PLAIN},
    "connect-json": (Format("connect-json"), (JSON, {})),
    "numbers for decimals": (Format("connect-json", decimal_format="NUMERIC"), (JSON, {"decimal.format": "NUMERIC"})),
    "schemaless": (Format("connect-json", schemas_enable=False), (JSON, {"schemas.enable": "false"})),
}


def value_of(text: Any) -> Any:
    """JSON as a value, where a text is one; not a number is a word."""
    try:
        return json.loads(text, parse_constant=str) if isinstance(text, bytes) else text
    except ValueError:
        return text


@pytest.mark.parametrize("read", CONVERTERS)
@pytest.mark.parametrize("written", CONVERTERS)
def test_each_pair_is_written_as_kafka_writes_it(kafka: ConverterHost, read: str, written: str) -> None:
    """What one converter reads another writes, or refuses, for all pairs of Kafka's own.

    Kafka's StringConverter writes the address of bytes, and times in the words and the zone of its JVM: ours has the
    bytes as text, and ISO 8601.
    """
    of, reads = CONVERTERS[read]
    target, writes = CONVERTERS[written]
    reader, texts = codec_of(of), [*TEXTS[read], None]

    own = ours(reader, writing_codec(target, of, reader), texts)

    for text, expected, found in zip(texts, kafka.rewritten(reads, writes, texts), own, strict=True):
        no_text = (
            written == "string" and isinstance(expected, bytes) and re.search(rb"\[B@|:\d\d [A-Z]+ \d{4}", expected)
        )
        if no_text:
            assert isinstance(found, bytes)
            assert not re.search(rb"\[B@|:\d\d [A-Z]+ \d{4}", found)
        else:
            assert value_of(found) == value_of(expected), text
