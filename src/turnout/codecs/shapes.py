"""Schemaless values as blocks: objects of one shape are put into columns while they are still at hand."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Final

from turnout.deferred import np
from turnout.records import Block, Positions, group
from turnout.records.types import Column, NewColumn

_MIN_COLUMN_OBJECTS: Final = 16
"""Objects of one shape at once that are worth to be put into columns by themselves."""


_values = dict.values


def _common_shape(members: Sequence[dict[str, object]]) -> tuple[str, ...] | None:
    """Return the shape that all objects have, None if there are several.

    The names of all are compared at once, most of them by identity; hashing each shape would take four times as long.
    """
    size, count = len(members[0]), len(members)
    if list(map(len, members)).count(size) < count:
        return None
    names = list(members[0])
    return tuple(names) if list(chain.from_iterable(members)) == names * count else None


class Shapes:
    """Takes values some at a time, in their order, and gives the blocks of all.

    Args:
        mixes: whether objects of rare shapes go into one mixed block.
    """

    def __init__(self, *, mixes: bool = False) -> None:
        self._mixes = mixes
        self._is_varied = False
        self._columns: dict[tuple[str, ...], tuple[list[int], list[NewColumn]]] = {}
        self._indexes: list[int] = []
        self._members: NewColumn = []

    def add(self, indexes: Sequence[int], members: Column) -> None:
        """Take values and the place of each."""
        if set(map(type, members)) != {dict}:
            self._leave(indexes, members)
            return
        common = _common_shape(members)
        if common is not None:
            self._open(common, indexes, members)
            return
        if self._is_varied:
            self._leave(indexes, members)
            return
        together: dict[tuple[str, ...], list[int]] = {}
        for at, shape in enumerate(map(tuple, members)):
            together.setdefault(shape, []).append(at)
        rare_rows: list[int] = []
        for shape, row_ids in together.items():
            if len(row_ids) < _MIN_COLUMN_OBJECTS:
                rare_rows += row_ids
            else:
                self._open(shape, [indexes[at] for at in row_ids], [members[at] for at in row_ids])
        if len(rare_rows) == len(members):
            # Those that follow probably have as many shapes: `group` sorts all of them out at once.
            self._is_varied = True
            self._leave(indexes, members)
            return
        rare_rows.sort()
        self._leave([indexes[at] for at in rare_rows], [members[at] for at in rare_rows])

    def blocks(self, rows: Positions) -> list[Block]:
        """Return all added values, in blocks by shape.

        Args:
            rows: the row of each place.
        """
        blocks = [
            Block(
                rows if len(indexes) == len(rows) else rows[indexes],
                None,
                columns=dict(zip(shape, columns, strict=True)),
            )
            for shape, (indexes, columns) in self._columns.items()
        ]
        if self._members:
            blocks += group(rows[np.array(self._indexes, np.intp)], None, self._members, mixes=self._mixes)
        return blocks

    def _open(self, shape: tuple[str, ...], indexes: Sequence[int], members: Sequence[dict[str, object]]) -> None:
        if not shape:
            self._leave(indexes, members)
            return
        columns = self._columns.get(shape)
        if columns is None:
            columns = self._columns[shape] = ([], [[] for _ in shape])
        columns[0].extend(indexes)
        for column, values in zip(columns[1], zip(*map(_values, members), strict=True), strict=True):
            column.extend(values)

    def _leave(self, indexes: Sequence[int], members: Column) -> None:
        self._indexes += indexes
        self._members += members
