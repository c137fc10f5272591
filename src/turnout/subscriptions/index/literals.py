"""Literals: the facts of messages that clauses speak of, by number, and the facts that decide a check."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from turnout.conditions.anchor import Anchor, Kind
from turnout.conditions.check import Check
from turnout.conditions.evaluate import span_prefix
from turnout.conditions.pattern import Piece, fold, parse_pattern
from turnout.conditions.required_texts import required_texts
from turnout.subscriptions.index.buckets import Indices
from turnout.subscriptions.index.facts import PART, Fact

_MAX_AFFIX_CHARACTERS = 32
"""The longest prefix or suffix that is a fact of its own; a longer one is a test of the value."""


class Literals:
    """Texts to look up, by fact; numbered in the order of insertion."""

    def __init__(self) -> None:
        self.keys: dict[str, int] = {}
        self.facts: dict[Fact, int] = {}
        self.by_fact: list[dict[str, int]] = []
        self._facts: list[Fact] = []
        self.fact: list[int] = []
        self.text: list[str] = []

    def key_number(self, key: str) -> int:
        """The number of a key."""
        return self.keys.setdefault(key, len(self.keys))

    def fact_number(self, fact: Fact) -> int:
        """The number of a fact."""
        number = self.facts.get(fact)
        if number is None:
            self.key_number(fact[0])
            number = self.facts[fact] = len(self.facts)
            self.by_fact.append({})
            self._facts.append(fact)
        return number

    def of_number(self, fact: int) -> Fact:
        """The key and the kind of a fact."""
        return self._facts[fact]

    def kind(self, fact: int) -> Kind:
        """The kind of a fact."""
        return self._facts[fact][1]

    def add(self, fact: int, text: str) -> int:
        """The number of a text of a fact."""
        new = len(self.text)
        number = self.by_fact[fact].setdefault(text, new)
        if number == new:
            self.fact.append(fact)
            self.text.append(text)
        return number

    def add_anchor(self, anchor: Anchor) -> int:
        """Return the number of the anchor's literal, which is added if it is new."""
        return self.add(self.fact_number((anchor.key, anchor.kind)), anchor.text)

    def add_nodes(self, key: int, kind: Kind, nodes: Indices) -> Indices:
        """Return the numbers of nodes of numeric intervals of a key, as literals of a fact of this kind."""
        fact = self.fact_number((list(self.keys)[key], kind))
        distinct, which = np.unique(nodes, return_inverse=True)
        numbers = np.array([self.add(fact, str(node)) for node in distinct.tolist()], np.int64)
        return numbers.take(which)


def is_text(kind: Kind) -> bool:
    """Return True for literals that are texts of the whole value, its beginning, its end or its parts."""
    return not kind.lexeme and kind.op in ("=", "^", "$", PART.op)


def parts_of(check: Check, glob: tuple[Piece, ...] | None) -> list[tuple[Kind, Iterable[str]]]:
    """Return the parts that a value needs for an expression, or for a glob with an inner text; any one suffices."""
    if check.op == "re":
        required, folded = required_texts(check.text)
        return [(PART._replace(fold=folded), [f"~{text}" for text in required])] if required else []
    if check.op != "glob" or check.partial:
        return []
    pieces = parse_pattern(check.text) if glob is None else glob
    texts = [fold(piece) if check.fold and isinstance(piece, str) else piece for piece in pieces]
    inner = [f"~{piece}" for piece in texts[1:-1] if isinstance(piece, str)]
    if not inner:
        return []
    begin = [f"^{piece}" for piece in texts[:1] if isinstance(piece, str)]
    end = [f"${piece}" for piece in texts[-1:] if isinstance(piece, str)]
    return [(PART._replace(fold=check.fold), dict.fromkeys([*begin, *inner, *end]))]


def text_of(kind: Kind, check: Check) -> str:
    """Return the text that a value needs under the kind that decides the check."""
    match kind.op:
        case "has":
            return ""
        case "net":
            return span_prefix(check.text, check.last)[1]
        case PART.op:
            return check.op + check.text
    return check.text


def kind_of(check: Check) -> Kind | None:
    """Return the kind of the fact that decides the check; None if a fact alone does not."""
    match check.op:
        case "=":
            return Kind("=", 0, check.partial, check.fold)
        case "^" | "$" if len(check.text) <= _MAX_AFFIX_CHARACTERS:
            return Kind(check.op, len(check.text), check.partial, check.fold)
        case "^" | "$" | "~" if not check.partial:
            return PART._replace(fold=check.fold)
        case "has":
            return Kind("has")
        case "cidr":
            return Kind("net", span_prefix(check.text, check.last)[0])
        case "glob" if not check.partial and check.text.strip("*") == "":
            return Kind("has")
    return None
