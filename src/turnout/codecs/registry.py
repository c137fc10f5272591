"""Registry of formats: turnout's own, and those of installed packages."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from functools import cache
from importlib.metadata import EntryPoint
from types import MappingProxyType, SimpleNamespace
from typing import Final

from turnout.base.startup import entry_points
from turnout.codecs import avro, connect_json, json_schema, msgpack, plain, plain_json, protobuf
from turnout.codecs.codec import Codec
from turnout.codecs.kind import CodecKind
from turnout.errors import ConfigError, Mistake

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
