"""The presence of a key."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from turnout.conditions.anchor import PRESENCE, Anchor
from turnout.conditions.leaf import (
    Atom,
    AtomKind,
    Check,
    Choice,
    Leaf,
    LeafKind,
    LeafSpec,
    Literal,
    Sign,
    ValueTest,
    key_text,
    need_key,
)

PRESENT: Final = 0
"""Rank of the atom that a key is present."""


@dataclass(frozen=True, slots=True)
class Exists(Leaf):
    """True when the key is present with any value, including the empty one.

    >>> from turnout.conditions import parse
    >>> parse("NOT urgent exists") == Exists("urgent", negated=True)
    True
    """

    key: str
    negated: bool = False
    id: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        need_key(self.key)

    def holds(self, value: str) -> bool:  # noqa: ARG002 - any value will do
        """Return True."""
        return True

    def text(self) -> str:
        """Return the leaf as text."""
        return f"{key_text(self.key)} exists"

    def check(self) -> Check:
        """Return the leaf as data."""
        return Check(self.key, "has", negated=self.negated)

    def anchors(self) -> Iterator[Anchor]:
        """Yield the presence of the key."""
        yield Anchor(self.key, PRESENCE, "")

    def is_decided_by(self, anchor: Anchor) -> bool:  # noqa: ARG002 - there is one
        """Return True."""
        return True

    def literals(self) -> tuple[Literal, ...]:
        """Return the atom that the key is present."""
        return ((Atom(self.key, PRESENT), True),)


def exists(key: str) -> Exists:
    """True when the key is present.

    >>> from turnout.conditions import evaluate
    >>> evaluate(exists("note"), {"note": ""}), evaluate(exists("note"), {})
    (True, False)
    """
    return Exists(key)


EXISTS: Final = LeafSpec(
    Exists,
    (LeafKind("existsCondition", Exists),),
    signs=(Sign("exists", lambda _reader, key, _sign: Exists(key)),),
    tests=(ValueTest("has", 5, lambda _check, _value: True),),
    atoms=(AtomKind(PRESENT, lambda _atom, _value: True),),
    choices={"exists": Choice("exists", lambda key, _value: Exists(key))},
)
