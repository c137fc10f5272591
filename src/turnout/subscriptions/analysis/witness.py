"""A message for which a diagram is true: what shows that something was rightly not claimed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from ipaddress import ip_network
from itertools import groupby, islice
from math import inf, nextafter

from turnout.base.multivalued import ANY_KEY
from turnout.conditions import Condition, evaluate
from turnout.conditions.pattern import ANY, ONE, parse_pattern
from turnout.subscriptions.analysis.atoms import ADDRESS, BOUND, TEXT, Atom, Literal, atom_holds
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
    return message if _agrees(path, message) else None


def _agrees(path: Sequence[Literal], message: Mapping[str, str]) -> bool:
    """Return True if the literals about any value are true of all of the message's values."""
    of_any = [(atom, holds) for atom, holds in path if atom.key == ANY_KEY]
    return all(any(atom_holds(atom, value) for value in message.values()) == holds for atom, holds in of_any)


def _fits(literals: list[Literal], value: str) -> bool:
    return all(atom_holds(atom, value) == holds for atom, holds in literals)


def _values(literals: list[Literal]) -> Iterator[str]:
    """Values that the atoms make likely."""
    words = [next(_of_atom(atom)) for atom, holds in literals if holds and atom.partial]
    if len(words) > 1:
        yield " ".join(words)
    for atom, _ in literals:
        yield from _of_atom(atom)
    yield from ("-", "x", "0", "")


def _of_atom(atom: Atom) -> Iterator[str]:
    if atom.rank == BOUND:
        for number in (atom.number, atom.number - 1, atom.number + 1, nextafter(atom.number, -inf)):
            yield repr(number)
        yield repr(nextafter(atom.number, inf))
    elif atom.rank == ADDRESS:
        network = ip_network(atom.text)
        yield str(network.network_address)
        yield str(network.broadcast_address)
    elif atom.rank == TEXT:
        for any_, one in (("", "x"), ("x", "y"), ("q", "q")):
            fills = {ANY: any_, ONE: one}
            yield "".join(piece if isinstance(piece, str) else fills[piece] for piece in parse_pattern(atom.text))
