"""HeaderToField: headers as fields of a type."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from ctypes import c_float
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar, Final, Self

from turnout.errors import RecordError
from turnout.records import Batch, Block, Field, Float32, Int8, Int16, Int32, Schema, Shape
from turnout.records.types import DynamicValue, NewColumns
from turnout.transforms.base import HEADERS, Errors, Move, Side, Step, Transform, unchanged
from turnout.transforms.fields import SCHEMA_BUILDER, convert, copied, require_object
from turnout.transforms.options import LIST, Option, OptionError, Options, non_empty_list

_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,19}")


def _integer(bits: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        number = int(text) if _NUMBER.fullmatch(text) else 1 << bits
        if not -(1 << bits - 1) <= number < 1 << bits - 1:
            raise ValueError(text)
        return number

    return read


def _boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError(text)
    return text.lower() == "true"


_READERS: Final[Mapping[str, Callable[[str], DynamicValue]]] = MappingProxyType(
    {
        "STRING": str,
        "BYTES": lambda text: text.encode("utf-8", "surrogatepass"),
        "BOOLEAN": _boolean,
        "INT8": _integer(8),
        "INT16": _integer(16),
        "INT32": _integer(32),
        "INT64": _integer(64),
        "FLOAT32": float,
        "FLOAT64": float,
    }
)
_OWN: Final[Mapping[str, Callable[[DynamicValue], DynamicValue]]] = MappingProxyType(
    {"INT8": Int8, "INT16": Int16, "INT32": Int32, "FLOAT32": Float32}
)
"""Classes of schemaless values of a width."""


@dataclass(frozen=True, slots=True)
class Mapped:
    """Header that becomes a field."""

    header: str
    type: str
    field: str


@dataclass(frozen=True, slots=True)
class HeaderToField(Transform):
    """See ``summary``. Jeremy Custenborder's transform, which takes structs alone."""

    summary: ClassVar[str] = "Adds a field for each listed header, of the type that is named; null where there is none."
    java_names: ClassVar[tuple[str, ...]] = ("com.github.jcustenborder.kafka.connect.transform.common.HeaderToField",)
    keeps_topic: ClassVar[bool] = True
    options: ClassVar[tuple[Option, ...]] = (
        Option(
            "header.mappings",
            LIST,
            "`header:TYPE`, or `header:TYPE:field` where the field has another name.",
            check=non_empty_list,
            valid=", ".join(_READERS),
        ),
    )

    mappings: tuple[Mapped, ...] = ()

    @classmethod
    def from_options(cls, options: Options, side: Side) -> Self:
        """Read the mappings."""
        return cls(side, tuple(map(_mapped, options["header.mappings"])))

    def named_headers(self) -> Iterator[tuple[str, str]]:
        """See `Transform.named_headers`."""
        return (("header.mappings", one.header) for one in self.mappings)

    def moves(self) -> tuple[Move, ...]:
        """See `Transform.moves`."""
        return tuple(Move((HEADERS, one.header), (self.root, one.field), copy=True) for one in self.mappings)

    def plan(self, shape: Shape) -> Step:
        """Add the fields behind the others; null stays null."""
        if shape.kind == "null":
            return Step(unchanged)
        require_object(shape, "header to field")
        schema = shape.schema
        if schema is not None:
            names = [*(field.name for field in schema.fields), *(one.field for one in self.mappings)]
            twice = next((name for name in names if names.count(name) > 1), None)
            if twice is not None:
                problem = f'Cannot create field because of field name duplication "{twice}"'
                raise RecordError(problem, SCHEMA_BUILDER)
            added = tuple(Field(one.field, Schema(one.type.lower(), optional=True)) for one in self.mappings)
            schema = schema.basics((*schema.fields, *added))

        def run(block: Block, _where: Sequence[bool] | None, batch: Batch, errors: Errors) -> Block:
            columns: NewColumns = dict(block.columns if schema is None else copied(block, errors))
            for one in self.mappings:
                texts = batch.of_block(batch.headers.last(one.header), block)
                columns[one.field] = convert(texts, _reader(one, typed=schema is not None), errors)
            return block.with_columns(schema, columns)

        return Step(run)


def _mapped(text: str) -> Mapped:
    """Return the mapping of an element.

    Raises:
        OptionError: it is not in that form, or the type is not one of these.
    """
    header, _, rest = text.partition(":")
    kind, _, field = rest.partition(":")
    kind = kind.strip().upper()
    if not header.strip() or kind not in _READERS or ":" in field:
        problem = f"expected header:TYPE or header:TYPE:field with one of {', '.join(_READERS)}, found {text!r}"
        raise OptionError("header.mappings", problem)
    return Mapped(header.strip(), kind, field or header.strip())


def _reader(mapped: Mapped, *, typed: bool) -> Callable[[str], DynamicValue]:
    read = _READERS[mapped.type]
    own = _OWN.get(mapped.type)

    def value(text: str) -> DynamicValue:
        try:
            found = read(text.strip() if mapped.type not in ("STRING", "BYTES") else text)
        except ValueError:
            raise RecordError(f"the header {mapped.header!r} is no {mapped.type}: {text[:60]!r}") from None
        if mapped.type == "FLOAT32":
            found = c_float(found).value
        return found if typed or own is None else own(found)

    return value
