"""Numeric intervals as nodes of a binary tree over cells of the number line.

The bounds of all intervals of a key cut the line into cells, at quantiles where there are many. A node of the tree over
the cells is a number: 1 is the root, the children of *n* are *2n* and *2n + 1*, and the cells are the leaves. An
interval is listed under a few nodes, and a value is looked up by the node of each level that it is in.
"""

from __future__ import annotations

from math import inf
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from turnout.subscriptions.index.arrays import Indices, Ints, expanded

CELLS = 1 << 14
"""Most cells of a key."""

_RESOLUTION = 32
"""Most cells that an interval is divided into: a wider interval has larger cells, so that its nodes stay few."""

Numbers = NDArray[np.float64]


class Intervals(NamedTuple):
    """Intervals of a key.

    Attributes:
        clause: that a number is in each interval.
        low: lower bounds, inclusive.
        high: upper bounds, inclusive.
        cuts: numbers at which cells begin, in ascending order; the first cell begins at minus infinity.
    """

    clause: Indices
    low: Numbers
    high: Numbers
    cuts: Numbers


class Nodes(NamedTuple):
    """Nodes of intervals, in the order of the intervals.

    Attributes:
        interval: number of the interval of each node.
        node: number of the node.
        inside: True if all values in the node are in the interval; the others have to be verified.
    """

    interval: Indices
    node: Indices
    inside: NDArray[np.bool_]


class _Extent(NamedTuple):
    """Cells of intervals: from the first one up to, and without, the last one.

    Attributes:
        first: cell of the lower bound.
        last: cell of the upper bound, which is exclusive.
        first_cut: True if the first cell begins at the lower bound.
        last_cut: True if the last cell begins at the upper bound, and so has nothing of the interval.
    """

    first: Indices
    last: Indices
    first_cut: NDArray[np.bool_]
    last_cut: NDArray[np.bool_]


def cuts_of(low: Numbers, high: Numbers) -> Numbers:
    """Return the numbers at which cells begin, given the inclusive bounds of intervals."""
    bounds = np.sort(np.concatenate([low[low > -inf], _above(high[high < inf])]))
    distinct = np.unique(bounds)
    if len(distinct) < CELLS:
        return distinct
    return np.unique(bounds[np.linspace(0, len(bounds) - 1, CELLS + 1).astype(np.int64)[1:-1]])


def size_of(cuts: Numbers) -> int:
    """Return the number of leaves of the tree over the cells, a power of two: the node of the first cell."""
    return 1 << len(cuts).bit_length()


def cells_of(cuts: Numbers, numbers: Numbers) -> Indices:
    """Return the cell of each number."""
    return np.searchsorted(cuts, numbers, "right")


def nodes_of(cuts: Numbers, low: Numbers, high: Numbers) -> Nodes:
    """Return the nodes whose values are in the intervals, and the nodes of the ends, which have to be verified."""
    size = size_of(cuts)
    first, last, first_cut, last_cut = _extents(cuts, low, high)
    level = _levels(last - first, _RESOLUTION)
    rest = (1 << level) - 1
    first_cut &= (first & rest) == 0
    last_cut &= (last & rest) == 0
    base = size >> level
    first, last = (first >> level) + base, (last >> level) + base
    some = low <= high
    at_first = np.flatnonzero(~first_cut & some)
    at_last = np.flatnonzero(~last_cut & some & (first_cut | (first != last)))
    interval, node = _subtrees(np.where(some, first + ~first_cut, last), last)
    owner = np.concatenate([interval, at_first, at_last])
    nodes = np.concatenate([node, first.take(at_first), last.take(at_last)])
    order = np.argsort(owner, kind="stable")
    return Nodes(owner.take(order), nodes.take(order), order < len(interval))


def cover_of(cuts: Numbers, low: Numbers, high: Numbers, most: int) -> Nodes:
    """Return for each interval the nodes of one level that it is in: at most *most*, and one more."""
    size = size_of(cuts)
    first, last, first_cut, last_cut = _extents(cuts, low, high)
    ends = np.maximum(last - last_cut, first)
    level = _levels(ends - first, most)
    rest = (1 << level) - 1
    from_begin = first_cut & ((first & rest) == 0)
    to_end = last_cut & (((ends + 1) & rest) == 0)
    first, last = (first + size) >> level, (ends + size) >> level
    owner, node = expanded(first, last - first + 1)
    inside = (node > first.take(owner)) | from_begin.take(owner)
    inside &= (node < last.take(owner)) | to_end.take(owner)
    return Nodes(owner, node, inside & (low <= high).take(owner))


def _extents(cuts: Numbers, low: Numbers, high: Numbers) -> _Extent:
    upper = _above(high)
    padded = np.append(-inf, cuts)
    first, last = cells_of(cuts, low), cells_of(cuts, upper)
    first_cut = (padded.take(first) == low) | (low == -inf)
    last_cut = padded.take(last) == upper
    unbounded = high == inf
    last[unbounded], last_cut[unbounded] = size_of(cuts), True
    return _Extent(first, last, first_cut, last_cut)


def _above(numbers: Numbers) -> Numbers:
    """Return the next number above each one: an inclusive bound as an exclusive one."""
    with np.errstate(over="ignore"):
        return np.nextafter(numbers, inf)


def _levels(width: Indices, most: int) -> Indices:
    """Return the level of the tree on which so many cells are at most *most* nodes."""
    return np.searchsorted(most << np.arange(CELLS.bit_length()), width)


def _subtrees(left: Indices, right: Indices) -> tuple[Indices, Indices]:
    """Return the fewest nodes that are the leaves from *left* up to, and without, *right*: owner and node."""
    owners, nodes = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    owner = np.flatnonzero(left < right)
    left, right = left.take(owner), right.take(owner)
    while len(owner):
        begins = np.flatnonzero(left & 1)
        ends = np.flatnonzero(right & 1)
        owners += [owner.take(begins), owner.take(ends)]
        nodes += [left.take(begins), right.take(ends) - 1]
        left, right = (left + 1) >> 1, right >> 1
        going = np.flatnonzero(left < right)
        left, right, owner = left.take(going), right.take(going), owner.take(going)
    return np.concatenate(owners), np.concatenate(nodes)


def nodes_by_number(cuts: Numbers, nodes: Indices, literals: Ints) -> tuple[int, Ints, Ints]:
    """Return the number of leaves of a tree, its literals by node, and the shifts from a leaf to nodes with some.

    Args:
        cuts: cuts of the key.
        nodes: that are literals.
        literals: number of each.
    """
    size = size_of(cuts)
    by_number = np.zeros(2 * size, np.int32)
    by_number[nodes] = literals
    depths = np.unique(np.frexp(nodes)[1])
    return size, by_number, (size.bit_length() - depths).astype(np.int32)
