"""Transforms of headers: InsertHeader, with what its literal is in Connect, DropHeaders and HeaderFrom."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import compress
from typing import ClassVar, Self

from turnout.base.clocks import MILLISECONDS_PER_DAY
from turnout.base.startup import np
from turnout.base.terminal import plural
from turnout.errors import RecordError
from turnout.records import Batch, Block, Field, Positions, Schema, Shape
from turnout.records.schema import DATE, DECIMAL, TIME, TIMESTAMP, Float32, Int8, Int16, Int32, Moment
from turnout.records.types import Column, DynamicValue, Entries, Value
from turnout.transforms.base import HEADERS, REPLACE_NULL, Errors, Move, NamedField, Side, Step, Transform, mistake
from turnout.transforms.fields import (
    FIELD_SYNTAX,
    NULL_POINTER,
    FieldPath,
    copied,
    fields_on,
    fits,
    nested_fields,
    parse_field,
    parse_fields,
    read_map,
    read_struct,
    require_object,
    schema_at,
)
from turnout.transforms.java.times import time_parser
from turnout.transforms.java.values import double, low_bits, parsed_decimal, scale_of, single, trim
from turnout.transforms.kafka.replace_field import ReplaceField
from turnout.transforms.options import LIST, STRING, Option, Options, names, non_empty_list, non_null, one_of

_WIDENING = ("int8", "int16", "int32", "int64", "float32", "float64")
_KINDS: Mapping[str, tuple[int, Callable[[int], int]]] = {
    "int8": (8, Int8), "int16": (16, Int16), "int32": (32, Int32), "int64": (64, int),
}  # fmt: skip


class ElementMisfit(Exception):  # noqa: N818 - a signal to the reader of literals, never seen outside
    """Raised when an element cannot be brought under the common schema: the literal is a string then."""


def merged(schemas: Sequence[Schema | None]) -> Schema | None:
    """Return the common schema of all elements after widening; None if they have none. Nulls are ignored."""
    common: Schema | None = None
    for schema in schemas:
        if schema is None:
            continue
        if common is None or schema.type == common.type:
            # Of one type the later one counts, whatever else is different.
            common = schema
        elif schema.type in _WIDENING and common.type in _WIDENING:
            common = max(common, schema, key=lambda candidate: _WIDENING.index(candidate.type))
        else:
            return None
    return common


def aligned(schema: Schema, value: Value) -> Value:
    """Return the element converted to the common schema; its class carries its width.

    Raises:
        ElementMisfit: it cannot be.
    """
    if value is None:
        raise ElementMisfit
    if schema.name in (DATE, TIME, TIMESTAMP):
        if isinstance(value, Moment):
            return value
        whole = _integer(value, 64)
        if schema.name == TIME and not 0 <= whole <= MILLISECONDS_PER_DAY:
            raise ElementMisfit
        return Moment(whole * MILLISECONDS_PER_DAY if schema.name == DATE else whole)
    if schema.type in _KINDS:
        bits, kind = _KINDS[schema.type]
        return kind(_integer(value, bits))
    if schema.type == "float32":
        return Float32(single(double(_plain_number(value))))
    if schema.type == "float64":
        return double(_plain_number(value))
    return value


def _plain_number(value: Value) -> int | float | Decimal:
    if isinstance(value, Moment) or not isinstance(value, int | float | Decimal) or isinstance(value, bool):
        raise ElementMisfit
    return value


def _integer(value: Value, bits: int) -> int:
    number = _plain_number(value)
    return low_bits(Decimal(number), bits)


def plain(schema: Schema | None, value: DynamicValue) -> DynamicValue:
    """Return the value as a batch holds it: plain Python if its width is that of the schema."""
    if schema is None or value is None:
        return value
    if isinstance(value, list):
        return [plain(schema.values, item) for item in value]
    if isinstance(value, dict):
        return {plain(schema.keys, key): plain(schema.values, item) for key, item in value.items()}
    if schema.type in _KINDS and type(value) is _KINDS[schema.type][1]:
        return int(value)
    if schema.type == "float32" and type(value) is Float32:
        return float(value)
    return value


@dataclass(frozen=True, slots=True)
class Literal:
    """Value with its schema; null has no schema.

    Elements of an array or a map without a common schema carry their own width (`turnout.records.schema`).
    """

    schema: Schema | None
    value: Value


_STRING = Schema("string")
_BOOLEAN = Schema("boolean")
_NULL = Literal(None, None)
_TOKEN = re.compile(r'(?:\\.|[^:,{}\[\]"\\]|\\\Z)+|[:,{}\[\]"]', re.DOTALL)
_DELIMITERS = frozenset(':,{}[]"')
_TEMPORAL = {
    len(text): (schema, time_parser(pattern))
    for text, pattern, schema in (
        ("2013-01-01", "yyyy-MM-dd", Schema("int32", name=DATE, version=1)),
        ("12:30:00.123Z", "HH:mm:ss.SSS'Z'", Schema("int32", name=TIME, version=1)),
        ("2013-01-01T12:30:00.123Z", "yyyy-MM-dd'T'HH:mm:ss.SSS'Z'", Schema("int64", name=TIMESTAMP, version=1)),
    )
}
_LONGEST_TEMPORAL = max(_TEMPORAL)
_MAX_DEPTH = 100
"""Arrays and maps inside each other beyond it are text: reading them takes Python's stack."""
_INTEGERS = ((8, Int8), (16, Int16), (32, Int32), (64, int))


class _NotALiteral(Exception):  # noqa: N818 - a signal inside this module, never seen outside
    """Raised inside a bracket when the text is no array or map after all."""


def parse_literal(text: str) -> Literal:
    """Return the value of *text*, with the narrowest schema that holds it.

    After a number or a closing bracket the rest of the text is ignored, as Connect does. Not as in Connect, these
    stay text: a map whose keys are arrays or maps themselves, or are equal in Python and not in Java
    (``{true: 0, 1: 0}``), and more than a hundred arrays and maps inside each other.

    Args:
        text: trimmed, as the text of an option is.
    """
    if not text:
        return Literal(_STRING, "")
    if text == "null":
        return _NULL
    if text in ("true", "false"):
        return Literal(_BOOLEAN, text == "true")
    tokens = _TOKEN.findall(text)
    try:
        if tokens[0] in ("[", "{"):
            literal = _LiteralReader(tokens).container()
        else:
            literal = _scalar(tokens, 0)[0] or Literal(_STRING, text)
    except (_NotALiteral, ElementMisfit, IndexError):
        return Literal(_STRING, text)
    return Literal(literal.schema, plain(literal.schema, literal.value))


def _scalar(tokens: Sequence[str], at: int) -> tuple[Literal | None, int]:
    """Return the time or number that begins at a token, None if none does, and its number of tokens."""
    token = trim(tokens[at])
    if token[:1].isdecimal():
        # An unescaped colon ends a token, so that a time of day is five of them.
        several = token + "".join(tokens[at + 1 : at + 5]) if len(tokens) >= at + 5 else ""
        literal = _temporal(several)
        if literal is not None:
            return literal, 5
        literal = _temporal(token)
        if literal is not None:
            return literal, 1
    return (_number(token) if token[:1].isdecimal() or token[:1] in ("+", "-") else None), 1


def _temporal(text: str) -> Literal | None:
    """Return a date, a time or a timestamp, if the text has the length of one and can be read as one."""
    text = text.replace("\\:", ":")
    # Java counts a character beyond U+FFFF as two.
    length = len(text) + sum(char > "\uffff" for char in text) if len(text) <= _LONGEST_TEMPORAL else 0
    if length not in _TEMPORAL:
        return None
    schema, parse = _TEMPORAL[length]
    millis = parse(text)
    return None if millis is None else Literal(schema, Moment(millis))


def _number(text: str) -> Literal | None:
    """Return the number, in the narrowest type: int8 … int64, float32, float64, decimal."""
    number = parsed_decimal(text)
    if number is None:
        return None
    if not number or (number.adjusted() < 20 and number == number.to_integral_value()):
        for bits, kind in _INTEGERS:
            if -(1 << bits - 1) <= number < 1 << bits - 1:
                return Literal(Schema(f"int{bits}"), kind(number))
    scale = scale_of(number)
    if scale != 0:
        if math.isfinite(narrow := single(number)):
            return Literal(Schema("float32"), Float32(narrow))
        if math.isfinite(wide := double(number)):
            return Literal(Schema("float64"), wide)
    return Literal(Schema("bytes", name=DECIMAL, version=1, parameters=(("scale", str(scale)),)), number)


class _LiteralReader:
    """Reads arrays and maps off a list of tokens."""

    def __init__(self, tokens: Sequence[str]) -> None:
        self.tokens = tokens
        self.at = 0
        self.depth = 0

    def container(self) -> Literal:
        self.depth += 1
        if self.depth > _MAX_DEPTH:
            raise _NotALiteral
        self.at += 1
        literal = self._array() if trim(self.tokens[self.at - 1]) == "[" else self._map()
        self.depth -= 1
        return literal

    def _next(self) -> str:
        """Return the next token that is more than white space, without the blanks around it, and without taking it."""
        while not trim(self.tokens[self.at]):
            self.at += 1
        return trim(self.tokens[self.at])

    def _array(self) -> Literal:
        items: list[Literal] = []
        while self._next() != "]":
            items.append(self._item())
            if self._next() == ",":
                self.at += 1
            elif self._next() != "]":
                raise _NotALiteral
        self.at += 1
        common = merged([item.schema for item in items])
        values = [item.value for item in items]
        if common is not None:
            values = [aligned(common, value) for value in values]
        return Literal(Schema("array", values=common), values)

    def _map(self) -> Literal:
        keys: list[Schema | None] = []
        items: list[Schema | None] = []
        entries: dict[tuple[type, str], tuple[Value, Value]] = {}
        while self._next() != "}":
            key = self._item()
            if key.value is None or isinstance(key.value, list | dict) or self._next() != ":":
                raise _NotALiteral
            self.at += 1
            item = self._item()
            keys.append(key.schema)
            items.append(item.schema)
            entries[_identity(key.value)] = key.value, item.value
            if self._next() == ",":
                self.at += 1
        self.at += 1
        of_keys = merged(keys)
        of_values = merged(items) if of_keys is not None else None
        return Literal(
            Schema("map", keys=of_keys, values=of_values), _aligned_map(of_keys, of_values, entries.values())
        )

    def _item(self) -> Literal:
        word = self._next()
        if word in ("[", "{"):
            return self.container()
        if word == '"':
            return self._string()
        if word in _DELIMITERS:
            raise _NotALiteral
        if word in ("null", "true", "false"):
            self.at += 1
            return _NULL if word == "null" else Literal(_BOOLEAN, word == "true")
        literal, count = _scalar(self.tokens, self.at)
        if literal is None:
            raise _NotALiteral
        self.at += count
        return literal

    def _string(self) -> Literal:
        self.at += 1
        text: list[str] = []
        # White space between two delimiters inside the quotes is skipped, as between elements.
        while self._next() != '"':
            text.append(self.tokens[self.at])
            self.at += 1
        self.at += 1
        joined = "".join(text)
        return _temporal(joined) or Literal(_STRING, joined)


def _identity(key: Hashable) -> tuple[type, str]:
    """Return the type and the text of a map's key: equal where Java's ``equals`` holds, unlike True and 1 in Python."""
    return type(key), str(key)


def _aligned_map(of_keys: Schema | None, of_values: Schema | None, entries: Iterable[tuple[Value, Value]]) -> Entries:
    """Return the entries of a map under their common schemas."""
    values: Entries = {}
    names: dict[Hashable, tuple[type, str]] = {}
    for key, item in entries:
        name = key if of_keys is None else aligned(of_keys, key)
        if names.setdefault(name, _identity(name)) != _identity(name):
            raise _NotALiteral
        values[name] = item if of_values is None else aligned(of_values, item)
    return values


@dataclass(frozen=True, slots=True)
class InsertHeader(Transform):
    """See ``summary``.

    Attributes:
        literal: the value with the schema that its text gave it.
    """

    summary: ClassVar[str] = "Appends one header with a fixed value, whose type follows from its text."
    kafka: ClassVar[bool] = True
    keeps_topic: ClassVar[bool] = True
    sided: ClassVar[bool] = False
    ignores_values: ClassVar[bool] = True
    keeps_paths: ClassVar[bool] = True
    options: ClassVar[tuple[Option, ...]] = (
        Option("header", STRING, "The header's name; may be empty.", check=non_null),
        Option(
            "value.literal", STRING, "The value's text: a number, a date, JSON, or words.", check=non_null, block=True
        ),
    )

    header: str = ""
    literal: Literal | None = None

    @classmethod
    def from_options(cls, options: Options, side: Side) -> Self:
        """Parse the literal, once for all records."""
        return cls(side, options["header"], parse_literal(options["value.literal"]))

    def set_headers(self) -> tuple[str, ...]:
        """See `Transform.set_headers`."""
        return (self.header,)

    def apply(self, batch: Batch, rows: Positions) -> Errors:
        """Append one header to each record, with the same value for all."""
        assert self.literal is not None
        batch.headers.append(rows, self.header, self.literal.schema, [self.literal.value] * len(rows))
        return {}


@dataclass(frozen=True, slots=True)
class DropHeaders(Transform):
    """See ``summary``."""

    summary: ClassVar[str] = "Removes every header whose name is listed; the others keep their order."
    kafka: ClassVar[bool] = True
    keeps_topic: ClassVar[bool] = True
    sided: ClassVar[bool] = False
    ignores_values: ClassVar[bool] = True
    keeps_paths: ClassVar[bool] = True
    options: ClassVar[tuple[Option, ...]] = (
        Option("headers", LIST, "The names, exact and case-sensitive.", check=names, distinct=True, valid="not empty"),
    )

    headers: tuple[str, ...] = ()

    def named_headers(self) -> Iterator[tuple[str, str]]:
        """See `Transform.named_headers`."""
        return (("headers", name) for name in self.headers)

    def apply(self, batch: Batch, rows: Positions) -> Errors:
        """Drop them."""
        batch.headers.drop(self.headers, rows)
        return {}


@dataclass(frozen=True, slots=True)
class HeaderFrom(Transform):
    """See ``summary``.

    Attributes:
        fields: the steps to each field.
    """

    summary: ClassVar[str] = "Appends a header for each listed field; move also removes the fields."
    kafka: ClassVar[bool] = True
    keeps_topic: ClassVar[bool] = True
    options: ClassVar[tuple[Option, ...]] = (
        Option(
            "fields",
            LIST,
            "The fields, paths where the syntax version is V2.",
            check=non_empty_list,
            valid="not empty",
        ),
        Option("headers", LIST, "The header for each of them.", check=non_empty_list, valid="as many as fields"),
        Option("operation", STRING, "What happens to the fields.", check=one_of("move", "copy"), valid="move, copy"),
        FIELD_SYNTAX,
        REPLACE_NULL,
    )

    fields: tuple[FieldPath, ...] = ()
    headers: tuple[str, ...] = ()
    operation: str = "copy"
    replace_null_with_default: bool = True

    @classmethod
    def from_options(cls, options: Options, side: Side) -> Self:
        """Check that the options name one header for each field."""
        if len(options["fields"]) != len(options["headers"]):
            counts = f"{plural(len(options['headers']), 'header')} for {plural(len(options['fields']), 'field')}"
            raise mistake("headers", f"expected one header for each field, found {counts}")
        texts, version = options["fields"], options["field.syntax.version"]
        paths = tuple(parse_field("fields", text, version) for text in texts)
        if options["operation"] == "move":
            paths = parse_fields("fields", texts, version)
        return cls(side, paths, options["headers"], options["operation"], options["replace.null.with.default"])

    def named_fields(self) -> Iterator[NamedField]:
        """See `Transform.named_fields`."""
        return nested_fields("fields", self.side, self.fields)

    def moves(self) -> tuple[Move, ...]:
        """See `Transform.moves`."""
        copy = self.operation == "copy"
        pairs = zip(self.fields, self.headers, strict=True)
        return tuple(Move((self.root, *field), (HEADERS, header), copy) for field, header in pairs)

    def plan(self, shape: Shape) -> Step:
        """Append the headers; to move the fields takes them out as well. A null key or value fails."""
        require_object(shape, self._purpose)
        sources = self._sources(shape.schema)
        move = self.operation == "move"
        removal = self._removal(shape)

        def run(block: Block, where: Sequence[bool] | None, batch: Batch, errors: Errors) -> Block | list[Block]:
            rows = block.rows if where is None else block.rows[np.array(where)]
            for header, path, fields in sources:
                wrong: Errors = {}
                column = self._column(block, path, fields, wrong)
                errors.update((index, error) for index, error in wrong.items() if where is None or where[index])
                if where is not None:
                    column = list(compress(column, where))
                batch.headers.append(rows, header, None if fields is None else schema_at(fields), column)
            return removal.run(block, None, batch, errors) if move else block

        return Step(run, in_place=not move)

    @property
    def _purpose(self) -> str:
        return f"header {self.operation}"

    def _removal(self, shape: Shape) -> Step:
        """Return the step that takes the fields out."""
        if any(len(path) > 1 for path in self.fields):
            exclude = ReplaceField(
                self.side, exclude=self.fields, replace_null_with_default=self.replace_null_with_default
            )
            return exclude.plan(shape)
        names = {name for (name,) in self.fields}
        schema = shape.schema
        changed = None
        if schema is not None:
            changed = schema.basics(tuple(field for field in schema.fields if field.name not in names))

        def run(block: Block, _where: object, _batch: Batch, errors: Errors) -> Block:
            if changed is not None:
                columns = copied(block, errors, defaults=self.replace_null_with_default, without=names)
                return block.with_columns(changed, columns)
            remaining = {name: column for name, column in block.columns.items() if name not in names}
            return block.with_columns(None, remaining)

        return Step(run)

    def _sources(self, schema: Schema | None) -> list[tuple[str, FieldPath, tuple[Field, ...] | None]]:
        """Return the header, the path and the fields on it of each entry; no fields without a schema."""
        sources: list[tuple[str, FieldPath, tuple[Field, ...] | None]] = []
        for path, header in zip(self.fields, self.headers, strict=True):
            fields = None if schema is None else fields_on(schema, path)
            if schema is not None and fields is None:
                raise RecordError(f"no field {'.'.join(path)!r}", NULL_POINTER)
            sources.append((header, path, fields))
        return sources

    def _column(self, block: Block, path: FieldPath, fields: tuple[Field, ...] | None, errors: Errors) -> Column:
        """Return the values of a header; values that it cannot have are entered in *errors*."""
        if fields is None:
            return read_map(block, path, self._purpose, errors) or [None] * len(block)
        column = read_struct(block, fields, defaults=self.replace_null_with_default)
        schema = schema_at(fields)
        if block.checked and (schema.optional or None not in column):
            return column
        for index, value in enumerate(column):
            if value is None and not schema.optional:
                errors.setdefault(index, RecordError(f"A null value requires an optional schema but was {schema.type}"))
            elif value is not None and not block.checked and not fits(schema, value):
                problem = f"The value is not of the type {schema.type}: {type(value).__name__}"
                errors.setdefault(index, RecordError(problem))
        return column
