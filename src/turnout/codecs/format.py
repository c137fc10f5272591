"""Formats of the bytes of keys and values: all that are known, the one that a route names, and Connect's converters.

Known are turnout's own formats, and those of installed packages.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib.metadata import EntryPoint
from types import MappingProxyType, SimpleNamespace
from typing import Final, Self

from turnout.base.options import read_options
from turnout.base.startup import entry_points
from turnout.base.terminal import did_you_mean, nearest
from turnout.codecs import avro, connect_json, json_schema, msgpack, plain, plain_json, protobuf
from turnout.codecs.codec import Codec, CodecKind, Notation, argument, file_names
from turnout.errors import ConfigError, Mistake
from turnout.records.types import DynamicValue

ENTRY_POINT: Final = "turnout.codecs"
"""The entry point group in which a package names its formats; each is a `CodecKind`."""

BUILTIN: Final[Mapping[str, CodecKind]] = MappingProxyType(
    {
        kind.name: kind
        for kind in (
            plain.RAW,
            plain_json.KIND,
            connect_json.KIND,
            *plain.CONVERTERS,
            msgpack.KIND,
            protobuf.KIND,
            avro.KIND,
            json_schema.KIND,
        )
    }
)
"""Turnout's own formats by name."""

FORMATS: tuple[str, ...] = tuple(BUILTIN)
"""The names of turnout's own formats."""

NULLABLE: Final = frozenset(
    setting.name for kind in BUILTIN.values() for setting in kind.settings or () if setting.default is None
)
"""Settings that may be null in any format, as a template leaves them."""


@cache
def plugins() -> Mapping[str, EntryPoint]:
    """Return the formats that installed packages offer, not loaded yet."""
    return {point.name: point for point in entry_points(group=ENTRY_POINT) if point.name not in BUILTIN}


def format_names() -> tuple[str, ...]:
    """Return the names of all formats."""
    return (*FORMATS, *plugins())


def kinds() -> Mapping[str, CodecKind]:
    """Return all formats by name, without those of packages that cannot be loaded."""
    offered = {}
    for name in plugins():
        try:
            offered[name] = kind_of(name)
        except ConfigError:
            continue
    return {**BUILTIN, **offered}


def kind_of(name: str) -> CodecKind:
    """Return the format of that name.

    Raises:
        ConfigError: the package that offers it cannot be loaded, or offers something else.
        LookupError: no package offers such a format.
    """
    return BUILTIN[name] if name in BUILTIN else _loaded(plugins()[name])


@cache
def _loaded(point: EntryPoint) -> CodecKind:
    try:
        offered = point.load()
    except Exception as failure:
        raise ConfigError([Mistake("format", f"{point.value} cannot be loaded: {failure}")]) from failure
    if isinstance(offered, CodecKind) and offered.name == point.name:
        return offered
    if isinstance(offered, CodecKind) or not callable(offered):
        problem = f"expected a CodecKind of the name {point.name!r} in {point.value}, found {offered!r}"
        raise ConfigError([Mistake("format", problem)])
    warnings.warn(f"{point.value} is a function: offer a CodecKind", DeprecationWarning, stacklevel=2)
    return _of_function(point, offered)


def _of_function(point: EntryPoint, function: Callable[[object], Codec]) -> CodecKind:
    """Return the format of a package that offers a function of a `Format`, as required by 0.1.0."""

    def codec(**settings: object) -> Codec:
        return function(SimpleNamespace(format=point.name, options=settings))

    return CodecKind(point.name, point.value, "a format of another package", codec, settings=None)


@dataclass(frozen=True, slots=True, init=False)
class Format:
    """Name and settings of a codec.

    Attributes:
        format: the name of a `CodecKind`.
        settings: settings that differ from their defaults, by name.

    >>> from turnout.codecs import codec_of
    >>> codec_of(Format("json", schema="city STRING, total DOUBLE")).schema().fields[1].name
    'total'
    >>> Format("connect-json", schemas_enable=False).settings
    {'schemas.enable': False}
    """

    format: str
    settings: Mapping[str, object]

    def __init__(self, format: str = "raw", **settings: object) -> None:  # noqa: A002 - its name everywhere
        """A format with settings, as their codec takes them: in names, dots may be written as underscores."""
        by_argument = {
            argument(one): one for one in (kind_of(format).settings if format in format_names() else None) or ()
        }
        defaults = {one.name: one.default for one in by_argument.values()}
        by_name = {by_argument[name].name if name in by_argument else name: value for name, value in settings.items()}
        object.__setattr__(self, "format", format)
        object.__setattr__(
            self,
            "settings",
            {name: value for name, value in by_name.items() if name not in defaults or value != defaults[name]},
        )

    @classmethod
    def from_config(cls, config: Mapping[str, DynamicValue] | None, *, path: str = "value") -> Self:
        """Read a route's mapping: ``format``, and the settings that the format has.

        Args:
            config: the route's configuration.
            path: path in the route: ``key`` or ``value``.

        Raises:
            ConfigError: when it cannot be read; lists every mistake.
        """
        settings = dict(config or {})
        name = settings.pop("format", "raw")
        try:
            return cls(name, **_kind_named(name).read(settings, BUILTIN.values()))
        except ConfigError as failure:
            mistakes = [Mistake(f"{path}.{mistake.path}", mistake.problem) for mistake in failure.mistakes]
            raise ConfigError(mistakes, what=f"bad {path.rpartition('.')[2]} format") from failure.__cause__


def _kind_named(name: object) -> CodecKind:
    if isinstance(name, str) and name in format_names():
        return kind_of(name)
    names = format_names()
    problem = f"expected one of {', '.join(names)}, found {name!r}{did_you_mean(str(name), names)}"
    raise ConfigError([Mistake("format", problem)])


def named_files(config: Mapping[str, DynamicValue]) -> dict[str, str]:
    """Return the settings of a route's ``key`` or ``value`` that name files, with the names; none of an unknown format.

    >>> named_files({"format": "protobuf", "schema": "flight.proto"})
    {'schema': 'flight.proto'}
    """
    name = config.get("format", "raw")
    if not isinstance(name, str) or name not in BUILTIN:
        return {}
    return dict(file_names(kind_of(name).settings or (), config))


def codec_of(format: Format) -> Codec:  # noqa: A002 - its name everywhere
    """Return the codec of a format; it caches schemas, so that one is enough for a topic.

    Raises:
        ConfigError: the codec refuses its settings, or its package cannot be loaded.
        LookupError: no package offers such a format.

    >>> from turnout.records.block import rows_of
    >>> codec = codec_of(Format("json"))
    >>> blocks, errors = codec.decode(rows_of(3), [b'{"n": 1, "city": "Oulu"}', b"{", b'{"n": 2, "city": "Kemi"}'])
    >>> [dict(block.columns) for block in blocks], list(errors)
    ([{'n': [1, 2], 'city': ['Oulu', 'Kemi']}], [1])
    >>> codec.encode(blocks[0])
    [b'{"n": 1, "city": "Oulu"}', b'{"n": 2, "city": "Kemi"}']
    """
    return kind_of(format.format).codec(format.settings)


def notation_of(format: Format) -> Notation:  # noqa: A002 - likewise
    """Return the notation of tests, ``explain`` and the sandbox for keys or values of a format.

    >>> notation_of(Format("json")).encode({"n": 1}), notation_of(Format("short")).decode(bytes([1, 0]))
    (b'{"n": 1}', 256)
    """
    return kind_of(format.format).notation(codec_of(format))


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
