"""Schemaless JSON objects read as spans of their fields, by `turnout.loops.json`; other values one by one."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import cache
from typing import Final

import msgspec

from turnout.base.deferred import np
from turnout.codecs.codec import Decoded
from turnout.codecs.json_leaf_readers import Schemaless, read_schemaless
from turnout.codecs.json_reading import SchemalessReader, schemaless_decoder
from turnout.loops import json as loops
from turnout.records import Block, Positions
from turnout.records.spans import Layout, MixedObjects, SpanColumn, Spans, Texts
from turnout.records.types import Codes, Column, DynamicValue, NewColumn, Octets, Offsets

SMALL: Final = 512
"""Of fewer objects of one shape a block costs more than it saves (measured)."""

_MAX_NODES: Final = 1 << 16
_MAX_NAME_BYTES: Final = 1 << 20
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
            source, shape_ids, shapes = self._scanned(texts[start:] if start else texts)
            if not source.is_ascii:
                _refuse_invalid_utf8(source, shape_ids)
            own_rows = rows[start : start + len(shape_ids)]
            blocks += _blocks(own_rows, source, shape_ids, shapes)
            undecided += (np.flatnonzero(shape_ids == loops.UNDECIDED) + start).tolist()
            start += len(shape_ids)
        if not undecided:
            return blocks, {}
        others, errors = self._others.read(rows[undecided], [texts[index] for index in undecided])
        return blocks + others, errors

    def _scanned(self, texts: Sequence[bytes]) -> tuple[Texts, Codes, _Shapes]:
        """Scan texts; return the shape of each, of as many as there is room for their shapes."""
        count = len(texts)
        joined = b"\0".join((*texts, bytes(loops.PADDING)))
        data = np.frombuffer(joined, np.uint8)
        offsets = np.zeros(count + 1, np.int64)
        np.add.accumulate(np.fromiter(map(len, texts), np.int64, count) + 1, out=offsets[1:])
        begins, ends = np.empty((2, count * _FIELDS + loops.MAX_FIELDS), np.int64)
        firsts, shape_ids = np.zeros(count, np.int64), np.empty(count, np.int32)
        with self._lock:
            shapes = self._shapes = self._shapes or _Shapes()
            shapes.counters[loops.FIELDS] = done = 0
            while (done := loops.scan(data, offsets, done, begins, ends, firsts, shape_ids, *shapes.buffers)) < count:
                if not shapes.is_full:
                    begins, ends = (np.concatenate([one, np.empty_like(one)]) for one in (begins, ends))
                elif done:
                    break
                else:
                    shapes = self._shapes = _Shapes()
        source = Texts(texts, data, offsets, begins, ends, firsts, _read_values, is_ascii=joined.isascii())
        return source, shape_ids[:done], shapes


class _Shapes:
    """The tree of shapes, see `turnout.loops.json`."""

    def __init__(self) -> None:
        self.counters = np.zeros(4, np.int64)
        self.counters[loops.NODES] = 1
        self._nodes = np.zeros(_MAX_NODES * loops.NODE_SIZE, np.int32)
        self._name_offsets = np.zeros(_MAX_NODES + 1, np.int32)
        self._name_bytes = np.zeros(_MAX_NAME_BYTES, np.uint8)
        slots = 2 << (_MAX_NODES - 1).bit_length()
        self.buffers = (
            self._nodes,
            np.zeros(slots, np.int32),
            self._name_offsets,
            self._name_bytes,
            np.zeros(slots, np.int32),
            np.zeros(_MAX_NODES, np.int64),
            self.counters,
        )
        self._layouts: dict[int, Layout] = {}
        self._names: dict[int, str] = {}

    @property
    def is_full(self) -> bool:
        """True if another object of any shape may not find room."""
        counters = self.counters
        room_for_names = _MAX_NAME_BYTES - int(self._name_offsets[counters[loops.NAMES]])
        return (
            int(counters[loops.NODES]) + loops.MAX_FIELDS > _MAX_NODES
            or room_for_names < loops.MAX_FIELDS * loops.MAX_NAME
        )

    def layout(self, shape: int) -> Layout:
        """Return the fields of a shape, each in its place."""
        layout = self._layouts.get(shape)
        if layout is None:
            names: list[str] = []
            node = shape
            while node:
                parent, name = self._nodes[node * loops.NODE_SIZE : node * loops.NODE_SIZE + 2].tolist()
                names.append(self._name(name))
                node = parent
            names.reverse()
            layout = self._layouts[shape] = Layout(tuple(names), {name: slot for slot, name in enumerate(names)})
        return layout

    def _name(self, number: int) -> str:
        name = self._names.get(number)
        if name is None:
            begin, end = self._name_offsets[number : number + 2].tolist()
            name = self._names[number] = self._name_bytes[begin:end].tobytes().decode()
        return name


def _refuse_invalid_utf8(source: Texts, shape_ids: Codes) -> None:
    """Leave texts undecided that are not UTF-8."""
    for index, text in enumerate(source.texts[: len(shape_ids)]):
        if not text.isascii():
            try:
                text.decode()
            except UnicodeDecodeError:
                shape_ids[index] = loops.UNDECIDED


def _blocks(rows: Positions, source: Texts, shape_ids: Codes, shapes: _Shapes) -> list[Block]:
    """Return the objects that were decided in blocks."""
    first = int(shape_ids[0])
    if first != loops.UNDECIDED and (shape_ids == first).all():
        return [_of_shape(rows, Spans(source, np.arange(len(rows)), shapes.layout(first).names))]
    if len(rows) < SMALL:
        return _few_blocks(rows, source, shape_ids, shapes)
    order = np.argsort(shape_ids, kind="stable")
    order = order[np.searchsorted(shape_ids[order], 0) :]
    found, starts, counts = np.unique(shape_ids[order], return_index=True, return_counts=True)
    blocks = []
    is_rare = counts < SMALL
    if np.count_nonzero(is_rare) == 1:
        is_rare[:] = False
    for number in np.flatnonzero(~is_rare).tolist():
        own = order[starts[number] : starts[number] + counts[number]]
        names = shapes.layout(int(found[number])).names
        blocks.append(_of_shape(rows[own], Spans(source, own, names)))
    rare = found[is_rare].tolist()
    if rare:
        own = np.sort(order[np.repeat(is_rare, counts)])
        layouts = [shapes.layout(shape) for shape in rare]
        layout_ids = np.searchsorted(found[is_rare], shape_ids[own]).astype(np.int32)
        blocks.append(Block.mixed(rows[own], MixedObjects(Spans(source, own), layouts, layout_ids)))
    return blocks


def _few_blocks(rows: Positions, source: Texts, shape_ids: Codes, shapes: _Shapes) -> list[Block]:
    """Return the objects that were decided, of which no shape has many."""
    numbers: dict[int, int] = {}
    all_ids = [numbers.setdefault(shape, len(numbers)) for shape in shape_ids.tolist() if shape != loops.UNDECIDED]
    own = np.arange(len(rows)) if len(all_ids) == len(rows) else np.flatnonzero(shape_ids != loops.UNDECIDED)
    layouts = [shapes.layout(shape) for shape in numbers]
    if len(layouts) == 1:
        return [_of_shape(rows[own], Spans(source, own, layouts[0].names))]
    if not layouts:
        return []
    return [Block.mixed(rows[own], MixedObjects(Spans(source, own), layouts, np.array(all_ids, np.int32)))]


def _of_shape(rows: Positions, spans: Spans) -> Block:
    return Block(rows, None, columns={name: SpanColumn(spans, slot) for slot, name in enumerate(spans.names or ())})


def _read_values(data: Octets, begins: Offsets, ends: Offsets) -> Column:
    """Return values as their spans have them."""
    out = np.empty(int((ends - begins).sum()) + len(begins) + 2, np.uint8)
    size = loops.join(data, begins, ends, out)
    try:
        values: NewColumn = _array_decoder().decode(out[:size].data)
    except msgspec.ValidationError:
        spans = zip(begins.tolist(), ends.tolist(), strict=True)
        values = [_read_value(data[begin:end].tobytes()) for begin, end in spans]
    return values


def _read_value(text: bytes) -> DynamicValue:
    try:
        return schemaless_decoder().decode(text)
    except msgspec.ValidationError:
        return read_schemaless(text)


@cache
def _array_decoder() -> msgspec.json.Decoder[NewColumn]:
    return msgspec.json.Decoder(list[Schemaless])
