"""The converters that a connector's properties name, as formats."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from turnout.codecs.format import DECIMAL_FORMAT, DECIMAL_FORMATS, Format
from turnout.errors import Mistake
from turnout.suggestions import nearest

_CLASSES: Mapping[str, str] = {
    "org.apache.kafka.connect.json.JsonConverter": "connect-json",
    "org.apache.kafka.connect.storage.StringConverter": "string",
    "org.apache.kafka.connect.converters.ByteArrayConverter": "bytes",
    "org.apache.kafka.connect.converters.ShortConverter": "short",
    "org.apache.kafka.connect.converters.IntegerConverter": "integer",
    "org.apache.kafka.connect.converters.LongConverter": "long",
    "org.apache.kafka.connect.converters.FloatConverter": "float",
    "org.apache.kafka.connect.converters.DoubleConverter": "double",
    "org.apache.kafka.connect.converters.BooleanConverter": "boolean",
}
_ALIASES: Mapping[str, str] = {
    alias: name
    for name in _CLASSES
    for simple in [name.rpartition(".")[2]]
    for alias in (name, simple, simple.removesuffix("Converter"))
}
"""What a Connect worker takes for a class: its name, also without the package, also without ``Converter``."""

_FLAGS = ("schemas.enable", "replace.null.with.default")
_WITHOUT_EFFECT = {"schemas.cache.size", "converter.type"}
_ENCODINGS = ("UTF8", "UTF-8")


@dataclass(frozen=True, slots=True)
class Converters:
    """Converters configured by a connector's properties.

    Attributes:
        key: None where they name no converter, or one that is not known.
        value: the same of values.
        mistakes: every property that is not understood, with what is known.

    >>> json = "org.apache.kafka.connect.json.JsonConverter"
    >>> converters = converters_of({"value.converter": json, "value.converter.schemas.enable": "false"})
    >>> converters.key, converters.value.format, converters.value.schemas_enable
    (None, 'connect-json', False)
    """

    key: Format | None
    value: Format | None
    mistakes: tuple[Mistake, ...] = ()


def converters_of(properties: Mapping[str, str | None]) -> Converters:
    """The formats of ``key.converter`` and ``value.converter`` with their settings.

    >>> properties = {"value.converter": "org.apache.kafka.connect.json.JsonConverter", "key.converter": "a.b.C"}
    >>> converters = converters_of({**properties, "value.converter.schemas.enable": "false"})
    >>> converters.value.format, converters.value.schemas_enable
    ('connect-json', False)
    >>> [mistake.path for mistake in converters.mistakes]
    ['key.converter']
    """
    mistakes: list[Mistake] = []
    key = _format_of("key.converter", properties, mistakes)
    value = _format_of("value.converter", properties, mistakes)
    if "header.converter" in properties:
        mistakes.append(Mistake("header.converter", "is not understood: headers stay the bytes that they are"))
    return Converters(key, value, tuple(mistakes))


def _format_of(name: str, properties: Mapping[str, str | None], mistakes: list[Mistake]) -> Format | None:
    setting = properties.get(name)
    if setting is None:
        return None
    class_name = _ALIASES.get(setting.strip())
    if class_name is None:
        mistakes.append(Mistake(name, _unknown(setting.strip())))
        return None
    format_ = _CLASSES[class_name]
    prefix = name + "."
    settings = {
        option.removeprefix(prefix): (value or "").strip()
        for option, value in properties.items()
        if option.startswith(prefix)
    }
    mistakes += [Mistake(prefix + option, problem) for option, problem in _problems(format_, settings)]
    if format_ != "connect-json":
        return Format(format_)
    # Whatever is not "true" is taken for the default, and has been named.
    enable, defaults = (settings.get(flag, "true").lower() != "false" for flag in _FLAGS)
    decimals = settings.get(DECIMAL_FORMAT, "").upper()
    return Format(
        format_,
        schemas_enable=enable,
        replace_null_with_default=defaults,
        decimal_format=decimals if decimals in DECIMAL_FORMATS else DECIMAL_FORMATS[0],
    )


def _problems(format_: str, settings: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The settings of one converter that are not understood."""
    known = {"connect-json": (*_FLAGS, DECIMAL_FORMAT), "string": ("encoding",)}.get(format_, ())
    for option, value in settings.items():
        if option in _WITHOUT_EFFECT:
            continue
        if option not in known:
            listed = ", ".join(known) or "no settings"
            yield option, f"is not understood; known here are {listed}" if known else "the converter has no settings"
        elif option in _FLAGS and value.lower() not in ("true", "false"):
            yield option, f"expected true or false, found {value!r}"
        elif option == DECIMAL_FORMAT and value.upper() not in DECIMAL_FORMATS:
            yield option, f"expected {' or '.join(DECIMAL_FORMATS)}, found {value!r}"
        elif option == "encoding" and value.upper() not in _ENCODINGS:
            yield option, f"expected UTF-8, found {value!r}"


def _unknown(class_name: str) -> str:
    simple = class_name.rpartition(".")[2]
    near = nearest(simple, [name.rpartition(".")[2] for name in _CLASSES])
    hint = f" (did you mean {near}?)" if near else ""
    return f"no converter {class_name!r} is known{hint}; there are {', '.join(_CLASSES)}"
