"""The index as one row: hash tables from probes to entries, and the entries, all in arrays.

One row can be broadcast to every record without multiplying it, and to look into an array is one step. A record so
stays one row while it is matched; what nobody wants is known without a shuffle, a second pass or an outer join.

``slots``: for each slot, buckets; a text is in bucket crc32(text) mod count, a map from text to entry numbers.
``always``: the numbers of entries without an anchor. ``entries``: what to verify, and who wants the record. ``gone``:
subscriptions that an older table still has and that were deleted since.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain
from typing import Any

import pyarrow as pa

from turnout.conditions.check import Check
from turnout.spark.conditions import Features, check_text
from turnout.spark.matching.access import Placed, Slot

__all__ = ["Layout", "build_table"]

_CHECK = pa.struct(
    [
        ("k", pa.int32()),
        ("op", pa.string()),
        ("text", pa.string()),
        ("last", pa.string()),
        ("number", pa.float64()),
        ("partial", pa.bool_()),
        ("fold", pa.bool_()),
        ("negated", pa.bool_()),
    ]
)
_NODE = pa.struct(
    [("children", pa.list_(pa.int32())), ("low", pa.int32()), ("high", pa.int32()), ("negated", pa.bool_())]
)


@dataclass(frozen=True, slots=True)
class Layout:
    """What an expression has to know of a table; tables of one layout share one compiled plan.

    Attributes:
        keys: the metadata that is looked at, in the order of the positions that checks name.
        slots: where to probe.
        features: what the checks use.
    """

    keys: tuple[str, ...]
    slots: tuple[Slot, ...]
    features: Features

    @classmethod
    def of(cls, entries: Sequence[Placed], before: Sequence[str] = ()) -> Layout:
        """The layout that these entries need, whose keys begin with those *before*."""
        slots = {entry.slot for entry in entries if entry.slot}
        keys = {key for slot in slots for key, _ in slot}
        for entry in entries:
            keys.update(check.key for check in entry.checks)
            if entry.tree is not None:
                keys.update(check.key for check in entry.tree.checks)
        return cls(
            (*before, *sorted(keys.difference(before))),
            tuple(sorted(slots)),
            Features.of((entry.checks, entry.tree) for entry in entries),
        )


def build_table(entries: Sequence[Placed], layout: Layout, gone: Iterable[str] = (), prefix: str = "") -> pa.Table:
    """The one-row table of these entries, and of the subscriptions of an older table that are *gone*."""
    columns = {
        "slots": _row(_slots(entries, layout.slots)),
        "always": _row(pa.array([n for n, entry in enumerate(entries) if not entry.slot], pa.int32())),
        "entries": _row(_entries(entries, layout.keys)),
    }
    columns["gone"] = _row(pa.array(sorted(gone), pa.string()))
    return pa.table({f"{prefix}{name}": column for name, column in columns.items()})


def _slots(entries: Sequence[Placed], slots: Sequence[Slot]) -> pa.Array:
    """For each slot an array of buckets, each of them a map."""
    texts: dict[Slot, dict[str, list[int]]] = {slot: {} for slot in slots}
    for number, entry in enumerate(entries):
        if entry.slot:
            texts[entry.slot].setdefault(entry.text, []).append(number)
    bucket_sizes: list[int] = []
    maps: list[list[str]] = []
    for found in texts.values():
        buckets: list[list[str]] = [[] for _ in range(max(1, len(found)))]
        for text in found:
            buckets[zlib.crc32(text.encode()) % len(buckets)].append(text)
        bucket_sizes.append(len(buckets))
        maps += buckets
    in_order = list(chain.from_iterable(_each(texts.values(), maps, bucket_sizes)))
    numbers = _lists([numbers for _, numbers in in_order], pa.int32())
    keys = pa.array((text for text, _ in in_order), pa.string())
    offsets = pa.array([0, *accumulate(map(len, maps))], pa.int32())
    return pa.ListArray.from_arrays(
        pa.array([0, *accumulate(bucket_sizes)], pa.int32()), pa.MapArray.from_arrays(offsets, keys, numbers)
    )


def _each(
    texts: Iterable[dict[str, list[int]]], maps: list[list[str]], sizes: list[int]
) -> Iterable[list[tuple[str, list[int]]]]:
    begin = 0
    for found, size in zip(texts, sizes, strict=True):
        for bucket in maps[begin : begin + size]:
            yield [(text, found[text]) for text in bucket]
        begin += size


def _entries(entries: Sequence[Placed], keys: Sequence[str]) -> pa.Array:
    place = {key: number for number, key in enumerate(keys)}
    trees = [entry.tree for entry in entries]
    tree = pa.StructArray.from_arrays(
        [
            _checks([one.checks if one else () for one in trees], place),
            _lists([[node._asdict() for node in one.nodes] if one else () for one in trees], _NODE),
        ],
        names=["checks", "nodes"],
        mask=pa.array((one is None for one in trees), pa.bool_()),
    )
    return pa.StructArray.from_arrays(
        [
            pa.array((entry.subscription_id for entry in entries), pa.string()),
            _lists([entry.destinations for entry in entries], pa.string()),
            _checks([sorted(entry.checks, key=_cost) for entry in entries], place),
            tree,
        ],
        names=["id", "destinations", "checks", "tree"],
    )


_CHEAP = {"=": 0, "^": 1, "$": 1, "has": 1, "~": 2}
"""How dear an operation is; what is not named here is dearer: a pattern's regular expression, a number to be read."""


def _cost(check: Check) -> tuple[bool, int, bool]:
    """The order in which an entry's checks are made: the first that fails is the last that costs anything."""
    return check.partial, _CHEAP.get(check.op, 3), check.negated


def _checks(checks: Sequence[Sequence[Check]], place: dict[str, int]) -> pa.Array:
    flat = list(chain.from_iterable(checks))
    columns: dict[str, Iterable[Any]] = {
        "k": (place[check.key] for check in flat),
        "op": (check.op for check in flat),
        "text": map(check_text, flat),
        "last": (check.last for check in flat),
        "number": (check.number for check in flat),
        "partial": (check.partial for check in flat),
        "fold": (check.fold for check in flat),
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
