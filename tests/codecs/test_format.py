"""Formats as a route says them."""

from __future__ import annotations

from typing import Any

import pytest

from turnout.codecs import FORMATS, Format, codec_of, registry
from turnout.errors import ConfigError

DECIMAL = {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "version": 1}


@pytest.mark.parametrize("name", sorted({*FORMATS} - {"avro", "jsonSchema", "protobuf"}))
def test_each_format_has_a_codec_of_its_name(name: str) -> None:
    """It also has the class name for error headers. Formats that need a schema have their own tests."""
    codec = codec_of(Format.from_config({"format": name}))

    assert (name, registry.BUILTIN[name].class_name) == (codec.format, codec.class_name)


def test_settings_are_read_as_both_spell_them() -> None:
    """JsonConverter's way and a route file's; nothing at all means bytes that are left alone."""
    dotted = {"format": "connect-json", "schemas.enable": "false", "replace.null.with.default": False}
    camel = {"format": "connect-json", "schemasEnable": False, "replaceNullWithDefault": "FALSE"}

    assert Format("connect-json", schemas_enable=False, replace_null_with_default=False) == Format.from_config(dotted)
    assert Format.from_config(dotted) == Format.from_config(camel)
    assert Format("raw") == Format.from_config({}) == Format.from_config(None)


def test_decimals_are_bytes_or_numbers() -> None:
    """KIP-481's setting, in capitals or not, as both spell it."""
    dotted, camel = ({"format": "connect-json", name: "numeric"} for name in ("decimal.format", "decimalFormat"))

    assert Format.from_config(dotted) == Format.from_config(camel) == Format("connect-json", decimal_format="NUMERIC")
    assert Format.from_config({"format": "connect-json", "decimal.format": "base64"}) == Format("connect-json")


@pytest.mark.parametrize(
    ("config", "place", "about"),
    [
        ({"format": "connect-json", "decimal.format": "text"}, "decimal.format", "expected BASE64 or NUMERIC"),
        (
            {"format": "connect-json", "decimal.format": "NUMERIC", "decimalFormat": "BASE64"},
            "decimalFormat",
            "given as",
        ),
        ({"format": "thrift"}, "format", "expected one of raw, json"),
        ({"format": "jsn"}, "format", 'did you mean "json"?'),
        ({"format": "json", "schema": {"type": "struct"}}, "schema", "a DDL string"),
        ({"format": "json", "schema": "a STRNG"}, "schema", "at character 3"),
        ({"format": "connect-json", "schema": "a INT"}, "schema", "a Connect schema"),
        ({"format": "connect-json", "schema": {"type": "int7"}}, "schema", "expected a Connect type"),
        ({"format": "connect-json", "schema": {"type": "array"}}, "schema", "the array's elements"),
        ({"format": "connect-json", "schema": DECIMAL | {"parameters": {"scale": "x"}}}, "schema", "whole number"),
        ({"format": "connect-json", "schema": DECIMAL | {"default": "7.00"}}, "schema", "base64"),
        ({"format": "raw", "schema": "a int"}, "schema", "not a setting of the format raw, but of json"),
        ({"format": "string", "schema": "a int"}, "schema", "not a setting of the format string, but of json"),
        ({"format": "json", "shema": "a int"}, "shema", 'did you mean "schema"?'),
        ({"format": "json", "schemas.enable": False}, "schemas.enable", "the format json, but of connect-json"),
        ({"format": "long", "decimalFormat": "NUMERIC"}, "decimalFormat", "the format long, but of connect-json"),
        (
            {"format": "connect-json", "replace.null.with.default": "maybe"},
            "replace.null.with.default",
            "true or false",
        ),
    ],
)
@pytest.mark.parametrize("side", ["key", "value"])
def test_a_wrong_format_is_refused_with_its_place(config: dict[str, Any], place: str, about: str, side: str) -> None:
    """The mistake names the setting, and what was expected."""
    with pytest.raises(ConfigError) as refused:
        Format.from_config(config, path=side)

    assert [f"{side}.{place}"] == [mistake.path for mistake in refused.value.mistakes]
    assert about in refused.value.mistakes[0].problem


@pytest.mark.parametrize(
    "schema",
    [
        DECIMAL | {"parameters": {"scale": "39"}},
        DECIMAL | {"parameters": {"scale": "-1"}},
        {"type": "map", "keys": {"type": "int32"}, "values": {"type": "string"}},
    ],
)
def test_every_schema_of_connect_can_be_given(schema: dict[str, Any]) -> None:
    """Decimals of any scale, and maps with any keys."""
    assert schema == Format.from_config({"format": "connect-json", "schema": schema}).settings["schema"]
