"""Paths of content in a record, and the moves by which a transform carries content from one path to another."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple, TypeAlias

KEY: Final = "key"
VALUE: Final = "value"
HEADERS: Final = "headers"

ContentPath: TypeAlias = tuple[str, ...]
"""A path that begins with `KEY`, `VALUE` or `HEADERS`: ``("value", "order", "card")``, ``("headers", "Pan")``.

A name that ends with ``*`` stands for every name that begins so. The topic, the partition, the offset and the
timestamp are the record's address, not its content.
"""

CONTENT: Final[tuple[ContentPath, ...]] = ((KEY,), (VALUE,), (HEADERS,))
"""Everything in a record that is content."""


class Move(NamedTuple):
    """Content that a transform carries from one path to another, with everything below it.

    Attributes:
        source: the path before the transform.
        target: the path behind it.
        copy: the content is at its old path as well.
    """

    source: ContentPath
    target: ContentPath
    copy: bool = False


def same_name(one: str, other: str) -> bool:
    """Return True if two names can be equal; one may end with ``*``, which matches any ending."""
    if one == other:
        return True
    begins = one.endswith("*") and other.startswith(one[:-1])
    return begins or (other.endswith("*") and one.startswith(other[:-1]))


def fits(begin: ContentPath, path: ContentPath) -> bool:
    """Return True if a path is *begin*, or below it."""
    return len(path) >= len(begin) and all(map(same_name, begin, path))


def moved_on(moves: Iterable[Move], path: ContentPath) -> set[ContentPath]:
    """Return the paths at which content is behind a transform.

    >>> sorted(moved_on([Move(("value", "pan"), ("value", "card"))], ("value", "pan", "digits")))
    [('value', 'card', 'digits')]
    """
    found: set[ContentPath] = set()
    stays = True
    for move in moves:
        if fits(move.source, path):
            found.add(move.target + path[len(move.source) :])
            stays = stays and move.copy
        elif fits(path, move.source):
            found.add(move.target)
    return found | {path} if stays else found


def moved_back(moves: Iterable[Move], path: ContentPath) -> set[ContentPath]:
    """Return the paths at which content may have been before a transform; it may have been at its own path, too.

    >>> sorted(moved_back([Move(("value",), ("value", "order"))], ("value", "order", "card")))
    [('value', 'card'), ('value', 'order', 'card')]
    """
    found = {path}
    for move in moves:
        if fits(move.target, path):
            found.add(move.source + path[len(move.target) :])
        elif fits(path, move.target):
            found.add(move.source)
    return found
