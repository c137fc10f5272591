"""How the bytes of a value are read and written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self, get_args

from turnout.errors import ConfigError, Mistake
from turnout.transforms.schema import DECIMAL, DIGITS, Schema

__all__ = ["FORMATS", "ValueFormat"]

_Format = Literal["raw", "json", "connect-json"]
_FLAGS = {"schemas.enable": "schemasEnable", "replace.null.with.default": "replaceNullWithDefault"}
"""Settings that are true or false, as JsonConverter and as a route file spells them; all are true if not given."""

FORMATS: tuple[str, ...] = get_args(_Format)


@dataclass(frozen=True, slots=True)
class ValueFormat:
    """A value codec.

    Attributes:
        format: ``raw`` leaves bytes alone; ``json`` reads JSON; ``connect-json`` is Connect's JsonConverter.
        schema: of ``json``, a DDL string such as ``"carrier string, delay double"``: values become a struct. Without
            it they become a variant.
        schemas_enable: of ``connect-json``, whether each value is ``{"schema": …, "payload": …}``.
        value_schema: of ``connect-json`` with schemas, the schema that every value is expected to have, in
            JsonConverter's JSON; without it values are read as a variant.
        replace_null_with_default: of ``connect-json``, whether a null that has a default in the schema is read, and
            written, as that default.
    """

    format: str = "raw"
    schema: str | None = None
    schemas_enable: bool = True
    value_schema: Mapping[str, Any] | None = None
    replace_null_with_default: bool = True

    @classmethod
    def from_config(cls, config: Mapping[str, Any] | None, *, path: str = "value") -> Self:
        """Read a route's ``value`` mapping: ``format``, ``schema``, ``schemas.enable``, ``replace.null.with.default``.

        Raises:
            ConfigError: when it cannot be read; lists every mistake.
        """
        given = dict(config or {})
        mistakes: list[Mistake] = []
        format_ = given.pop("format", "raw")
        if format_ not in FORMATS:
            mistakes.append(Mistake(f"{path}.format", f"expected one of {', '.join(FORMATS)}, found {format_!r}"))
        schema = given.pop("schema", None)
        flags: dict[str, bool] = {}
        for name, camel in _FLAGS.items():
            flag = given.pop(name, given.pop(camel, True))
            flags[name] = str(flag).lower() == "true"
            if str(flag).lower() not in ("true", "false"):
                mistakes.append(Mistake(f"{path}.{name}", f"expected true or false, found {flag!r}"))
        wanted = Mapping if format_ == "connect-json" else str
        if schema is not None and not isinstance(schema, wanted):
            what = "a Connect schema" if wanted is Mapping else "a DDL string"
            mistakes.append(Mistake(f"{path}.schema", f"expected {what}, found {schema!r}"))
        if schema is not None and format_ == "raw":
            mistakes.append(Mistake(f"{path}.schema", "means nothing where the format is raw"))
        mistakes += [Mistake(f"{path}.{name}", "is not a setting of a value's format") for name in given]
        if isinstance(schema, Mapping) and not mistakes:
            mistakes += [Mistake(f"{path}.schema", problem) for problem in _problems(schema)]
        if mistakes:
            raise ConfigError(mistakes, what="bad value format")
        connect = format_ == "connect-json"
        return cls(
            format_,
            None if connect else schema,
            flags["schemas.enable"],
            schema if connect else None,
            flags["replace.null.with.default"],
        )


def _problems(schema: Mapping[str, Any]) -> list[str]:
    """What is wrong with a Connect schema, or beyond Spark's types."""
    try:
        return list(dict.fromkeys(_beyond(Schema.from_json(schema))))
    except ValueError as error:
        return [str(error)]


def _beyond(schema: Schema) -> Iterator[str]:
    """What no column can hold."""
    if schema.logical == DECIMAL and not 0 <= schema.scale <= DIGITS:
        yield f"a decimal's scale can be 0 to {DIGITS} here, found {schema.scale}"
    if schema.type == "map" and schema.keys and schema.keys.type != "string":
        yield f"a map's keys can only be strings here, found {schema.keys.type}"
    for inner in (*(field.schema for field in schema.fields), schema.values):
        if inner is not None:
            yield from _beyond(inner)
