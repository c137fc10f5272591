"""The converters that a connector's properties name."""

from __future__ import annotations

import pytest

from turnout.codecs import Format, converters_of
from turnout.codecs.registry import BUILTIN

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
