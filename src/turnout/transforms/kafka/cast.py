"""Cast's conversions, with Java's rules: integers wrap, floats saturate, text is strict."""

from __future__ import annotations

import math
import re
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from functools import cache
from typing import ClassVar, Self

from turnout.base.clocks import MILLISECONDS_PER_DAY
from turnout.errors import RecordError
from turnout.records import Batch, Block, Field, Float32, Int8, Int16, Int32, Moment, Schema, Shape
from turnout.records.schema import DATE, LOGICAL, TIME, TIMESTAMP, class_of
from turnout.records.text import java_decimal, java_double, java_float
from turnout.records.types import Convert, DynamicValue, NewColumns, Value
from turnout.transforms.base import REPLACE_NULL, Errors, NamedField, Side, Step, Transform, unchanged
from turnout.transforms.fields import (
    FIELD_SYNTAX,
    SCHEMA_BUILDER,
    FieldPath,
    Memo,
    Nesting,
    Tree,
    convert,
    copied,
    default_value,
    nested_fields,
    nested_step,
    parse_fields,
    read,
    require_object,
    store,
)
from turnout.transforms.java.calendar import wrapped
from turnout.transforms.java.times import time_printer
from turnout.transforms.java.values import double, low_bits, parsed_integer, single, trim
from turnout.transforms.options import LIST, Option, Options

_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
_CASTABLE = frozenset((*_BITS, "float32", "float64", "boolean", "string", "bytes"))
_CLASS_CAST = "java.lang.ClassCastException"

_NARROW: Mapping[str, Convert] = {"int8": Int8, "int16": Int16, "int32": Int32, "float32": Float32}
"""Classes that define the width of a schemaless value."""

_Cast = Convert


def caster(schema: Schema | None, target: str) -> Memo:
    """Return a function that makes a value of *schema* (None: schemaless) one of the primitive type *target*.

    It raises `RecordError` for what cannot be cast. A schemaless result carries its width.
    """
    if schema is None or schema.type == "variant":
        return _schemaless(target)
    if schema.type not in _CASTABLE:
        return Memo(_refuse(f"Cast does not support casting from a {schema.type}"))
    casts = _casts(target, is_single=schema.type == "float32")
    if target == "string" or schema.name not in _CARRIERS:
        return Memo(lambda value: _cast(casts, value, target), casts)
    carrier = _CARRIERS[schema.name]
    return Memo(lambda value: _cast(casts, carrier(value), target))


def keeps(schema: Schema, target: str) -> bool:
    """Return True if every value of the schema equals its own cast."""
    if schema.name in _CARRIERS or schema.logical is not None:
        return False
    if schema.type in _BITS and target in _BITS:
        return _BITS[schema.type] <= _BITS[target]
    return schema.type == target or (schema.type, target) == ("float32", "float64")


def _refuse(problem: str) -> _Cast:
    def cast(_value: Value) -> Value:
        raise RecordError(problem)

    return cast


def _cast(casts: Mapping[type, _Cast], value: Value, target: str) -> DynamicValue:
    cast = casts.get(type(value)) or casts.get(class_of(type(value)))
    if cast is None:
        raise RecordError(f"Unexpected type in Cast transformation: {type(value).__name__} to {target}")
    return cast(value)


def _schemaless(target: str) -> Memo:
    """Connect has no type for schemaless decimals, big integers and date objects, and casts none of them."""
    casts = dict(_casts(target, is_single=False))
    for kind in (Decimal, Moment):
        del casts[kind]
    casts |= dict.fromkeys((Int8, Int16, Int32), casts[int])
    casts[Float32] = _casts(target, is_single=True)[float]
    narrow = _NARROW.get(target)
    if narrow is None:
        return Memo(lambda value: _cast(casts, value, target), casts)
    return Memo(lambda value: narrow(_cast(casts, value, target)))


@cache
def _casts(target: str, *, is_single: bool) -> Mapping[type, _Cast]:
    """Return the cast to *target* for each Python type; *is_single* means that floats are single precision."""
    if target == "string":
        return {
            int: str,
            bool: lambda value: "true" if value else "false",
            float: java_float if is_single else java_double,
            Float32: java_float,
            str: str,
            bytes: _base64,
            bytearray: _base64,
            memoryview: _base64,
            Decimal: java_decimal,
            Moment: _text_of_moment,
        }
    if target == "boolean":
        # Numbers are cut to 64 bits first.
        return _numeric(lambda number: _whole_number(number, 64) != 0, _is_true, bool)
    if target == "float64":
        return _numeric(double, lambda text: _real_of_text(text, rounded=double), float)
    if target == "float32":
        return _numeric(single, lambda text: _real_of_text(text, rounded=single), float)
    bits = _BITS[target]
    casts = _numeric(lambda number: wrapped(_whole_number(number, bits), bits), lambda text: _integer(text, bits), int)
    return casts if bits < 32 else {**casts, float: _cut(bits)}


def _numeric(of_number: _Cast, of_text: _Cast, of_boolean: _Cast) -> Mapping[type, _Cast]:
    numbers = dict.fromkeys((int, float, Float32, Decimal), of_number)
    return {**numbers, str: of_text, bool: of_boolean, Moment: _refuse("Unexpected type in Cast transformation: date")}


def _base64(value: bytes) -> str:
    return b64encode(value).decode("ascii")


def _is_true(text: str) -> bool:
    return text.lower() == "true"


# --- numbers ----------------------------------------------------------------------------------------------------------


def _whole_number(number: DynamicValue, bits: int) -> int:
    """Return a number without its fraction: integers as they are, decimals cut, floats saturated at 64 or 32 bits."""
    if isinstance(number, float):
        if number != number:
            return 0
        half = 1 << (63 if bits == 64 else 31)
        if math.isinf(number):
            return half - 1 if number > 0 else -half
        return max(-half, min(half - 1, int(number)))
    return low_bits(number, 64) if isinstance(number, Decimal) else int(number)


def _cut(bits: int) -> _Cast:
    """Return a cast that drops the fraction of floats, for targets at which they saturate."""
    half = float(1 << bits - 1)
    return lambda number: int(number) if -half <= number < half else _whole_number(number, bits)


def _integer(text: str, bits: int) -> int:
    """``Long.parseLong`` and its like: digits with a sign, nothing else."""
    number = parsed_integer(text, digits=20)
    if number is None or not -(1 << bits - 1) <= number < 1 << bits - 1:
        raise RecordError(f"Value ({text}) was out of range for requested data type")
    return number


_DECIMAL = re.compile(r"[+-]?(?:\d++(?:\.\d*+)?|\.\d++)(?:[eE][+-]?\d++)?[fFdD]?", re.ASCII)
_HEX = re.compile(r"([+-]?0[xX](?:[0-9a-fA-F]++(?:\.[0-9a-fA-F]*+)?|\.[0-9a-fA-F]++)[pP][+-]?\d++)[fFdD]?", re.ASCII)
_WORDS = {
    sign + word: factor * number
    for sign, factor in (("", 1.0), ("+", 1.0), ("-", -1.0))
    for word, number in (("NaN", math.nan), ("Infinity", math.inf))
}


def _real_of_text(text: str, *, rounded: Callable[..., float]) -> float:
    """``Double.parseDouble``, or ``Float.parseFloat``: *rounded* rounds an exact number."""
    bare = trim(text)
    if bare in _WORDS:
        return _WORDS[bare]
    if _DECIMAL.fullmatch(bare):
        return rounded(bare.rstrip("fFdD"))
    match = _HEX.fullmatch(bare)
    if match is None:
        raise RecordError(f"Value ({text}) was out of range for requested data type")
    return rounded(_of_hex(match.group(1)))


def _of_hex(text: str) -> float | Fraction:
    """Return a hexadecimal number; as a fraction where that is not too large, so that it is rounded once."""
    digits, _, power = text.lower().partition("p")
    sign = -1 if digits.startswith("-") else 1
    whole, _, fraction = digits.lstrip("+-")[2:].partition(".")
    if not (whole + fraction).strip("0"):
        return math.copysign(0.0, sign)
    if len(power) > 6 or abs(exponent := int(power) - 4 * len(fraction)) > 20_000:
        return sign * (0.0 if power.startswith("-") else math.inf)
    return sign * int(whole + fraction, 16) * Fraction(2) ** exponent


# --- date objects -----------------------------------------------------------------------------------------------------


def _moment(value: Value) -> Moment:
    if not isinstance(value, Moment):
        raise RecordError(f"class {type(value).__name__} cannot be cast to class java.util.Date", _CLASS_CAST)
    return value


def _days(value: Value) -> int:
    days, rest = divmod(_moment(value), MILLISECONDS_PER_DAY)
    if rest:
        raise RecordError("Kafka Connect Date type should not have any time fields set to non-zero values.")
    return wrapped(days, 32)


def _of_day(value: Value) -> int:
    millis = int(_moment(value))
    if not 0 <= millis <= MILLISECONDS_PER_DAY:
        raise RecordError("Kafka Connect Time type should not have any date fields set to non-zero values.")
    return millis


_CARRIERS: Mapping[str | None, _Cast] = {DATE: _days, TIME: _of_day, TIMESTAMP: lambda value: int(_moment(value))}
"""The number that carries a logical type, by the schema's name."""

_TIME = time_printer("HH:mm:ss.SSS'Z'")
_DATE = time_printer("yyyy-MM-dd")
_BOTH = time_printer("yyyy-MM-dd'T'HH:mm:ss.SSS'Z'")


def _text_of_moment(value: Moment) -> str:
    """Connect picks the pattern by the number: below a day a time, whole days a date, else both."""
    millis = int(value)
    if millis < MILLISECONDS_PER_DAY:
        return _TIME(millis)
    return _BOTH(millis) if millis % MILLISECONDS_PER_DAY else _DATE(millis)


_PURPOSE = "cast types"
TARGETS = ("int8", "int16", "int32", "int64", "float32", "float64", "boolean", "string")


def _parts(entry: str) -> list[str]:
    """Return the entry cut at its colons; empty parts at the end do not count, so ``x:`` is a lone ``x``."""
    parts = entry.split(":")
    while len(parts) > 1 and not parts[-1]:
        parts.pop()
    return [trim(part) for part in parts]


def _type(text: str) -> str:
    """Return the type that a text names in any case: Java compares in upper case."""
    return text.upper().lower()


def _check(entries: Sequence[str] | None) -> str | None:
    if not entries:
        return "expected at least one field:type or one type"
    for entry in entries:
        parts = _parts(entry)
        if len(parts) > 2:
            return f"expected field:type, found the entry {entry!r}"
        if _type(parts[-1]) not in TARGETS:
            return f"expected a type of {', '.join(TARGETS)} in the entry {entry!r}"
        if len(parts) == 1 and len(entries) > 1:
            return f"expected the type of the whole value, {parts[0]!r}, to be the only entry"
    return None


@dataclass(frozen=True, slots=True)
class Cast(Transform):
    """See ``summary``.

    Attributes:
        whole: the type of the whole key or value, if it is cast as a whole.
        fields: the steps to each named field, and its type.
    """

    summary: ClassVar[str] = "Casts fields, or the whole key or value, to a primitive type."
    kafka: ClassVar[bool] = True
    keeps_topic: ClassVar[bool] = True
    keeps_paths: ClassVar[bool] = True
    options: ClassVar[tuple[Option, ...]] = (
        Option(
            "spec",
            LIST,
            "Entries field:type, or one type for the whole; a field is a path where the syntax version is V2.",
            check=_check,
            valid=f"types: {', '.join(TARGETS)}, in any case",
            last_counts=True,
        ),
        FIELD_SYNTAX,
        REPLACE_NULL,
    )

    whole: str | None = None
    fields: tuple[tuple[FieldPath, str], ...] = ()
    replace_null_with_default: bool = True

    @classmethod
    def from_options(cls, options: Options, side: Side) -> Self:
        """Read the spec; where a field is named twice the last type wins."""
        parts = [_parts(entry) for entry in options["spec"]]
        nulls = options["replace.null.with.default"]
        if len(parts[0]) == 1:
            return cls(side=side, whole=_type(parts[0][0]), replace_null_with_default=nulls)
        paths = parse_fields("spec", [name for name, _ in parts], options["field.syntax.version"])
        fields = {path: _type(type_) for path, (_, type_) in zip(paths, parts, strict=True)}
        return cls(side=side, fields=tuple(fields.items()), replace_null_with_default=nulls)

    def named_fields(self) -> Iterator[NamedField]:
        """See `Transform.named_fields`."""
        return nested_fields("spec", self.side, (path for path, _ in self.fields))

    def plan(self, shape: Shape) -> Step:
        """Cast the value as a whole, or its named fields; null stays null."""
        if shape.kind == "null":
            return Step(unchanged)
        if self.whole is not None:
            return _whole(shape, self.whole)
        require_object(shape, _PURPOSE)
        tree = Tree(self.fields)
        if tree.children:
            return nested_step(tree, self._flat, Nesting(_PURPOSE, self.replace_null_with_default))
        if shape.schema is None:
            return _fields_of_map(tree.items)
        return self._fields_of_struct(shape.schema, dict(tree.items))

    def _flat(self, tree: Tree[str]) -> Cast | None:
        return replace(self, fields=tuple(((name,), type_) for name, type_ in tree.items)) if tree.items else None

    def _fields_of_struct(self, schema: Schema, targets: dict[str, str]) -> Step:
        if schema.default is not None:
            raise RecordError("a struct with a default cannot be cast: its default has the old types", SCHEMA_BUILDER)
        fields = tuple(
            Field(field.name, _cast_schema(field.schema, targets[field.name])) if field.name in targets else field
            for field in schema.fields
        )
        changed = schema.basics(fields).with_(optional=schema.optional)
        casts = [
            (old, new, caster(old.schema, targets[old.name]), keeps(old.schema, targets[old.name]))
            for old, new in zip(schema.fields, fields, strict=True)
            if old.name in targets
        ]
        defaults = self.replace_null_with_default

        def run(block: Block, _where: Sequence[bool] | None, _batch: Batch, errors: Errors) -> Block:
            columns = copied(block, errors, defaults=defaults, without=targets)
            for old, new, cast, same in casts:
                column = read(block, old, defaults=defaults)
                if not (same and block.checked):
                    column = convert(column, cast, errors)
                store(new, column, errors)
                columns[new.name] = column
            return block.with_columns(changed, {field.name: columns[field.name] for field in fields})

        return Step(run)


def _cast_schema(schema: Schema, target: str) -> Schema:
    """Return the schema of a field after the cast: nothing is kept but whether it is optional, and its default."""
    default = None if schema.default is None else caster(schema, target)(default_value(schema))
    return Schema(target, schema.optional, default)


def _fields_of_map(targets: Sequence[tuple[str, str]]) -> Step:
    casts = [(name, caster(None, target)) for name, target in targets]

    def run(block: Block, _where: Sequence[bool] | None, _batch: Batch, errors: Errors) -> Block:
        columns: NewColumns = dict(block.columns)
        for name, cast in casts:
            # A field that is absent is added as null.
            columns[name] = convert(columns[name], cast, errors) if name in columns else [None] * len(block)
        return block.with_columns(None, columns)

    return Step(run)


def _whole(shape: Shape, target: str) -> Step:
    """The cast of plain values; their schema keeps all but its type, its logical name included, as in Connect."""
    schema = shape.schema
    cast = caster(schema, target)
    if shape.kind == "object":
        cast({})
    changed = None
    if schema is not None:
        default = None if schema.default is None else cast(default_value(schema))
        if default is not None and schema.name in LOGICAL:
            raise RecordError("Invalid default value", SCHEMA_BUILDER)
        changed = Schema(
            target, schema.optional, default,
            name=schema.name, version=schema.version, doc=schema.doc, parameters=schema.parameters,
        )  # fmt: skip
    is_checked = schema is None or schema.name not in LOGICAL

    def run(block: Block, _where: Sequence[bool] | None, _batch: Batch, errors: Errors) -> Block:
        return block.with_values(changed, convert(block.values, cast, errors), checked=is_checked)

    return Step(run)
