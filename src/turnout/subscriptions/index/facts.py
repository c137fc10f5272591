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

from turnout.conditions.anchor import Kind, prober
from turnout.conditions.evaluate import address_prefix
from turnout.conditions.pattern import fold

Fact: TypeAlias = tuple[str, Kind]
"""A metadata key, and how a text to look up is made of its value."""

WHOLE: Final = Kind("=")
"""The value itself."""

PART: Final = Kind("part")
"""Texts, each with its operation, that are in a value, or at its beginning or end; see `scanner`."""

CELL: Final = Kind("cell")
"""Nodes that a number is in, of those that intervals consist of."""

SPAN: Final = Kind("span")
"""Nodes that a number is in, of those that have intervals inside."""

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


def folded_all(texts: Sequence[str]) -> list[bytes]:
    """Return each text, folded, as UTF-8; all are folded in one, as no letter changes another one."""
    raws = encoded(fold("\0".join(texts))).split(b"\0")
    return raws if len(raws) == len(texts) else encoded_all(map(fold, texts))


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
def text_maker(kind: Kind) -> Callable[[str], str]:
    """Return the function from a value to its one text under a single fact."""
    part = _part(kind.op, kind.length)
    return (lambda value: part(fold(value))) if kind.fold else part


def _part(op: str, length: int) -> Callable[[str], str]:
    match op:
        case "=":
            return str
        case "^":
            return lambda text: text[:length]
        case "$":
            return lambda text: text[-length:]
        case "net":
            return lambda text: address_prefix(text, length)
    return lambda _text: ""


@lru_cache(maxsize=4096)
def probes_of(kind: Kind) -> Callable[[str], Collection[str]]:
    """Return the function from a value to its distinct texts under a fact."""
    return prober(kind)
