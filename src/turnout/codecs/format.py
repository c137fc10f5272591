"""Format of the bytes of a key or a value, as a route names it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from turnout.base.terminal import did_you_mean
from turnout.codecs.codec import Codec
from turnout.codecs.kind import CodecKind, Notation, argument, file_names
from turnout.codecs.registry import BUILTIN, format_names, kind_of
from turnout.errors import ConfigError, Mistake
from turnout.records.types import DynamicValue


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
