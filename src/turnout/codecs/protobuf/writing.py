"""Columns to messages: each field as a column of pieces, which are joined record by record."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final, TypeAlias

from google.protobuf.descriptor import FieldDescriptor

from turnout.codecs.protobuf.connect_schema import Item, Member, Message, Union
from turnout.codecs.protobuf.logical_types import TIMESTAMP, WRITERS, timestamp_writer
from turnout.codecs.protobuf.passing import Form, form_of, passed_bytes
from turnout.codecs.protobuf.reading import unknown_prefix
from turnout.codecs.protobuf.scalars import (
    LENGTH,
    WIRE_TYPES,
    Pieces,
    WriteColumn,
    by_distinct,
    delimited,
    enum_writer,
    scalar_writer,
    tag,
)
from turnout.errors import RecordError
from turnout.records import Block, Schema, Struct
from turnout.records.spans import ColumnPieces
from turnout.records.types import Column, Columns, DynamicValue, Entries, NewColumn, Value

_UNWRITABLE: Final = (ValueError, TypeError, AttributeError, LookupError, OverflowError, ArithmeticError)

_Write: TypeAlias = Callable[[Columns], Pieces]

_START_GROUP: Final = 3
_END_GROUP: Final = 4


class MessageWriter:
    """Writes values as one message.

    Attributes:
        plan: plan of the message.
    """

    def __init__(self, plan: Message) -> None:
        self.plan = plan
        self._raw = None if plan.raw is None else _nullable(_single(plan.raw, _tag(1, plan.raw), omit_default=True))
        self._names = frozenset(member.name for member in plan.members)
        self._write = tuple(_fields(plan))

    def write(self, block: Block) -> tuple[list[bytes | None], dict[int, RecordError]]:
        """Return the bytes of a block's values, and the errors of the others by index.

        Raises:
            RecordError: no value of the block can be written.
        """
        if block.kind == "null":
            return [None] * len(block), {}
        if self._raw is not None:
            return self._values(block)
        if block.kind != "object":
            raise RecordError(
                f"expected the fields of a message {self.plan.descriptor.full_name}, found {block.kind} values"
            )
        columns = _with_defaults(block.columns, block.schema)
        self.check_names(columns)
        try:
            return [*self._joined(columns, len(block))], {}
        except RecordError:
            return self._one_by_one(columns, len(block))

    def check_names(self, names: Collection[object]) -> None:
        """Check that the message has all these fields.

        Raises:
            RecordError: it does not.
        """
        unknown = [str(name) for name in names if name not in self._names]
        if unknown:
            listed = ", ".join(sorted(self._names))
            raise RecordError(
                f"the message {self.plan.descriptor.full_name} has no field {', '.join(unknown)}; it has {listed}"
            )

    def _values(self, block: Block) -> tuple[list[bytes | None], dict[int, RecordError]]:
        write = self._raw
        if write is None or block.kind != "plain":
            raise RecordError(f"expected the value of a {self.plan.descriptor.full_name}, found a value with fields")
        texts: list[bytes | None] = []
        errors: dict[int, RecordError] = {}
        for at, value in enumerate(block.values):
            try:
                texts += write([value])
            except _UNWRITABLE as failure:
                texts.append(None)
                errors[at] = RecordError(str(failure))
        return texts, errors

    def bodies(self, values: Column) -> Pieces:
        """Return the bytes of messages, of dicts with their fields.

        Raises:
            RecordError: one of them cannot be written.
        """
        members = [value.fields if isinstance(value, Struct) else value for value in values]
        for member in members:
            if not isinstance(member, Mapping):
                raise RecordError(
                    f"expected the fields of a message {self.plan.descriptor.full_name}, found {member!r}"
                )
            if not self._names.issuperset(member):
                self.check_names(member)
        return self._joined({name: [member.get(name) for member in members] for name in self._names}, len(members))

    def _joined(self, columns: Columns, count: int) -> Pieces:
        if not self._write:
            return [b""] * count
        pieces = ColumnPieces()
        passed = passed_bytes(
            {member.name: (columns[member.name], form) for member, form, _ in self._write if member.name in columns}
        )
        for member, _, write in self._write:
            found = passed.get(member.name)
            if isinstance(found, tuple):
                pieces.add_slices(found)
            else:
                pieces.add(write(columns) if found is None else found)
        return pieces.joined()

    def _one_by_one(self, columns: Columns, count: int) -> tuple[list[bytes | None], dict[int, RecordError]]:
        texts: list[bytes | None] = []
        errors: dict[int, RecordError] = {}
        for at in range(count):
            try:
                texts += self._joined({name: [column[at]] for name, column in columns.items()}, 1)
            except RecordError as error:
                texts.append(None)
                errors[at] = error
        return texts, errors


def _with_defaults(columns: Columns, schema: Schema | None) -> Columns:
    """Return columns with the default in the place of a null that has one, as a transform may have given it."""
    defaults = (
        {} if schema is None else {f.name: f.schema.default for f in schema.fields if f.schema.default is not None}
    )
    if not defaults:
        return columns
    return {
        name: [defaults[name] if value is None else value for value in column] if name in defaults else column
        for name, column in columns.items()
    }


def _fields(plan: Message) -> Iterator[tuple[Member, Form | None, _Write]]:
    """Yield a writer for each field, in the order of their numbers, which is that of all serializers."""
    writers: list[tuple[Member, Form | None, _Write]] = []
    for member in plan.members:
        if isinstance(member, Union):
            writers += [(one, None, _of_union(member, one)) for one in member.members]
        else:
            writers.append((member, form_of(member), _of_member(member)))
    yield from sorted(writers, key=lambda writer: writer[0].number)


def _of_member(member: Member) -> _Write:
    write = _member(member)
    name = member.name

    def pieces(columns: Columns) -> Pieces:
        column = columns.get(name)
        if column is None:
            # Columns of a schema that does not have the field: as many as the others.
            column = [None] * len(next(iter(columns.values()), ()))
        return _named(name, write, column)

    return pieces


def _of_union(union: Union, member: Member) -> _Write:
    write = _member(member)
    others = tuple(one.name for one in union.members)
    name = member.name

    def chosen(value: DynamicValue) -> Value:
        """Return the member's value where it is the first that is set, as in ProtobufData."""
        if value is None:
            return None
        fields = value.fields if isinstance(value, Struct) else value
        if not isinstance(fields, Mapping) or not set(others).issuperset(fields):
            raise ValueError(f"expected one of the fields {', '.join(others)}, found {value!r}")
        first = next((other for other in others if fields.get(other) is not None), None)
        if first is None:
            raise ValueError(f"expected a value in one of the fields {', '.join(others)}, found none")
        return fields[name] if first == name else None

    def pieces(columns: Columns) -> Pieces:
        column = columns.get(union.name)
        if column is None:
            return [b""] * len(next(iter(columns.values()), ()))
        return _named(union.name, lambda values: write([chosen(value) for value in values]), column)

    return pieces


def _named(name: str, write: WriteColumn, column: Column) -> Pieces:
    """Write a column.

    Raises:
        RecordError: a value does not fit; it names the field.
    """
    try:
        return write(column)
    except RecordError as error:
        raise RecordError(f"{name}: {error}") from None
    except _UNWRITABLE as failure:
        raise RecordError(f"{name}: {failure}") from None


def _tag(number: int, item: Item) -> bytes:
    if item.kind == FieldDescriptor.TYPE_GROUP:
        return tag(number, _START_GROUP)
    return tag(number, WIRE_TYPES[item.kind])


def _member(member: Member) -> WriteColumn:
    """Return the writer of a field's column, nulls included."""
    if member.shape == "map":
        return _nullable(_map(member))
    if member.shape == "list":
        return _nullable(_list(member))
    omit = not member.has_presence
    write = _single(member.item, _tag(member.number, member.item), omit_default=omit, number=member.number)
    return _required(write) if member.required else _nullable(write)


def _required(write: WriteColumn) -> WriteColumn:
    def column(values: Column) -> Pieces:
        if None in values:
            raise ValueError("expected a value, which the message requires, found null")
        return write(values)

    return column


def _nullable(write: WriteColumn) -> WriteColumn:
    """Return the writer that leaves nulls out."""

    def column(values: Column) -> Pieces:
        if None not in values:
            return write(values)
        pieces = iter(write([value for value in values if value is not None]))
        return [b"" if value is None else next(pieces) for value in values]

    return column


def _single(item: Item, prefix: bytes, *, omit_default: bool, number: int = 1) -> WriteColumn:
    """Return the writer of single values that are no nulls, with the tag before each."""
    if item.enum is not None:
        return enum_writer(item.enum, unknown_prefix(item.enum), prefix, omit_default=omit_default)
    if item.logical == TIMESTAMP:
        return timestamp_writer(prefix)
    if item.logical is not None:
        body = WRITERS[item.logical]
        return by_distinct(lambda value: delimited(prefix, body(value)))
    if item.wrapped is not None:
        inner = _single(item.wrapped, _tag(1, item.wrapped), omit_default=True)
        return lambda values: [delimited(prefix, body) for body in inner(values)]
    if item.message is not None:
        bodies = MessageWriter(item.message).bodies
        if item.kind == FieldDescriptor.TYPE_GROUP:
            end = tag(number, _END_GROUP)
            return lambda values: [prefix + body + end for body in bodies(values)]
        return lambda values: [delimited(prefix, body) for body in bodies(values)]
    return scalar_writer(item.kind, prefix, omit_default=omit_default)


def _list(member: Member) -> WriteColumn:
    prefix = b"" if member.packed else _tag(member.number, member.item)
    write = _single(member.item, prefix, omit_default=False, number=member.number)
    packed = tag(member.number, LENGTH) if member.packed else None

    def column(values: Column) -> Pieces:
        flat = _flat(values)
        if None in flat:
            raise ValueError("expected values in the list, found null")
        pieces = iter(write(flat))
        bodies = [b"".join(islice(pieces, len(items))) for items in values]
        return bodies if packed is None else [delimited(packed, body) if body else b"" for body in bodies]

    return column


def _flat(lists: Column) -> NewColumn:
    for items in lists:
        if not isinstance(items, list | tuple):
            raise ValueError(f"expected a list, found {items!r}")  # noqa: TRY004 - reported like every other error here
    return [value for items in lists for value in items]


def _map(member: Member) -> WriteColumn:
    if member.key is None:
        raise ValueError(f"the map {member.name} has no keys")
    write_keys = _single(member.key, _tag(1, member.key), omit_default=False)
    write_values = _nullable(_single(member.item, _tag(2, member.item), omit_default=False))
    prefix = tag(member.number, LENGTH)

    def column(values: Sequence[Entries]) -> Pieces:
        for entries in values:
            if not isinstance(entries, Mapping):
                raise ValueError(f"expected a map, found {entries!r}")  # noqa: TRY004 - reported like every other error here
        keys = write_keys([key for entries in values for key in entries])
        items = write_values([item for entries in values for item in entries.values()])
        pieces = iter([delimited(prefix, key + item) for key, item in zip(keys, items, strict=True)])
        return [b"".join(islice(pieces, len(entries))) for entries in values]

    return column
