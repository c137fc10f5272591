"""Codecs of Protobuf messages: of one schema that is known, and of schemas in a registry."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import ClassVar, Final, TypeAlias

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.json_format import Parse, ParseError
from google.protobuf.message import EncodeError
from google.protobuf.message_factory import GetMessageClass

from turnout.base.startup import np
from turnout.base.varint import zigzag_varint
from turnout.codecs.codec import Decoded, attempt, with_tombstones
from turnout.codecs.conversion import converted
from turnout.codecs.json_nodes import text_for_people
from turnout.codecs.json_writing import Written
from turnout.codecs.protobuf.connect_schema import Item, Member, Message, Union, plan_of
from turnout.codecs.protobuf.descriptors import SchemaFile, text_of_registry
from turnout.codecs.protobuf.kind import CONVERTER, ProtobufOptions
from turnout.codecs.protobuf.reading import Form, MessageReader, form_of, passed_bytes, unknown_prefix
from turnout.codecs.protobuf.scalars import (
    LENGTH,
    TIMESTAMP,
    WIRE_TYPES,
    WRITERS,
    Pieces,
    WriteColumn,
    by_distinct,
    delimited,
    enum_writer,
    scalar_writer,
    tag,
    timestamp_slices,
)
from turnout.codecs.schema_registry import (
    Indexes,
    Position,
    RegistryCodec,
    RegistryOptions,
    SchemaText,
    Writing,
    answered,
)
from turnout.codecs.schema_registry.codec import HEADER, RegistrySchema
from turnout.errors import MissingExtraError, RecordError
from turnout.records import Block, Positions, Schema, Struct
from turnout.records.spans import MAX_LISTED_VALUES, ColumnPieces, NumberColumn, PatchedColumn, is_repeated
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

    def write(self, block: Block) -> Written:
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
            return self._joined(columns, len(block)), {}
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

    def bodies(self, values: Column) -> Sequence[bytes]:
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

    def _joined(self, columns: Columns, count: int) -> Sequence[bytes]:
        if not self._write:
            return [b""] * count
        pieces = ColumnPieces(count)
        passed = passed_bytes(
            {member.name: (columns[member.name], form) for member, form, _ in self._write if member.name in columns}
        )
        for member, _, write in self._write:
            found, column = passed.get(member.name), columns.get(member.name)
            slices = None
            if isinstance(column, NumberColumn) and member.shape == "one" and member.item.logical == TIMESTAMP:
                slices = timestamp_slices(column.numbers, _tag(member.number, member.item))
            if found is not None:
                patched = column if isinstance(column, PatchedColumn) else None
                patch = None if patched is None else patched.written(partial(_of_values, write, member.name))
                pieces.add_slices(found, patch)
            elif slices is not None:
                pieces.add_slices(slices)
            elif column is not None and count > MAX_LISTED_VALUES and is_repeated(column):
                pieces.add_repeated(*write({member.name: column[:1]}))
            else:
                pieces.add(write(columns))
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


def _of_values(write: _Write, name: str, values: Column) -> Pieces:
    return write({name: values})


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


_MAX_DEPTH: Final = 100


class MessageValues:
    """Writes values of other formats as one message; see `turnout.codecs.conversion.Target`.

    Args:
        plan: plan of the message.
        drops_unknown: whether fields that it does not have are left out.
    """

    def __init__(self, plan: Message, *, drops_unknown: bool = False) -> None:
        self.schemas = (plan.schema,)
        self._class = GetMessageClass(plan.descriptor)
        self._drops_unknown = drops_unknown
        self._reader = MessageReader(plan)
        self._writer = MessageWriter(plan)

    def fitted(self, rows: Positions, texts: Sequence[bytes]) -> Decoded:
        """Return the messages that JSON texts are by Protobuf's JSON mapping."""
        bodies: list[bytes] = []
        good: list[int] = []
        errors: dict[int, RecordError] = {}
        for index, text in enumerate(texts):
            try:
                message = Parse(
                    text, self._class(), ignore_unknown_fields=self._drops_unknown, max_recursion_depth=_MAX_DEPTH
                )
                bodies.append(message.SerializeToString(deterministic=True))
                good.append(index)
            except (ParseError, EncodeError, ValueError, TypeError, RecursionError) as failure:
                errors[int(rows[index])] = RecordError(_in_words(str(failure), text))
        if not good:
            return [], errors
        blocks, failed = self._reader.read(rows[np.array(good, np.intp)], bodies, self)
        return blocks, errors | failed

    def encode(self, block: Block) -> Written:
        """Return the bytes of messages."""
        if block.origin is not None and block.origin.codec is self:
            return block.origin.texts, {}
        return self._writer.write(block)

    def converted(self, block: Block) -> Written:
        """Return the bytes of values of any schema, or of none."""
        if block.schema is None:
            return converted(block, self)
        try:
            return self._writer.write(block)
        except RecordError as error:
            return [None] * len(block), dict.fromkeys(range(len(block)), error)


def _in_words(problem: str, text: bytes) -> str:
    """Return a problem of the library with the field, the value and the cure."""
    _, _, found = problem.partition('Message type "')
    message, is_unknown, found = found.partition('" has no field named "')
    if is_unknown:
        name, _, above = found.partition('" at "')
        path = [*above.partition('".')[0].split(".")[1:], name.partition('".')[0]]
        return (
            f"{'.'.join(path)}: the message {message} has no such field; leave it out by ReplaceField, or let the "
            "format do it by unknownFields: drop"
        )
    if not text.lstrip().startswith(b"{"):
        return f"expected the fields of a message, found {text_for_people(text)}"
    return (
        f"{' '.join(problem.split())} (by Protobuf's JSON mapping); change the value by a transform, or write another "
        "message"
    )


class Protobuf:
    """The format ``protobuf``: each value is one message of a schema that is known.

    An unchanged value is written as its original bytes, with the fields that its schema does
    not know. Of one that was changed those are lost, as in Connect.
    """

    format: ClassVar[str] = "protobuf"
    class_name: ClassVar[str] = CONVERTER

    def __init__(self, plan: Message, *, drops_unknown: bool = False) -> None:
        """A codec of a message, see `plan_of`.

        Args:
            plan: plan of the message.
            drops_unknown: whether fields that it does not have are left out of values of other formats.
        """
        self._plan = plan
        self._reader = MessageReader(plan)
        self._writer = MessageWriter(plan)
        self._values = MessageValues(plan, drops_unknown=drops_unknown)

    def decode(self, rows: Positions, texts: Sequence[bytes | None]) -> Decoded:
        """See `Codec.decode`."""
        return with_tombstones(rows, texts, self._read)

    def _read(self, rows: Positions, texts: Sequence[bytes]) -> Decoded:
        return self._reader.read(rows, texts, self)

    def encode(self, block: Block) -> Sequence[bytes | None]:
        """See `Codec.encode`."""
        if block.origin is not None and block.origin.codec is self:
            return block.origin.texts
        return attempt(*self._writer.write(block))

    def converted(self, block: Block) -> Written:
        """See `turnout.codecs.conversion.OfOneSchema`; values with a schema are written by names of fields."""
        return self._values.converted(block)

    def schema(self) -> Schema:
        """Return the Connect schema of the message."""
        return self._plan.schema


FIRST: Final = (0,)
"""Indexes of a file's first message."""

_MAX_INDEXES: Final = 32
"""Messages inside one another, as protoc allows them."""

_MAX_VARINT_BYTES: Final = 5
"""Bytes of a varint of 32 bits."""

_NAME_FIELD: Final = 0x0A
"""Tag of the only field of Apicurio's ``Ref``, the name."""

_TWO_LETTERS: Final = 4
"""Size of a ``Ref`` with a name of two letters."""


def read_indexes(content: bytes, start: int) -> tuple[tuple[int, ...], int]:
    r"""Return the indexes that begin at a byte, and the byte behind them.

    Raises:
        RecordError: there are none.

    >>> read_indexes(b"\x00\x08\x01", 0), read_indexes(b"\x04\x02\x00\x08", 0)
    (((0,), 1), ((1, 0), 3))
    """
    count, at = _number(content, start)
    if count == 0:
        return FIRST, at
    if not 0 < count <= _MAX_INDEXES:
        raise RecordError(f"expected at most {_MAX_INDEXES} message indexes at byte {start}, found {count}")
    indexes = []
    for _ in range(count):
        index, at = _number(content, at)
        indexes.append(index)
    return tuple(indexes), at


def read_name(content: bytes, start: int) -> str | None:
    r"""Return the name that Apicurio's serializers write instead of indexes; None for indexes.

    Most names would be no indexes, or at least 3 of which the third is beyond 32, more than files have. A name of two
    letters could be two indexes, and is read as such.

    >>> read_name(b"\x06\n\x04Item\x08\x04", 0), read_name(b"\x04\n\x02Bd", 0)
    ('Item', None)
    """
    size = content[start] if start < len(content) else 0
    if content[start + 1 : start + 3] != bytes((_NAME_FIELD, max(size - 2, 0))) or size == _TWO_LETTERS:
        return None
    name = content[start + 3 : start + 1 + size].decode("latin-1")
    return name if size < 128 and len(name) == size - 2 and name.isascii() and name.isidentifier() else None


def write_name(name: str) -> bytes:
    r"""Return the bytes of a message's name, as Apicurio's serializers write it.

    >>> write_name("Item")
    b'\x06\n\x04Item'
    """
    text = name.encode()
    return bytes((len(text) + 2, _NAME_FIELD, len(text))) + text


def write_indexes(indexes: Sequence[int]) -> bytes:
    r"""Return the bytes of message indexes.

    >>> write_indexes((0,)), write_indexes((1, 0))
    (b'\x00', b'\x04\x02\x00')
    """
    if tuple(indexes) == FIRST:
        return b"\0"
    return b"".join(zigzag_varint(number) for number in (len(indexes), *indexes))


def _number(content: bytes, start: int) -> tuple[int, int]:
    """Return a zigzag varint and the byte behind it."""
    number = 0
    for at, octet in enumerate(content[start : start + _MAX_VARINT_BYTES]):
        number |= (octet & 127) << (7 * at)
        if octet < 128:
            return (number >> 1) ^ -(number & 1), start + at + 1
    raise RecordError(f"expected a message index at byte {start}, found {content[start : start + _MAX_VARINT_BYTES]!r}")


class _RegistryPlan:
    """Plan of a message, see `turnout.codecs.schema_registry.codec.SchemaPlan`."""

    def __init__(self, message: Message, prefix: bytes, *, drops_unknown: bool) -> None:
        self.schemas = (message.schema,)
        self._prefix = prefix
        self._reader = MessageReader(message)
        self._writer = MessageWriter(message)
        self._values = MessageValues(message, drops_unknown=drops_unknown)

    def decode(self, rows: Positions, texts: Sequence[bytes], codec: object) -> Decoded:
        del codec
        return self._reader.read(rows, [text[self._start(text) :] for text in texts], self, texts)

    def _start(self, text: bytes) -> int:
        """Return where the message begins: indexes have more than one form."""
        return len(self._prefix) if text.startswith(self._prefix) else read_indexes(text, HEADER)[1]

    def fitted(self, rows: Positions, texts: Sequence[bytes]) -> Decoded:
        return self._values.fitted(rows, texts)

    def encode(self, block: Block) -> Written:
        if block.kind == "null":
            return [None] * len(block), {}
        if block.origin is not None and block.origin.codec is self:
            return block.origin.texts, {}
        try:
            texts, errors = self._writer.write(block)
        except RecordError as error:
            return [None] * len(block), dict.fromkeys(range(len(block)), error)
        return [None if text is None else self._prefix + text for text in texts], errors


class ProtobufRegistry(RegistryCodec):
    """Values in Confluent's wire format, with schemas of a registry.

    Values of Apicurio's serializers have the message's name instead of indexes. A value whose Connect schema was
    changed is written as the message of the subject's last version that has its name, or the first of that version.

    Args:
        registry: registry of the schemas.
        options: options of the mapping to Connect.
        writing: subject and position of ids that are written.
    """

    format: ClassVar[str] = "protobuf"
    class_name: ClassVar[str] = CONVERTER
    language: ClassVar[str] = "PROTOBUF"

    def __init__(self, registry: RegistryOptions, options: ProtobufOptions, writing: Writing) -> None:
        super().__init__(registry, writing)
        self._mapping = options

    def _by_indexes(
        self, texts: Sequence[bytes], indices: Positions, errors: dict[int, RecordError]
    ) -> Iterator[tuple[Indexes, Positions]]:
        found: dict[Indexes, list[int]] = {}
        for index in indices.tolist():
            text = texts[index]
            try:
                # Most values are the first message of their file.
                indexes = FIRST if text[HEADER : HEADER + 1] == b"\0" else self._indexes_at(text, HEADER)
            except RecordError as error:
                errors[index] = error
                continue
            found.setdefault(indexes, []).append(index)
        for indexes, members in found.items():
            yield indexes, np.array(members, np.intp)

    def _indexes_at(self, content: bytes, start: int) -> Indexes:
        return read_name(content, start) or read_indexes(content, start)[0]

    def _indexes_of(self, indexes: Indexes) -> bytes:
        return write_name(indexes) if isinstance(indexes, str) else write_indexes(indexes)

    def _plan_of(self, text: SchemaText, indexes: Indexes, position: Position) -> _RegistryPlan:
        file = _file(text)
        message = file.message_named(indexes) if isinstance(indexes, str) else file.message_at(indexes)
        plan = plan_of(message, self._mapping)
        return _RegistryPlan(plan, position.prefix, drops_unknown=self._writing.drops_unknown)

    def _indexes_to_write(self, text: SchemaText) -> Indexes:
        try:
            return _indexes_of_name(_file(text), None)
        except ValueError as failure:
            raise RecordError(f"the last schema of the subject {text.subject!r} cannot be used: {failure}") from None

    def _registered(self, schema: Schema, topic: str | None) -> RegistrySchema:
        """Return the message of the subject's last version that a changed schema is written as."""
        subject = self._subject(topic, schema.name)
        registry = self._registry
        latest = answered(self._options, lambda: registry.latest(subject))
        try:
            indexes = _indexes_of_name(_file(latest), schema.name)
        except ValueError as failure:
            raise RecordError(f"the last schema of the subject {subject!r} cannot be used: {failure}") from None
        return self._to_write(latest, indexes)


def _file(schema: SchemaText) -> SchemaFile:
    if schema.type != "PROTOBUF":
        raise ValueError(f"expected a Protobuf schema, found {schema.type}")
    try:
        return text_of_registry(schema.text, schema.references)
    except MissingExtraError as missing:
        raise ValueError(str(missing)) from missing


def _indexes_of_name(file: SchemaFile, name: str | None) -> tuple[int, ...]:
    """Return the indexes of the message with the name of a Connect schema, or of the first."""
    first = file.message()
    messages = file.descriptor.message_types_by_name.values()
    named = next((message for message in messages if name in (message.name, message.full_name)), first)
    return file.indexes_of(named)
