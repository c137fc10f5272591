"""A message for which a diagram is true: what shows that something was rightly not claimed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby, islice

from turnout.base.multivalued import ANY_KEY
from turnout.conditions import Condition, evaluate
from turnout.conditions.leaf import Literal
from turnout.conditions.leaves.compare_fields import FIELDS, leaf_of
from turnout.conditions.values import parsed_number
from turnout.subscriptions.analysis.atoms import ATOM_KINDS, atom_holds
from turnout.subscriptions.analysis.canonical import CanonicalForm
from turnout.subscriptions.analysis.diagram import Diagrams, TooLargeError

_MOST_WAYS = 16
"""This many ways to "true" are tried."""

_MESSAGES = 4
"""This many messages show most of what a condition does not imply."""


def witness(diagrams: Diagrams, root: int) -> Mapping[str, str] | None:
    """Return metadata of a message for which the diagram is true; None if none is found, which proves nothing."""
    for path in islice(diagrams.ways(root), _MOST_WAYS):
        message = message_of(path)
        if message is not None:
            return message
    return None


def messages_of(condition: Condition, form: CanonicalForm) -> tuple[dict[str, str], ...]:
    """Some messages for which a condition is true: a condition that is false of one of them does not subsume it."""
    if form.literals is not None:
        messages = [message_of(form.literals)]
    else:
        try:
            diagrams = Diagrams()
            root = diagrams.reduced(diagrams.of(condition))
        except TooLargeError:
            return ()
        messages = [message_of(path) for path in islice(diagrams.ways(root), _MESSAGES)]
    return tuple(message for message in messages if message is not None and evaluate(condition, message))


def message_of(path: Sequence[Literal]) -> dict[str, str] | None:
    """Return a message for which all literals are true, sorted by key; None if none is found."""
    message: dict[str, str] = {}
    for key, group in groupby(path, key=lambda literal: literal[0].key):
        literals = list(group)
        if not any(holds for _, holds in literals):
            # Every atom is false where the key is absent.
            continue
        value = next((text for text in _values(literals) if _fits(literals, text)), None)
        if value is None:
            return None
        message[key] = value
    for leaf in (leaf_of(atom) for atom, holds in path if holds and atom.rank == FIELDS):
        if leaf.other not in message:
            about = [literal for literal in path if literal[0].key == leaf.other]
            values = (value for value in _near(message[leaf.key]) if leaf.is_met({**message, leaf.other: value}))
            other = next((value for value in values if _fits(about, value)), None)
            if other is None:
                return None
            message[leaf.other] = other
    return message if _agrees(path, message) else None


def _near(value: str) -> tuple[str, ...]:
    """Return values that compare with a value in each way."""
    number = parsed_number(value)
    return (value, "x") if number is None else (value, repr(number - 1), repr(number + 1))


def _agrees(path: Sequence[Literal], message: Mapping[str, str]) -> bool:
    """Return True if the literals about several values, or any, are true of the message."""
    for atom, holds in path:
        if atom.rank == FIELDS and leaf_of(atom).is_met(message) != holds:
            return False
        if atom.key == ANY_KEY and any(atom_holds(atom, value) for value in message.values()) != holds:
            return False
    return True


def _fits(literals: list[Literal], value: str) -> bool:
    return all(atom_holds(atom, value) == holds for atom, holds in literals if atom.rank != FIELDS)


def _values(literals: list[Literal]) -> Iterator[str]:
    """Values that the atoms make likely."""
    words = [next(iter(ATOM_KINDS[atom.rank].values(atom))) for atom, holds in literals if holds and atom.partial]
    if len(words) > 1:
        yield " ".join(words)
    for atom, _ in literals:
        yield from ATOM_KINDS[atom.rank].values(atom)
    yield from ("-", "x", "0", "")
