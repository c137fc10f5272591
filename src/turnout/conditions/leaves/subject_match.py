"""Subjects of a NATS filter."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from turnout.conditions.anchor import Anchor, Lookups, lookups_of_pieces
from turnout.conditions.leaf import (
    PATTERN,
    TEXT,
    Atom,
    AtomKind,
    Check,
    Choice,
    Leaf,
    LeafField,
    LeafKind,
    LeafSpec,
    Literal,
    Sign,
    ValueTest,
    key_text,
    need_key,
    quoted,
    unquoted,
)
from turnout.conditions.pattern import Piece, parse_pattern, subject_pattern
from turnout.errors import ConditionError
from turnout.subjects.pattern import collide, is_subset, matches

if TYPE_CHECKING:
    from turnout.conditions.text import ConditionReader

SUBJECT: Final = 8
"""Rank of the atom that a value is a subject of a filter."""


@dataclass(frozen=True, slots=True)
class SubjectMatch(Leaf):
    """True when the key's value is a subject that a filter of NATS receives: ``*`` is one token, ``>`` all that follow.

    >>> from turnout.conditions import evaluate
    >>> [evaluate(SubjectMatch("subject", "orders.*.new"), {"subject": s}) for s in ("orders.eu.new", "orders.a.b.new")]
    [True, False]
    >>> SubjectMatch("subject", "orders.>.new")
    Traceback (most recent call last):
        ...
    turnout.errors.ConditionError: not a filter of subjects: > is possible only at the end of orders.>.new
    """

    key: str
    subject: str
    negated: bool = False
    id: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        need_key(self.key)
        tokens = self.subject.split(".")
        if "" in tokens:
            problem = f"{self.subject!r} has an empty token" if self.subject else "it is empty"
            raise ConditionError(f"not a filter of subjects: {problem}", text=self.subject)
        if ">" in tokens[:-1]:
            at = self.subject.index(">")
            problem = f"> is possible only at the end of {self.subject}"
            raise ConditionError(f"not a filter of subjects: {problem}", text=self.subject, position=at)

    def holds(self, value: str) -> bool:
        """Return True if a value is a subject of the filter."""
        return matches(self.subject, value)

    def text(self) -> str:
        """Return the leaf as text."""
        subject = self.subject
        plain = PATTERN.fullmatch(subject) and not subject.startswith('"')
        return f"{key_text(self.key)} matches {subject if plain else quoted(subject)}"

    def check(self) -> Check:
        """Return the leaf as data."""
        return Check(self.key, "subject", self.subject, negated=self.negated)

    def anchors(self) -> Iterator[Anchor]:
        """Yield the beginning, the end, and the runs of characters between wildcards."""
        lookups = lookups_of_pieces(parse_pattern(subject_pattern(self.subject)), False, False)
        return (Anchor(self.key, kind, text) for kind, texts in lookups for text in texts)

    def literals(self) -> tuple[Literal, ...]:
        """Return the atom that the value is a subject of the filter."""
        return ((Atom(self.key, SUBJECT, text=self.subject), True),)

    def value_pattern(self) -> str | None:
        """Return a pattern of the filter's subjects."""
        return None if self.negated else subject_pattern(self.subject)


def subject_match(key: str, subject: str) -> SubjectMatch:
    """True when the key's value is a subject that a filter of NATS receives; see `SubjectMatch`.

    >>> from turnout.conditions import format_condition
    >>> format_condition(subject_match("subject", "orders.*.>"))
    'subject matches orders.*.>'
    """
    return SubjectMatch(key, subject)


def _read(reader: ConditionReader, key: str, _sign: str) -> SubjectMatch:
    return SubjectMatch(key, unquoted(reader.require(PATTERN, "a subject, as in orders.>")))


def _lookups(check: Check, _pieces: tuple[Piece, ...] | None) -> Lookups:
    pieces = parse_pattern(subject_pattern(check.text))
    return lookups_of_pieces(pieces, check.partial, check.fold, every_run=False)


def _relation(premise: Atom, conclusion: Atom) -> bool | None:
    if is_subset(premise.text, conclusion.text):
        return True
    return None if collide(premise.text, conclusion.text) else False


SUBJECT_MATCH: Final = LeafSpec(
    SubjectMatch,
    (LeafKind("subjectCondition", SubjectMatch, (LeafField("subject", "subject", TEXT, ""),)),),
    signs=(Sign("matches", _read),),
    tests=(ValueTest("subject", 14, lambda check, value: matches(check.text, value), _lookups),),
    atoms=(AtomKind(SUBJECT, lambda atom, value: matches(atom.text, value), _relation),),
    choices={"subject": Choice("is a subject of the filter, with * and >", SubjectMatch)},
)
