"""JSON without a schema in it: schemaless, or with declared fields and types."""

from __future__ import annotations

import re
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Final, NamedTuple, cast

from turnout.base.options import Kind, Option
from turnout.base.startup import np
from turnout.codecs.codec import Codec, CodecKind, Decoded, attempt, flag, with_tombstones
from turnout.codecs.ddl import DdlError, parse_ddl
from turnout.codecs.json_nodes import Schemaless, read_schemaless
from turnout.codecs.json_reading import (
    Reader,
    SchemalessReader,
    invalid_utf8,
    joined_texts,
    reader_of,
    schemaless_decoder,
)
from turnout.codecs.json_writing import encode_json
from turnout.loops import json as loops
from turnout.records import Block, Positions, Schema
from turnout.records.block import rows_of
from turnout.records.spans import SCHEMALESS, Layout, Layouts, MixedObjects, SpanColumn, SpanKind, Spans, Texts
from turnout.records.types import Codes, Column, Columns, Offsets

SMALL: Final = 512
"""Of fewer objects of one shape a block costs more than it saves (measured)."""

_FIELDS: Final = 24
"""Number of fields of an object that there is room for at first."""


class ObjectReader:
    """Reads schemaless JSON: objects as spans, what the loop leaves undecided as values.

    The shapes that it has seen are kept up to a limit, so that each is known by its number from batch to batch.
    """

    def __init__(self) -> None:
        self._others = SchemalessReader()
        # A route is checked without NumPy.
        self._shapes: _Shapes | None = None
        # Loops release the interpreter's lock.
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), ()

    def read(self, rows: Positions, texts: Sequence[bytes]) -> Decoded:
        """Return the blocks of these texts: objects by their shape, those of rare shapes together."""
        blocks: list[Block] = []
        undecided: list[int] = []
        start = 0
        while start < len(texts):
            scanned = self._scanned(texts[start:] if start else texts)
            done = len(scanned.ids)
            own_rows = rows if done == len(rows) else rows[start : start + done]
            blocks += _blocks(own_rows, scanned)
            if scanned.left:
                undecided += (np.flatnonzero(scanned.ids == loops.UNDECIDED) + start).tolist()
            start += done
        if not undecided:
            return blocks, {}
        others, errors = self._others.read(rows[undecided], [texts[index] for index in undecided])
        return blocks + others, errors

    def _scanned(self, texts: Sequence[bytes]) -> _Scanned:
        """Scan texts, as many as there is room for their shapes."""
        count = len(texts)
        is_ascii, data, offsets = joined_texts(texts)
        spans, heads = np.empty(2 * (count * _FIELDS + loops.MAX_FIELDS), np.int64), np.empty(2 * count, np.int64)
        with self._lock:
            shapes = self._shapes = self._shapes or _Shapes()
            shapes.counters[: loops.NODES] = done = 0
            while (done := loops.scan(data, offsets, done, heads, spans, *shapes.buffers)) < count:
                if not shapes.is_full:
                    halves = spans.reshape(2, -1)
                    spans = np.concatenate([halves, np.empty_like(halves)], axis=1).reshape(-1)
                elif done:
                    break
                else:
                    shapes = self._shapes = _Shapes()
            _, alike, left = shapes.counters[: loops.NODES].tolist()
        ids = heads[count : count + done]
        if not is_ascii and (wrong := invalid_utf8(texts[:done])):
            ids[wrong] = loops.UNDECIDED
            alike, left = np.count_nonzero(ids == ids[0]), np.count_nonzero(ids == loops.UNDECIDED)
        return _Scanned(Texts(texts, data, offsets, heads[:count], spans), ids, shapes, alike == done, left)


class _Scanned(NamedTuple):
    """Texts with the values of their fields.

    Attributes:
        source: the texts.
        ids: node of the shape of each that was scanned.
        shapes: the tree of shapes.
        are_alike: whether they have one shape.
        left: number of undecided ones.
    """

    source: Texts
    ids: Offsets
    shapes: _Shapes
    are_alike: bool
    left: int


class _Shapes:
    """The tree of shapes, see `turnout.loops.json`."""

    def __init__(self) -> None:
        self.counters = np.zeros(6, np.int64)
        self.counters[loops.NODES] = 1
        self._tables = np.zeros(loops.TABLES_SIZE, np.int32)
        self._name_bytes = np.zeros(loops.MAX_NAME_BYTES + loops.PADDING, np.uint8)
        self.buffers = self._tables, self._name_bytes, self.counters
        self._layouts: dict[int, Layout] = {}
        self._names: dict[int, str] = {}
        self._together = np.zeros(0, np.int64), np.zeros(0, np.int32), Layouts(())

    @property
    def is_full(self) -> bool:
        """True if another object of any shape may not find room."""
        counters = self.counters
        room_for_names = loops.MAX_NAME_BYTES - int(self._tables[loops.NAME_OFFSETS + counters[loops.NAMES]])
        return (
            int(counters[loops.NODES]) + loops.MAX_FIELDS > loops.MAX_NODES
            or room_for_names < loops.MAX_FIELDS * loops.MAX_NAME
        )

    def layout(self, shape: int) -> Layout:
        """Return the fields of a shape, each in its place."""
        layout = self._layouts.get(shape)
        if layout is None:
            names: list[str] = []
            node = shape
            while node:
                parent, name = self._tables[node * loops.NODE_SIZE : node * loops.NODE_SIZE + 2].tolist()
                names.append(self._name(name))
                node = parent
            names.reverse()
            layout = self._layouts[shape] = Layout(tuple(names), {name: slot for slot, name in enumerate(names)})
        return layout

    def layouts(self, shapes: Offsets) -> tuple[Codes, Layouts]:
        """Return the layouts of shapes and perhaps of others, and by shape which is its."""
        known, table, layouts = self._together
        if shapes[-1] >= len(table) or (table[shapes] < 0).any():
            known = np.union1d(known, shapes)
            if len(known) > 2 * len(shapes):
                # Where new shapes keep coming, what is derived from all would be derived again and again.
                known = shapes
            table = np.full(int(known[-1]) + 1, -1, np.int32)
            table[known] = np.arange(len(known))
            layouts = Layouts([self.layout(shape) for shape in known.tolist()])
            self._together = known, table, layouts
        return table, layouts

    def _name(self, number: int) -> str:
        name = self._names.get(number)
        if name is None:
            at = loops.NAME_OFFSETS + number
            begin, end = self._tables[at : at + 2].tolist()
            name = self._names[number] = self._name_bytes[begin:end].tobytes().decode()
        return name


def _blocks(rows: Positions, scanned: _Scanned) -> list[Block]:
    """Return the objects that were decided in blocks."""
    source, ids, shapes, are_alike, left = scanned
    if are_alike:
        if left:
            return []
        return [_of_shape(rows, Spans(source, rows_of(len(rows)), shapes.layout(int(ids[0])).names))]
    counts = np.bincount(np.maximum(ids, 0))
    counts[0] = 0
    found = np.flatnonzero(counts)
    is_rare = counts[found] < SMALL
    if np.count_nonzero(is_rare) == 1:
        is_rare[:] = False
    blocks = []
    for shape in found[~is_rare].tolist():
        own = np.flatnonzero(ids == shape)
        blocks.append(_of_shape(rows[own], Spans(source, own, shapes.layout(shape).names)))
    if is_rare.any():
        table, layouts = shapes.layouts(found[is_rare])
        counts[found[~is_rare]] = 0
        own = np.flatnonzero(counts[np.maximum(ids, 0)])
        blocks.append(Block.mixed(rows[own], MixedObjects(Spans(source, own), layouts, table[ids[own]], ANY_VALUE)))
    return blocks


def _of_shape(rows: Positions, spans: Spans) -> Block:
    return Block.closed(rows, None, SpanColumn(spans, 0, ANY_VALUE), _columns)


def _columns(members: Column) -> Columns:
    spans = cast("SpanColumn", members).spans
    return {name: SpanColumn(spans, slot, ANY_VALUE) for slot, name in enumerate(spans.names or ())}


ANY_VALUE: Final = SpanKind(SCHEMALESS, True, reader_of(list[Schemaless], schemaless_decoder, read_schemaless))
"""Values of any kind."""


JSON_CONVERTER: Final = "org.apache.kafka.connect.json.JsonConverter"
"""Connect's class for JSON, with and without schemas."""

# A number that is none, outside of a text; JSON has no such thing, but many programs write it. A text that is not
# closed goes to the end: a search behind its quote would read the rest once for each quote.
_NOT_A_NUMBER = re.compile(rb'("(?:[^"\\]++|\\.)*+"?)|(-?\bInfinity\b|\bNaN\b)', re.DOTALL)


@dataclass(frozen=True, slots=True)
class SchemalessJson:
    """The format ``json``: any JSON; the JSON null is a tombstone.

    Values are written without their schema, if they have one.
    """

    format: ClassVar[str] = "json"
    class_name: ClassVar[str] = JSON_CONVERTER

    _reader: ObjectReader = field(default_factory=ObjectReader, compare=False)

    def decode(self, rows: Positions, texts: Sequence[bytes | None]) -> Decoded:
        """See `Codec.decode`."""
        return with_tombstones(rows, texts, self._reader.read)

    def encode(self, block: Block) -> Sequence[bytes | None]:
        """See `Codec.encode`."""
        return attempt(*encode_json(block))

    def schema(self) -> Schema | None:
        """Return None: the format has no schema."""
        return None


class TypedJson:
    """The format ``json`` with a ``schema``: objects with declared fields, as structs.

    What Spark's ``from_json`` reads is read: fields that are not declared are left out, missing ones are null, a
    ``STRING`` takes the JSON of anything, a ``TIMESTAMP`` any part of ISO 8601 or seconds, a ``DECIMAL`` also a text.
    The JSON null is a tombstone. Single quotes, and text behind the object, are refused.
    """

    format: ClassVar[str] = "json"
    class_name: ClassVar[str] = JSON_CONVERTER

    def __init__(self, ddl: str) -> None:
        """A codec of the columns that *ddl* declares.

        Raises:
            DdlError: when it cannot be read.
        """
        declared = parse_ddl(ddl)
        self._schema = declared.schema
        self._reader = Reader.declared(declared)

    def decode(self, rows: Positions, texts: Sequence[bytes | None]) -> Decoded:
        """See `Codec.decode`."""
        return with_tombstones(rows, texts, self._read)

    def _read(self, rows: Positions, texts: Sequence[bytes]) -> Decoded:
        blocks, errors = self._reader.read(rows, texts)
        again = {row: text for row in errors if (text := _with_texts(texts[int(np.searchsorted(rows, row))]))}
        if again:
            more, failed = self._reader.read(np.array(list(again), np.intp), list(again.values()))
            blocks += more
            errors = {row: error for row, error in errors.items() if row not in again or row in failed}
        return [block if block.kind != "null" else block.nulls(None) for block in blocks], errors

    def encode(self, block: Block) -> Sequence[bytes | None]:
        """See `Codec.encode`."""
        return attempt(*encode_json(block))

    def schema(self) -> Schema | None:
        """Return the declared struct."""
        return self._schema


def _with_texts(text: bytes) -> bytes | None:
    """Replace NaN and infinities by strings in a JSON text; None if it contains neither."""
    if b"NaN" not in text and b"Infinity" not in text:
        return None
    replaced = _NOT_A_NUMBER.sub(lambda match: match[1] or b'"%s"' % match[2], text)
    return replaced if replaced != text else None


def _ddl_columns(value: object) -> str:
    """Return the columns of a struct, if they can be read."""
    if not isinstance(value, str):
        raise ValueError(f"expected a DDL string, found {value!r}")  # noqa: TRY004 - reported like every other error here
    try:
        parse_ddl(value)
    except DdlError as error:
        raise ValueError(f"{error}, in {value!r}") from error
    return value


def _codec(*, schema: str | None, mapping: str | None, original_names: bool) -> Codec:
    if mapping == "PROTOBUF":
        if schema is not None:
            raise ValueError("expected either schema or mapping: protobuf")
        from turnout.codecs.protobuf.json_mapping import ProtobufJson

        return ProtobufJson(original_names=original_names)
    return SchemalessJson() if schema is None else TypedJson(schema)


def _mapping(value: object) -> str:
    word = str(value).upper()
    if word not in ("PLAIN", "PROTOBUF"):
        raise ValueError(f"expected plain or protobuf, found {value!r}")
    return word


KIND: Final = CodecKind(
    "json",
    JSON_CONVERTER,
    "JSON: schemaless values of any shape, or with `schema` a struct of these fields",
    _codec,
    settings=(
        Option(
            "schema",
            Kind(_ddl_columns, {"type": ["string", "null"]}),
            "the columns of a struct: carrier STRING, delay DOUBLE",
            None,
        ),
        Option(
            "mapping",
            Kind(
                _mapping,
                {"anyOf": [{"type": "null"}, {"type": "string", "pattern": "^(?:plain|protobuf|PLAIN|PROTOBUF)$"}]},
            ),
            "how values with a schema are written: plain, or protobuf as in Protobuf's JSON mapping, which is the "
            "default where values are read as protobuf",
            None,
        ),
        flag(
            "original.names",
            "whether Protobuf's JSON mapping has the fields' own names, and not lowerCamelCase",
            default=False,
        ),
    ),
)
