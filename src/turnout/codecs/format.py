"""Format of the bytes of a key or a value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Self

from turnout.codecs.ddl import DdlError, parse_ddl
from turnout.codecs.reading import Reader
from turnout.errors import ConfigError, Mistake
from turnout.records.schema import Schema
from turnout.suggestions import did_you_mean

ENTRY_POINT = "turnout.codecs"
"""The entry point group in which a package names its formats; each is a function of a `Format` that gives a codec."""

FORMATS: tuple[str, ...] = (
    "raw", "json", "connect-json", "string", "bytes", "short", "integer", "long", "float", "double", "boolean",
)  # fmt: skip
"""The formats that are always there."""

_FLAGS = {"schemas.enable": "schemasEnable", "replace.null.with.default": "replaceNullWithDefault"}
"""Settings that are true or false, as JsonConverter and as a route file spells them; all are true if not given."""

DECIMAL_FORMAT = "decimal.format"
"""JsonConverter's setting of how decimals are written (KIP-481)."""

DECIMAL_FORMATS: tuple[str, ...] = ("BASE64", "NUMERIC")
"""What it can be, the default first."""

SETTINGS: tuple[str, ...] = ("schema", *_FLAGS, *_FLAGS.values(), DECIMAL_FORMAT, "decimalFormat")
"""What a format of turnout's own may have beside its name."""


@cache
def plugins() -> Mapping[str, EntryPoint]:
    """The formats that installed packages offer."""
    return {
        entry_point.name: entry_point
        for entry_point in entry_points(group=ENTRY_POINT)
        if entry_point.name not in FORMATS
    }


@dataclass(frozen=True, slots=True)
class Format:
    """Name and settings of a codec.

    Attributes:
        format: ``raw`` leaves bytes alone; ``json`` reads JSON; ``connect-json`` is Connect's JsonConverter; the
            others are Kafka's converters of one plain value.
        schema: of ``json``, the columns of a struct, such as ``"carrier STRING, delay DOUBLE"``. Without it values
            are schemaless.
        schemas_enable: of ``connect-json``, whether each value is ``{"schema": …, "payload": …}``.
        value_schema: of ``connect-json``, the schema that every value has, in JsonConverter's JSON; without it each
            has the schema that comes with it, or none.
        replace_null_with_default: of ``connect-json``, whether a null that has a default in the schema is read, and
            written, as that default.
        decimal_format: of ``connect-json``, whether decimals are written as ``BASE64`` or as ``NUMERIC`` (KIP-481).
        options: of a format of another package, all its settings.

    >>> from turnout.codecs import codec_of
    >>> codec_of(Format("json", schema="city STRING, total DOUBLE")).schema().fields[1].name
    'total'
    >>> codec_of(Format("json")).schema() is None
    True
    """

    format: str = "raw"
    schema: str | None = None
    schemas_enable: bool = True
    value_schema: Mapping[str, Any] | None = None
    replace_null_with_default: bool = True
    decimal_format: str = DECIMAL_FORMATS[0]
    options: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def from_config(cls, config: Mapping[str, Any] | None, *, path: str = "value") -> Self:
        """Read a route's mapping: ``format``, ``schema``, and the settings of JsonConverter as it spells them.

        Args:
            config: what the route says.
            path: where it says so: ``key`` or ``value``.

        Raises:
            ConfigError: when it cannot be read; lists every mistake.
        """
        settings = dict(config or {})
        format_ = settings.pop("format", "raw")
        if not isinstance(format_, str):
            known = ", ".join((*FORMATS, *plugins()))
            problem = f"expected one of {known}, found {format_!r}"
            raise ConfigError([Mistake(f"{path}.format", problem)], what=f"bad {path.rpartition('.')[2]} format")
        if format_ in plugins():
            return cls(format_, options=settings)
        mistakes: list[Mistake] = []
        if format_ not in FORMATS:
            mistakes.append(Mistake(f"{path}.format", _unknown(format_)))
        schema = settings.pop("schema", None)
        flags: dict[str, bool] = {}
        for name, camel in _FLAGS.items():
            flag = settings.pop(name, settings.pop(camel, True))
            flags[name] = str(flag).lower() == "true"
            if str(flag).lower() not in ("true", "false"):
                mistakes.append(Mistake(f"{path}.{name}", f"expected true or false, found {flag!r}"))
        decimals = str(settings.pop(DECIMAL_FORMAT, settings.pop("decimalFormat", DECIMAL_FORMATS[0]))).upper()
        if decimals not in DECIMAL_FORMATS:
            expected = " or ".join(DECIMAL_FORMATS)
            mistakes.append(Mistake(f"{path}.{DECIMAL_FORMAT}", f"expected {expected}, found {decimals!r}"))
        mistakes += [Mistake(f"{path}.schema", problem) for problem in _schema_problems(format_, schema)]
        mistakes += [Mistake(f"{path}.{name}", _unknown_setting(str(name))) for name in settings]
        if mistakes:
            raise ConfigError(mistakes, what=f"bad {path.rpartition('.')[2]} format")
        connect = format_ == "connect-json"
        return cls(
            format_,
            None if connect else schema,
            flags["schemas.enable"],
            schema if connect else None,
            flags["replace.null.with.default"],
            decimals,
        )


def _unknown(name: Any) -> str:
    known = (*FORMATS, *plugins())
    return f"expected one of {', '.join(known)}, found {name!r}{did_you_mean(str(name), known)}"


def _unknown_setting(name: str) -> str:
    guess = did_you_mean(name, ("format", *SETTINGS))
    return f"is not a setting of a format{guess} (known here: format, {', '.join(SETTINGS)})"


def _schema_problems(format_: str, schema: Any) -> list[str]:
    """Return the problems of a schema given for a format."""
    if schema is None or format_ not in FORMATS:
        return []
    if format_ not in ("json", "connect-json"):
        return [f"means nothing where the format is {format_}"]
    connect = format_ == "connect-json"
    if not isinstance(schema, Mapping if connect else str):
        return [f"expected {'a Connect schema' if connect else 'a DDL string'}, found {schema!r}"]
    try:
        if isinstance(schema, str):
            parse_ddl(schema)
        else:
            Reader.wire(Schema.from_json(schema), defaults=True)
    except DdlError as error:
        return [f"{error}, in {schema!r}"]
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        return [str(error)]
    return []
