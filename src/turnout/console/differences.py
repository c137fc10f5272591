"""Line-by-line difference of two texts."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Line:
    """Line of a difference: ``added``, ``removed``, ``same``, or ``place`` for its position."""

    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class Pair:
    """Pair of lines shown side by side; None for a missing line."""

    left: str | None
    right: str | None
    changed: bool


_KINDS = {"+": "added", "-": "removed", "@": "place"}


def difference(before: str, after: str) -> list[Line]:
    r"""Return the added and removed lines, with three lines of context.

    >>> [(line.kind, line.text) for line in difference("a\nb", "a\nc")]
    [('place', '@@ -1,2 +1,2 @@'), ('same', ' a'), ('removed', '-b'), ('added', '+c')]
    """
    lines = list(difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm=""))[2:]
    return [Line(_KINDS.get(line[:1], "same"), line) for line in lines]


def side_by_side(before: str, after: str) -> list[Pair]:
    r"""Return both texts as pairs of lines, with equal lines aligned.

    >>> [(pair.left, pair.right, pair.changed) for pair in side_by_side("a\nb", "a\nc\nd")]
    [('a', 'a', False), ('b', 'c', True), (None, 'd', True)]
    """
    return list(_pairs(before.splitlines(), after.splitlines()))


def _pairs(left: list[str], right: list[str]) -> Iterator[Pair]:
    for kind, a, b, c, d in difflib.SequenceMatcher(None, left, right, autojunk=False).get_opcodes():
        for offset in range(max(b - a, d - c)):
            yield Pair(
                left[a + offset] if a + offset < b else None,
                right[c + offset] if c + offset < d else None,
                kind != "equal",
            )
