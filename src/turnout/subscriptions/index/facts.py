"""Facts: the features of a message that an index looks up, and numeric intervals as nodes of a binary tree over cells.

A fact that gives one text (the value, its first n characters …) is *single*; words and runs of three characters are
*many*. A text is known to an index by the 64-bit hash of its UTF-8 form, salted with the fact; the texts themselves are
compared wherever hashes agree, so that what hashes do can cost time but never an answer.

The bounds of all intervals of a key cut the line into cells, at quantiles where there are many. A node of the tree over
the cells is a number: 1 is the root, the children of *n* are *2n* and *2n + 1*, and the cells are the leaves. An
interval is listed under a few nodes, and a value is looked up by the node of each level that it is in.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from functools import lru_cache
from itertools import repeat
from math import inf
from typing import Final, NamedTuple, TypeAlias

import numpy as np
import xxhash
from numpy.typing import NDArray

from turnout.conditions.anchor import Anchor, Kind, prober, span_prefix
from turnout.conditions.leaf import Check
from turnout.conditions.pattern import Piece, fold, parse_pattern
from turnout.conditions.regex import Required, required_texts
from turnout.subscriptions.index.arrays import Indices, Ints, expanded

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
        required = required_texts(check.text)
        parts = [f"~{text}" for text in required.texts]
        return [(PART._replace(fold=required.folded), parts)] if parts else []
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


def alternatives_of(check: Check) -> tuple[Kind, list[str]]:
    """Return parts of which a value needs one for an expression, where no part that it needs is as long."""
    _, alternatives, folded = required_texts(check.text) if check.op == "re" else Required()
    return PART._replace(fold=folded), [f"~{text}" for text in alternatives]


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


CELLS = 1 << 14
"""Most cells of a key."""

_RESOLUTION = 32
"""Most cells that an interval is divided into: a wider interval has larger cells, so that its nodes stay few."""

Numbers = NDArray[np.float64]


class Intervals(NamedTuple):
    """Intervals of a key.

    Attributes:
        clause: that a number is in each interval.
        low: lower bounds, inclusive.
        high: upper bounds, inclusive.
        cuts: numbers at which cells begin, in ascending order; the first cell begins at minus infinity.
    """

    clause: Indices
    low: Numbers
    high: Numbers
    cuts: Numbers


class Nodes(NamedTuple):
    """Nodes of intervals, in the order of the intervals.

    Attributes:
        interval: number of the interval of each node.
        node: number of the node.
        inside: True if all values in the node are in the interval; the others have to be verified.
    """

    interval: Indices
    node: Indices
    inside: NDArray[np.bool_]


class _Extent(NamedTuple):
    """Cells of intervals: from the first one up to, and without, the last one.

    Attributes:
        first: cell of the lower bound.
        last: cell of the upper bound, which is exclusive.
        first_cut: True if the first cell begins at the lower bound.
        last_cut: True if the last cell begins at the upper bound, and so has nothing of the interval.
    """

    first: Indices
    last: Indices
    first_cut: NDArray[np.bool_]
    last_cut: NDArray[np.bool_]


def cuts_of(low: Numbers, high: Numbers) -> Numbers:
    """Return the numbers at which cells begin, given the inclusive bounds of intervals."""
    bounds = np.sort(np.concatenate([low[low > -inf], _above(high[high < inf])]))
    distinct = np.unique(bounds)
    if len(distinct) < CELLS:
        return distinct
    return np.unique(bounds[np.linspace(0, len(bounds) - 1, CELLS + 1).astype(np.int64)[1:-1]])


def size_of(cuts: Numbers) -> int:
    """Return the number of leaves of the tree over the cells, a power of two: the node of the first cell."""
    return 1 << len(cuts).bit_length()


def cells_of(cuts: Numbers, numbers: Numbers) -> Indices:
    """Return the cell of each number."""
    return np.searchsorted(cuts, numbers, "right")


def nodes_of(cuts: Numbers, low: Numbers, high: Numbers) -> Nodes:
    """Return the nodes whose values are in the intervals, and the nodes of the ends, which have to be verified."""
    size = size_of(cuts)
    first, last, first_cut, last_cut = _extents(cuts, low, high)
    level = _levels(last - first, _RESOLUTION)
    rest = (1 << level) - 1
    first_cut &= (first & rest) == 0
    last_cut &= (last & rest) == 0
    base = size >> level
    first, last = (first >> level) + base, (last >> level) + base
    some = low <= high
    at_first = np.flatnonzero(~first_cut & some)
    at_last = np.flatnonzero(~last_cut & some & (first_cut | (first != last)))
    interval, node = _subtrees(np.where(some, first + ~first_cut, last), last)
    owner = np.concatenate([interval, at_first, at_last])
    nodes = np.concatenate([node, first.take(at_first), last.take(at_last)])
    order = np.argsort(owner, kind="stable")
    return Nodes(owner.take(order), nodes.take(order), order < len(interval))


def cover_of(cuts: Numbers, low: Numbers, high: Numbers, most: int) -> Nodes:
    """Return for each interval the nodes of one level that it is in: at most *most*, and one more."""
    size = size_of(cuts)
    first, last, first_cut, last_cut = _extents(cuts, low, high)
    ends = np.maximum(last - last_cut, first)
    level = _levels(ends - first, most)
    rest = (1 << level) - 1
    from_begin = first_cut & ((first & rest) == 0)
    to_end = last_cut & (((ends + 1) & rest) == 0)
    first, last = (first + size) >> level, (ends + size) >> level
    owner, node = expanded(first, last - first + 1)
    inside = (node > first.take(owner)) | from_begin.take(owner)
    inside &= (node < last.take(owner)) | to_end.take(owner)
    return Nodes(owner, node, inside & (low <= high).take(owner))


def _extents(cuts: Numbers, low: Numbers, high: Numbers) -> _Extent:
    upper = _above(high)
    padded = np.append(-inf, cuts)
    first, last = cells_of(cuts, low), cells_of(cuts, upper)
    first_cut = (padded.take(first) == low) | (low == -inf)
    last_cut = padded.take(last) == upper
    unbounded = high == inf
    last[unbounded], last_cut[unbounded] = size_of(cuts), True
    return _Extent(first, last, first_cut, last_cut)


def _above(numbers: Numbers) -> Numbers:
    """Return the next number above each one: an inclusive bound as an exclusive one."""
    with np.errstate(over="ignore"):
        return np.nextafter(numbers, inf)


def _levels(width: Indices, most: int) -> Indices:
    """Return the level of the tree on which so many cells are at most *most* nodes."""
    return np.searchsorted(most << np.arange(CELLS.bit_length()), width)


def _subtrees(left: Indices, right: Indices) -> tuple[Indices, Indices]:
    """Return the fewest nodes that are the leaves from *left* up to, and without, *right*: owner and node."""
    owners, nodes = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    owner = np.flatnonzero(left < right)
    left, right = left.take(owner), right.take(owner)
    while len(owner):
        begins = np.flatnonzero(left & 1)
        ends = np.flatnonzero(right & 1)
        owners += [owner.take(begins), owner.take(ends)]
        nodes += [left.take(begins), right.take(ends) - 1]
        left, right = (left + 1) >> 1, right >> 1
        going = np.flatnonzero(left < right)
        left, right, owner = left.take(going), right.take(going), owner.take(going)
    return np.concatenate(owners), np.concatenate(nodes)


def nodes_by_number(cuts: Numbers, nodes: Indices, literals: Ints) -> tuple[int, Ints, Ints]:
    """Return the number of leaves of a tree, its literals by node, and the shifts from a leaf to nodes with some.

    Args:
        cuts: cuts of the key.
        nodes: that are literals.
        literals: number of each.
    """
    size = size_of(cuts)
    by_number = np.zeros(2 * size, np.int32)
    by_number[nodes] = literals
    depths = np.unique(np.frexp(nodes)[1])
    return size, by_number, (size.bit_length() - depths).astype(np.int32)
