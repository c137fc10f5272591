"""Codec of Avro's binary encoding, with the readers and writers of each pair of schemas."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from decimal import Context, Decimal
from functools import cached_property, lru_cache, partial
from typing import ClassVar, Final, TypeAlias

import numpy as np

from turnout.base.caches import LruCache
from turnout.base.clocks import MILLISECONDS_PER_DAY
from turnout.base.varint import zigzag_varint
from turnout.codecs.avro.connect_schema import (
    avro_schema_of,
    branch_name,
    connect_schema_of,
    is_map_entry,
    nullable_of,
    schema_text,
)
from turnout.codecs.avro.kind import AVRO_CONVERTER
from turnout.codecs.avro.reading import MalformedError, RecordReader, form_of, read_value, reader_of
from turnout.codecs.avro.types import AvroType, parse_schema
from turnout.codecs.codec import Decoded, attempt, with_tombstones
from turnout.codecs.conversion import Fitting, converted
from turnout.codecs.json_writing import Written
from turnout.codecs.schema_registry import Indexes, Position, RegisteringCodec, SchemaText
from turnout.errors import RecordError
from turnout.loops import times
from turnout.records import BigInt, Block, Float32, Int8, Int16, Int32, Moment, Positions, Schema, group
from turnout.records.spans import (
    MAX_LISTED_VALUES,
    ColumnPieces,
    EncodedColumn,
    NumberColumn,
    PatchedColumn,
    Slices,
    is_repeated,
    sliced,
)
from turnout.records.types import Column, DynamicValue, NewColumn, Offsets

WriteColumn: TypeAlias = Callable[[Column], Sequence[bytes]]
"""Writes each value of a column; raises a `RecordError` where one does not fit."""

_INTEGERS: Final = frozenset({int, Int8, Int16, Int32, BigInt, Moment})
_FLOATS: Final = frozenset({float, Float32, int})
_EXACT: Final = Context(prec=2000)


def column_writer(type_: AvroType) -> WriteColumn:
    """Return the writer of a column of this type, with values as its Connect schema has them."""
    nullable = nullable_of(type_)
    if nullable is not None:
        return _nullable(*nullable)
    if type_.kind == "union":
        return _union(type_)
    if type_.kind == "record":
        return _records(type_)
    if type_.kind == "array":
        return _map_entries(type_) if is_map_entry(type_) else _array(column_writer(type_.inner[0]))
    if type_.kind == "map":
        return _map(_strings, column_writer(type_.inner[0]))
    if type_.kind == "enum":
        return _enum(type_)
    if type_.logical == "decimal":
        return _decimal(type_)
    if type_.logical == "date":
        return lambda values: _ints(list(map(_day, values)))
    if type_.kind == "fixed":
        return _fixed(type_.size)
    return _PRIMITIVES[type_.kind]


def _misfit(expected: str, value: object) -> RecordError:
    found = repr(value)
    return RecordError(f"expected {expected}, found {found if len(found) <= 60 else found[:57] + '...'}")


def _check(values: Column, types: frozenset[type], expected: str) -> None:
    if not types.issuperset(map(type, values)):
        raise _misfit(expected, next(value for value in values if type(value) not in types))


_SMALL: Final = {number: zigzag_varint(number) for number in range(-1024, 8192)}


@lru_cache(maxsize=4)
def _small_behind(prefix: bytes) -> dict[int, bytes]:
    return {number: prefix + written for number, written in _SMALL.items()}


def _longs(values: Column, bits: int = 64, prefix: bytes = b"") -> list[bytes]:
    _check(values, _INTEGERS, f"an integer of {bits} bits")
    small = _small_behind(prefix) if prefix else _SMALL
    try:
        return list(map(small.__getitem__, values))
    except KeyError:
        pass
    different = set(values)
    if 2 * len(different) < len(values):
        numbers = list(different)
        return list(map(dict(zip(numbers, _varints(numbers, bits, prefix), strict=True)).__getitem__, values))
    return _varints(values, bits, prefix)


def _varints(values: Column, bits: int, prefix: bytes) -> list[bytes]:
    bound = 1 << (bits - 1)
    if min(values) < -bound or max(values) >= bound:
        raise _misfit(f"an integer of {bits} bits", next(value for value in values if not -bound <= value < bound))
    if len(values) <= MAX_LISTED_VALUES:
        return [prefix + zigzag_varint(value) for value in values]
    raw, bounds = _number_slices(np.array(values, np.int64), prefix)
    return sliced(raw, *bounds)


def _ints(values: Column, prefix: bytes = b"") -> list[bytes]:
    return _longs(values, 32, prefix)


def _int64s(values: Column, prefix: bytes = b"") -> list[bytes]:
    return _longs(values, 64, prefix)


def _day(value: DynamicValue) -> int:
    if type(value) not in _INTEGERS:
        raise _misfit("a date", value)
    day, rest = divmod(int(value), MILLISECONDS_PER_DAY)
    if rest:
        raise RecordError(f"a Date has no time of day, found {int(value)} milliseconds since 1970")
    return day


def _booleans(values: Column) -> list[bytes]:
    _check(values, frozenset({bool}), "true or false")
    return [b"\1" if value else b"\0" for value in values]


def _numbers(code: str, size: int) -> WriteColumn:
    def write(values: Column) -> list[bytes]:
        _check(values, _FLOATS, "a number")
        try:
            raw = struct.pack(f"<{len(values)}{code}", *values)
        except (OverflowError, struct.error):
            return [_packed(code, value) for value in values]
        return [raw[at : at + size] for at in range(0, len(raw), size)]

    return write


def _packed(code: str, value: float) -> bytes:
    try:
        return struct.pack(f"<{code}", value)
    except (OverflowError, struct.error):
        raise _misfit(f"a number of {8 * struct.calcsize(code)} bits", value) from None


def _strings(values: Column, prefix: bytes = b"") -> list[bytes]:
    _check(values, frozenset({str}), "a string")
    different = set(values)
    if 2 * len(different) < len(values):
        texts = list(different)
        return list(map(dict(zip(texts, _encoded(texts, prefix), strict=True)).__getitem__, values))
    return _encoded(values, prefix)


def _encoded(values: Column, prefix: bytes) -> list[bytes]:
    try:
        return _sized([value.encode() for value in values], prefix)
    except UnicodeEncodeError as failure:
        raise _misfit("text without lone surrogates", failure.object) from None


def _bytes(values: Column) -> list[bytes]:
    _check(values, frozenset({bytes}), "bytes")
    return _sized(values)


def _sized(contents: Column, prefix: bytes = b"") -> list[bytes]:
    head = (_small_behind(prefix) if prefix else _SMALL).get
    return [(head(len(content)) or prefix + zigzag_varint(len(content))) + content for content in contents]


def _fixed(size: int) -> WriteColumn:
    def write(values: Column) -> list[bytes]:
        _check(values, frozenset({bytes}), f"{size} bytes")
        for value in values:
            if len(value) != size:
                raise RecordError(f"expected {size} bytes, found {len(value)}")
        return list(values)

    return write


def _decimal(type_: AvroType) -> WriteColumn:
    scale, size = type_.scale, type_.size

    def unscaled(value: DynamicValue) -> bytes:
        if not isinstance(value, Decimal) or value.as_tuple().exponent != -scale:
            raise _misfit(f"a decimal of the scale {scale}", value)
        number = int(value.scaleb(scale, _EXACT))
        shortest = (number + (number < 0)).bit_length() // 8 + 1
        if type_.kind != "fixed":
            return number.to_bytes(shortest, "big", signed=True)
        if shortest > size:
            raise _misfit(f"a decimal of {size} bytes", value)
        return number.to_bytes(size, "big", signed=True)

    if type_.kind == "fixed":
        return lambda values: list(map(unscaled, values))
    return lambda values: _sized(list(map(unscaled, values)))


def _enum(type_: AvroType) -> WriteColumn:
    numbers = {symbol: zigzag_varint(index) for index, symbol in enumerate(type_.symbols)}

    def write(values: Column) -> list[bytes]:
        try:
            return [numbers[value] for value in values]
        except (LookupError, TypeError):
            wrong = next(value for value in values if type(value) is not str or value not in numbers)
            raise _misfit(f"a symbol of the enum {type_.name}", wrong) from None

    return write


def _nulls(values: Column) -> list[bytes]:
    _check(values, frozenset({type(None)}), "null")
    return [b""] * len(values)


def _nullable(type_: AvroType, null: int) -> WriteColumn:
    absent, present = zigzag_varint(null), zigzag_varint(1 - null)
    write = _prefixed(present, type_)

    def column(values: Column) -> Sequence[bytes]:
        if None not in values:
            return write(values)
        members = [value for value in values if value is not None]
        written = iter(write(members)) if members else iter(())
        return [absent if value is None else next(written) for value in values]

    return column


def _prefixed(prefix: bytes, type_: AvroType) -> WriteColumn:
    """Return the writer of a column with a prefix before each value."""
    write = column_writer(type_)
    if write in _PREFIXED:
        return partial(write, prefix=prefix)
    return lambda values: [prefix + written for written in write(values)]


def _records(type_: AvroType) -> WriteColumn:
    write = fields_writer(type_)
    names = [field.name for field in type_.fields]

    def column(values: Column) -> Sequence[bytes]:
        _check(values, frozenset({dict}), "a struct")
        return write([[value.get(name) for value in values] for name in names], len(values), b"")

    return column


def fields_writer(type_: AvroType) -> Callable[[list[Column], int, bytes], Sequence[bytes]]:
    """Return a writer of records that are held by column, in the order of their fields, with bytes before each."""
    writers = [
        (field.name, form_of(field.type), column_writer(field.type), _prefix_of_longs(field.type))
        for field in type_.fields
    ]

    def write(columns: list[Column], count: int, head: bytes) -> Sequence[bytes]:
        pieces = ColumnPieces(count)
        if head:
            pieces.add_repeated(head)
        for (name, form, writer, prefix), column in zip(writers, columns if count else (), strict=count > 0):
            patched = column if isinstance(column, PatchedColumn) else None
            base = column if patched is None else patched.base
            try:
                if isinstance(base, EncodedColumn) and base.form == form:
                    pieces.add_slices(base.slices, None if patched is None else patched.written(writer))
                elif isinstance(column, NumberColumn) and prefix is not None:
                    pieces.add_slices(_number_slices(column.numbers, prefix))
                elif count > MAX_LISTED_VALUES and is_repeated(column):
                    pieces.add_repeated(*writer(column[:1]))
                else:
                    pieces.add(writer(column))
            except RecordError as error:
                raise RecordError(f"{name}: {error}") from error
        return pieces.joined()

    return write


def _prefix_of_longs(type_: AvroType) -> bytes | None:
    """Return the bytes before each number of a type of 64 bits; None for other types."""
    inner, null = nullable_of(type_) or (type_, -1)
    if inner.kind != "long" or inner.logical == "date":
        return None
    return b"" if null < 0 else zigzag_varint(1 - null)


def _number_slices(numbers: Offsets, prefix: bytes) -> Slices:
    out = np.empty(len(numbers) * (len(prefix) + times.MAX_VARINT), np.uint8)
    offsets = np.empty(len(numbers) + 1, np.int64)
    times.write_varints(numbers, np.frombuffer(prefix, np.uint8), out, offsets)
    return out[: offsets[-1]].tobytes(), (offsets[:-1], offsets[1:])


def _union(type_: AvroType) -> WriteColumn:
    branches = [
        (branch_name(branch), zigzag_varint(index), column_writer(branch))
        for index, branch in enumerate(type_.inner)
        if branch.kind != "null"
    ]
    null = next((zigzag_varint(index) for index, branch in enumerate(type_.inner) if branch.kind == "null"), None)

    def one(value: DynamicValue) -> bytes:
        if value is None and null is not None:
            return null
        if len(branches) == 1:
            return branches[0][1] + branches[0][2]([value])[0]
        if type(value) is dict:
            chosen = [branch for branch in branches if value.get(branch[0]) is not None]
            if len(chosen) == 1:
                name, number, write = chosen[0]
                return number + write([value[name]])[0]
        raise _misfit("a struct with one field of the union that is not null", value)

    return lambda values: list(map(one, values))


def _array(write: WriteColumn) -> WriteColumn:
    def column(values: Column) -> list[bytes]:
        _check(values, frozenset({list, tuple}), "an array")
        items = iter(write([item for value in values for item in value]) if any(values) else ())
        return [_block(len(value), b"".join([next(items) for _ in value])) for value in values]

    return column


def _block(count: int, content: bytes) -> bytes:
    return zigzag_varint(count) + content + b"\0" if count else b"\0"


def _map(keys: WriteColumn, write: WriteColumn) -> WriteColumn:
    def column(values: Column) -> list[bytes]:
        _check(values, frozenset({dict}), "a map")
        if not any(values):
            return [b"\0"] * len(values)
        names = keys([name for value in values for name in value])
        items = write([item for value in values for item in value.values()])
        entries = map(bytes.__add__, names, items)
        return [_block(len(value), b"".join([next(entries) for _ in value])) for value in values]

    return column


def _map_entries(type_: AvroType) -> WriteColumn:
    key, value = type_.inner[0].fields
    return _map(column_writer(key.type), column_writer(value.type))


_PRIMITIVES: Final[dict[str, WriteColumn]] = {
    "null": _nulls,
    "boolean": _booleans,
    "int": _ints,
    "long": _int64s,
    "float": _numbers("f", 4),
    "double": _numbers("d", 8),
    "bytes": _bytes,
    "string": _strings,
}

_PREFIXED: Final = frozenset({_ints, _int64s, _strings})
"""Writers that can write a prefix before each value."""


class Plan:
    """Reader and writer of the values of one schema.

    Args:
        type_: type of the values.
        head: bytes before each value.

    Attributes:
        schema: schema of the values in Connect.
    """

    def __init__(self, type_: AvroType, head: bytes = b"") -> None:
        self.type = type_
        self.head = head
        self.schema = connect_schema_of(type_)
        self._read = reader_of(type_)

    def decode(self, rows: Positions, texts: Sequence[bytes]) -> Decoded:
        """Return the values behind the heads of these texts, see `turnout.codecs.Codec.decode`."""
        if len(texts) == 1 or self.type.kind != "record" or not self.type.fields:
            return self._one_by_one(rows, texts)
        columns, is_failed = self._records.read(texts, len(self.head))
        failed = np.flatnonzero(is_failed)
        if not len(failed):
            return [Block(rows, self.schema, columns=columns)], {}
        good = np.setdiff1d(np.arange(len(rows)), failed, assume_unique=True)
        blocks, errors = self._one_by_one(rows[failed], [texts[index] for index in failed.tolist()])
        if len(good):
            blocks.append(Block(rows, self.schema, columns=columns).take(good))
        return blocks, errors

    def _one_by_one(self, rows: Positions, texts: Sequence[bytes]) -> Decoded:
        values: NewColumn = []
        indices: list[int] = []
        errors: dict[int, RecordError] = {}
        start = len(self.head)
        for index, text in enumerate(texts):
            try:
                values.append(read_value(self._read, text, start))
                indices.append(index)
            except MalformedError as malformed:
                errors[int(rows[index])] = RecordError(f"the value is not of its Avro schema: {malformed}")
        return group(rows[np.array(indices, np.intp)], self.schema, values) if values else [], errors

    @cached_property
    def _records(self) -> RecordReader:
        return RecordReader(self.type)

    def encode(self, block: Block) -> Sequence[bytes]:
        """Return the bytes of the values of a block.

        Raises:
            RecordError: one of them does not fit the schema.
        """
        if block.kind == "object" and self.type.kind == "record":
            columns = block.columns
            nulls = [None] * len(block)
            return self._write_fields(
                [columns.get(field.name, nulls) for field in self.type.fields], len(block), self.head
            )
        return [self.head + text for text in self._write(block.whole())]

    @cached_property
    def _write_fields(self) -> Callable[[list[Column], int, bytes], Sequence[bytes]]:
        return fields_writer(self.type)

    @cached_property
    def _write(self) -> WriteColumn:
        return column_writer(self.type)


_SCHEMAS: Final = 256


class AvroFile:
    """Values of the schema of a file, without a header."""

    format: ClassVar[str] = "avro"
    class_name: ClassVar[str] = AVRO_CONVERTER

    def __init__(self, text: str, *, drops_unknown: bool = False) -> None:
        """Create a codec of the schema in *text*.

        Args:
            text: the schema.
            drops_unknown: whether fields that it does not have are left out of values of other formats.

        Raises:
            ValueError: it is no schema, or Connect has no equivalent.
        """
        self._plan = Plan(parse_schema(text))
        self._target = _PlannedValues(self._plan, drops_unknown=drops_unknown)
        self._equal = LruCache[int, Schema](_SCHEMAS)

    def decode(self, rows: Positions, texts: Sequence[bytes | None]) -> Decoded:
        """See `turnout.codecs.Codec.decode`."""
        return with_tombstones(rows, texts, self._plan.decode)

    def encode(self, block: Block) -> Sequence[bytes | None]:
        """See `turnout.codecs.Codec.encode`."""
        schema = block.schema
        if schema is None:
            if block.kind == "null":
                return [None] * len(block)
            raise RecordError("the value has no schema, and Avro needs one")
        if schema is not self._plan.schema and self._equal.get(id(schema)) is not schema:
            if schema != self._plan.schema:
                raise RecordError(
                    "the schema of the value was changed, and readers would not know it: they have the schema of the "
                    "file; write Avro with a registry, or another format"
                )
            self._equal.add(id(schema), schema)
        return attempt(*_written(self._plan, block))

    def converted(self, block: Block) -> Written:
        """See `turnout.codecs.conversion.OfOneSchema`."""
        return converted(block, self._target)

    def schema(self) -> Schema | None:
        """Return the schema of the file, in Connect."""
        return self._plan.schema


class _PlannedValues:
    """Values of a plan, see `turnout.codecs.schema_registry.codec.SchemaPlan`."""

    def __init__(self, plan: Plan, *, drops_unknown: bool) -> None:
        self._plan = plan
        self._drops_unknown = drops_unknown
        self.schemas = (plan.schema,)

    def decode(self, rows: Positions, texts: Sequence[bytes], codec: object) -> Decoded:
        del codec
        return self._plan.decode(rows, texts)

    def encode(self, block: Block) -> Written:
        return _written(self._plan, block)

    def fitted(self, rows: Positions, texts: Sequence[bytes]) -> Decoded:
        return self._fitting.read(rows, texts)

    @cached_property
    def _fitting(self) -> Fitting:
        return Fitting(self._plan.schema, drops_unknown=self._drops_unknown)


class AvroRegistry(RegisteringCodec):
    """Values in Confluent's wire format, with schemas of a registry."""

    format: ClassVar[str] = "avro"
    class_name: ClassVar[str] = AVRO_CONVERTER
    language: ClassVar[str] = "AVRO"

    def _plan_of(self, text: SchemaText, indexes: Indexes, position: Position) -> _PlannedValues:
        del indexes
        plan = Plan(parse_schema(text.text, text.references), position.prefix)
        return _PlannedValues(plan, drops_unknown=self._writing.drops_unknown)

    def _text_of(self, schema: Schema) -> SchemaText:
        return SchemaText("AVRO", schema_text(avro_schema_of(schema)))

    def _name_of(self, text: SchemaText) -> str | None:
        return parse_schema(text.text, text.references).name


def _written(plan: Plan, block: Block) -> Written:
    """Encode a block; where a value does not fit, value by value."""
    if block.kind == "null" and plan.type.kind != "union":
        return [None] * len(block), {}
    try:
        return plan.encode(block), {}
    except RecordError as error:
        if len(block) == 1:
            return [None], {0: error}
    errors: dict[int, RecordError] = {}
    texts: list[bytes | None] = []
    for index in range(len(block)):
        try:
            texts += plan.encode(block.take(np.array([index], np.intp)))
        except RecordError as error:
            errors[index] = error
            texts.append(None)
    return texts, errors
