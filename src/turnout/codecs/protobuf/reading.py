"""Messages to columns: messages parsed by the ``protobuf`` library as Connect's values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any, Final, TypeAlias

import numpy as np
from google.protobuf.descriptor import EnumDescriptor, FieldDescriptor
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from turnout.codecs.codec import Decoded
from turnout.codecs.protobuf.connect_schema import Item, Member, Message, Union
from turnout.codecs.protobuf.logical_types import READERS
from turnout.codecs.protobuf.passing import Passer
from turnout.errors import RecordError
from turnout.records import Block, Origin, Positions
from turnout.records.types import Columns, Convert, DynamicValue, Entries, NewColumns

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
