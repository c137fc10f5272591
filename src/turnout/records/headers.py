"""Headers of a batch: the headers of the input records, flat with offsets, and headers appended by stages."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import repeat
from typing import TYPE_CHECKING, Any

from turnout.base.startup import DeferredModule, np
from turnout.records.block import Positions, taking
from turnout.records.schema import Schema
from turnout.records.spans import ArrowTexts
from turnout.records.text import text_of
from turnout.records.types import ArrowArray, Binaries, Column, Strings, Value

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.compute as pc
    from numpy.typing import NDArray

    from turnout.records.batch import Pairs
else:
    pa, pc = DeferredModule("pyarrow"), DeferredModule("pyarrow.compute")


@cache
def headers_type() -> pa.DataType:
    """Return the Arrow type of the headers column: a list of structs for each record, as in Spark's Kafka source."""
    entry = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
    return pa.list_(pa.field("element", entry, nullable=True))


def as_type(column: ArrowArray, type_: pa.DataType) -> ArrowArray:
    """Return the column as a type: itself if it has that type, as a cast to it takes as long as a thousand values.

    Raises:
        pyarrow.ArrowInvalid: a value cannot be of that type.

    >>> import pyarrow as pa
    >>> numbers = pa.array([1, 2])
    >>> as_type(numbers, pa.int64()) is numbers, as_type(numbers, pa.string()).to_pylist()
    (True, ['1', '2'])
    """
    return column if column.type.equals(type_) else column.cast(type_)


_MAX_LISTED_HEADERS = 64
"""Number of headers of a batch up to which they are read from lists."""


@dataclass(frozen=True, slots=True)
class Header:
    """Header of a record.

    Attributes:
        name: as it is; names may repeat.
        value: original bytes, or a value of *schema*.
        schema: None for schemaless values, and for bytes off the wire.

    >>> from turnout.records import Schema
    >>> Header("origin", b"JFK").value, Header("distance", 1400, Schema("int32")).schema.type
    (b'JFK', 'int32')
    """

    name: str
    value: Value
    schema: Schema | None = None


@dataclass(slots=True)
class _Appended:
    """Header appended to some records."""

    rows: Positions
    name: str
    schema: Schema | None
    values: Column

    def without(self, dead: NDArray[np.bool_]) -> _Appended:
        keep = np.flatnonzero(~dead[self.rows])
        return _Appended(self.rows[keep], self.name, self.schema, [self.values[at] for at in keep.tolist()])


class Headers:
    """The headers of all records of a batch, in order.

    Args:
        count: how many records there are.
        names: names of all headers off the wire, record by record; null names are kept.
        values: their bytes.
        offsets: start of each record's headers, then the end of the last: ``count + 1`` numbers.

    >>> import pyarrow as pa
    >>> headers = Headers(2, pa.array(["a", "b"]), pa.array([b"1", b"2"]), np.array([0, 0, 2]))
    >>> headers.of(0), [(header.name, header.value) for header in headers.of(1)]
    ([], [('a', b'1'), ('b', b'2')])
    """

    def __init__(
        self,
        count: int,
        names: Strings | None = None,
        values: Binaries | None = None,
        offsets: NDArray[np.int64] | None = None,
    ) -> None:
        self.count = count
        if names is not None:
            self._names = names
        if values is not None:
            self._values = values
        if offsets is not None:
            self._owners = np.repeat(np.arange(count), np.diff(offsets))
        self._kept: NDArray[np.bool_] | None = None
        self._appended: list[_Appended] = []
        self._column: ArrowArray | None = None
        self._equal: dict[str, NDArray[np.bool_]] = {}
        self._pairs: Sequence[Pairs] = ()
        if offsets is not None and len(self._owners) > 0:
            few = len(self._owners) <= _MAX_LISTED_HEADERS
            self._listed = (self._names.to_pylist(), self._values.to_pylist()) if few else None

    @cached_property
    def _listed(self) -> tuple[list[str | None], list[bytes | None]] | None:
        """Names and values off the wire, if they are few: each call of Arrow takes as long as some comparisons."""
        listed = [pair for pairs in self._pairs for pair in pairs]
        return [name for name, _ in listed], [value for _, value in listed]

    @cached_property
    def _owners(self) -> NDArray[np.int64]:
        """The row of each header off the wire; none without offsets."""
        return np.array([row for row, pairs in enumerate(self._pairs) for _ in pairs], np.int64)

    @cached_property
    def _names(self) -> Strings:
        """Names of a batch whose headers off the wire are listed."""
        return pa.array(self._listed[0] if self._listed else [], pa.string())

    @cached_property
    def _values(self) -> Binaries:
        """Values of such a batch."""
        return pa.array(self._listed[1] if self._listed else [], pa.binary())

    @classmethod
    def of_pairs(cls, records: Sequence[Pairs]) -> Headers:
        """Build headers off the wire from the names and values of a few records."""
        headers = cls(len(records))
        headers._pairs = records
        return headers

    @classmethod
    def of_arrow(cls, column: ArrowArray) -> Headers:
        """Build headers from a column of lists of ``{key, value}``; a null list counts as empty."""
        if isinstance(column, pa.ChunkedArray):
            column = column.combine_chunks()
        if column.type.equals(pa.null()) or column.null_count == len(column):
            return cls(len(column))
        if column.null_count:
            # A null may have invisible entries behind it: flattening leaves them out.
            sizes = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False)
            offsets = np.concatenate([[0], np.cumsum(sizes)])
        else:
            offsets = np.asarray(column.offsets)
        pairs = column.flatten()
        names, values = as_type(pairs.field(0), pa.string()), as_type(pairs.field(1), pa.binary())
        headers = cls(len(column), names, values, offsets)
        if column.type.equals(headers_type()) and not column.null_count and not pairs.null_count:
            headers._column = column
        return headers

    @classmethod
    def of_lists(cls, records: Sequence[Iterable[Header]]) -> Headers:
        """Build headers from single records, whose values may have types."""
        headers = cls(len(records))
        for row, record_headers in enumerate(records):
            for header in record_headers:
                headers.append(np.array([row], np.intp), header.name, header.schema, [header.value])
        return headers

    def __bool__(self) -> bool:
        return len(self._owners) > 0 or bool(self._appended)

    def _named(self, name: str) -> NDArray[np.bool_]:
        """Return the mask of headers off the wire that have this name and were not removed."""
        equal = self._equal.get(name)
        if equal is None:
            equal = self._equal[name] = self._of_name(name)
        return equal if self._kept is None else equal & self._kept

    def names(self) -> list[str]:
        """Return the distinct names of all headers, also of some that were removed."""
        wire = [name for name in self._names.unique().to_pylist() if name is not None]
        return list(dict.fromkeys([*wire, *(appended.name for appended in self._appended)]))

    def _of_name(self, name: str) -> NDArray[np.bool_]:
        if self._listed is not None:
            return np.array([own == name for own in self._listed[0]], np.bool_)
        return pc.fill_null(pc.equal(self._names, name), False).to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]

    def has(self, name: str) -> NDArray[np.bool_]:
        """Return a mask of the records that have a header of that name."""
        present = np.zeros(self.count, np.bool_)
        if len(self._owners):
            present[self._owners[self._named(name)]] = True
        for appended in self._appended:
            if appended.name == name:
                present[appended.rows] = True
        return present

    def drop(self, names: Collection[str], rows: Positions) -> None:
        """Remove every header of one of these names from these records."""
        gone = np.zeros(len(self._owners), np.bool_)
        for name in names if len(gone) else ():
            gone |= self._named(name)
        self._remove(gone, rows, names.__contains__)

    def drop_where(self, matches: Callable[[str], bool], rows: Positions) -> None:
        """Remove every header whose name matches from these records; linear also if all names differ."""
        self._remove(self._where(matches), rows, matches)

    def _remove(self, wire: NDArray[np.bool_], rows: Positions, matches: Callable[[str], bool]) -> None:
        concerned = np.zeros(self.count, np.bool_)
        concerned[rows] = True
        if len(self._owners):
            gone = wire & concerned[self._owners]
            self._kept = ~gone if self._kept is None else self._kept & ~gone
        self._appended = [
            appended.without(concerned) if matches(appended.name) else appended for appended in self._appended
        ]

    def texts_where(self, matches: Callable[[str], bool], rows: Positions) -> Iterator[tuple[int, str, str | None]]:
        """Yield row, name and text of the headers of these records whose name matches; those of a record in order.

        The text is None where a value is not UTF-8. The time is linear also if all names differ.
        """
        concerned = np.zeros(self.count, np.bool_)
        concerned[rows] = True
        wire = self._where(matches)
        if self._kept is not None:
            wire = wire & self._kept
        positions = np.flatnonzero(wire & concerned[self._owners]) if len(wire) else np.zeros(0, np.intp)
        if len(positions):
            names = self._names.take(pa.array(positions)).to_pylist()
            yield from zip(self._owners[positions].tolist(), names, self._texts_of(positions), strict=True)
        for appended in self._appended:
            if not matches(appended.name):
                continue
            for row, value in zip(appended.rows.tolist(), appended.values, strict=True):
                if concerned[row]:
                    yield row, appended.name, text_of(value, appended.schema)

    def _where(self, matches: Callable[[str], bool]) -> NDArray[np.bool_]:
        """Return the mask of headers off the wire whose name matches, removed ones included."""
        if not len(self._owners):
            return np.zeros(0, np.bool_)
        encoded = self._names.dictionary_encode()
        flags = [name is not None and matches(name) for name in encoded.dictionary.to_pylist()]
        # The last flag is that of null names.
        codes = encoded.indices.fill_null(len(flags)).to_numpy(zero_copy_only=False)
        mask: NDArray[np.bool_] = np.array([*flags, False], np.bool_)[codes]
        return mask

    def wire(self) -> tuple[NDArray[np.int64], Sequence[str | None] | Strings, Sequence[bytes | None] | Binaries]:
        """Return rows, names and values of all headers off the wire, removed ones included; lists if they are few."""
        return (self._owners, *(self._listed or (self._names, self._values)))

    def append(self, rows: Positions, name: str, schema: Schema | None, values: Column) -> None:
        """Add a header behind the others of these records, with a value for each of them."""
        self._appended.append(_Appended(rows, name, schema, values))

    def named(self, names: Collection[str], rows: Positions) -> dict[int, list[Header]]:
        """Return the headers of these names by row, in their order, of the rows that have some; see `Header`."""
        found: dict[int, list[Header]] = {}
        concerned = np.zeros(self.count, np.bool_)
        concerned[rows] = True
        if len(self._owners):
            wire = concerned[self._owners] & np.logical_or.reduce([self._named(name) for name in names])
            for at in np.flatnonzero(wire).tolist():
                header = Header(self._names[at].as_py(), self._values[at].as_py())
                found.setdefault(int(self._owners[at]), []).append(header)
        for appended in self._appended:
            if appended.name in names:
                for row, value in zip(appended.rows.tolist(), appended.values, strict=True):
                    if concerned[row]:
                        found.setdefault(row, []).append(Header(appended.name, value, appended.schema))
        return found

    def last(self, name: str) -> list[str | None]:
        """Return the text of each record's last header of that name; None if it is missing or not UTF-8."""
        texts = self._last_of_listed(name) if self._listed is not None else self._last_of_many(name)
        for appended in self._appended:
            if appended.name == name:
                for row, value in zip(appended.rows.tolist(), appended.values, strict=True):
                    texts[row] = text_of(value, appended.schema)
        return texts

    def last_column(self, name: str, rows: Positions) -> Column:
        """Return what `last` does, of these records alone; an array of Arrow's where no objects are needed."""
        if self._listed is None and all(appended.name != name for appended in self._appended):
            positions = np.full(self.count, -1, np.int64)
            named = np.flatnonzero(self._named(name))
            # Of several of one record the last is assigned last, and wins.
            positions[self._owners[named]] = named
            own = positions[rows]
            try:
                return ArrowTexts(self._values.take(pa.array(own, mask=own < 0)).cast(pa.string()))
            except pa.ArrowInvalid:
                # A value is no UTF-8: below, other characters stand for its bytes.
                pass
        texts = self.last(name)
        return texts if len(rows) == self.count else taking(rows, self.count)(texts)

    def _last_of_listed(self, name: str) -> list[str | None]:
        """Return what `last` does, of listed headers off the wire."""
        texts: list[str | None] = [None] * self.count
        names, values = self._listed or ((), ())
        if name in names:
            kept = repeat(True) if self._kept is None else self._kept.tolist()
            for row, own, value, is_kept in zip(self._owners.tolist(), names, values, kept, strict=False):
                if own == name and is_kept:
                    texts[row] = text_of(value)
        return texts

    def _last_of_many(self, name: str) -> list[str | None]:
        """Return what `last` does, of the headers off the wire."""
        texts = np.full(self.count, None, dtype=object)
        named = np.flatnonzero(self._named(name))
        if len(named):
            # Of several of one record the last is assigned last, and wins.
            texts[self._owners[named]] = self._texts_of(named)
        return texts.tolist()

    def last_bytes(self, name: str) -> list[bytes | None] | None:
        """Return the bytes of each record's last header of that name off the wire; None where no record has one."""
        named = np.flatnonzero(self._named(name)) if len(self._owners) else ()
        if not len(named):
            return None
        contents = np.full(self.count, None, dtype=object)
        contents[self._owners[named]] = self._values.take(pa.array(named)).to_pylist()
        return contents.tolist()

    def _texts_of(self, positions: Positions) -> list[str | None]:
        """Return the texts of some received values; None for those that are not UTF-8."""
        if self._listed is not None:
            values = self._listed[1]
            return [text_of(values[position]) for position in positions.tolist()]
        return _texts(self._values.take(pa.array(positions)))

    def of(self, row: int) -> list[Header]:
        """The headers of one record."""
        indices = np.flatnonzero(self._owners == row)
        if self._kept is not None:
            indices = indices[self._kept[indices]]
        off_the_wire = [Header(self._names[at].as_py(), self._values[at].as_py()) for at in indices.tolist()]
        since = [
            Header(appended.name, appended.values[int(at)], appended.schema)
            for appended in self._appended
            for at in np.flatnonzero(appended.rows == row)
        ]
        return off_the_wire + since

    def to_arrow(self, rows: Positions) -> ArrowArray:
        """The headers of these records, in their order, as `headers_type`; a typed value is written as text."""
        column = self._unchanged
        if column is not None:
            everything = len(rows) == self.count and _ascending(rows)
            return column if everything else column.take(pa.array(rows))
        pairs = self.pairs(rows)
        if pairs is not None:
            return pa.array(pairs, headers_type())
        positions = np.full(self.count, -1, np.int64)
        positions[rows] = np.arange(len(rows))
        mine = positions[self._owners] >= 0
        if self._kept is not None:
            mine &= self._kept
        chosen = np.flatnonzero(mine)
        names = [self._names.take(pa.array(chosen))]
        values = [self._values.take(pa.array(chosen))]
        owners = [positions[self._owners[chosen]]]
        for appended in self._appended:
            at = np.flatnonzero(positions[appended.rows] >= 0)
            if not len(at):
                continue
            texts = [_bytes_of(appended.values[i], appended.schema) for i in at.tolist()]
            names.append(pa.repeat(pa.scalar(appended.name, pa.string()), len(at)))
            values.append(pa.array(texts, pa.binary()))
            owners.append(positions[appended.rows[at]])
        owner = np.concatenate(owners)
        name, value = pa.concat_arrays(names), pa.concat_arrays(values)
        if len(owners) > 1 or not _ascending(owner):
            order = np.argsort(owner, kind="stable")
            owner, name, value = owner[order], name.take(pa.array(order)), value.take(pa.array(order))
        offsets = np.zeros(len(rows) + 1, np.int32)
        np.cumsum(np.bincount(owner, minlength=len(rows)), out=offsets[1:])
        entries = pa.StructArray.from_arrays([name, value], fields=list(headers_type().value_type))
        return pa.ListArray.from_arrays(pa.array(offsets), entries, type=headers_type())

    @property
    def _unchanged(self) -> ArrowArray | None:
        """The column that was read, if it has all headers as they are."""
        return self._column if self._kept is None and not self._appended else None

    def pairs(self, rows: Positions) -> Sequence[Sequence[tuple[str | None, bytes | None]]] | None:
        """Return the headers of these records as names and values; None where there are many, or they are an array."""
        if self._pairs and self._kept is None and not self._appended and len(rows) == self.count:
            return self._pairs
        if self._listed is None or self._unchanged is not None:
            return None
        lists: dict[int, list[tuple[str | None, bytes | None]]] = {row: [] for row in rows.tolist()}
        wire = zip(self._owners.tolist(), *self._listed, strict=True)
        for at, (row, name, value) in enumerate(wire):
            if row in lists and (self._kept is None or self._kept[at]):
                lists[row].append((name, value))
        for appended in self._appended:
            for row, typed_value in zip(appended.rows.tolist(), appended.values, strict=True):
                if row in lists:
                    lists[row].append((appended.name, _bytes_of(typed_value, appended.schema)))
        return list(lists.values())


def has_match(pattern: re.Pattern[bytes], values: Binaries) -> bool:
    """Return True if a pattern of a single byte occurs in any value of a binary array, in one search over all bytes."""
    data = values.buffers()[2] if len(values) else None
    if data is None:
        return False
    ends = np.frombuffer(values.buffers()[1], np.int32)[values.offset : values.offset + len(values) + 1]
    return pattern.search(memoryview(data)[ends[0] : ends[-1]]) is not None


def _ascending(numbers: NDArray[np.signedinteger[Any]]) -> bool:
    return len(numbers) < 2 or bool((numbers[1:] >= numbers[:-1]).all())


def _texts(values: Binaries) -> list[str | None]:
    try:
        return values.cast(pa.string()).to_pylist()  # type: ignore[no-any-return]
    except pa.ArrowInvalid:
        return [text_of(value) for value in values.to_pylist()]


def _bytes_of(value: object, schema: Schema | None) -> bytes | None:
    if isinstance(value, bytes):
        return value
    text = text_of(value, schema)
    return None if text is None else text.encode("utf-8", "surrogatepass")
