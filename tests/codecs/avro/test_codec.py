from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.codecs.schema_registry.stand_in import StandIn, running_registry

from turnout.codecs import Codec, Format, codec_of, converters_of, notation_of
from turnout.codecs.codec import EncodeErrors
from turnout.codecs.schema_registry import RegistryOptions, RegistryUnavailableError, registry_of
from turnout.errors import ConfigError
from turnout.records import Block
from turnout.records.block import rows_of

_N = {"type": "record", "name": "R", "fields": [{"name": "n", "type": "long"}]}
_N2 = {**_N, "fields": [*_N["fields"], {"name": "city", "type": "string", "default": ""}]}


@pytest.fixture
def registry() -> Iterator[StandIn]:
    with running_registry() as running:
        yield running


def options(registry: StandIn, **more: Any) -> RegistryOptions:
    found = RegistryOptions.read({"url": registry.url, "retries": 0, "wait": 0, **more})
    registry.clients.append(registry_of(found))
    return found


def codec(registry: StandIn, **settings: Any) -> Codec:
    return codec_of(Format("avro", registry=settings.pop("options", None) or options(registry), **settings))


def framed(number: int, payload: bytes) -> bytes:
    return b"\0" + number.to_bytes(4, "big") + payload


def test_several_versions_in_one_batch(registry: StandIn) -> None:
    first, second = registry.add("s", json.dumps(_N)), registry.add("s", json.dumps(_N2))
    texts = [framed(first, b"\x02"), framed(second, b"\x04\x02a"), None, framed(first, b"\x06")] * 10
    reader = codec(registry)
    blocks, errors = reader.decode(rows_of(len(texts)), texts)
    assert not errors
    found = {row: value for block in blocks for row, value in zip(block.rows.tolist(), block.whole(), strict=True)}
    assert [found[row] for row in range(4)] == [{"n": 1}, {"n": 2, "city": "a"}, None, {"n": 3}]
    written = {
        row: text for block in blocks for row, text in zip(block.rows.tolist(), reader.encode(block), strict=True)
    }
    assert [written[row] for row in range(len(texts))] == texts
    assert len(registry.requests) == 2


def test_equal_schemas_of_two_ids_keep_their_ids(registry: StandIn) -> None:
    first = registry.add("s", json.dumps(_N))
    second = registry.add("s", json.dumps({**_N, "aliases": ["Old"]}))
    texts = [framed(first, b"\x02"), framed(second, b"\x02")]
    reader = codec(registry)
    blocks, _ = reader.decode(rows_of(2), texts)
    assert [reader.encode(block) for block in blocks] == [[texts[0]], [texts[1]]]


def test_other_records_pass(registry: StandIn) -> None:
    good = registry.add("s", json.dumps(_N))
    json_schema = registry.add("j", "{}", "JSON")
    linked = {"type": "record", "name": "L", "fields": [{"name": "next", "type": ["null", "L"]}]}
    recursive = registry.add("l", json.dumps(linked))
    texts = [
        b"text",
        framed(77, b""),
        framed(json_schema, b""),
        framed(recursive, b""),
        framed(good, b""),
        framed(good, b"\2"),
    ]
    blocks, errors = codec(registry).decode(rows_of(len(texts)), texts)
    assert [block.rows.tolist() for block in blocks] == [[5]]
    assert [str(errors[row]).partition(":")[0] for row in range(5)] == [
        "expected a zero byte and a schema id of 4 bytes, found 4 bytes",
        "the schema registry does not know the schema with the id 77",
        f"the schema with the id {json_schema} cannot be used",
        f"the schema with the id {recursive} cannot be used",
        "the value is not of its Avro schema",
    ]
    assert "recursive schemas are not supported" in str(errors[3])


def changed(registry: StandIn, reader: Codec) -> Block:
    number = registry.add("s", json.dumps(_N))
    (block,), _ = reader.decode(rows_of(1), [framed(number, b"\x02")])
    assert block.schema is not None
    (later,), _ = reader.decode(rows_of(1), [framed(registry.add("s", json.dumps(_N2)), b"\x02\x02a")])
    return later.with_columns(later.schema and later.schema.with_(name="Mine"), dict(later.columns))


def test_registers_a_changed_schema(registry: StandIn) -> None:
    writer = codec(registry, topic="t")
    block = changed(registry, writer)
    (text,) = writer.encode(block)
    assert text is not None
    assert "POST /subjects/t-value/versions?normalize=False" in registry.requests
    (again,), _ = codec(registry).decode(rows_of(1), [text])
    assert again.whole() == [{"n": 1, "city": "a"}]


def test_does_not_register_where_it_is_off(registry: StandIn) -> None:
    writer = codec(registry, topic="t", auto_register_schemas=False)
    with pytest.raises(EncodeErrors, match="does not know this schema under the subject 't-value'"):
        writer.encode(changed(registry, writer))


def test_subject_of_a_topic_that_is_not_named(registry: StandIn) -> None:
    writer = codec(registry)
    with pytest.raises(EncodeErrors, match="needs the setting 'topic'"):
        writer.encode(changed(registry, writer))


def test_registry_that_is_down(registry: StandIn) -> None:
    number = registry.add("s", json.dumps(_N))
    registry.failing = 503
    down = replace(options(registry), dead_letter=True)
    _, errors = codec(registry, options=down).decode(rows_of(1), [framed(number, b"\x02")])
    assert "fails: Error in the backend data store" in str(errors[0])
    with pytest.raises(RegistryUnavailableError):
        codec(registry).decode(rows_of(1), [framed(number, b"\x02")])


def test_schema_file(tmp_path: Path) -> None:
    file = tmp_path / "r.avsc"
    file.write_text(json.dumps(_N))
    of_file = codec_of(Format("avro", schema=str(file)))
    texts = [b"\x02", b"\x04", None]
    blocks, errors = of_file.decode(rows_of(3), texts)
    assert not errors
    assert [of_file.encode(block) for block in blocks] == [[b"\x02", b"\x04"], [None]]
    assert of_file.schema() == blocks[0].schema
    notation = notation_of(Format("avro", schema=str(file)))
    assert (notation.encode({"n": 3}), notation.decode(b"\x06")) == (b"\x06", {"n": 3})


def test_one_value_that_does_not_fit(tmp_path: Path) -> None:
    file = tmp_path / "r.avsc"
    file.write_text(json.dumps(_N))
    of_file = codec_of(Format("avro", schema=str(file)))
    block = Block(rows_of(3), of_file.schema(), columns={"n": [1, "two", 3]}, checked=False)
    with pytest.raises(EncodeErrors) as failure:
        of_file.encode(block)
    assert failure.value.texts == [b"\x02", None, b"\x06"]
    assert str(failure.value.errors[1]) == "n: expected an integer of 64 bits, found 'two'"


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({}, "expected either registry or schema"),
        ({"schema": "/none.avsc"}, "/none.avsc: No such file"),
        ({"registry": RegistryOptions(("https://a",), ca="/none.pem")}, "No such file or directory: '/none.pem'"),
    ],
)
def test_mistakes(settings: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        codec_of(Format("avro", **settings))


def test_converter_of_a_connector() -> None:
    converters = converters_of(
        {
            "value.converter": "io.confluent.connect.avro.AvroConverter",
            "value.converter.schema.registry.url": "http://a:8081,http://b:8081",
            "value.converter.basic.auth.credentials.source": "USER_INFO",
            "value.converter.basic.auth.user.info": "ann:pass",
            "value.converter.value.subject.name.strategy": "io.confluent.kafka.serializers.subject.RecordNameStrategy",
            "value.converter.use.latest.version": "true",
            "value.converter.scrub.invalid.names": "true",
            "key.converter": "io.confluent.connect.avro.AvroConverter",
        }
    )
    assert converters.value is not None
    found = converters.value.settings["registry"]
    assert isinstance(found, RegistryOptions)
    assert (found.urls, found.user) == (("http://a:8081", "http://b:8081"), "ann")
    assert converters.value.settings["subject.name.strategy"] == "record"
    assert {mistake.path for mistake in converters.mistakes} == {
        "key.converter",
        "value.converter.scrub.invalid.names",
        "value.converter.use.latest.version",
    }
