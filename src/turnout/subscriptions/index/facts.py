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
