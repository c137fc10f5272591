"""Messages to columns: parsed by the ``protobuf`` library as Connect's values, or passed on as bytes.

To pass messages on, a loop finds the fields of many messages, and their values are decoded when they are used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
from google.protobuf.descriptor import EnumDescriptor, FieldDescriptor
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from turnout.codecs.codec import Decoded
from turnout.codecs.protobuf.connect_schema import Item, Member, Message, Union
from turnout.codecs.protobuf.scalars import FIXED32, FIXED64, LENGTH, READERS, TIMESTAMP, VARINT, WIRE_TYPES, tag
from turnout.errors import RecordError
from turnout.loops import protobuf as loops
from turnout.records import Block, Moment, Origin, Positions
from turnout.records.spans import Bounds, EncodedColumn, PatchedColumn, Slices, joined_bytes
from turnout.records.types import (
    Column,
    Columns,
    Convert,
    DynamicValue,
    Entries,
    Mask,
    NewColumn,
    NewColumns,
    Octets,
    RowIds,
)

_MIN_SHARE: Final = 0.1
"""Share of the content that columns with other numbers have at least for their content to be copied as a whole."""

_KINDS: Final = FieldDescriptor
_FLOATS: Final = {_KINDS.TYPE_FLOAT: "<f4", _KINDS.TYPE_DOUBLE: "<f8"}
_FIXED: Final = {
    _KINDS.TYPE_FIXED32: "<u4", _KINDS.TYPE_SFIXED32: "<i4", _KINDS.TYPE_FIXED64: "<u8", _KINDS.TYPE_SFIXED64: "<i8",
    **_FLOATS,
}  # fmt: skip
_SIZES: Final = {FIXED32: 4, FIXED64: 8}
_ZIGZAG: Final = frozenset({_KINDS.TYPE_SINT32, _KINDS.TYPE_SINT64})
_LOW: Final = {
    _KINDS.TYPE_INT32: "<i4", _KINDS.TYPE_ENUM: "<i4", _KINDS.TYPE_UINT32: "<u4", _KINDS.TYPE_INT64: "<i8",
    _KINDS.TYPE_UINT64: "<u8",
}  # fmt: skip
"""Kinds of varints → the part of the 64 bits that counts."""

_DEFAULTS: Final[dict[int, object]] = {
    **dict.fromkeys(_FLOATS, 0.0), _KINDS.TYPE_STRING: "", _KINDS.TYPE_BYTES: b"", _KINDS.TYPE_BOOL: False,
}  # fmt: skip


class Form(NamedTuple):
    """Form of a field's bytes; fields of equal forms have equal bytes for equal values.

    Attributes:
        enum: names and numbers of its values.
    """

    number: int
    kind: int
    nullable: bool
    type: str
    enum: tuple[tuple[str, int], ...]


def form_of(member: Member) -> Form | None:
    """Return the form of a field; None where its values cannot be passed."""
    item = member.item
    if member.shape != "one" or item.message or item.wrapped or item.schema.type in _NARROW:
        return None
    if item.logical not in (None, TIMESTAMP):
        return None
    if member.required or (member.has_presence and not member.nullable):
        return None
    enum = () if item.enum is None else tuple((value.name, value.number) for value in item.enum.values)
    return Form(member.number, item.kind, member.nullable, item.schema.type, enum)


class _PassedColumn(NamedTuple):
    """Encoded column that is written as a field.

    Attributes:
        source: form of its bytes.
        form: form of the field, which differs in its number only.
    """

    column: EncodedColumn
    source: Form
    form: Form

    @property
    def is_retagged(self) -> bool:
        """True if the bytes have another number than the field."""
        return self.source.number != self.form.number

    @property
    def surplus(self) -> int:
        """Number of bytes by which the tag becomes shorter."""
        wire = WIRE_TYPES[self.form.kind]
        return len(tag(self.source.number, wire)) - len(tag(self.form.number, wire))

    def slices(self) -> Slices:
        """Return the bytes as they are, without what a shorter tag leaves over."""
        begins, ends = self.column.bounds
        return self.column.content, (
            begins + np.where(ends > begins, self.surplus, 0) if self.surplus else begins,
            ends,
        )

    def retagged(self) -> Slices:
        """Return the bytes of each value under the field's number."""
        wire = WIRE_TYPES[self.form.kind]
        old, new, content = len(tag(self.source.number, wire)), tag(self.form.number, wire), self.column.content
        bounds = zip(*(edge.tolist() for edge in self.column.bounds), strict=True)
        copies = [new + content[begin + old : end] if begin < end else b"" for begin, end in bounds]
        joined, offsets = joined_bytes(copies)
        return joined, (offsets[:-1], offsets[1:])


def passed_bytes(columns: Mapping[str, tuple[Column, Form | None]]) -> dict[str, Slices]:
    """Return the bytes of columns as fields of the given forms; columns of which only values can be written are absent.

    Columns with equal numbers are slices of their content. Where columns of one content only have other numbers, the
    content is copied once with the new tags, so that adjacent fields are still copied as one slice.
    """
    found: dict[str, Slices] = {}
    by_content: dict[int, dict[str, _PassedColumn]] = {}
    for name, (column, form) in columns.items():
        column = column.base if type(column) is PatchedColumn else column
        if form is None or not isinstance(column, EncodedColumn) or not isinstance(column.form, Form):
            continue
        if column.form._replace(number=form.number) == form:
            by_content.setdefault(id(column.content), {})[name] = _PassedColumn(column, column.form, form)
    for passed in by_content.values():
        moved = _with_new_tags(passed)
        for name, one in passed.items():
            if name in moved:
                found[name] = moved[name]
            else:
                found[name] = one.retagged() if one.is_retagged else one.slices()
    return found


def _with_new_tags(columns: Mapping[str, _PassedColumn]) -> dict[str, Slices]:
    """Return columns in a copy of their content that has the new tags; empty where that costs more than it saves."""
    by_number: dict[int, str] = {}
    # A field that is written twice has one number in the copy, its own if it has both.
    for name, one in sorted(columns.items(), key=lambda item: item[1].is_retagged):
        if one.surplus >= 0:
            by_number.setdefault(one.source.number, name)
    retagged = [name for name in by_number.values() if columns[name].is_retagged]
    if not retagged:
        return {}
    content = columns[retagged[0]].column.content
    bounds = {name: columns[name].slices()[1] for name in by_number.values()}
    if sum(int((bounds[name][1] - bounds[name][0]).sum()) for name in retagged) < len(content) * _MIN_SHARE:
        return {}
    octets = np.frombuffer(content, np.uint8).copy()
    for name in retagged:
        (begins, ends), form = bounds[name], columns[name].form
        present = begins[ends > begins]
        for index, octet in enumerate(tag(form.number, WIRE_TYPES[form.kind])):
            octets[present + index] = octet
    copy = octets.tobytes()
    return {name: (copy, own) for name, own in bounds.items()}


@dataclass(frozen=True, slots=True)
class _Field:
    """Field of a message, with what reads it.

    Attributes:
        tag: before each value.
        kind: kind of the values, by the numbers of the loop.
    """

    member: Member
    form: Form
    tag: bytes
    kind: int
    convert: Convert | None


class Passer:
    """Finds the fields of messages.

    Args:
        fields: of the message, in the order of their numbers.
        names: of the fields, in the order of the Connect schema.
    """

    def __init__(self, fields: Sequence[_Field], names: Sequence[str]) -> None:
        self._fields = fields
        self._names = names
        self._tags = np.frombuffer(b"".join(field.tag for field in fields), np.uint8)
        self._edges = np.cumsum([0, *(len(field.tag) for field in fields)])
        self._kinds = np.array([field.kind for field in fields], np.int64)

    @classmethod
    def of(cls, plan: Message, converter: Callable[[Member], Convert | None]) -> Passer | None:
        """Return the passer of a message; None where not all of its fields can be passed.

        Args:
            plan: of the message.
            converter: returns what makes Connect's value of the library's, see `Passer`.
        """
        fields: list[_Field] = []
        for member in plan.members:
            form = form_of(member) if isinstance(member, Member) else None
            if form is None or not isinstance(member, Member):
                return None
            wire = WIRE_TYPES[member.item.kind]
            convert = None if member.item.logical == TIMESTAMP else converter(member)
            fields.append(_Field(member, form, tag(member.number, wire), _kind(member.item.kind, wire), convert))
        if not fields or plan.raw is not None:
            return None
        return cls(sorted(fields, key=lambda field: field.form.number), [field.member.name for field in fields])

    def columns(self, payloads: Sequence[bytes]) -> tuple[Columns, Mask]:
        """Return the columns of messages, and which of them are well-formed; of the others they are arbitrary."""
        raw, edges = joined_bytes(payloads)
        content: Octets = np.frombuffer(raw, np.uint8)
        offsets = np.empty((len(self._fields) + 1, len(payloads)), np.int64)
        failed = np.zeros(len(payloads), np.uint8)
        loops.find_fields(content, edges[:-1], edges[1:], self._tags, self._edges, self._kinds, offsets.ravel(), failed)
        columns = {
            field.member.name: _column(field, raw, content, (offsets[at], offsets[at + 1]))
            for at, field in enumerate(self._fields)
        }
        return {name: columns[name] for name in self._names}, failed == 0


def _column(field: _Field, raw: bytes, content: Octets, bounds: Bounds) -> EncodedColumn:
    default = None if field.form.nullable else _DEFAULTS.get(field.form.kind, 0)
    convert = field.convert
    absent = default if default is None or convert is None else convert(default)

    def read(bounds: Bounds) -> NewColumn:
        begins, ends = bounds
        present = ends > begins
        whole = bool(present.all())
        chosen = (begins, ends) if whole else (begins[present], ends[present])
        values = _values(field, raw, content, *chosen)
        if convert is not None:
            values = list(map(convert, values))
        if whole:
            return values
        present_values = iter(values)
        return [next(present_values) if is_present else absent for is_present in present.tolist()]

    def find_texts(bounds: Bounds) -> Bounds:
        begins, ends = map(np.ascontiguousarray, bounds)
        texts = begins.copy()
        present = np.flatnonzero(ends > begins)
        texts[present] = _numbers(field, content, begins[present], ends[present])
        return texts, ends

    is_text = field.form.kind == _KINDS.TYPE_STRING and default is None and convert is None
    nullable = field.form.nullable
    return EncodedColumn(field.form, raw, bounds, read, nullable=nullable, find_texts=find_texts if is_text else None)


def _kind(kind: int, wire: int) -> int:
    """Return the kind of values by the numbers of the loop."""
    if wire == LENGTH:
        return {_KINDS.TYPE_STRING: loops.TEXT, _KINDS.TYPE_MESSAGE: loops.TIMESTAMP}.get(kind, loops.BYTES)
    return loops.VARINT if wire == VARINT else _SIZES[wire]


def _numbers(field: _Field, content: Octets, begins: RowIds, ends: RowIds) -> RowIds:
    """Return the numbers of a field that each message has, or the offsets of its contents."""
    numbers = np.empty(len(begins), np.int64)
    begins, ends = np.ascontiguousarray(begins), np.ascontiguousarray(ends)
    loops.read_values(content, begins, ends, len(field.tag), field.kind, numbers)
    return numbers


def _values(field: _Field, raw: bytes, content: Octets, begins: RowIds, ends: RowIds) -> NewColumn:
    """Return the values of a field that each message has, as the library has them."""
    kind = field.form.kind
    numbers = _numbers(field, content, begins, ends)
    if kind in _FIXED:
        form = np.dtype(_FIXED[kind])
        found: NewColumn = content[numbers[:, None] + np.arange(form.itemsize)].view(form).ravel().tolist()
        return found
    if kind in (_KINDS.TYPE_STRING, _KINDS.TYPE_BYTES):
        pairs = zip(numbers.tolist(), ends.tolist(), strict=True)
        if kind == _KINDS.TYPE_BYTES:
            return [raw[begin:end] for begin, end in pairs]
        return [raw[begin:end].decode() for begin, end in pairs]
    if kind == _KINDS.TYPE_MESSAGE:
        return list(map(Moment, numbers.tolist()))
    integers: NewColumn
    if kind == _KINDS.TYPE_BOOL:
        integers = (numbers != 0).tolist()
    elif kind in _ZIGZAG:
        halves = numbers.view(np.uint64)
        if kind == _KINDS.TYPE_SINT32:
            halves = halves & np.uint64(0xFFFFFFFF)
        integers = ((halves >> np.uint64(1)).view(np.int64) ^ -(halves & np.uint64(1)).view(np.int64)).tolist()
    else:
        # The lower bytes precede the higher ones.
        low = np.dtype(_LOW[kind])
        integers = numbers.astype("<i8").view(low)[:: 8 // low.itemsize].tolist()
    return integers


Parsed: TypeAlias = Any
"""A message of the library, whose attributes are its fields."""

Get: TypeAlias = Callable[[Parsed], DynamicValue]

_NARROW: Final = {"int8": 8, "int16": 16}
_MAX_PARSED: Final = 16
"""This many messages are parsed by the library: arrays would cost more than they give."""


class MessageReader:
    """Reads payloads of one message.

    Attributes:
        plan: plan of the message.
    """

    def __init__(self, plan: Message) -> None:
        self.plan = plan
        self._parse = GetMessageClass(plan.descriptor).FromString
        self._checks_required = _has_required(plan)
        self._raw = None if plan.raw is None else _with_convert(_getter("value"), _converter(plan.raw))
        plain = [member for member in plan.members if isinstance(member, Member) and _is_attribute(member, plan)]
        self._plain = tuple(member.name for member in plain)
        self._nullable = tuple(member.name for member in plain if member.nullable)
        self._getters = {member.name: _get(member) for member in plan.members if member not in plain}
        self._passer = Passer.of(plan, lambda member: _converter(member.item))

    def read(
        self, rows: Positions, payloads: Sequence[bytes], codec: object = None, texts: Sequence[bytes] | None = None
    ) -> Decoded:
        """Return the blocks of payloads, and errors by row.

        Args:
            rows: rows of the payloads in the batch.
            payloads: a message each.
            codec: codec of the values; it finds their bytes in the blocks.
            texts: the whole bytes, where a payload is a part of them.
        """
        if self._passer is None or len(payloads) <= _MAX_PARSED:
            return self._parse_all(rows, payloads, codec, texts or payloads)
        columns, good = self._passer.columns(payloads)
        block = Block(rows, self.plan.schema, columns=columns, origin=Origin(codec, texts or payloads))
        if good.all():
            return [block], {}
        others = np.flatnonzero(~good).tolist()
        blocks, errors = self._parse_all(
            rows[~good], [payloads[at] for at in others], codec, [(texts or payloads)[at] for at in others]
        )
        return [*([block.take(np.flatnonzero(good))] if good.any() else ()), *blocks], errors

    def _parse_all(self, rows: Positions, payloads: Sequence[bytes], codec: object, texts: Sequence[bytes]) -> Decoded:
        """Read payloads with the library."""
        messages, errors = self._parsed(payloads)
        values = self._values(messages, errors)
        failures = {int(rows[at]): error for at, error in errors.items()}
        if not len(values.rows):
            return [], failures
        row_ids = values.rows.tolist()
        origin = Origin(codec, [texts[at] for at in row_ids] if errors else texts)
        values.rows, values.origin = rows[values.rows], origin
        return [values], failures

    def _values(self, messages: dict[int, Parsed], errors: dict[int, RecordError]) -> Block:
        """Return the values by the index of their payload, with errors for the unreadable ones."""
        message_rows = np.fromiter(messages, np.intp, len(messages))
        try:
            return self._block(message_rows, list(messages.values()))
        except RecordError:
            for at, message in messages.items():
                try:
                    self._block(message_rows[:1], [message])
                except RecordError as error:
                    errors[at] = error
        good = {at: message for at, message in messages.items() if at not in errors}
        return self._block(np.fromiter(good, np.intp, len(good)), list(good.values()))

    def _parsed(self, payloads: Sequence[bytes]) -> tuple[dict[int, Parsed], dict[int, RecordError]]:
        errors: dict[int, RecordError] = {}
        try:
            messages = dict(enumerate(map(self._parse, payloads)))
        except DecodeError:
            messages = {}
            for at, payload in enumerate(payloads):
                try:
                    messages[at] = self._parse(payload)
                except DecodeError:
                    errors[at] = RecordError(f"the value is no message {self.plan.descriptor.full_name}")
        if self._checks_required:
            for at in [at for at, message in messages.items() if not message.IsInitialized()]:
                missing = ", ".join(messages.pop(at).FindInitializationErrors())
                errors[at] = RecordError(f"the value has no {missing}, which its message requires")
        return messages, errors

    def _block(self, rows: Positions, messages: Sequence[Parsed]) -> Block:
        schema = self.plan.schema
        if self._raw is not None:
            return Block(rows, schema, values=list(map(self._raw, messages)))
        return Block(rows, schema, columns=self._columns(messages) if messages else {})

    def _columns(self, messages: Sequence[Parsed]) -> Columns:
        columns: NewColumns = {name: [get(message) for message in messages] for name, get in self._getters.items()}
        if len(self._plain) == 1:
            columns[self._plain[0]] = list(map(_getter(self._plain[0]), messages))
        elif self._plain:
            values = zip(*map(attrgetter(*self._plain), messages), strict=True)
            columns |= dict(zip(self._plain, values, strict=True))
        for name in self._nullable:
            if not all(columns[name]):
                pairs = zip(columns[name], messages, strict=True)
                columns[name] = [value if value or message.HasField(name) else None for value, message in pairs]
        return {member.name: columns[member.name] for member in self.plan.members}


def _is_attribute(member: Member, plan: Message) -> bool:
    """Return whether the value is the message's attribute as it is, or null where that is zero or empty."""
    if member.shape != "one" or member.item.message is not None or _converter(member.item) is not None:
        return False
    return not member.nullable or not plan.descriptor.fields_by_name[member.name].default_value


def _has_required(plan: Message) -> bool:
    members = [one for member in plan.members for one in (member.members if isinstance(member, Union) else (member,))]
    return any(
        member.required or (member.item.message is not None and _has_required(member.item.message))
        for member in members
    )


def _get(member: Member | Union) -> Get:
    if isinstance(member, Union):
        return _get_union(member)
    convert = _converter(member.item)
    get = _getter(member.name)
    if member.shape == "map":
        return _get_map(member, get, convert)
    if member.shape == "list":
        return _get_list(get, convert)
    if not member.nullable:
        return _with_convert(get, convert)
    name = member.name
    if convert is None:
        return lambda message: get(message) if message.HasField(name) else None
    return lambda message: convert(get(message)) if message.HasField(name) else None


def _with_convert(get: Get, convert: Convert | None) -> Get:
    return get if convert is None else lambda message: convert(get(message))


def _getter(name: str) -> Get:
    """Return the getter of a field."""
    return attrgetter(name)


def _get_list(get: Get, convert: Convert | None) -> Get:
    if convert is None:
        return lambda message: list(get(message))
    return lambda message: list(map(convert, get(message)))


def _get_map(member: Member, get: Get, convert: Convert | None) -> Get:
    key = _converter(member.key) if member.key is not None else None

    def read(message: Parsed) -> Entries:
        entries = get(message)
        # By its keys: for a message that is a value, items() would give a copy.
        return {
            name if key is None else key(name): entries[name] if convert is None else convert(entries[name])
            for name in entries
        }

    return read


def _get_union(union: Union) -> Get:
    gets = {member.name: _with_convert(_getter(member.name), _converter(member.item)) for member in union.members}
    absent = dict.fromkeys(gets)
    oneof = union.oneof

    def read(message: Parsed) -> Entries | None:
        name = message.WhichOneof(oneof)
        return None if name is None else absent | {name: gets[name](message)}

    return read


def _converter(item: Item) -> Convert | None:
    """Return the converter from the library's values to Connect's; None if they are the same."""
    if item.enum is not None:
        return None if item.schema.type == "int32" else _enum(item.enum)
    if item.logical is not None:
        return READERS[item.logical]
    if item.wrapped is not None:
        return _with_convert(_getter("value"), _converter(item.wrapped))
    if item.message is not None:
        return _struct(item.message)
    if item.schema.type in _NARROW:
        return _narrow(_NARROW[item.schema.type])
    if item.kind in (FieldDescriptor.TYPE_UINT64, FieldDescriptor.TYPE_FIXED64):
        return _signed
    return None


def _struct(plan: Message) -> Convert:
    gets = {member.name: _get(member) for member in plan.members}
    return lambda message: {name: get(message) for name, get in gets.items()}


def _enum(enum: EnumDescriptor) -> Convert:
    """Return the names of an enum's numbers; a number without a name has the one that Java gives it."""
    names = {value.number: value.name for value in reversed(enum.values)}

    def name_of(number: int) -> str:
        name: str | None = names.get(number)
        return unknown_prefix(enum) + str(number) if name is None else name

    return name_of


def unknown_prefix(enum: EnumDescriptor) -> str:
    """Return the prefix of an enum's number without a name, as in Java's ``EnumValueDescriptor``."""
    return f"UNKNOWN_ENUM_VALUE_{enum.name}_"


def _signed(number: int) -> int:
    return number if number < 2**63 else number - 2**64


def _narrow(bits: int) -> Convert:
    """Return the lower bits of a number, as Java's casts do."""
    half = 1 << (bits - 1)
    return lambda number: ((number + half) & (2 * half - 1)) - half
