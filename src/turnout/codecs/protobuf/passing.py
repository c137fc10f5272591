"""Passing of messages: a loop finds the fields of many messages, and their values are decoded when they are used."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from google.protobuf.descriptor import FieldDescriptor

from turnout.codecs.protobuf.connect_schema import Member, Message
from turnout.codecs.protobuf.logical_types import TIMESTAMP
from turnout.codecs.protobuf.scalars import FIXED32, FIXED64, LENGTH, VARINT, WIRE_TYPES, tag
from turnout.loops import protobuf as loops
from turnout.records import Moment
from turnout.records.spans import Bounds, EncodedColumn, Slices
from turnout.records.types import Column, Columns, Convert, Mask, NewColumn, Octets, RowIds

_MIN_SHARE: Final = 0.1
"""Share of the content that columns with other numbers have at least for their content to be copied as a whole."""

_NARROW: Final = frozenset({"int8", "int16"})
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

    def retagged(self) -> list[bytes]:
        """Return the bytes of each value under the field's number."""
        wire = WIRE_TYPES[self.form.kind]
        old, new, content = len(tag(self.source.number, wire)), tag(self.form.number, wire), self.column.content
        bounds = zip(*(edge.tolist() for edge in self.column.bounds), strict=True)
        return [new + content[begin + old : end] if begin < end else b"" for begin, end in bounds]


def passed_bytes(columns: Mapping[str, tuple[Column, Form | None]]) -> dict[str, Slices | list[bytes]]:
    """Return the bytes of columns as fields of the given forms; columns of which only values can be written are absent.

    Columns with equal numbers are slices of their content. Where columns of one content only have other numbers, the
    content is copied once with the new tags, so that adjacent fields are still copied as one slice.
    """
    found: dict[str, Slices | list[bytes]] = {}
    by_content: dict[int, dict[str, _PassedColumn]] = {}
    for name, (column, form) in columns.items():
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
        raw = b"".join(payloads)
        content: Octets = np.frombuffer(raw, np.uint8)
        sizes = np.fromiter(map(len, payloads), np.int64, len(payloads))
        ends: RowIds = np.cumsum(sizes)
        offsets = np.empty((len(self._fields) + 1, len(payloads)), np.int64)
        failed = np.zeros(len(payloads), np.uint8)
        loops.find_fields(content, ends - sizes, ends, self._tags, self._edges, self._kinds, offsets.ravel(), failed)
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

    return EncodedColumn(field.form, raw, bounds, read, nullable=field.form.nullable)


def _kind(kind: int, wire: int) -> int:
    """Return the kind of values by the numbers of the loop."""
    if wire == LENGTH:
        return {_KINDS.TYPE_STRING: loops.TEXT, _KINDS.TYPE_MESSAGE: loops.TIMESTAMP}.get(kind, loops.BYTES)
    return loops.VARINT if wire == VARINT else _SIZES[wire]


def _values(field: _Field, raw: bytes, content: Octets, begins: RowIds, ends: RowIds) -> NewColumn:
    """Return the values of a field that each message has, as the library has them."""
    kind = field.form.kind
    numbers = np.empty(len(begins), np.int64)
    loops.read_values(
        content, np.ascontiguousarray(begins), np.ascontiguousarray(ends), len(field.tag), field.kind, numbers
    )
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
