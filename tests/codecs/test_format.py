"""Formats as a route says them."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import EntryPoint
from typing import Any
from unittest.mock import patch

import pytest

from turnout.codecs import FORMATS, Codec, Format, codec_of
from turnout.codecs import format as formats
from turnout.codecs.plain import Bytes
from turnout.errors import ConfigError

DECIMAL = {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "version": 1}


@pytest.mark.parametrize("name", FORMATS)
def test_each_format_has_a_codec_of_its_name(name: str) -> None:
    """And Kafka's class, as error headers name it."""
    codec = codec_of(Format.from_config({"format": name}))

    assert name == codec.format
    assert codec.class_name.startswith("org.apache.kafka.connect.")


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
    assert Format.from_config({"format": "connect-json"}).decimal_format == "BASE64"


@pytest.mark.parametrize(
    ("config", "place", "about"),
    [
        ({"format": "connect-json", "decimal.format": "text"}, "decimal.format", "expected BASE64 or NUMERIC"),
        ({"format": "avro"}, "format", "expected one of raw, json"),
        ({"format": "jsn"}, "format", 'did you mean "json"?'),
        ({"format": "json", "schema": {"type": "struct"}}, "schema", "a DDL string"),
        ({"format": "json", "schema": "a STRNG"}, "schema", "at character 3"),
        ({"format": "connect-json", "schema": "a INT"}, "schema", "a Connect schema"),
        ({"format": "connect-json", "schema": {"type": "int7"}}, "schema", "expected a Connect type"),
        ({"format": "connect-json", "schema": {"type": "array"}}, "schema", "what the array holds"),
        ({"format": "connect-json", "schema": DECIMAL | {"parameters": {"scale": "x"}}}, "schema", "whole number"),
        ({"format": "connect-json", "schema": DECIMAL | {"default": "7.00"}}, "schema", "base64"),
        ({"format": "raw", "schema": "a int"}, "schema", "means nothing where the format is raw"),
        ({"format": "string", "schema": "a int"}, "schema", "means nothing where the format is string"),
        ({"format": "json", "shema": "a int"}, "shema", "is not a setting"),
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
    assert schema == Format.from_config({"format": "connect-json", "schema": schema}).value_schema


def codec_for(given: Format) -> Codec:
    """A codec of another package."""
    assert given.options == {"url": "x"}
    return Bytes()


@pytest.fixture
def plugin() -> Iterator[None]:
    point = EntryPoint("avro", f"{__name__}:made", "turnout.codecs")
    with (
        patch.object(formats, "plugins", lambda: {"avro": point}),
        patch("turnout.codecs.registry.plugins", lambda: {"avro": point}),
        patch.object(EntryPoint, "load", lambda _: codec_for),
    ):
        yield


@pytest.mark.usefixtures("plugin")
def test_a_package_may_offer_a_format() -> None:
    """An entry point of the group ``turnout.codecs`` gets the settings as they are, and gives the codec."""
    assert isinstance(codec_of(Format.from_config({"format": "avro", "url": "x"})), Bytes)
    with pytest.raises(ConfigError, match=r"did you mean \"avro\"\?"):
        Format.from_config({"format": "avroo"})
