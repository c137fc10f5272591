"""Values by column: values of one schema, or schemaless values of one shape, as one list per field.

A transform then works on a list where it would have worked on a record: renaming touches names only, masking one list,
and makes its decisions once for all records of a schema or shape.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from turnout.base.startup import np
from turnout.records.schema import Schema
from turnout.records.spans import ArrowBytes, EncodedColumn, MixedObjects
from turnout.records.types import Column, Columns, ConvertColumn, DynamicValue, NewColumn, Value

if TYPE_CHECKING:
    from numpy.typing import NDArray

_SLICE: Final = 12
"""Taking a slice costs as much as taking so many items one by one (measured)."""

_SMALL: Final = 32
"""Number of items of a column up to which they are taken one by one, which needs no arrays (measured)."""

Positions: TypeAlias = "NDArray[np.intp]"
"""Rows of a batch, or indices into a block, ascending."""


class Shape(NamedTuple):
    """Type information for planning a step before any value is seen.

    Attributes:
        kind: ``object`` (a struct, or a schemaless map), ``plain`` (any other value that is not null), ``null``, or
            ``mixed`` (schemaless maps of several shapes).
        schema: None for schemaless values.
        names: names of an object's fields, in their order.
        types: types of the names, where one of them is no text: Python finds an int64 7 and an int32 7 equal.

    >>> from turnout.records import group
    >>> (block,) = group(np.arange(2), None, [{"city": "Oulu"}, {"city": "Turku"}])
    >>> block.shape.kind, block.shape.names
    ('object', ('city',))
    """

    kind: str
    schema: Schema | None
    names: tuple[DynamicValue, ...] = ()
    types: tuple[type, ...] = ()


class _Nulls:
    """Content of a block of nulls."""

    __slots__ = ()
    kind: Final = "null"

    def take(self, take: ConvertColumn, indices: Positions) -> _Nulls:  # noqa: ARG002 - as the others
        return self

    def whole(self, count: int) -> list[Value]:
        return [None] * count


class _PlainValues:
    """Content of a block of plain values."""

    __slots__ = ("values",)
    kind: Final = "plain"

    def __init__(self, values: Column) -> None:
        self.values = values

    def take(self, take: ConvertColumn, indices: Positions) -> _PlainValues:  # noqa: ARG002 - as the others
        return _PlainValues(take(self.values))

    def whole(self, count: int) -> list[Value]:  # noqa: ARG002 - as the others
        return list(self.values)


class _Objects:
    """Content of a block of objects, by column."""

    __slots__ = ("columns",)
    kind: Final = "object"

    def __init__(self, columns: Columns) -> None:
        self.columns = columns

    def take(self, take: ConvertColumn, indices: Positions) -> _Objects:  # noqa: ARG002 - as the others
        return _Objects({name: take(column) for name, column in self.columns.items()})

    def whole(self, count: int) -> list[Value]:
        names = tuple(self.columns)
        if not names:
            return [{} for _ in range(count)]
        return [dict(zip(names, row, strict=True)) for row in zip(*self.columns.values(), strict=True)]


class _UnopenedObjects:
    """Content of a block of objects that were not yet converted to columns."""

    __slots__ = ("members", "open_")
    kind: Final = "object"

    def __init__(self, members: Column, open_: Callable[[Column], Columns]) -> None:
        self.members = members
        self.open_ = open_

    def take(self, take: ConvertColumn, indices: Positions) -> _UnopenedObjects:  # noqa: ARG002 - as the others
        return _UnopenedObjects(take(self.members), self.open_)

    def opened(self) -> _Objects:
        return _Objects(self.open_(self.members))

    def whole(self, count: int) -> list[Value]:
        return self.opened().whole(count)


_NULLS: Final = _Nulls()


class Origin(NamedTuple):
    """Bytes that the values of a block were read from.

    Attributes:
        codec: codec that has read them, and may write them unchanged.
        texts: for each value.
    """

    codec: object
    texts: Sequence[bytes]


class Block:
    """Values of one kind, and their rows in the batch.

    Args:
        rows: rows of the values in the batch, ascending; a number for all rows of a batch of so many records.
        schema: schema of all values; None for schemaless ones.
        columns: of objects: the fields by name.
        values: plain ones. Without *columns* and *values* the block is one of nulls.
        checked: whether the values are known to fit their schema. Values read by a codec always do.
        origin: the bytes that they were read from, if their codec may write them unchanged. They belong
            to these values: `take` keeps them, and no block that a transform makes has any.

    Attributes:
        form: what the values are written as, whatever codec the route has: ``json``, ``body`` (bytes and texts as they
            are), or empty for what the codec writes.

    >>> from turnout.records import group
    >>> (block,) = group(np.array([4, 7]), None, [{"city": "Oulu", "n": 1}, {"city": "Turku", "n": 2}])
    >>> block.rows.tolist(), block.columns
    ([4, 7], {'city': ('Oulu', 'Turku'), 'n': (1, 2)})
    """

    __slots__ = ("_content", "_rows", "checked", "form", "origin", "schema")

    _content: _Nulls | _PlainValues | _Objects | _UnopenedObjects | MixedObjects

    def __init__(
        self,
        rows: Positions | int,
        schema: Schema | None,
        *,
        columns: Columns | _UnopenedObjects | None = None,
        values: Column | None = None,
        checked: bool = True,
        origin: Origin | None = None,
    ) -> None:
        self._rows = rows
        self.schema = schema
        self.checked = checked
        self.origin = origin
        self.form = ""
        if values is not None:
            self._content = _PlainValues(values)
        elif columns is None:
            self._content = _NULLS
        else:
            self._content = columns if isinstance(columns, _UnopenedObjects) else _Objects(columns)

    @classmethod
    def closed(
        cls,
        rows: Positions,
        schema: Schema | None,
        members: Column,
        opener: Callable[[Column], Columns],
        *,
        checked: bool = True,
    ) -> Block:
        """Build a block of objects that are converted to columns by *opener* at the first access to a column.

        Rows filtered before that are never converted.
        """
        return cls(rows, schema, columns=_UnopenedObjects(members, opener), checked=checked)

    @classmethod
    def mixed(cls, rows: Positions | int, objects: MixedObjects) -> Block:
        """Build a block of schemaless objects of several shapes."""
        block = cls(rows, None)
        block._content = objects
        return block

    def __len__(self) -> int:
        return self._rows if isinstance(self._rows, int) else len(self._rows)

    @property
    def rows(self) -> Positions:
        """Rows of the values in the batch, ascending."""
        if isinstance(self._rows, int):
            self._rows = rows_of(self._rows)
        return self._rows

    @rows.setter
    def rows(self, rows: Positions) -> None:
        self._rows = rows

    @property
    def kind(self) -> str:
        """``object``, ``plain``, ``null`` or ``mixed``."""
        return self._content.kind

    @property
    def mixed_objects(self) -> MixedObjects:
        """Objects of a mixed block.

        Raises:
            TypeError: the block is none.
        """
        content = self._content
        if isinstance(content, MixedObjects):
            return content
        raise TypeError(f"a block of {self.kind} values has no mixed objects")

    @property
    def columns(self) -> Columns:
        """Columns of the objects' fields, with a value for each record; callers must not change them.

        Raises:
            TypeError: the values are no objects.
        """
        content = self._content
        if isinstance(content, _Objects):
            return content.columns
        if not isinstance(content, _UnopenedObjects):
            raise TypeError(f"a block of {self.kind} values has no columns")
        self._content = opened = content.opened()
        return opened.columns

    @property
    def values(self) -> Column:
        """Values of a plain block, none of them null; callers must not change them.

        Raises:
            TypeError: the block is no plain one.
        """
        content = self._content
        if isinstance(content, _PlainValues):
            return content.values
        raise TypeError(f"a block of {self.kind} values has no plain ones")

    @property
    def shape(self) -> Shape:
        """Shape that steps are planned for; structs of one schema share a shape."""
        kind, schema = self._content.kind, self.schema
        if schema is not None or kind != "object":
            return Shape(kind, schema)
        names = tuple(self.columns)
        return Shape(kind, None, names, types_of(names))

    def take(self, indices: Positions) -> Block:
        """Return the values at these indices of the block."""
        count = len(self)
        if len(indices) == count:
            return self
        take = choosing(indices, count)
        block = Block(self.rows[indices], self.schema, checked=self.checked)
        block._content = self._content.take(take, indices)
        block.form = self.form
        if self.origin is not None:
            block.origin = Origin(self.origin.codec, take(self.origin.texts))
        return block

    def with_columns(self, schema: Schema | None, columns: Columns, *, checked: bool = True) -> Block:
        """Return objects in the same rows."""
        block = Block(self._rows, schema, columns=columns, checked=checked)
        block.form = self.form
        return block

    def with_values(self, schema: Schema | None, values: Column, *, checked: bool = True) -> Block:
        """Return plain values, none of them null, in the same rows; `group` sorts out nulls and objects."""
        return Block(self._rows, schema, values=values, checked=checked)

    def nulls(self, schema: Schema | None) -> Block:
        """Return nulls in the same rows."""
        return Block(self._rows, schema)

    def whole(self) -> NewColumn:
        """Return each value as one Python object: a dict for an object, None for a null."""
        content = self._content
        if isinstance(content, _UnopenedObjects):
            content = self._content = content.opened()
        return content.whole(len(self))


def choosing(indices: Positions, count: int) -> ConvertColumn:
    """Return a function that does what that of `taking` does, without decoding a column that is still encoded."""
    plain = taking(indices, count)
    return lambda column: (
        column.chosen(indices, plain) if isinstance(column, EncodedColumn | ArrowBytes) else plain(column)
    )


def taking(indices: Positions, count: int) -> ConvertColumn:
    """Return a function that takes the items at *indices* out of a column of *count* items.

    >>> list(taking(np.array([0, 2]), 3)("abc"))
    ['a', 'c']
    """
    if count > _SMALL and (count - len(indices)) * _SLICE <= count:
        mask = np.ones(count, np.bool_)
        mask[indices] = False
        missing = np.flatnonzero(mask).tolist()

        def take(column: Column) -> Column:
            items: list[object] = []
            start = 0
            for index in missing:
                items += column[start:index]
                start = index + 1
            items += column[start:]
            return items

        return take
    if len(indices) > 1:
        return itemgetter(*indices.tolist())
    only = indices.tolist()
    return lambda column: [column[index] for index in only]


def types_of(names: tuple[object, ...]) -> tuple[type, ...]:
    """Return the types of the names; empty where all are texts, as in JSON."""
    types = tuple(map(type, names))
    return () if types.count(str) == len(types) else types


def columns_of(members: Column) -> Columns:
    """Return the columns of dicts that have the same keys in the same order."""
    names = tuple(members[0]) if members else ()
    if not names:
        return {}
    return dict(zip(names, zip(*[member.values() for member in members], strict=True), strict=True))


def rows_of(count: int) -> Positions:
    """Return all rows of a batch of *count* records."""
    return np.arange(count, dtype=np.intp)
