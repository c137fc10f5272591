"""The index as one row: hash tables from texts to entries, and the entries, all in arrays.

One row can be broadcast to every record without multiplying it, and to look into an array is one step. A record so
stays one row while it is matched; what nobody wants is known without a shuffle, a second pass or an outer join.

``slots``: where to look up one text of the record, made of one part or of two. ``many``: where to look up each of
several. Both have buckets; a text is in bucket crc32(text) mod count, a map from text to entry numbers. Most are null,
since most of what is looked up is not there, and one bit tells. ``always``: the numbers of entries that nothing
is looked up by. ``entries``: what to verify, and who wants the record. ``gone``:
subscriptions that an older table still has and that were deleted since.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, chain
from typing import Any, Final

import numpy as np
import pyarrow as pa

from turnout.conditions.check import COMPARISONS, Check
from turnout.spark.conditions import TEXT_TESTS, check_text
from turnout.spark.matching.access import Placed, Slot
from turnout.spark.matching.facts import Facts, place_of
from turnout.subscriptions.entries import Node

__all__ = ["OPS", "Layout", "build_table"]

OPS: Final = (*TEXT_TESTS, "has", "cidr", *COMPARISONS)
"""The operations, which checks in the table name by number."""

_CHECK = pa.struct(
    [
        ("k", pa.int32()),
        ("op", pa.int32()),
        ("partial", pa.bool_()),
        ("text", pa.string()),
        ("last", pa.string()),
        ("number", pa.float64()),
        ("negated", pa.bool_()),
    ]
)
_NODE = pa.struct(
    [("children", pa.list_(pa.int32())), ("low", pa.int32()), ("high", pa.int32()), ("negated", pa.bool_())]
)


_ROOM = 4
"""Buckets for each text. What is not null is fetched from memory, which takes longer than all else of a probe."""


@dataclass(frozen=True, slots=True)
class Layout:
    """What an expression has to know of a table; tables of one layout share one compiled plan.

    Attributes:
        facts: what is asked of the record.
        ops: the operations on whole values, by number.
        word_ops: those on words.
        trees: whether any term is more than a conjunction.
        slots: where one text is looked up.
        many: where several are.
    """

    facts: Facts = field(default_factory=Facts)
    ops: tuple[int, ...] = ()
    word_ops: tuple[int, ...] = ()
    trees: bool = False
    slots: tuple[Slot, ...] = ()
    many: tuple[Slot, ...] = ()

    @classmethod
    def of(cls, entries: Sequence[Placed], before: Facts | None = None) -> Layout:
        """The layout that these entries need; the places of the facts *before* stay."""
        facts = (before or Facts()).extended(entries)
        used = {(OPS.index(check.op), check.partial) for entry in entries for check in entry.every_check}
        slots = sorted({entry.slot for entry in entries if entry.slot})
        return cls(
            facts,
            tuple(sorted(op for op, partial in used if not partial)),
            tuple(sorted(op for op, partial in used if partial)),
            any(entry.tree is not None for entry in entries),
            tuple(slot for slot in slots if slot[0] in facts.parts),
            tuple(slot for slot in slots if slot[0] in facts.many),
        )

    def __or__(self, other: Layout) -> Layout:
        """What one expression for both tables has to know, but for their slots."""
        return Layout(
            other.facts,
            tuple(sorted({*self.ops, *other.ops})),
            tuple(sorted({*self.word_ops, *other.word_ops})),
            self.trees or other.trees,
        )


def build_table(entries: Sequence[Placed], layout: Layout, gone: Iterable[str] = (), prefix: str = "") -> pa.Table:
    """The one-row table of these entries, and of the subscriptions of an older table that are *gone*."""
    texts: dict[Slot, dict[str, list[int]]] = {slot: {} for slot in (*layout.slots, *layout.many)}
    for number, entry in enumerate(entries):
        if entry.slot:
            texts[entry.slot].setdefault(entry.text, []).append(number)
    columns = {
        "slots": _row(_slots([texts[slot] for slot in layout.slots], layout.slots, layout.facts.parts)),
        "many": _row(_slots([texts[slot] for slot in layout.many], layout.many, layout.facts.many)),
        "always": _row(pa.array([n for n, entry in enumerate(entries) if not entry.slot], pa.int32())),
        "entries": _row(_entries(entries, layout.facts)),
        "gone": _row(pa.array(sorted(gone), pa.string())),
    }
    return pa.table({f"{prefix}{name}": column for name, column in columns.items()})


def _slots(texts: Sequence[dict[str, list[int]]], slots: Sequence[Slot], parts: Sequence[Any]) -> pa.Array:
    """For each slot the places of its parts, the second -1 where there is none, and its buckets."""
    places = [[parts.index(part) for part in slot] for slot in slots]
    return pa.StructArray.from_arrays(
        [
            pa.array((found[0] for found in places), pa.int32()),
            pa.array((found[1] if len(found) > 1 else -1 for found in places), pa.int32()),
            _buckets(texts),
        ],
        names=["first", "second", "buckets"],
    )


def _buckets(texts: Sequence[dict[str, list[int]]]) -> pa.Array:
    """For each slot an array of buckets, each of them a map, or null where nothing is in it."""
    in_order: list[tuple[str, list[int]]] = []
    filled = [np.zeros(0, np.int64)]
    for found in texts:
        held = list(found.items())
        count = _ROOM * max(1, len(held))
        places = np.fromiter((zlib.crc32(text.encode()) % count for text, _ in held), np.int64, len(held))
        in_order += [held[place] for place in np.argsort(places, kind="stable")]
        filled.append(np.bincount(places, minlength=count))
    sizes = np.concatenate(filled)
    # A null among the offsets makes its map a null; the offset behind the last map is never one.
    ends = np.concatenate([[0], np.cumsum(sizes)])
    offsets = pa.array(ends, pa.int32(), mask=np.append(sizes == 0, values=False))
    keys = pa.array((text for text, _ in in_order), pa.string())
    maps = pa.MapArray.from_arrays(offsets, keys, _lists([numbers for _, numbers in in_order], pa.int32()))
    begins = [0, *accumulate(len(one) for one in filled[1:])]
    return pa.ListArray.from_arrays(pa.array(begins, pa.int32()), maps)


def _entries(entries: Sequence[Placed], facts: Facts) -> pa.Array:
    flat = [_flat(entry) for entry in entries]
    return pa.StructArray.from_arrays(
        [
            pa.array((entry.subscription_id for entry in entries), pa.string()),
            _lists([entry.destinations for entry in entries], pa.string()),
            _checks([checks for checks, _ in flat], facts),
            _lists([[node._asdict() for node in nodes] for _, nodes in flat], _NODE),
        ],
        names=["id", "destinations", "checks", "nodes"],
    )


def _flat(entry: Placed) -> tuple[Sequence[Check], Sequence[Node]]:
    """All checks of an entry; without nodes every one has to be true, with them the last node, as in a tree."""
    if entry.tree is None:
        return sorted(entry.checks, key=_cost), ()
    checks, nodes = entry.tree
    leaves, extra = len(checks), len(entry.checks)
    moved = [
        node._replace(children=tuple(child if child < leaves else child + extra for child in node.children))
        for node in nodes
    ]
    root = leaves + extra + len(nodes) - 1
    every = (*range(leaves, leaves + extra), root)
    return (*checks, *entry.checks), (*moved, Node(every, len(every), len(every), negated=False))


_CHEAP = {"=": 0, "^": 1, "$": 1, "has": 1, "~": 2}
"""How dear an operation is; what is not named here is dearer: a pattern's regular expression."""


def _cost(check: Check) -> tuple[bool, int, bool]:
    """The order in which an entry's checks are made: the first that fails is the last that costs anything."""
    return check.partial, _CHEAP.get(check.op, 3), check.negated


def _checks(checks: Sequence[Sequence[Check]], facts: Facts) -> pa.Array:
    flat = list(chain.from_iterable(checks))
    columns: dict[str, Iterable[Any]] = {
        "k": (place_of(facts, check) for check in flat),
        "op": (OPS.index(check.op) for check in flat),
        "partial": (check.partial for check in flat),
        "text": map(check_text, flat),
        "last": (check.last for check in flat),
        "number": (check.number for check in flat),
        "negated": (check.negated for check in flat),
    }
    arrays = [pa.array(values, _CHECK.field(name).type) for name, values in columns.items()]
    structs = pa.StructArray.from_arrays(arrays, fields=list(_CHECK))
    return pa.ListArray.from_arrays(pa.array([0, *accumulate(map(len, checks))], pa.int32()), structs)


def _lists(lists: Sequence[Sequence[Any]], type_: pa.DataType) -> pa.Array:
    offsets = pa.array([0, *accumulate(map(len, lists))], pa.int32())
    return pa.ListArray.from_arrays(offsets, pa.array(list(chain.from_iterable(lists)), type_))


def _row(values: pa.Array) -> pa.Array:
    """All the values as the one value of a row."""
    return pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), values)
