"""Values by column: values of one schema, or schemaless values of one shape, as one list per field.

A transform then works on a list where it would have worked on a record: renaming touches names only, masking one list,
and what it has to decide, it decides once for all records of a schema or shape.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from turnout.records.schema import Schema

_FEW = 150
"""This many items that are not wanted are deleted from a copy; of more, the others are taken one by one."""

Positions = NDArray[np.intp]
"""Places of records in a batch, or of values in a block, ascending."""


class Shape(NamedTuple):
    """Type information for planning a step before any value is seen.

    Attributes:
        kind: ``object`` (a struct, or a schemaless map), ``plain`` (any other value that is not null) or ``null``.
        schema: None for schemaless values.
        names: of an object's fields, in their order.
        types: of the names, where one of them is no text: Python finds an int64 7 and an int32 7 equal.

    >>> (block,) = group(np.arange(2), None, [{"city": "Oulu"}, {"city": "Turku"}])
    >>> block.shape.kind, block.shape.names
    ('object', ('city',))
    """

    kind: str
    schema: Schema | None
    names: tuple[Any, ...] = ()
    types: tuple[type, ...] = ()


class Block:
    """Values of one kind, and their rows in the batch.

    Attributes:
        rows: the place of each value in the batch, ascending.
        schema: what they all have; None for schemaless values.
        checked: whether the values are known to fit their schema. What a codec has read always does.

    >>> (block,) = group(np.array([4, 7]), None, [{"city": "Oulu", "n": 1}, {"city": "Turku", "n": 2}])
    >>> block.rows.tolist(), block.columns
    ([4, 7], {'city': ('Oulu', 'Turku'), 'n': (1, 2)})
    """

    __slots__ = ("_columns", "_members", "_open", "_values", "checked", "rows", "schema")

    def __init__(
        self,
        rows: Positions,
        schema: Schema | None,
        *,
        columns: Mapping[Any, Sequence[Any]] | None = None,
        values: Sequence[Any] | None = None,
        checked: bool = True,
    ) -> None:
        self.rows = rows
        self.schema = schema
        self.checked = checked
        self._columns = columns
        self._values = values
        self._members: list[Any] | None = None
        self._open: Callable[[list[Any]], Mapping[Any, Sequence[Any]]] | None = None

    @classmethod
    def closed(
        cls,
        rows: Positions,
        schema: Schema | None,
        members: list[Any],
        opener: Callable[[list[Any]], Mapping[Any, Sequence[Any]]],
    ) -> Block:
        """Build a block of objects that are converted to columns at the first access to a column.

        What is filtered before that is never turned.
        """
        block = cls(rows, schema, columns={})
        block._columns = None
        block._members = members
        block._open = opener
        return block

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def kind(self) -> str:
        """``object``, ``plain`` or ``null``."""
        if self._values is not None:
            return "plain"
        return "object" if self._columns is not None or self._members is not None else "null"

    @property
    def columns(self) -> Mapping[Any, Sequence[Any]]:
        """The fields of objects, each with a value for each record; not to be changed in place."""
        if self._columns is None:
            assert self._members is not None, f"a block of {self.kind} values has no columns"
            assert self._open is not None
            self._columns = self._open(self._members)
            self._members = None
        return self._columns

    @property
    def values(self) -> Sequence[Any]:
        """The values of a plain block, none of them null; not to be changed in place."""
        assert self._values is not None, f"a block of {self.kind} values holds no plain ones"
        return self._values

    @property
    def shape(self) -> Shape:
        """Shape that steps are planned for; structs of one schema share a shape."""
        kind = self.kind
        if kind != "object":
            return Shape(kind, self.schema)
        if self.schema is not None:
            return Shape(kind, self.schema)
        names = tuple(self.columns)
        return Shape(kind, None, names, _types(names))

    def take(self, places: Positions) -> Block:
        """The values at these places of the block."""
        if len(places) == len(self.rows):
            return self
        rows = self.rows[places]
        take = taking(places, len(self.rows))
        if self._members is not None and self._open is not None:
            return Block.closed(rows, self.schema, list(take(self._members)), self._open)
        columns = None if self._columns is None else {name: take(column) for name, column in self._columns.items()}
        values = None if self._values is None else take(self._values)
        return Block(rows, self.schema, columns=columns, values=values, checked=self.checked)

    def with_columns(
        self, schema: Schema | None, columns: Mapping[Any, Sequence[Any]], *, checked: bool = True
    ) -> Block:
        """Objects in the place of these values."""
        return Block(self.rows, schema, columns=columns, checked=checked)

    def with_values(self, schema: Schema | None, values: Sequence[Any], *, checked: bool = True) -> Block:
        """Plain values, none of them null, in the place of these; `group` sorts out nulls and objects."""
        return Block(self.rows, schema, values=values, checked=checked)

    def nulls(self, schema: Schema | None) -> Block:
        """Nulls in the place of these values."""
        return Block(self.rows, schema)

    def whole(self) -> list[Any]:
        """Each value as one Python object: a dict for an object, None for a null."""
        if self.kind == "object":
            names = tuple(self.columns)
            if not names:
                return [{} for _ in range(len(self))]
            return [dict(zip(names, row, strict=True)) for row in zip(*self.columns.values(), strict=True)]
        return list(self._values) if self._values is not None else [None] * len(self)


def taking(places: Positions, count: int) -> Callable[[Sequence[Any]], Sequence[Any]]:
    """Return a function that takes the items at *places* out of a column of *count* items.

    >>> taking(np.array([0, 2]), 3)("abc")
    ['a', 'c']
    """
    if count - len(places) <= _FEW:
        gone = np.ones(count, np.bool_)
        gone[places] = False
        gaps = np.flatnonzero(gone)[::-1].tolist()

        def take(column: Sequence[Any]) -> Sequence[Any]:
            # A copy and what moves up are a few blocks of memory; the items themselves are touched once.
            items = list(column)
            for gap in gaps:
                del items[gap]
            return items

        return take
    if len(places) > 1:
        return itemgetter(*places.tolist())
    return lambda column: [column[place] for place in places]


def _types(names: tuple[Any, ...]) -> tuple[type, ...]:
    """The types of the names; empty where all are texts, as in JSON."""
    types = tuple(map(type, names))
    return () if types.count(str) == len(types) else types


def _columns_of(members: list[Any]) -> dict[Any, Sequence[Any]]:
    """The columns of dicts that have the same keys in the same order."""
    names = tuple(members[0]) if members else ()
    if not names:
        return {}
    return dict(zip(names, zip(*[member.values() for member in members], strict=True), strict=True))


def group(rows: Positions, schema: Schema | None, values: Iterable[Any], *, checked: bool = True) -> list[Block]:
    """Whole values as blocks: objects by their shape, nulls, and all others together.

    Args:
        rows: the place of each value in the batch.
        schema: what they all have. With one, a dict is an object only where the schema is a struct.
        values: the values.
        checked: whether they are known to fit the schema.

    >>> blocks = group(np.arange(4), None, [{"a": 1}, "text", {"a": 2}, None])
    >>> [(block.kind, block.rows.tolist()) for block in blocks]
    [('object', [0, 2]), ('plain', [1]), ('null', [3])]
    """
    objects = schema is None or schema.type == "struct"
    places: dict[Any, tuple[list[int], list[Any]]] = {}
    for at, value in enumerate(values):
        if value is None:
            key: Any = None
        elif objects and type(value) is dict:
            key = tuple(value)
        else:
            key = _PLAIN
        placed = places.get(key)
        if placed is None:
            places[key] = ([at], [value])
        else:
            placed[0].append(at)
            placed[1].append(value)
    blocks = []
    for key, (those, members) in _apart(places):
        where = rows if len(those) == len(rows) else rows[np.array(those, np.intp)]
        if key is None:
            block = Block(where, schema)
        elif key is _PLAIN:
            block = Block(where, schema, values=members)
        else:
            block = Block.closed(where, schema, members, _columns_of)
        block.checked = checked
        blocks.append(block)
    return blocks


_PLAIN = "plain"

_Members = tuple[list[int], list[Any]]


def _apart(places: dict[Any, _Members]) -> Iterator[tuple[Any, _Members]]:
    """Separate objects whose names are equal in Python but not in Connect."""
    for key, (at, members) in places.items():
        if type(key) is not tuple or not _types(key):
            yield key, (at, members)
            continue
        by_type: dict[tuple[type, ...], _Members] = {}
        for place, member in zip(at, members, strict=True):
            some = by_type.setdefault(_types(tuple(member)), ([], []))
            some[0].append(place)
            some[1].append(member)
        for alike in by_type.values():
            yield key, alike


def rows_of(count: int) -> Positions:
    """All places of a batch of *count* records."""
    return np.arange(count, dtype=np.intp)
