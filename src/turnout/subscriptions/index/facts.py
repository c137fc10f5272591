"""Facts: the features of a message that an index looks up, each a key and a way to derive texts from its value.

A fact that gives one text (the value, its first n characters …) is *single*; words and runs of three characters are
*many*. A text is known to an index by the 64-bit hash of its UTF-8 form, salted with the fact; the texts themselves are
compared wherever hashes agree, so that what hashes do can cost time but never an answer.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from functools import lru_cache
from itertools import repeat
from typing import Final, TypeAlias

import numpy as np
import xxhash
from numpy.typing import NDArray

from turnout.conditions.anchor import Anchor, Kind, prober
from turnout.conditions.leaf import Check
from turnout.conditions.pattern import Piece, fold, parse_pattern
from turnout.conditions.regex import required_texts
from turnout.conditions.values import span_prefix
from turnout.subscriptions.index.arrays import Indices

Fact: TypeAlias = tuple[str, Kind]
"""A metadata key, and how a text to look up is made of its value."""

WHOLE: Final = Kind("=")
"""The value itself."""

PART: Final = Kind("part")
"""Texts, each with its operation, that are in a value, or at its beginning or end."""

CELL: Final = Kind("cell")
"""Nodes that a number is in, of those that intervals consist of."""

SPAN: Final = Kind("span")
"""Nodes that a number is in, of those that have intervals inside."""

BEGIN, END = b"\xff", b"\xfe"
"""Marks around values that parts are looked for in; no UTF-8 has them, so that each operation is a search."""

_hash64: Callable[[bytes, int], int] = xxhash.xxh64_intdigest


def is_many(kind: Kind) -> bool:
    """Return True if a value can give several texts."""
    return kind.lexeme or kind.op in ("~", PART.op) or kind in (CELL, SPAN)


@lru_cache(maxsize=4096)
def salt_of(fact: Fact) -> int:
    """The seed of the hashes of this fact's texts; the same in every process."""
    key, kind = fact
    return xxhash.xxh64_intdigest(encoded(f"{kind}\0{key}"), 0)


def encoded(text: str) -> bytes:
    """The text as UTF-8; Python's lone surrogates, which have none, stay distinct."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")


def encoded_all(texts: Iterable[str]) -> list[bytes]:
    """Each text as UTF-8."""
    texts = texts if isinstance(texts, list) else list(texts)
    try:
        return list(map(str.encode, texts))
    except UnicodeEncodeError:
        return list(map(encoded, texts))


def marked(text: bytes) -> bytes:
    """Return the bytes to search for a part, which has its operation before it.

    ``~`` is in the value, ``^`` at its beginning, ``$`` at its end, ``=`` is all of it.
    """
    operation, plain = text[:1], text[1:]
    return BEGIN * (operation in b"^=") + plain + END * (operation in b"$=")


def hash_of(raw: bytes, salt: int) -> int:
    """The hash of one text."""
    return _hash64(raw, salt)


def hashes_of(raws: Sequence[bytes], salt: int) -> NDArray[np.uint64]:
    """The hash of each text."""
    return np.fromiter(map(_hash64, raws, repeat(salt)), np.uint64, len(raws))


def taker(raws: Sequence[bytes]) -> Callable[[NDArray[np.int64]], list[bytes]]:
    """Return a function that maps numbers to their texts."""
    return lambda numbers: [raws[number] for number in numbers.tolist()]


@lru_cache(maxsize=4096)
def probes_of(kind: Kind) -> Callable[[str], Collection[str]]:
    """Return the function from a value to its distinct texts under a fact."""
    return prober(kind)


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
