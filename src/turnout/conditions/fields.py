"""The names of leaves outside Python as a table: JSON, the rows of stores, and protobuf are written and read by it."""

from __future__ import annotations

from typing import Final

from turnout.conditions.leaf import Leaf, LeafKind
from turnout.conditions.leaves import LEAVES

KINDS: Final[dict[str, LeafKind]] = {kind.name: kind for spec in LEAVES for kind in spec.kinds}
"""By name. Of several names of one class the first is the one that protobuf's answers have."""

_BY_CLASS = {(kind.leaf, kind.implied.get("tree", False)): kind for kind in KINDS.values()}


def kind_of(leaf: Leaf) -> LeafKind:
    """Return the row of a leaf; of a pattern, that of its dialect.

    Raises:
        TypeError: it is no leaf.
    """
    try:
        return _BY_CLASS[type(leaf), getattr(leaf, "tree", False)]
    except KeyError:
        raise TypeError(f"not a condition: {leaf!r}") from None
