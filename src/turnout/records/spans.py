"""Fields of JSON objects as spans of the texts they came in: bytes until someone asks for a value."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from turnout.base.startup import DeferredModule, np
from turnout.loops.texts import weave
from turnout.records.types import Binaries, Codes, Column, DynamicValue, Mask, NewColumn, Octets, Offsets, Strings

if TYPE_CHECKING:
    import pyarrow as pa
else:
    pa = DeferredModule("pyarrow")

Bounds: TypeAlias = "tuple[Offsets, Offsets]"
"""Begin and end of each value of a column in its content."""

Slices: TypeAlias = "tuple[bytes, Bounds]"
"""Content with the bounds of a column's values."""


class ArrowBytes(Sequence["bytes | None"]):
    """Bytes of an Arrow array without nulls, of which objects are made as they are asked for, and all where many are.

    Args:
        array: the array, of the type ``binary``.

    >>> import pyarrow as pa
    >>> texts = ArrowBytes(pa.array([b"Oulu", b""]))
    >>> None in texts, b"" in texts, list(texts)
    (False, True, [b'Oulu', b''])
    """

    def __init__(self, array: Binaries) -> None:
        self.array = array
        self._reads = 0

    @classmethod
    def of_offsets(cls, data: Octets, offsets: Offsets) -> Sequence[bytes]:
        """Return the bytes between adjacent offsets; a list of a few, or where Arrow has no room for them."""
        if len(offsets) <= MAX_LISTED_VALUES or offsets[-1] > _MAX_ARROW_BYTES:
            raw = data.tobytes()
            return [raw[begin:end] for begin, end in pairwise(offsets.tolist())]
        buffers = [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(data)]
        return cls(pa.Array.from_buffers(pa.binary(), len(offsets) - 1, buffers))  # type: ignore[return-value]

    @property
    def buffers(self) -> tuple[Octets, Codes]:
        """All bytes, and the offset of each value in them, with the end of the last."""
        _, offsets, data = self.array.buffers()
        first = self.array.offset
        return np.frombuffer(data or b"", np.uint8), np.frombuffer(offsets, np.int32)[first : first + len(self) + 1]

    @cached_property
    def _listed(self) -> list[bytes]:
        raw, offsets = joined_bytes(self)
        return [raw[begin:end] for begin, end in pairwise(offsets.tolist())]

    def chosen(self, indices: Offsets, take: Callable[[Column], Column]) -> ArrowBytes:  # noqa: ARG002 - as columns
        """Return the values at some indices."""
        return ArrowBytes(self.array.take(pa.array(indices)))

    def __len__(self) -> int:
        return len(self.array)

    def __getitem__(self, index: int | slice) -> DynamicValue:
        self._reads += 1
        if self._reads > MAX_LISTED_VALUES or isinstance(index, slice):
            return self._listed[index]
        return self.array[index].as_py()

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._listed)

    def __contains__(self, value: object) -> bool:
        if value == b"":
            offsets = self.buffers[1]
            return bool((offsets[1:] == offsets[:-1]).any())
        return value is not None and value in self._listed

    def __eq__(self, other: object) -> bool:
        return self._listed == (list(other) if isinstance(other, ArrowBytes) else other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(self._listed)


class ArrowTexts(Sequence["str | None"]):
    """Texts of an Arrow array, of which objects are made at the first access to one.

    Args:
        array: the array, of the type ``string``.
    """

    def __init__(self, array: Strings) -> None:
        self.array = array

    @cached_property
    def _listed(self) -> list[str | None]:
        return self.array.to_pylist()  # type: ignore[no-any-return]

    def bounds(self) -> tuple[Octets, Bounds]:
        """Return bytes with the texts, and begin and end of each; of a null the end is before the begin."""
        _, offsets, data = self.array.buffers()
        first, is_null = self.array.offset, self.array.is_null().to_numpy(zero_copy_only=False)
        edges = np.frombuffer(offsets, np.int32)[first : first + len(self) + 1].astype(np.int64)
        bounds = np.where(is_null, 1, edges[:-1]), np.where(is_null, 0, edges[1:])
        return np.frombuffer(data or b"", np.uint8), bounds

    def __len__(self) -> int:
        return len(self.array)

    def __getitem__(self, index: int | slice) -> DynamicValue:
        return self._listed[index]

    def __iter__(self) -> Iterator[str | None]:
        return iter(self._listed)


def joined_bytes(texts: Sequence[bytes] | ArrowBytes) -> tuple[bytes, Offsets]:
    """Return values one behind another, and the offset of each, with the end of the last."""
    if isinstance(texts, ArrowBytes):
        data, edges = texts.buffers
        return data[edges[0] : edges[-1]].tobytes(), (edges - edges[0]).astype(np.int64)
    offsets = np.zeros(len(texts) + 1, np.int64)
    np.cumsum(np.fromiter(map(len, texts), np.int64, len(texts)), out=offsets[1:])
    return b"".join(texts), offsets


MAX_LISTED_VALUES: Final = 32
"""Number of values up to which a list is made in less time than an array."""

_MAX_ARROW_BYTES: Final = 2**31 - 1


class EncodedColumn(Sequence[object]):
    """Column of well-formed encoded values, which are decoded at the first access.

    Most fields of a record are only passed on: their bytes are copied from the input to the output, and no value is
    created.

    Args:
        form: form of the bytes; columns of equal forms may be written as each other.
        content: bytes that contain the values.
        bounds: bounds of the values in the content.
        read: function that decodes the values in given bounds.
        nullable: True if there may be nulls.
        find_texts: of texts, returns the bounds of their UTF-8 in given bounds, empty for nulls.
    """

    __slots__ = ("_read", "_values", "bounds", "content", "find_texts", "form", "nullable")

    def __init__(
        self,
        form: Hashable,
        content: bytes,
        bounds: Bounds,
        read: Callable[[Bounds], Column],
        *,
        nullable: bool,
        find_texts: Callable[[Bounds], Bounds] | None = None,
    ) -> None:
        self.find_texts = find_texts
        self.form = form
        self.content = content
        self.bounds = bounds
        self.nullable = nullable
        self._read = read
        self._values: Column | None = None

    @property
    def values(self) -> Column:
        """The values, which are read once."""
        if self._values is None:
            self._values = self._read(self.bounds)
        return self._values

    @property
    def slices(self) -> Slices:
        """Encoded bytes of the values."""
        return self.content, self.bounds

    def chosen(self, indices: Offsets, take: Callable[[Column], Column]) -> EncodedColumn:
        """Return the values at some indices, which *take* takes out of a column that was read."""
        begins, ends = self.bounds
        part = EncodedColumn(
            self.form,
            self.content,
            (begins[indices], ends[indices]),
            self._read,
            nullable=self.nullable,
            find_texts=self.find_texts,
        )
        if self._values is not None:
            part._values = take(self._values)
        return part

    def __len__(self) -> int:
        return len(self.bounds[0])

    def __getitem__(self, index: int | slice) -> DynamicValue:
        return self.values[index]

    def __iter__(self) -> Iterator[object]:
        return iter(self.values)

    def __contains__(self, value: object) -> bool:
        return (value is not None or self.nullable) and value in self.values

    def __eq__(self, other: object) -> bool:
        return list(self.values) == other

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(self.values)


Patch: TypeAlias = "tuple[Mask, Sequence[bytes]]"
"""Mask of some rows, and other bytes for these."""


class ColumnPieces:
    """Bytes of columns, to be joined value by value; of adjacent encoded columns one slice is taken for each value.

    Args:
        count: number of values of each column.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._contents: list[bytes] = []
        self._starts: dict[int, int] = {}
        self._size = 0
        self._columns: list[tuple[bytes, Offsets, Offsets] | None] = []
        self._listed: list[tuple[int, Sequence[bytes]]] = []
        self._patches: list[tuple[int, Patch]] = []

    def add(self, pieces: Sequence[bytes]) -> None:
        """Append the bytes of a column."""
        self._listed.append((len(self._columns), pieces))
        self._columns.append(None)

    def add_repeated(self, piece: bytes) -> None:
        """Append the same bytes to each value."""
        self.add_slices((piece, (np.zeros(self._count, np.int64), np.full(self._count, len(piece)))))

    def add_slices(self, slices: Slices, patch: Patch | None = None) -> None:
        """Append the bytes of an encoded column, with other ones in some rows."""
        content, (begins, ends) = slices
        if id(content) not in self._starts:
            self._starts[id(content)] = self._size
            self._contents.append(content)
            self._size += len(content)
        before = self._columns[-1] if self._columns else None
        is_patched = patch is not None or (bool(self._patches) and self._patches[-1][0] == len(self._columns) - 1)
        if patch is not None:
            self._patches.append((len(self._columns), patch))
        if before is not None and not is_patched and before[0] is content and np.array_equal(before[2], begins):
            self._columns[-1] = content, before[1], ends
        else:
            self._columns.append((content, begins, ends))

    def joined(self) -> Sequence[bytes]:
        """Return the bytes of all columns for each value."""
        if self._count <= MAX_LISTED_VALUES:
            return self._few_joined()
        bounds = np.empty((2, len(self._columns), self._count), np.int64)
        for number, column in enumerate(self._columns):
            if column is not None:
                start = self._starts[id(column[0])]
                np.add(column[1], start, out=bounds[0, number])
                np.add(column[2], start, out=bounds[1, number])
        listed = [piece for _, pieces in self._listed for piece in pieces]
        patched = [piece for _, (_, pieces) in self._patches for piece in pieces]
        content = b"".join([*self._contents, *listed, *patched])
        sizes = np.fromiter(map(len, chain(listed, patched)), np.int64, len(listed) + len(patched))
        ends = np.cumsum(sizes) + self._size
        numbers = [number for number, _ in self._listed]
        bounds[1, numbers] = ends[: len(listed)].reshape(len(numbers), self._count)
        bounds[0, numbers] = (ends - sizes)[: len(listed)].reshape(len(numbers), self._count)
        at = len(listed)
        for number, (mask, pieces) in self._patches:
            own = slice(at, at + len(pieces))
            bounds[:, number, mask] = ends[own] - sizes[own], ends[own]
            at += len(pieces)
        out = np.empty(int((bounds[1] - bounds[0]).sum()), np.uint8)
        offsets = np.empty(self._count + 1, np.int64)
        weave(np.frombuffer(content, np.uint8), bounds[0].reshape(-1), bounds[1].reshape(-1), out, offsets)
        return ArrowBytes.of_offsets(out, offsets)

    def _few_joined(self) -> list[bytes]:
        """Return the same without arrays, which take most of the time of a few values."""
        listed = dict(self._listed)
        columns = [listed[number] if one is None else sliced(*one) for number, one in enumerate(self._columns)]
        for number, (mask, pieces) in self._patches:
            columns[number] = _replaced(columns[number], pieces, mask)
        return list(map(b"".join, zip(*columns, strict=True))) if columns else [b""] * self._count


def sliced(content: bytes, begins: Offsets, ends: Offsets) -> list[bytes]:
    """Return the bytes of each value."""
    return [content[begin:end] for begin, end in zip(begins.tolist(), ends.tolist(), strict=True)]


Read: TypeAlias = Callable[[Octets, Offsets, Offsets], Column]
"""Decodes the values between these begins and ends."""


SCHEMALESS: Final = "schemaless"
"""Form of the bytes of values without a schema; others have their schema's type."""


class SpanKind(NamedTuple):
    """Kind of the values of a field.

    Attributes:
        form: form of their bytes, by which writers know whether they may copy them.
        nullable: whether there may be nulls.
        read: decodes them.
    """

    form: str
    nullable: bool
    read: Read


class Texts:
    """JSON texts one behind another, and the values of their fields.

    Attributes:
        texts: each text.
        data: all texts, a zero behind each.
        offsets: offset of each text in the data, and of the one that would follow the last.
        firsts: for each text the index of its first value.
        spans: begin of each value in the data, those of a text adjacent; in the other half the end of each.
    """

    def __init__(self, texts: Sequence[bytes], data: Octets, offsets: Offsets, firsts: Offsets, spans: Offsets) -> None:
        self.texts = texts
        self.data = data
        self.offsets = offsets
        self.firsts = firsts
        self.spans = spans

    @cached_property
    def has_escapes(self) -> bool:
        """True if a string may not be what is between its quotes."""
        return bool((self.data == _BACKSLASH).any())


_BACKSLASH: Final = 92


class Spans:
    """Some of the texts.

    Attributes:
        source: all texts.
        records: the numbers of these.
        names: the names in each of these texts, in their order; None if they differ.
    """

    __slots__ = ("_last", "names", "records", "source")

    def __init__(self, source: Texts, records: Offsets, names: tuple[str, ...] | None = None) -> None:
        self.source = source
        self.records = records
        self.names = names
        self._last: tuple[Offsets, Spans] | None = None

    def taken(self, indices: Offsets) -> Spans:
        """Return the texts at these indices: the same object for each column of a block."""
        if self._last is None or self._last[0] is not indices:
            self._last = indices, Spans(self.source, self.records[indices], self.names)
        return self._last[1]

    def joined(self, parts: Sequence[Spans], order: Offsets) -> Spans:
        """Return the texts of several parts of the same texts in this order."""
        return Spans(self.source, np.concatenate([part.records for part in parts])[order], self.names)


class SpanColumn(EncodedColumn):
    """Column of the values of a field.

    Attributes:
        spans: the texts.
        slot: which of its text's values a value is, for all records or for each.
        kind: what they are.
    """

    __slots__ = ("kind", "slot", "spans")

    def __init__(self, spans: Spans, slot: int | Offsets, kind: SpanKind) -> None:
        self.form = kind.form
        self.nullable = kind.nullable
        self.spans = spans
        self.slot = slot
        self.kind = kind
        self._values = None

    @property
    def values(self) -> Column:
        """The values, which are read once."""
        if self._values is None:
            data, bounds = self.data_bounds()
            self._values = self.kind.read(data, *bounds)
        return self._values

    def data_bounds(self) -> tuple[Octets, Bounds]:
        """Return the texts, and the bounds of the values in them."""
        source = self.spans.source
        index = source.firsts[self.spans.records] + self.slot
        return source.data, (source.spans[index], source.spans[len(source.spans) // 2 + index])

    def chosen(self, indices: Offsets, take: Callable[[Column], Column]) -> SpanColumn:
        """See `EncodedColumn.chosen`."""
        slot = self.slot if isinstance(self.slot, int) else self.slot[indices]
        part = SpanColumn(self.spans.taken(indices), slot, self.kind)
        if self._values is not None:
            part._values = take(self._values)
        return part

    def __len__(self) -> int:
        return len(self.spans.records)


class NumberColumn(EncodedColumn):
    """Column of integers or moments, none of them null: an array whose objects are made at the first access.

    Attributes:
        numbers: the integers, or milliseconds since 1970.
        kind: type of the objects.
    """

    __slots__ = ("kind", "numbers")

    def __init__(self, numbers: Offsets, kind: type[int]) -> None:
        self.form = None
        self.nullable = False
        self.numbers = numbers
        self.kind = kind
        self._values = None

    @property
    def values(self) -> Column:
        """The values, which are made once."""
        if self._values is None:
            numbers = self.numbers.tolist()
            self._values = numbers if self.kind is int else list(map(self.kind, numbers))
        return self._values

    def chosen(self, indices: Offsets, take: Callable[[Column], Column]) -> NumberColumn:  # noqa: ARG002 - as the others
        """See `EncodedColumn.chosen`."""
        return NumberColumn(self.numbers[indices], self.kind)

    def __len__(self) -> int:
        return len(self.numbers)


def is_repeated(values: Column) -> bool:
    """Return True if all values are one text, which is then written once."""
    return (
        type(values) is list and len(values) > 0 and type(values[0]) is str and values.count(values[0]) == len(values)
    )


_FEW_NUMBERS: Final = 16
"""Of so few numbers a list is made in less time."""


def numbers_of(values: Column, kind: type[int]) -> Column:
    """Return integers as a column of a type; null stays null.

    >>> numbers_of([1, 2], int), numbers_of([True, None], int)
    ([1, 2], [1, None])
    """
    if len(values) > _FEW_NUMBERS and None not in values:
        with suppress(OverflowError):
            return NumberColumn(np.array(values, np.int64), kind)
    return [None if value is None else kind(value) for value in values]


class PatchedColumn(EncodedColumn):
    """Column of a field some of whose values were replaced.

    Attributes:
        base: the column as it was read.
        patch: the new values.
        mask: True for the rows that have them.
    """

    __slots__ = ("base", "mask", "patch")

    def __init__(self, base: EncodedColumn, patch: Column, mask: Mask) -> None:
        self.form = base.form
        self.nullable = True
        self.base = base
        self.patch = patch
        self.mask = mask
        self._values = None

    @property
    def values(self) -> Column:
        """The values, old and new."""
        if self._values is None:
            self._values = _replaced(self.base, self.patch, self.mask)
        return self._values

    def chosen(self, indices: Offsets, take: Callable[[Column], Column]) -> PatchedColumn:
        """See `EncodedColumn.chosen`."""
        mask = self.mask[indices]
        numbers = (np.cumsum(self.mask) - 1)[indices[mask]].tolist()
        return PatchedColumn(self.base.chosen(indices, take), [self.patch[number] for number in numbers], mask)

    def written(self, write: Callable[[Column], Sequence[bytes]]) -> Patch | None:
        """Return the new values as *write* writes them; None if there are none."""
        return (self.mask, write(self.patch)) if len(self.patch) else None

    def __len__(self) -> int:
        return len(self.mask)


def replaced(old: Column, new: Column, mask: Mask) -> Column:
    """Return the old column, of which bytes stay bytes, with new values in the rows of a mask.

    >>> replaced([1, 2], ["b"], np.array([False, True]))
    [1, 'b']
    """
    if type(old) is SpanColumn or type(old) is EncodedColumn:
        return PatchedColumn(old, new, mask)
    if isinstance(old, PatchedColumn):
        patches = dict(zip(np.flatnonzero(old.mask).tolist(), old.patch, strict=True))
        patches |= zip(np.flatnonzero(mask).tolist(), new, strict=True)
        return PatchedColumn(old.base, [patches[row] for row in sorted(patches)], old.mask | mask)
    return _replaced(old, new, mask)


def _replaced(old: Column, new: Column, mask: Mask) -> NewColumn:
    values = list(old)
    for index, value in zip(np.flatnonzero(mask).tolist(), new, strict=True):
        values[index] = value
    return values


_MANY_LAYOUTS: Final = 1024
"""Number of layouts, beside one for each object, from which on those that do not occur are left out."""


class Layout:
    """The fields of an object in their order, and where the value of each is.

    Attributes:
        names: the names in the object's text.
        sources: for each field the number of a value in the text, or ``-1 - n`` for the added column *n*.
        kept: what was derived from this layout by steps, or for writing.
    """

    __slots__ = ("kept", "names", "sources")

    def __init__(self, names: tuple[str, ...], sources: Mapping[str, int]) -> None:
        self.names = names
        self.sources = sources
        self.kept: dict[object, Any] = {}

    def changed(self, key: object, change: Callable[[Mapping[str, int]], Mapping[str, int]]) -> Layout:
        """Return the layout of other sources; a change with the same key is made once."""
        layout: Layout | None = self.kept.get(key)
        if layout is None:
            layout = self.kept[key] = Layout(self.names, change(self.sources))
        return layout


class _Locations(NamedTuple):
    """Locations of some fields in the objects of each layout.

    Attributes:
        keys: the combinations that there are: for each field 0 if it is in the text, an added column's source, or None.
        combinations: the index of each layout's.
        slots: the number of each field in the text, for each layout.
    """

    keys: Sequence[tuple[int | None, ...]]
    combinations: Offsets
    slots: Offsets


class Layouts:
    """Layouts that come together, mostly from batch to batch.

    Attributes:
        items: each layout.
        kept: what was derived from all of them, so that many layouts take no time in the next batch.
    """

    __slots__ = ("items", "kept")

    def __init__(self, items: Sequence[Layout]) -> None:
        self.items = items
        self.kept: dict[object, Any] = {}

    def changed(self, key: object, change: Callable[[Mapping[str, int]], Mapping[str, int]]) -> Layouts:
        """Return these layouts changed, see `Layout.changed`."""
        changed: Layouts | None = self.kept.get(key)
        if changed is None:
            changed = self.kept[key] = Layouts([layout.changed(key, change) for layout in self.items])
        return changed

    def joined(self, others: Layouts) -> Layouts:
        """Return these layouts and others behind them."""
        joined: Layouts | None = self.kept.get(others)
        if joined is None:
            joined = self.kept[others] = Layouts([*self.items, *others.items])
        return joined

    def locations(self, names: tuple[str, ...]) -> _Locations:
        """Return where fields are."""
        locations: _Locations | None = self.kept.get(names)
        if locations is None:
            sources = [[layout.sources.get(name) for name in names] for layout in self.items]
            keys: dict[tuple[int | None, ...], int] = {}
            combinations = [
                keys.setdefault(tuple([source and min(source, 0) for source in own]), len(keys)) for own in sources
            ]
            slots = np.array([[max(source or 0, 0) for source in own] for own in sources], np.int64)
            locations = self.kept[names] = _Locations(list(keys), np.array(combinations), slots)
        return locations


class MixedObjects:
    """Schemaless objects of several shapes, as spans: content of a block.

    Attributes:
        spans: the texts of the objects.
        layouts: layouts, of which many may not occur.
        layout_ids: for each object the index of its layout.
        value_kind: what the values in the texts are.
        added: columns with a value for each object, which counts where the object's layout names the column.
    """

    __slots__ = ("added", "layout_ids", "layouts", "spans", "value_kind")
    kind: Final = "mixed"

    def __init__(
        self,
        spans: Spans,
        layouts: Layouts,
        layout_ids: Codes,
        value_kind: SpanKind,
        added: Sequence[Column] = (),
    ) -> None:
        self.spans = spans
        self.value_kind = value_kind
        self.layouts = layouts
        self.layout_ids = layout_ids
        self.added = added

    def take(self, take: Callable[[Column], Column], indices: Offsets) -> MixedObjects:
        """Return the objects at these indices."""
        added = [take(column) for column in self.added]
        return MixedObjects(self.spans.taken(indices), self.layouts, self.layout_ids[indices], self.value_kind, added)

    def whole(self, count: int) -> list[object]:
        """Return each object as a dict."""
        objects: NewColumn = [None] * count
        for indices, names, columns in self.parts():
            for index, *values in zip(indices.tolist(), *columns, strict=True):
                objects[index] = dict(zip(names, values, strict=True))
        return objects

    def parts(self) -> Iterator[tuple[Offsets, tuple[str, ...], list[Column]]]:
        """Yield the objects of each layout: their indices, names and columns."""
        order = np.argsort(self.layout_ids, kind="stable")
        ids, starts = np.unique(self.layout_ids[order], return_index=True)
        for number, indices in zip(ids.tolist(), np.split(order.astype(np.int64), starts[1:]), strict=True):
            layout = self.layouts.items[number]
            spans = Spans(self.spans.source, self.spans.records[indices], layout.names)
            columns: list[Column] = [
                SpanColumn(spans, source, self.value_kind)
                if source >= 0
                else [self.added[-1 - source][at] for at in indices.tolist()]
                for source in layout.sources.values()
            ]
            yield indices, tuple(layout.sources), columns

    def fields(self, names: Sequence[str], indices: Offsets | None) -> list[tuple[Offsets, dict[str, Column]]]:
        """Return these fields of the objects at *indices*, by the objects that have the same of them."""
        names = tuple(names)
        keys, combinations, slots = self.layouts.locations(names)
        if len(keys) == 1:
            everywhere = np.arange(len(self.layout_ids)) if indices is None else indices
            parts = [(keys[0], everywhere)]
        else:
            of_objects = combinations[self.layout_ids if indices is None else self.layout_ids[indices]]
            parts = []
            for number, key in enumerate(keys):
                own = np.flatnonzero(of_objects == number)
                if len(own):
                    parts.append((key, own if indices is None else indices[own]))
        found = []
        for key, own in parts:
            is_all = len(own) == len(self.layout_ids)
            spans = self.spans if is_all else Spans(self.spans.source, self.spans.records[own])
            columns: dict[str, Column] = {}
            for number, (name, source) in enumerate(zip(names, key, strict=True)):
                if source == 0:
                    columns[name] = SpanColumn(spans, slots[self.layout_ids[own], number], self.value_kind)
                elif source is not None:
                    added = self.added[-1 - source]
                    columns[name] = added if is_all else [added[index] for index in own.tolist()]
            found.append((own, columns))
        return found

    def column(self, name: str) -> Column:
        """Return the values of a field, None for an object that does not have it."""
        values: NewColumn = [None] * len(self.layout_ids)
        for indices, columns in self.fields((name,), None):
            for index, value in zip(indices.tolist(), columns.get(name, ()), strict=False):
                values[index] = value
        return values

    def changed(
        self, key: object, change: Callable[[Mapping[str, int]], Mapping[str, int]], indices: Offsets | None
    ) -> MixedObjects:
        """Return the objects with the layouts of those at *indices* changed; see `Layout.changed`."""
        layouts, ids = self.layouts, self.layout_ids
        if indices is not None and len(layouts.items) > len(ids) + _MANY_LAYOUTS:
            # Each change of a part doubles the layouts.
            used, own = np.unique(ids, return_inverse=True)
            layouts, ids = Layouts([layouts.items[number] for number in used.tolist()]), own.astype(np.int32)
        changed = layouts.changed(key, change)
        if indices is not None:
            moved = np.zeros(len(ids), np.int32)
            moved[indices] = len(layouts.items)
            ids, changed = (ids + moved).astype(np.int32), layouts.joined(changed)
        return MixedObjects(self.spans, changed, ids, self.value_kind, self.added)

    def with_field(self, name: str, column: Column, indices: Offsets | None) -> MixedObjects:
        """Return the objects with a field replaced, or added at the end, in those at *indices*; None for all.

        Args:
            name: the field.
            column: a value for each of *indices*.
            indices: the objects.
        """
        number = len(self.added)
        source = -1 - number
        changed = self.changed((name, number), lambda sources: {**sources, name: source}, indices)
        if indices is not None:
            values: NewColumn = [None] * len(self.layout_ids)
            for index, value in zip(indices.tolist(), column, strict=True):
                values[index] = value
            column = values
        return MixedObjects(changed.spans, changed.layouts, changed.layout_ids, self.value_kind, [*self.added, column])
