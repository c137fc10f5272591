"""Whole values put into blocks by their shape."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, TypeAlias

from turnout.base.deferred import np
from turnout.records.block import Block, Positions, columns_of, types_of
from turnout.records.schema import Schema
from turnout.records.types import NewColumn, Value

_Members: TypeAlias = tuple[list[int], NewColumn]
"""Indices of values, and the values."""

_PLAIN: Final = "plain"


def group(rows: Positions, schema: Schema | None, values: Iterable[Value], *, checked: bool = True) -> list[Block]:
    """Return whole values as blocks: objects by their shape, nulls, and all others together.

    Args:
        rows: rows of the values in the batch.
        schema: schema of all values. With one, a dict is an object only where the schema is a struct.
        values: the values.
        checked: whether they are known to fit the schema.

    >>> blocks = group(np.arange(4), None, [{"a": 1}, "text", {"a": 2}, None])
    >>> [(block.kind, block.rows.tolist()) for block in blocks]
    [('object', [0, 2]), ('plain', [1]), ('null', [3])]
    """
    objects = schema is None or schema.type == "struct"
    groups: dict[object, _Members] = {}
    values = values if isinstance(values, list) else list(values)
    for index, value in enumerate(values):
        if value is None:
            key: object = None
        elif objects and type(value) is dict:
            key = tuple(value)
        else:
            key = _PLAIN
        members = groups.get(key)
        if members is None:
            groups[key] = ([index], [value])
        else:
            members[0].append(index)
            members[1].append(value)
    blocks: list[Block] = []
    for key, (indices, content) in _split_by_type(groups):
        group_rows = rows if len(indices) == len(rows) else rows[np.array(indices, np.intp)]
        if key is None:
            block = Block(group_rows, schema, checked=checked)
        elif key is _PLAIN:
            block = Block(group_rows, schema, values=content, checked=checked)
        else:
            block = Block.closed(group_rows, schema, content, columns_of, checked=checked)
        blocks.append(block)
    return blocks


def _split_by_type(groups: dict[object, _Members]) -> Iterator[tuple[object, _Members]]:
    """Separate objects whose names are equal in Python but not in Connect."""
    for key, (indices, members) in groups.items():
        if type(key) is not tuple or not types_of(key):
            yield key, (indices, members)
            continue
        by_type: dict[tuple[type, ...], _Members] = {}
        for index, member in zip(indices, members, strict=True):
            alike = by_type.setdefault(types_of(tuple(member)), ([], []))
            alike[0].append(index)
            alike[1].append(member)
        for alike in by_type.values():
            yield key, alike
