"""Schemaless JSON objects read as spans of their fields, by `turnout.loops.json`; other values one by one."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Final, NamedTuple, cast

from turnout.base.deferred import np
from turnout.codecs.codec import Decoded
from turnout.codecs.json_leaf_readers import Schemaless, read_schemaless
from turnout.codecs.json_reading import SchemalessReader, invalid_utf8, joined_texts, reader_of, schemaless_decoder
from turnout.loops import json as loops
from turnout.records import Block, Positions
from turnout.records.block import rows_of
from turnout.records.spans import SCHEMALESS, Layout, MixedObjects, SpanColumn, SpanKind, Spans, Texts
from turnout.records.types import Column, Columns, Offsets

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
        joined, data, offsets = joined_texts(texts)
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
        if not joined.isascii() and (wrong := invalid_utf8(texts[:done])):
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
        self._name_bytes = np.zeros(loops.MAX_NAME_BYTES, np.uint8)
        self.buffers = self._tables, self._name_bytes, self.counters
        self._layouts: dict[int, Layout] = {}
        self._names: dict[int, str] = {}

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
    if len(rows) < SMALL:
        return _few_blocks(rows, scanned)
    order = np.argsort(ids, kind="stable")
    order = order[np.searchsorted(ids[order], 0) :]
    found, starts, counts = np.unique(ids[order], return_index=True, return_counts=True)
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
        layout_ids = np.searchsorted(found[is_rare], ids[own]).astype(np.int32)
        blocks.append(Block.mixed(rows[own], MixedObjects(Spans(source, own), layouts, layout_ids, ANY_VALUE)))
    return blocks


def _few_blocks(rows: Positions, scanned: _Scanned) -> list[Block]:
    """Return the objects that were decided, of which no shape has many."""
    source, ids, shapes, _, left = scanned
    numbers: dict[int, int] = {}
    all_ids = [numbers.setdefault(shape, len(numbers)) for shape in ids.tolist() if shape != loops.UNDECIDED]
    own = np.flatnonzero(ids != loops.UNDECIDED) if left else rows_of(len(rows))
    layouts = [shapes.layout(shape) for shape in numbers]
    if len(layouts) == 1:
        return [_of_shape(rows[own], Spans(source, own, layouts[0].names))]
    objects = MixedObjects(Spans(source, own), layouts, np.array(all_ids, np.int32), ANY_VALUE)
    return [Block.mixed(rows[own] if left else rows, objects)]


def _of_shape(rows: Positions, spans: Spans) -> Block:
    return Block.closed(rows, None, SpanColumn(spans, 0, ANY_VALUE), _columns)


def _columns(members: Column) -> Columns:
    spans = cast("SpanColumn", members).spans
    return {name: SpanColumn(spans, slot, ANY_VALUE) for slot, name in enumerate(spans.names or ())}


ANY_VALUE: Final = SpanKind(SCHEMALESS, True, reader_of(list[Schemaless], schemaless_decoder, read_schemaless))
"""Any values."""
