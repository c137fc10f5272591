"""JSON texts of one schema, read to blocks: each strictly at first, and leniently where that fails."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from itertools import accumulate
from typing import TYPE_CHECKING, Final, TypeAlias, cast

import msgspec

from turnout.base.startup import np
from turnout.codecs.ddl import Declared
from turnout.codecs.json_nodes import (
    NULL,
    JsonType,
    Leaf,
    Misfit,
    Node,
    Schemaless,
    declared_leaf,
    json_text,
    list_node,
    map_node,
    nullable,
    pairs_node,
    read_schemaless,
    struct_node,
    wire_leaf,
)
from turnout.errors import RecordError
from turnout.loops import json as loops
from turnout.loops.texts import hash_of_text
from turnout.records import Block, Positions, Schema, group
from turnout.records.block import rows_of
from turnout.records.schema import DIGITS
from turnout.records.spans import ArrowBytes, Read, SpanColumn, SpanKind, Spans, Texts
from turnout.records.types import Codes, Column, Columns, Convert, DynamicValue, NewColumn, Octets, Offsets, Value

if TYPE_CHECKING:
    from turnout.codecs.codec import Decoded

_UNREADABLE = (ValueError, TypeError, RecursionError)
"""Errors of a strict read: no UTF-8, no JSON, not of its type, no text at all, or nested too deep."""


Composite: TypeAlias = Callable[[Schema, Callable[[Schema], Node]], Node | None]
"""Builds the reader of a schema from readers of its parts; None if it is read as usual."""


@dataclass(frozen=True, slots=True)
class _Rules:
    """Rules of a notation.

    Attributes:
        leaf: builds readers of primitive schemas.
        defaults: whether a null that has a default is read as it.
        composite: builds readers of other schemas that have a form of their own.
        omits: whether any field of an object may be missing.
    """

    leaf: Leaf
    defaults: bool = False
    composite: Composite = lambda _schema, _inner: None
    omits: bool = False

    def node(self, schema: Schema, declared: Declared | None = None, *, omits: bool = False) -> Node:
        """Return the reader of a schema's values at any position."""
        own = self.composite(schema, self.node)
        return self.nullable(self._bare(schema, declared) if own is None else own, schema, omits=omits)

    def _bare(self, schema: Schema, declared: Declared | None) -> Node:
        if schema.type == "struct":
            return struct_node(self.fields(schema, declared))
        if schema.type in ("array", "map"):
            if schema.values is None:
                raise ValueError(f"expected the schema of the {schema.type}'s elements, found none")
            item = self.node(schema.values, declared and declared.inner[0])
            if schema.type == "array":
                return list_node(item)
            if schema.keys is None:
                raise ValueError("expected the schema of the map's keys, found none")
            if schema.keys.type == "string":
                return map_node(item)
            return pairs_node(self.node(schema.keys), item)
        return self.leaf(schema, declared.digits if declared is not None else DIGITS)

    def fields(self, schema: Schema, declared: Declared | None) -> dict[str, Node]:
        """Return the readers of a struct's fields."""
        inner = declared.inner if declared is not None else (None,) * len(schema.fields)
        return {
            field.name: self.node(field.schema, column, omits=self.omits)
            for field, column in zip(schema.fields, inner, strict=True)
        }

    def nullable(self, node: Node, schema: Schema, *, omits: bool = False) -> Node:
        """Return the reader with nulls allowed or refused, as the schema says."""
        default = schema.default if self.defaults else None
        return nullable(node, required=not schema.optional and default is None, default=default, omits=omits)


class Reader:
    """Reads payloads of one schema: the fields of structs as spans, other values and what that leaves one by one."""

    def __init__(self, schema: Schema, node: Node, nodes: Mapping[str, Node] | None) -> None:
        """Create a reader for *node*; the fields of a struct are read by *nodes*."""
        self.schema = schema
        self._node = node
        self._fields = None if nodes is None else _Fields(schema, nodes)
        self._strict: Convert | None = None
        if nodes is None and node.strict is not msgspec.Raw:
            decode = msgspec.json.Decoder(node.strict).decode
            check = node.check
            self._strict = decode if check is None else lambda text: _checked(decode(text), check)

    @classmethod
    def declared(cls, declared: Declared) -> Reader:
        """Of objects with declared columns: times in ISO 8601, decimals as numbers."""
        return cls._of(declared.schema, _Rules(declared_leaf), declared)

    @classmethod
    def plain(cls, schema: Schema) -> Reader:
        """Of values as people write them: times in ISO 8601, decimals as numbers.

        Raises:
            ValueError: the schema is not one.
        """
        return cls._of(schema, _Rules(declared_leaf))

    @classmethod
    def wire(cls, schema: Schema, *, defaults: bool) -> Reader:
        """Of payloads as JsonConverter writes them.

        Args:
            schema: schema of the payloads.
            defaults: whether a null that has a default is read as it.

        Raises:
            ValueError: the schema is not one.
        """
        return cls._of(schema, _Rules(wire_leaf, defaults))

    @classmethod
    def of(cls, schema: Schema, leaf: Leaf, composite: Composite) -> Reader:
        """Of payloads in which some schemas have forms of their own, and a null that has a default is read as it.

        A field that is missing is None, whether or not its schema is optional.

        Raises:
            ValueError: the schema is not one.
        """
        return cls._of(schema, _Rules(leaf, True, composite, omits=True))

    @classmethod
    def _of(cls, schema: Schema, rules: _Rules, declared: Declared | None = None) -> Reader:
        if schema.type != "struct" or rules.composite(schema, rules.node) is not None:
            return cls(schema, rules.node(schema, declared), None)
        nodes = rules.fields(schema, declared)
        longest = max([len(_bytes_of(name)) for name in nodes], default=0)
        node = rules.nullable(struct_node(nodes), schema)
        return cls(schema, node, nodes if longest <= loops.MAX_NAME else None)

    def read(self, rows: Positions, texts: Sequence[bytes]) -> Decoded:
        """Return the blocks of these payloads; a null has the schema, too."""
        if self._fields is not None:
            blocks, failed = self._fields.read(rows, texts)
        elif self._strict is not None:
            members: NewColumn = []
            failed = _read_all(self._strict, texts, members)
            column = self._node.column
            own = np.delete(rows, failed) if failed else rows
            blocks = group(own, self.schema, members if column is None else column(members)) if members else []
        else:
            blocks, failed = [], list(range(len(texts)))
        if not failed:
            return blocks, {}
        values, read, errors = [], [], {}
        for index in failed:
            try:
                values.append(self._node.slow(json_text(texts[index])))
                read.append(index)
            except Misfit as misfit:
                errors[int(rows[index])] = RecordError(f"the value is not of its schema: {misfit}")
        return blocks + (group(rows[read], self.schema, values) if values else []), errors


class _Fields:
    """Reads structs as spans of their fields, by `turnout.loops.json.scan_fields`.

    A column of numbers, texts or booleans is decoded at the first access to a value. One of other values is decoded at
    once, since only that shows whether they are of their schema.
    """

    def __init__(self, schema: Schema, nodes: Mapping[str, Node]) -> None:
        self._schema = schema
        self._nodes = nodes
        self._names = tuple(nodes)
        self._tables: tuple[Codes, Octets] | None = None
        self._kinds = [_span_kind(node) if node.kind else None for node in nodes.values()]
        self._strict = {
            slot: _StrictColumn(node) for slot, node in enumerate(nodes.values()) if self._kinds[slot] is None
        }

    def read(self, rows: Positions, texts: Sequence[bytes]) -> tuple[list[Block], list[int]]:
        """Return the block of the structs that are decided, and the numbers of the other texts."""
        if self._tables is None:
            self._tables = _field_tables(self._nodes)
        count, width = len(texts), len(self._names)
        is_ascii, data, offsets = joined_texts(texts)
        spans, undecided = np.empty(2 * count * width, np.int64), np.empty(count, np.uint8)
        left = loops.scan_fields(data, offsets, *self._tables, spans, undecided)
        if not is_ascii and (wrong := invalid_utf8(texts)):
            undecided[wrong] = left = 1
        records = np.flatnonzero(undecided == 0) if left else rows_of(count)
        opened: dict[str, Column] = {}
        source = Texts(texts, data, offsets, rows_of(count) * width, spans)
        if self._strict:
            records, opened = self._opened(source, records)
        failed: list[int] = []
        if len(records) < count:
            failed = np.setdiff1d(rows_of(count), records).tolist()
            rows = rows[records]
            if not len(records):
                return [], failed
        members = SpanColumn(Spans(source, records, self._names), 0, _NO_KIND)
        if not self._strict:
            return [Block.closed(rows, self._schema, members, self._columns)], failed
        return [Block(rows, self._schema, columns={**self._columns(members), **opened})], failed

    def _columns(self, members: Column) -> Columns:
        spans = cast("SpanColumn", members).spans
        return {
            name: SpanColumn(spans, slot, kind or _NO_KIND)
            for slot, (name, kind) in enumerate(zip(self._names, self._kinds, strict=True))
        }

    def _opened(self, source: Texts, records: Offsets) -> tuple[Offsets, dict[str, Column]]:
        """Decode the columns that only that decides; return the records whose values are of their schema."""
        opened: dict[str, Column] = {}
        wrong: set[int] = set()
        ends = len(source.spans) // 2
        for slot, column in self._strict.items():
            index = source.firsts[records] + slot
            begins, own_ends = source.spans[index], source.spans[ends + index]
            opened[self._names[slot]] = column.read(source.data, begins, own_ends, int(source.offsets[-1]), wrong)
        if wrong:
            good = [index for index in range(len(records)) if index not in wrong]
            records = records[good]
            opened = {name: [values[index] for index in good] for name, values in opened.items()}
        for name, values in opened.items():
            convert = self._nodes[name].column
            opened[name] = values if convert is None else convert(values)
        return records, opened


def _field_tables(nodes: Mapping[str, Node]) -> tuple[Codes, Octets]:
    """Return the tables of fields for `turnout.loops.json.scan_fields`, and their names."""
    names = list(map(_bytes_of, nodes))
    slots = [0] * (2 << len(nodes).bit_length())
    numbers = [len(nodes), len(slots) - 1, 0]
    at = 0
    for number, (name, node) in enumerate(zip(names, nodes.values(), strict=True)):
        may_miss = node.absent is not msgspec.NODEFAULT
        numbers += [at, len(name), loops.KINDS.get(node.kind, loops.ANY), may_miss, node.nullable]
        numbers[2] += not may_miss
        at += len(name)
        slot = hash_of_text(np.frombuffer(name, np.uint8), 0, len(name), 0) & (len(slots) - 1)
        while slots[slot]:
            slot = (slot + 1) & (len(slots) - 1)
        slots[slot] = number + 1
    return np.array(numbers + slots, np.int32), np.frombuffer(b"".join([*names, bytes(loops.PADDING)]), np.uint8)


def _bytes_of(name: str) -> bytes:
    # A surrogate is in no text that is UTF-8.
    return name.encode(errors="surrogatepass")


def _span_kind(node: Node) -> SpanKind:
    values, column = _reader_of_nullable(_PLAIN[node.kind]), node.column
    read = values if column is None else lambda data, begins, ends: column(values(data, begins, ends))
    return SpanKind(node.kind, node.nullable or node.absent is not msgspec.NODEFAULT, read)


_PLAIN: Final[Mapping[str, JsonType]] = {
    **dict.fromkeys(("int8", "int16", "int32", "int64"), int),
    **dict.fromkeys(("float32", "float64"), float),
    "string": str,
    "boolean": bool,
}

_MAX_LISTED_VALUES: Final = 8
"""Values that are read one by one in less time than joined (measured)."""


def reader_of(
    array: JsonType, decoder: Callable[[], msgspec.json.Decoder[DynamicValue]], lenient: Convert | None
) -> Read:
    """Return a function that decodes values between offsets.

    Args:
        array: the type of all values.
        decoder: returns what decodes one value.
        lenient: what reads a value that this one refuses; None if there are none.
    """
    arrays = cache(partial(msgspec.json.Decoder, array))

    def one(text: memoryview) -> DynamicValue:
        try:
            return decoder().decode(text)
        except msgspec.ValidationError:
            if lenient is None:
                raise
            return lenient(bytes(text))

    def read(data: Octets, begins: Offsets, ends: Offsets) -> Column:
        if len(begins) > _MAX_LISTED_VALUES:
            out = np.empty(int((ends - begins).sum()) + len(begins) + 2, np.uint8)
            size = loops.join(data, begins, ends, out)
            try:
                values: Column = arrays().decode(out[:size].data)
            except msgspec.ValidationError:
                pass
            else:
                return values
        return [one(data[begin:end].data) for begin, end in zip(begins.tolist(), ends.tolist(), strict=True)]

    return read


class _StrictColumn:
    """Decodes values of one schema as msgspec reads them."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._missing = msgspec.Raw(b"") if node.strict is msgspec.Raw else None
        self._decode = msgspec.json.Decoder(node.strict).decode
        # What checks values is called for each of them anyway.
        self._read_all = None if node.check is not None else _reader_of_nullable(node.strict)

    def read(self, data: Octets, begins: Offsets, ends: Offsets, absent: int, wrong: set[int]) -> NewColumn:
        """Return the values between offsets; add the numbers of those that are not of their schema to *wrong*."""
        if self._read_all is not None:
            with suppress(*_UNREADABLE):
                return list(self._read_all(data, begins, ends))
        check = self._node.check
        values: NewColumn = []
        for number, (begin, end) in enumerate(zip(begins.tolist(), ends.tolist(), strict=True)):
            try:
                value = self._missing if begin >= absent else self._decode(data[begin:end].data)
                if check is not None and (value is not None or self._missing is not None):
                    check(value)
            except (*_UNREADABLE, Misfit):
                wrong.add(number)
                value = self._missing
            values.append(value)
        return values


def _reader_of_nullable(kind: JsonType) -> Read:
    decoder: msgspec.json.Decoder[DynamicValue] = msgspec.json.Decoder(kind | None)
    return reader_of(list[kind | None], lambda: decoder, None)


_NO_KIND: Final = SpanKind("", True, lambda *_: ())


def joined_texts(texts: Sequence[bytes]) -> tuple[bool, Octets, Offsets]:
    """Return texts one behind another as the loops of `turnout.loops.json` read them, and the offset of each.

    The first of the three is whether all of it is ASCII.
    """
    count = len(texts) + 1
    if isinstance(texts, ArrowBytes):
        data, edges = texts.buffers
        own = data[edges[0] : edges[-1]]
        copies = np.empty(len(own) + len(texts) + loops.PADDING + len(NULL), np.uint8)
        offsets = np.empty(count, np.int64)
        loops.separate(data, edges, copies, offsets)
        copies[-len(NULL) :] = np.frombuffer(NULL, np.uint8)
        return bool(own.max(initial=0) < _NOT_ASCII), copies, offsets
    joined = b"\0".join((*texts, bytes(loops.PADDING) + NULL))
    offsets = np.fromiter(accumulate(map(len, texts), initial=0), np.int64, count) + np.arange(count)
    return joined.isascii(), np.frombuffer(joined, np.uint8), offsets


_NOT_ASCII: Final = 128


def invalid_utf8(texts: Sequence[bytes]) -> list[int]:
    """Return the numbers of texts that are not UTF-8."""
    wrong = []
    for index, text in enumerate(texts):
        if not text.isascii():
            try:
                text.decode()
            except UnicodeDecodeError:
                wrong.append(index)
    return wrong


class SchemalessReader:
    """Reads schemaless values of any kind, one by one."""

    def __init__(
        self, strict: Convert | None = None, lenient: Convert = read_schemaless, notation: str = "JSON"
    ) -> None:
        """Create a reader for JSON, or for another notation.

        Args:
            strict: reads most texts.
            lenient: reads the others, or reports their faults.
            notation: the notation's name, for messages.
        """
        self._strict = strict or schemaless_decoder().decode
        self._lenient = lenient
        self._notation = notation

    def read(self, rows: Positions, texts: Sequence[bytes]) -> Decoded:
        """Return the blocks of these texts, objects by their shape."""
        members: NewColumn = []
        failed = _read_all(self._strict, texts, members)
        errors: dict[int, RecordError] = {}
        for index in failed:
            try:
                members.insert(index - len(errors), self._lenient(texts[index]))
            except _UNREADABLE as failure:
                errors[index] = RecordError(f"the value is not {self._notation}: {failure}")
        read = np.delete(rows, list(errors)) if errors else rows
        return group(read, None, members), {int(rows[index]): error for index, error in errors.items()}


@cache
def schemaless_decoder() -> msgspec.json.Decoder[DynamicValue]:
    """Return the shared decoder: it is stateless, and takes 10 ms to create."""
    return msgspec.json.Decoder(Schemaless)


def _checked(member: DynamicValue, check: Convert) -> DynamicValue:
    try:
        check(member)
    except Misfit as misfit:
        raise ValueError(str(misfit)) from None
    return member


def _read_all(read: Callable[[bytes], Value], texts: Sequence[bytes], members: NewColumn) -> list[int]:
    """Append the readable values to *members*; return the indices of the other texts."""
    failed: list[int] = []
    remaining, before = iter(texts), len(members)
    while len(members) - before + len(failed) < len(texts):
        try:
            members.extend(map(read, remaining))
        except _UNREADABLE:
            # Earlier values are kept, and the iterator is behind it.
            failed.append(len(members) - before + len(failed))
    return failed
