"""Formats as a route says them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.metadata import EntryPoint
from typing import Any

import pytest

from turnout.codecs import FORMATS, Codec, CodecKind, Format, Kind, Option, codec_of, converters_of
from turnout.codecs import format as format_module
from turnout.codecs.format import BUILTIN
from turnout.codecs.plain import Bytes
from turnout.errors import ConfigError

DECIMAL = {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "version": 1}


@pytest.mark.parametrize("name", sorted({*FORMATS} - {"avro", "jsonSchema", "protobuf"}))
def test_each_format_has_a_codec_of_its_name(name: str) -> None:
    """It also has the class name for error headers. Formats that need a schema have their own tests."""
    codec = codec_of(Format.from_config({"format": name}))

    assert (name, format_module.BUILTIN[name].class_name) == (codec.format, codec.class_name)


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


def _codec(url: str | None) -> Codec:
    if url == "down":
        raise OSError("no schema registry there")
    return Bytes()


THRIFT = CodecKind(
    "thrift",
    "example.ThriftConverter",
    "Thrift",
    _codec,
    settings=(Option("url", Kind(str), "where schemas are", None),),
)


@pytest.fixture
def offer(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Offers an attribute of this module as the format of another package."""

    def offered(name: str, attribute: str) -> None:
        point = EntryPoint(name, f"{__name__}:{attribute}", "turnout.codecs")
        monkeypatch.setattr(format_module, "plugins", lambda: {name: point})
        monkeypatch.setattr(EntryPoint, "load", lambda point: globals()[point.attr])

    format_module._loaded.cache_clear()
    yield offered
    format_module._loaded.cache_clear()


def test_a_package_may_offer_a_format(offer: Callable[..., None]) -> None:
    """An entry point of the group ``turnout.codecs`` is a kind like turnout's own, with settings that are checked."""
    offer("thrift", "THRIFT")

    assert isinstance(codec_of(Format.from_config({"format": "thrift", "url": "x"})), Bytes)
    with pytest.raises(ConfigError, match=r"did you mean \"thrift\"\?"):
        Format.from_config({"format": "thrifty"})
    with pytest.raises(ConfigError, match=r"value.ulr: is not a setting of the format thrift; did you mean \"url\"\?"):
        Format.from_config({"format": "thrift", "ulr": "x"})


def test_a_package_may_refuse_its_settings(offer: Callable[..., None]) -> None:
    """Any exception becomes a mistake of the route."""
    offer("thrift", "THRIFT")

    with pytest.raises(ConfigError, match="format: thrift refuses its settings: no schema registry there"):
        codec_of(Format.from_config({"format": "thrift", "url": "down"}))


def test_what_a_package_offers_has_to_be_a_format(offer: Callable[..., None]) -> None:
    """Of the name of the entry point; the other formats are not disturbed."""
    offer("trift", "THRIFT")

    with pytest.raises(ConfigError, match="expected a CodecKind of the name 'trift'"):
        Format.from_config({"format": "trift"})
    assert list(format_module.kinds()) == list(FORMATS)


def function(given: Any) -> Codec:
    assert given.options == {"url": "x"}
    return Bytes()


def test_a_function_still_gives_a_codec(offer: Callable[..., None]) -> None:
    """Packages for turnout 0.1 use this form: a function of the settings."""
    offer("thrift", "function")

    with pytest.warns(DeprecationWarning, match="offer a CodecKind"):
        assert isinstance(codec_of(Format.from_config({"format": "thrift", "url": "x"})), Bytes)


JSON = "org.apache.kafka.connect.json.JsonConverter"


CLASSES = [
    (kind.class_name, name) for name, kind in BUILTIN.items() if kind.connect is not None and kind.from_connect is None
]
REGISTRY = [(kind.class_name, name) for name, kind in BUILTIN.items() if kind.from_connect is not None]


@pytest.mark.parametrize(("class_name", "name"), CLASSES)
def test_kafkas_converters_are_known(class_name: str, name: str) -> None:
    """By their class, its simple name, and the alias that a worker takes."""
    simple = class_name.rpartition(".")[2]
    for spelled in (class_name, f" {simple} ", simple.removesuffix("Converter")):
        converters = converters_of({"key.converter": spelled, "value.converter": spelled})

        assert (Format(name), Format(name), ()) == (converters.key, converters.value, converters.mistakes)


@pytest.mark.parametrize(("class_name", "name"), REGISTRY)
def test_converters_with_a_registry_need_its_url(class_name: str, name: str) -> None:
    """The formats have none by default."""
    missing = converters_of({"value.converter": class_name})
    given = converters_of({"value.converter": class_name, "value.converter.schema.registry.url": "http://localhost:1"})

    assert missing.value is None
    assert [mistake.problem for mistake in missing.mistakes] == ["schema.registry.url is missing"]
    assert given.value is not None
    assert (name, ()) == (given.value.format, given.mistakes)


def test_settings_belong_to_their_side() -> None:
    """Those of JsonConverter are read, and those that change nothing here are left alone."""
    converters = converters_of({
        "name": "x", "key.converter": JSON, "key.converter.schemas.enable": "false",
        "key.converter.schemas.cache.size": "10", "key.converter.decimal.format": "base64",
        "value.converter": JSON, "value.converter.replace.null.with.default": "False",
    })  # fmt: skip

    assert Format("connect-json", schemas_enable=False) == converters.key
    assert Format("connect-json", replace_null_with_default=False) == converters.value
    assert converters.mistakes == ()


def test_nothing_is_said_of_what_is_not_there() -> None:
    """The worker's converters are not known here."""
    converters = converters_of({"transforms": "x"})

    assert (converters.key, converters.value, converters.mistakes) == (None, None, ())


@pytest.mark.parametrize(
    ("name", "value", "about"),
    [
        ("value.converter", "example.ThriftConverter", "there are org.apache.kafka.connect.json"),
        ("value.converter", "org.apache.kafka.connect.json.JsonConvertor", "did you mean JsonConverter?"),
        ("key.converter.schemas.enable", "yes", "expected true or false, found 'yes'"),
        ("key.converter.decimal.format", "PLAIN", "expected BASE64 or NUMERIC"),
        ("key.converter.schema.enable", "true", "known here are schemas.enable"),
        ("header.converter", "org.apache.kafka.connect.storage.SimpleHeaderConverter", "stay the bytes"),
    ],
)
def test_what_is_not_understood_is_named(name: str, value: str, about: str) -> None:
    """With the property, and what is known."""
    converters = converters_of({"key.converter": JSON, name: value})

    assert [name] == [mistake.path for mistake in converters.mistakes]
    assert about in converters.mistakes[0].problem
    assert converters.key is not None
    assert converters.value is None


def test_a_plain_converter_has_no_settings() -> None:
    """Only StringConverter has one, its encoding."""
    converters = converters_of({
        "key.converter": "org.apache.kafka.connect.storage.StringConverter", "key.converter.encoding": "latin1",
        "value.converter": "org.apache.kafka.connect.converters.LongConverter", "value.converter.x": "1",
    })  # fmt: skip

    assert [mistake.problem for mistake in converters.mistakes] == [
        "expected UTF-8, found 'latin1'",
        "the converter has no settings",
    ]
