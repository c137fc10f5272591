"""The converters that a connector's properties name, as formats."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from turnout.base.options import read_options
from turnout.base.terminal import nearest
from turnout.codecs.format import Format
from turnout.codecs.kind import CodecKind
from turnout.codecs.registry import kinds
from turnout.errors import Mistake

_WITHOUT_EFFECT = {"schemas.cache.size", "converter.type"}


@dataclass(frozen=True, slots=True)
class Converters:
    """Converters configured by a connector's properties.

    Attributes:
        key: None where they name no converter, or one that is not known.
        value: the same of values.
        mistakes: every unsupported property, with the supported ones.

    >>> json = "org.apache.kafka.connect.json.JsonConverter"
    >>> converters = converters_of({"value.converter": json, "value.converter.schemas.enable": "false"})
    >>> converters.key, converters.value.format, converters.value.settings
    (None, 'connect-json', {'schemas.enable': False})
    """

    key: Format | None
    value: Format | None
    mistakes: tuple[Mistake, ...] = ()


def converters_of(properties: Mapping[str, str | None]) -> Converters:
    """Return the formats of ``key.converter`` and ``value.converter`` with their settings.

    >>> properties = {"value.converter": "org.apache.kafka.connect.json.JsonConverter", "key.converter": "a.b.C"}
    >>> converters = converters_of({**properties, "value.converter.schemas.enable": "false"})
    >>> converters.value.format, converters.value.settings
    ('connect-json', {'schemas.enable': False})
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
    by_class = {kind.class_name: kind for kind in kinds().values() if kind.connect is not None}
    kind = _by_alias(by_class).get(setting.strip())
    if kind is None:
        mistakes.append(Mistake(name, _unknown(setting.strip(), by_class)))
        return None
    prefix = name + "."
    codec_properties = {
        option.removeprefix(prefix): (value or "").strip()
        for option, value in properties.items()
        if option.startswith(prefix) and option.removeprefix(prefix) not in _WITHOUT_EFFECT
    }
    own = {one.name: one for one in kind.connect or ()}
    problem = f"is not understood; known here are {', '.join(own)}" if own else "the converter has no settings"
    found = [Mistake(option, problem) for option in codec_properties if option not in own]
    # A bad value counts as not given.
    settings = read_options(own, codec_properties, found)
    mistakes += [replace(one, path=prefix + one.path) for one in found]
    if kind.from_connect is not None:
        try:
            return Format(kind.name, **kind.from_connect(settings))
        except ValueError as wrong:
            mistakes.append(Mistake(name, str(wrong)))
            return None
    named = {setting.name for setting in kind.settings or ()}
    return Format(kind.name, **{option: value for option, value in settings.items() if option in named})


def _by_alias(by_class: Mapping[str, CodecKind]) -> dict[str, CodecKind]:
    """Return formats by all names that a Connect worker takes for a class: also without package and ``Converter``."""
    return {
        alias: kind
        for name, kind in by_class.items()
        for simple in [name.rpartition(".")[2]]
        for alias in (name, simple, simple.removesuffix("Converter"))
    }


def _unknown(class_name: str, class_names: Iterable[str]) -> str:
    package, _, simple = class_name.rpartition(".")
    by_simple = {name.rpartition(".")[2]: name.rpartition(".")[0] for name in class_names}
    # A class of another vendor is no misspelling, unless it has the name of a known one.
    guess = (
        simple if simple in by_simple else nearest(simple, by_simple) if package in ("", *by_simple.values()) else None
    )
    known = package in ("", by_simple.get(guess or ""))
    hint = f" (did you mean {guess if known else f'{by_simple[guess]}.{guess}'}?)" if guess else ""
    return f"no converter {class_name!r} is known{hint}; there are {', '.join(class_names)}"
