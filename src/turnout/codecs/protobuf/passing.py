"""Passing of messages: NumPy finds the fields of many messages, and their values are decoded when they are used.

Serializers write fields in the order of their numbers. Messages of which that is not true, with fields that the schema
does not know, or damaged ones, are left to the ``protobuf`` library.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
from google.protobuf.descriptor import FieldDescriptor
from numpy.typing import NDArray

from turnout.codecs.protobuf.connect_schema import Member, Message
from turnout.codecs.protobuf.logical_types import FIRST_SECOND, LAST_SECOND, NANOS_PER_MILLI, TIMESTAMP
from turnout.codecs.protobuf.scalars import FIXED32, FIXED64, LENGTH, VARINT, WIRE_TYPES, tag
from turnout.records import Moment
from turnout.records.spans import Bounds, EncodedColumn, Slices, non_ascii
from turnout.records.types import Column, Columns, Convert, Mask, NewColumn, Octets, RowIds

_PAD: Final = 32
_MIN_SHARE: Final = 0.1
"""Share of the content that columns with other numbers have at least for their content to be copied as a whole."""

_MORE: Final = 0x80
_MAX_VARINT: Final = 10
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

_TIMESTAMP_TAGS: Final = (tag(1, VARINT), tag(2, VARINT))
"""Seconds and nanoseconds."""

_DEFAULTS: Final[dict[int, Any]] = {
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
        wire: type on the wire.
    """

    member: Member
    form: Form
    tag: bytes
    wire: int
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
            fields.append(_Field(member, form, tag(member.number, wire), wire, convert))
        if not fields or plan.raw is not None:
            return None
        return cls(sorted(fields, key=lambda field: field.form.number), [field.member.name for field in fields])

    def columns(self, payloads: Sequence[bytes]) -> tuple[Columns, Mask]:
        """Return the columns of messages, and which of them are well-formed; of the others they are arbitrary."""
        raw = b"".join([*payloads, bytes(_PAD)])
        content: Octets = np.frombuffer(raw, np.uint8)
        ends: RowIds = np.cumsum(np.fromiter(map(len, payloads), np.int64, len(payloads)))
        at = np.concatenate([np.zeros(1, np.int64), ends[:-1]])
        good = np.ones(len(payloads), np.bool_)
        columns: dict[str, EncodedColumn] = {}
        texts: list[Bounds] = []
        for field in self._fields:
            before, (at, starts) = at, _passed(field.tag, field.wire, content, at, ends, good)
            columns[field.member.name] = _column(field, raw, content, (before, at))
            if field.form.kind == _KINDS.TYPE_STRING:
                texts.append((starts, at))
            elif field.form.kind == _KINDS.TYPE_MESSAGE:
                good &= _timestamps(content, starts, at)[1]
        good &= at == ends
        _check_texts(raw, content, texts, good)
        return {name: columns[name] for name in self._names}, good


def _passed(prefix: bytes, wire: int, content: Octets, at: RowIds, ends: RowIds, good: Mask) -> tuple[RowIds, RowIds]:
    """Return the end of a field with this tag and the beginning of its value; mark messages with a damaged one."""
    present = at < ends
    for index, octet in enumerate(prefix):
        present &= content[at + index] == octet
    present_rows = np.flatnonzero(present)
    whole = len(present_rows) == len(at)
    begins = (at if whole else at[present_rows]) + len(prefix)
    starts, sizes, wrong = _extents(wire, content, begins)
    after = starts + sizes
    limits = ends if whole else ends[present_rows]
    over = (after > limits) | wrong
    if over.any():
        good[present_rows[over]] = False
        after = np.where(over, limits, after)
        starts = np.minimum(starts, limits)
    if whole:
        return after, starts
    after_tags, values = at.copy(), at.copy()
    after_tags[present_rows] = after
    values[present_rows] = starts
    return after_tags, values


def _extents(wire: int, content: Octets, begins: RowIds) -> tuple[RowIds, RowIds, Mask]:
    """Return the beginnings and sizes of length-delimited values, and a mask of the damaged ones."""
    if wire == LENGTH:
        lengths, own = _varints(content, begins)
        wrong = lengths > len(content)
        return begins + own, np.where(wrong, 0, lengths.view(np.int64)), wrong
    if wire == VARINT:
        return begins, *_varint_sizes(content, begins)
    return begins, np.full(len(begins), _SIZES[wire], np.int64), np.zeros(len(begins), np.bool_)


def _varint_sizes(content: Octets, begins: RowIds) -> tuple[RowIds, Mask]:
    sizes = np.ones(len(begins), np.int64)
    wrong = np.zeros(len(begins), np.bool_)
    more = np.flatnonzero(content[begins] >= _MORE)
    for index in range(1, _MAX_VARINT):
        if not len(more):
            break
        sizes[more] += 1
        octets = content[np.minimum(begins[more] + index, len(content) - 1)]
        if index == _MAX_VARINT - 1:
            wrong[more[octets > 1]] = True
        more = more[octets >= _MORE]
    return sizes, wrong


def _varints(content: Octets, begins: RowIds) -> tuple[NDArray[np.uint64], RowIds]:
    """Decode the varints at these offsets; return them with their sizes in bytes. Damaged ones are undefined."""
    first = content[begins]
    numbers = (first & 0x7F).astype(np.uint64)
    sizes = np.ones(len(begins), np.int64)
    more = np.flatnonzero(first >= _MORE)
    for index in range(1, _MAX_VARINT):
        if not len(more):
            break
        octets = content[np.minimum(begins[more] + index, len(content) - 1)]
        numbers[more] |= (octets & 0x7F).astype(np.uint64) << np.uint64(7 * index)
        sizes[more] += 1
        more = more[octets >= _MORE]
    return numbers, sizes


def _check_texts(raw: bytes, content: Octets, texts: Sequence[Bounds], good: Mask) -> None:
    """Note messages of which a text is not UTF-8."""
    if not texts or not len(good):
        return
    suspect = non_ascii(content, texts)
    for index, (begins, ends) in enumerate(texts):
        for row in np.flatnonzero(suspect[:, index] & (begins < ends)).tolist():
            try:
                raw[begins[row] : ends[row]].decode()
            except UnicodeDecodeError:
                good[row] = False


def _timestamps(content: Octets, begins: RowIds, ends: RowIds) -> tuple[RowIds, Mask]:
    """Return the milliseconds of the Timestamps in some bounds, and which of them are valid and in whole milliseconds.

    Of a Timestamp that is finer than that, Connect's value has other bytes.
    """
    valid = np.ones(len(begins), np.bool_)
    parts: list[RowIds] = []
    at = begins
    for prefix in _TIMESTAMP_TAGS:
        before, (at, _) = at, _passed(prefix, VARINT, content, at, ends, valid)
        present = np.flatnonzero(at > before)
        numbers = np.zeros(len(begins), np.int64)
        numbers[present] = _varints(content, before[present] + len(prefix))[0].view(np.int64)
        parts.append(numbers)
    seconds, nanos = parts
    valid &= (at == ends) & (seconds >= FIRST_SECOND) & (seconds <= LAST_SECOND)
    millis, finer = np.divmod(nanos, NANOS_PER_MILLI)
    valid &= (finer == 0) & (millis >= 0) & (millis < 1000)
    return seconds * 1000 + millis, valid


def _column(field: _Field, raw: bytes, content: Octets, bounds: Bounds) -> EncodedColumn:
    head = len(field.tag)
    default = None if field.form.nullable else _DEFAULTS.get(field.form.kind, 0)
    convert = field.convert
    absent = default if default is None or convert is None else convert(default)

    def read(bounds: Bounds) -> NewColumn:
        begins, ends = bounds
        present = ends > begins
        whole = bool(present.all())
        chosen = (begins, ends) if whole else (begins[present], ends[present])
        values = _values(field.form.kind, raw, content, chosen[0] + head, chosen[1])
        if convert is not None:
            values = list(map(convert, values))
        if whole:
            return values
        present_values = iter(values)
        return [next(present_values) if is_present else absent for is_present in present.tolist()]

    return EncodedColumn(field.form, raw, bounds, read, nullable=field.form.nullable)


def _values(kind: int, raw: bytes, content: Octets, begins: RowIds, ends: RowIds) -> NewColumn:
    """Return the values at some indices, as the library has them."""
    if kind in _FIXED:
        form = np.dtype(_FIXED[kind])
        found: NewColumn = content[begins[:, None] + np.arange(form.itemsize)].view(form).ravel().tolist()
        return found
    if kind in (_KINDS.TYPE_STRING, _KINDS.TYPE_BYTES):
        starts = begins + _varints(content, begins)[1]
        pairs = zip(starts.tolist(), ends.tolist(), strict=True)
        if kind == _KINDS.TYPE_BYTES:
            return [raw[begin:end] for begin, end in pairs]
        return [raw[begin:end].decode() for begin, end in pairs]
    if kind == _KINDS.TYPE_MESSAGE:
        starts = begins + _varints(content, begins)[1]
        return list(map(Moment, _timestamps(content, starts, ends)[0].tolist()))
    numbers = _varints(content, begins)[0]
    integers: NewColumn
    if kind == _KINDS.TYPE_BOOL:
        integers = (numbers != 0).tolist()
    elif kind in _ZIGZAG:
        if kind == _KINDS.TYPE_SINT32:
            numbers &= np.uint64(0xFFFFFFFF)
        integers = ((numbers >> np.uint64(1)).view(np.int64) ^ -(numbers & np.uint64(1)).view(np.int64)).tolist()
    else:
        # The lower bytes precede the higher ones.
        low = np.dtype(_LOW[kind])
        integers = numbers.astype("<u8").view(low)[:: 8 // low.itemsize].tolist()
    return integers
