"""Atomic tests of one key's value, to which conditions are reduced, and the implications between them.

Leaves are brought into few kinds of atoms. A comparison becomes bounds: ``n > 5`` is "a number, and not ``n <= 5``", so
that all comparisons of a key are one chain in which each bound implies the larger ones.
"""

from __future__ import annotations

from functools import lru_cache
from ipaddress import ip_network
from typing import Final, NamedTuple, TypeAlias

from turnout.base.multivalued import ANY_KEY
from turnout.conditions import Cidr, Compare, Element, Exists, Kiwi, Leaf, Operator, Regex, SubjectMatch
from turnout.conditions.element import element_holds
from turnout.conditions.evaluate import address_text, leaf_holds, network_span, parsed_number
from turnout.conditions.pattern import ANY, ONE, escape, fold, lexemes, parse_pattern
from turnout.conditions.regex import regex_searcher
from turnout.subjects.pattern import collide, is_subset, matches
from turnout.subscriptions.analysis.globs import Tokens, folded, includes, meet, tokens_of

PRESENT: Final = 0
NUMBER: Final = 1
BOUND: Final = 2
ADDRESS: Final = 3
TEXT: Final = 4
REGEX: Final = 5
COMPARISON: Final = 6
ELEMENT: Final = 7
SUBJECT: Final = 8


class Atom(NamedTuple):
    """A question about the value of one key; it is false where the key is absent. Atoms sort by key.

    Attributes:
        rank: `PRESENT`, `NUMBER` (is it one?), `BOUND`, `ADDRESS`, `TEXT` or `REGEX`; under `ANY_KEY`, which mostly has
            several values, `COMPARISON` in place of numbers and bounds.
        number: number of a bound, or a comparison.
        text: ``<`` or ``<=`` of a bound, the operator of a comparison, the network of an address, the pattern of a
            text, an expression, the condition about an element (`ELEMENT`).
        partial: any lexeme of the value will do.
        fold: the value is folded first; the pattern is folded already.
    """

    key: str
    rank: int
    number: float = 0.0
    text: str = ""
    partial: bool = False
    fold: bool = False


Literal: TypeAlias = tuple[Atom, bool]
"""An atom, and whether it has to be true."""


def literals_of(leaf: Leaf) -> tuple[Literal, ...] | None:
    """Return the literals that together are the leaf's test, its negation left aside; None if it can never be true."""
    match leaf:
        case Exists():
            return ((Atom(leaf.key, PRESENT), True),)
        case Cidr():
            return ((Atom(leaf.key, ADDRESS, text=leaf.network), True),)
        case Regex():
            return ((Atom(leaf.key, REGEX, text=leaf.pattern), True),)
        case SubjectMatch():
            return ((Atom(leaf.key, SUBJECT, text=leaf.subject), True),)
        case Element():
            return ((Atom(leaf.key, ELEMENT, text=leaf.where), True),)
        case Compare():
            return _comparison(leaf)
        case Kiwi():
            atom = _pattern(leaf.key, leaf.pattern, leaf.partial, leaf.ignore_case)
            return None if atom is None else ((atom, True),)


def _comparison(leaf: Compare) -> tuple[Literal, ...]:
    # Minus zero is zero to a comparison, and another text.
    number = leaf.number + 0.0
    if leaf.key == ANY_KEY:
        # One value may be at most 5, and another one more.
        return ((Atom(leaf.key, COMPARISON, number, leaf.op.value), True),)
    less, most = Atom(leaf.key, BOUND, number, "<"), Atom(leaf.key, BOUND, number, "<=")
    match leaf.op:
        case Operator.LESS:
            return ((less, True),)
        case Operator.AT_MOST:
            return ((most, True),)
        case Operator.EQUAL:
            return ((less, False), (most, True))
        case Operator.AT_LEAST:
            return ((Atom(leaf.key, NUMBER), True), (less, False))
        case Operator.MORE:
            return ((Atom(leaf.key, NUMBER), True), (most, False))


@lru_cache(maxsize=1 << 16)
def _pattern(key: str, pattern: str, partial: bool, ignore_case: bool) -> Atom | None:
    if "*" not in pattern and "?" not in pattern and "\\" not in pattern and not (partial or ignore_case):
        return Atom(key, TEXT, text=pattern)
    pieces = parse_pattern(pattern)
    if ignore_case:
        pieces = tuple(fold(piece) if isinstance(piece, str) else piece for piece in pieces)
    if pieces == (ANY,) and not partial:
        return Atom(key, PRESENT)
    if partial and (not pieces or any(lexemes(piece) != [piece] for piece in pieces if isinstance(piece, str))):
        # A lexeme is never empty, and consists of the characters of words.
        return None
    text = "".join(escape(token) if isinstance(token, str) else token.value for token in tokens_of(pieces))
    return Atom(key, TEXT, text=text, partial=partial, fold=ignore_case)


def atom_holds(atom: Atom, value: str) -> bool:
    """Return True if the atom is true of a present value."""
    if atom.rank == PRESENT:
        return True
    if atom.rank == TEXT:
        return leaf_holds(Kiwi(atom.key, atom.text, atom.partial, atom.fold), value)
    if atom.rank == ADDRESS:
        address = address_text(value)
        first, last = network_span(atom.text)
        return address is not None and first <= address <= last
    if atom.rank == REGEX:
        return regex_searcher(atom.text)(value)
    if atom.rank == SUBJECT:
        return matches(atom.text, value)
    if atom.rank == ELEMENT:
        return element_holds(atom.text, value)
    if atom.rank == COMPARISON:
        return leaf_holds(Compare(atom.key, Operator(atom.text), atom.number), value)
    number = parsed_number(value)
    if number is None or atom.rank == NUMBER:
        return number is not None
    return number < atom.number if atom.text == "<" else number <= atom.number


@lru_cache(maxsize=1 << 17)
def relation(premise: Atom, conclusion: Atom) -> bool | None:
    """Return the truth of *conclusion* that follows if *premise* is true of the same key; None if nothing follows.

    Nothing is also the answer where the question is too hard.
    """
    if premise == conclusion or conclusion.rank == PRESENT:
        return True
    if premise.rank == PRESENT or COMPARISON in (premise.rank, conclusion.rank):
        return None
    truth = _of_one_value(premise, conclusion)
    # What one value is not, another one may be.
    return truth if truth or premise.key != ANY_KEY else None


def _of_one_value(premise: Atom, conclusion: Atom) -> bool | None:
    """Return the truth that follows for the same value."""
    value = _only_value(premise)
    if value is not None:
        return atom_holds(conclusion, value)
    other = _only_value(conclusion)
    if other is not None:
        return None if atom_holds(premise, other) else False
    if premise.rank == conclusion.rank == TEXT:
        return _of_patterns(premise, conclusion)
    if premise.rank == conclusion.rank == SUBJECT:
        if is_subset(premise.text, conclusion.text):
            return True
        return None if collide(premise.text, conclusion.text) else False
    if {TEXT, REGEX, ELEMENT, SUBJECT} & {premise.rank, conclusion.rank}:
        return None
    if ADDRESS in (premise.rank, conclusion.rank):
        # No number is an address.
        return _of_networks(premise.text, conclusion.text) if premise.rank == conclusion.rank else False
    return _of_bounds(premise, conclusion)


@lru_cache(maxsize=1 << 16)
def _only_value(atom: Atom) -> str | None:
    """Return the only value that makes the atom true; None if other values do, too."""
    if atom.rank != TEXT or atom.partial or atom.fold:
        return None
    return _literal_text(_tokens(atom))


def _literal_text(tokens: Tokens) -> str | None:
    return None if ANY in tokens or ONE in tokens else "".join(map(str, tokens))


def _tokens(atom: Atom) -> Tokens:
    return tokens_of(parse_pattern(atom.text))


def _of_bounds(premise: Atom, conclusion: Atom) -> bool | None:
    if premise.rank == NUMBER:
        return None
    if conclusion.rank == NUMBER:
        return True
    strictly = premise.text == "<=" and conclusion.text == "<"
    return (
        True if premise.number < conclusion.number or (premise.number == conclusion.number and not strictly) else None
    )


def _of_networks(premise: str, conclusion: str) -> bool | None:
    one, other = ip_network(premise), ip_network(conclusion)
    if one.version != other.version or not one.overlaps(other):
        return False
    return True if one.prefixlen >= other.prefixlen else None


def _of_patterns(premise: Atom, conclusion: Atom) -> bool | None:
    """Return the relation of two patterns, neither of which is equivalent to a single value."""
    one, other = _tokens(premise), _tokens(conclusion)
    text = _literal_text(one)
    if text is not None and premise.fold and conclusion.fold and not premise.partial:
        return leaf_holds(Kiwi(conclusion.key, conclusion.text, conclusion.partial), text)
    # Comparisons that ignore case use folded texts; the opposite direction implies nothing.
    decidable = conclusion.fold or not premise.fold
    if premise.fold != conclusion.fold:
        one, other = (one, folded(other)) if premise.fold else (folded(one), other)
    if premise.partial and conclusion.partial:
        return True if premise.fold == conclusion.fold and includes(other, one) else None
    if premise.partial:
        one = tokens_of((ANY, *one, ANY))
    if conclusion.partial:
        return None if meet(one, tokens_of((ANY, *other, ANY))) else False
    if decidable and includes(other, one):
        return True
    return None if meet(one, other) else False
