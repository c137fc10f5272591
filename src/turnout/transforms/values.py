"""How the bytes of a value are read and written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self, get_args

from turnout.errors import ConfigError, Mistake
from turnout.transforms.schema import Schema

__all__ = ["FORMATS", "ValueFormat"]

_Format = Literal["raw", "json", "connect-json"]
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
    """

    format: str = "raw"
    schema: str | None = None
    schemas_enable: bool = True
    value_schema: Mapping[str, Any] | None = None

    @classmethod
    def from_config(cls, config: Mapping[str, Any] | None, *, path: str = "value") -> Self:
        """Read a route's ``value`` mapping: ``format``, ``schema``, ``schemas.enable``.

        Raises:
            ConfigError: when it cannot be read; lists every mistake.
        """
        given = dict(config or {})
        mistakes: list[Mistake] = []
        format_ = given.pop("format", "raw")
        if format_ not in FORMATS:
            mistakes.append(Mistake(f"{path}.format", f"expected one of {', '.join(FORMATS)}, found {format_!r}"))
        schema = given.pop("schema", None)
        enable = given.pop("schemas.enable", given.pop("schemasEnable", True))
        if str(enable).lower() not in ("true", "false"):
            mistakes.append(Mistake(f"{path}.schemas.enable", f"expected true or false, found {enable!r}"))
        wanted = Mapping if format_ == "connect-json" else str
        if schema is not None and not isinstance(schema, wanted):
            what = "a Connect schema" if wanted is Mapping else "a DDL string"
            mistakes.append(Mistake(f"{path}.schema", f"expected {what}, found {schema!r}"))
        if schema is not None and format_ == "raw":
            mistakes.append(Mistake(f"{path}.schema", "means nothing where the format is raw"))
        mistakes += [Mistake(f"{path}.{name}", "is not a setting of a value's format") for name in given]
        if isinstance(schema, Mapping) and not mistakes:
            try:
                Schema.from_json(schema)
            except ValueError as error:
                mistakes.append(Mistake(f"{path}.schema", str(error)))
        if mistakes:
            raise ConfigError(mistakes, what="bad value format")
        connect = format_ == "connect-json"
        return cls(
            format_,
            None if connect else schema,
            str(enable).lower() == "true",
            schema if connect else None,
        )
