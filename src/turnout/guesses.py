"""What somebody perhaps meant who wrote a name that nobody knows."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = ["did_you_mean", "nearest"]


def nearest(word: str, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    """The known name that is most like *word*, whatever the case; None where none is like it.

    >>> nearest("exlude", ["include", "exclude", "renames"])
    'exclude'
    """
    lowered = {name.lower(): name for name in known}
    near = difflib.get_close_matches(word.lower(), list(lowered), n=1, cutoff=cutoff)
    return lowered[near[0]] if near else None


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """``; did you mean "x"?`` where something near is known, else nothing."""
    near = nearest(word, known)
    return f'; did you mean "{near}"?' if near else ""
