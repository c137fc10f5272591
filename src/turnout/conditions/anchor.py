"""Anchors of leaves, and probes of messages that find them; numbers and IP addresses in values.

An *anchor* is an equality that a leaf needs: where the leaf is true, the message has the anchor among its
probes. Its kind says how a probe is derived from a value:

=======  =======================================  ==========================================================
kind     the probe                                needed by
=======  =======================================  ==========================================================
``=``    the value                                ``abc``
``^n``   its first n characters                   ``abc*``
``$n``   its last n characters                    ``*abc``
``~``    each run of three characters             ``*abc*``, other globs; texts that a regular expression needs
``netn`` the address's version and first n bits   ``in 10.0.0.0/8``
``has``  the empty text, if the key is present    no text at all; numbers; elements
=======  =======================================  ==========================================================

Three kinds belong to the index alone: ``part``, texts that a value has at its beginning, at its end or anywhere, each
with its operation before it; ``cell``, nodes that a number is in, needed by a numeric interval that has such nodes
inside, and ``span``, those needed by one that is inside of them. See `turnout.subscriptions.index.facts` and
`turnout.subscriptions.index.facts`.

``w`` before a kind takes each lexeme of the value for the value, ``i`` folds it first. The key and the kind
together are a *slot*: a message is probed only in the slots that an index has, and not once per pattern.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from functools import lru_cache
from ipaddress import ip_address, ip_network
from typing import NamedTuple, TypeAlias

from turnout.conditions.pattern import Piece, fold, lexemes

NUMBER = r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?"
"""Pattern of a number in a value, in a syntax that Python and Java read alike."""

_NUMBER = re.compile(NUMBER)


def parsed_number(value: str) -> float | None:
    """Parse a number, without white space around it; None if the text is not one."""
    return float(value) if _NUMBER.fullmatch(value) else None


def address_text(value: str) -> str | None:
    """Return an IP address as text that sorts: the version, then its bits in hexadecimal; None for other texts."""
    # The standard library takes a zone ("fe80::1%eth0"); an address in a message has no interface.
    if "%" in value:
        return None
    try:
        address = ip_address(value)
    except ValueError:
        return None
    return f"{address.version}:{address.packed.hex()}"


@lru_cache(maxsize=4096)
def address_prefix(value: str, length: int) -> str:
    """Return the version and first *length* bits of an IP address as text; "" for other texts and shorter addresses.

    >>> address_prefix("10.1.2.3", 8), address_prefix("10.1.2.3", 0), address_prefix("10.1.2", 8)
    ('4:a', '4:0', '')
    """
    # Most values are no addresses, which is known from how they look.
    text = address_text(value) if 2 <= len(value) <= _LONGEST_ADDRESS and value[0] in _ADDRESS_BEGINS else None
    return "" if text is None else _prefix(text, length)


def _prefix(address: str, length: int) -> str:
    version, bits = address.split(":")
    rest = len(bits) * 4 - length
    return "" if rest < 0 else f"{version}:{int(bits, 16) >> rest:x}"


def span_prefix(first: str, last: str) -> tuple[int, str]:
    """Return the length of the prefix that all addresses of a `network_span` have, and the prefix as text.

    >>> span_prefix(*network_span("10.0.0.0/8"))
    (8, '4:a')
    """
    bits = first.partition(":")[2]
    length = len(bits) * 4 - (int(bits, 16) ^ int(last.partition(":")[2], 16)).bit_length()
    return length, _prefix(first, length)


_LONGEST_ADDRESS = 45
_ADDRESS_BEGINS = frozenset("0123456789abcdefABCDEF:")


@lru_cache(maxsize=4096)
def network_span(network: str) -> tuple[str, str]:
    """Return the first and the last address of a network, as `address_text` writes them."""
    net = ip_network(network)
    return (f"{net.version}:{net.network_address.packed.hex()}", f"{net.version}:{net.broadcast_address.packed.hex()}")


known_number = lru_cache(maxsize=4096)(parsed_number)
"""`parsed_number`, remembered: one message's price is compared with many subscriptions' limits."""


GRAM = 3
"""Characters of a ``~`` probe."""

_LENGTHS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32)
"""The lengths of ``^n`` and ``$n``: a longer text is cut, so that a key has few slots."""

_MAX_LENGTH = _LENGTHS[-1]


class Kind(NamedTuple):
    """Derivation of a probe from a value; see the table above."""

    op: str
    length: int = 0
    lexeme: bool = False
    fold: bool = False

    def __str__(self) -> str:
        return f"{'w' * self.lexeme}{'i' * self.fold}{self.op}{self.length or ''}"


class Anchor(NamedTuple):
    """A text to find in one slot."""

    key: str
    kind: Kind
    text: str

    def __str__(self) -> str:
        return f"{self.key} {self.kind} {self.text!r}" if self.key else "always"


PRESENCE = Kind("has")
"""The kind of the presence of a key."""

ALWAYS = Anchor("", Kind("always"), "")
"""The anchor of a condition that can be true of any message: it cannot be looked up."""


Lookups: TypeAlias = list[tuple[Kind, Iterable[str]]]
"""Texts to look a message up by, by kind; any one suffices."""


def lookups_of_pieces(
    pieces: tuple[Piece, ...], partial: bool, ignore_case: bool, *, every_run: bool = True
) -> Lookups:
    """Return the texts of each kind that the pieces allow; without *every_run* only those not implied by another."""
    if not pieces:
        return [(Kind("=", 0, partial, ignore_case), ("",))]
    first, last = pieces[0], pieces[-1]
    if len(pieces) == 1 and type(first) is str:
        return [(Kind("=", 0, partial, ignore_case), (first,))]
    begins, ends, runs = _kinds(partial, ignore_case)
    lookups: Lookups = []
    texts = [piece for piece in pieces if type(piece) is str]
    if type(first) is str:
        begin = begins[len(first)] if len(first) < _MAX_LENGTH else begins[_MAX_LENGTH]
        lookups.append((begin, (first[: begin.length],)))
        if not every_run:
            texts[0] = first[max(begin.length - GRAM + 1, 0) :]
    if type(last) is str:
        end = ends[len(last)] if len(last) < _MAX_LENGTH else ends[_MAX_LENGTH]
        lookups.append((end, (last[-end.length :],)))
        if not every_run:
            texts[-1] = last[: len(last) - end.length + GRAM - 1]
    grams_ = [text[start : start + GRAM] for text in texts for start in range(len(text) - GRAM + 1)]
    if grams_:
        lookups.append((runs, dict.fromkeys(grams_)))
    return lookups or [(PRESENCE, ("",))]


@lru_cache(maxsize=4)
def _kinds(partial: bool, ignore_case: bool) -> tuple[tuple[Kind, ...], tuple[Kind, ...], Kind]:
    """Return the kinds of a beginning and of an end, by how long the text is, and that of runs of characters."""
    cuts = [max([length for length in _LENGTHS if length <= size], default=0) for size in range(_MAX_LENGTH + 1)]
    begins = tuple(Kind("^", length, partial, ignore_case) for length in cuts)
    ends = tuple(Kind("$", length, partial, ignore_case) for length in cuts)
    # A lexeme that has three characters in a row gives them to the value, so runs need no words.
    return begins, ends, Kind("~", 0, False, ignore_case)


def grams(text: str) -> set[str]:
    """Return every run of three characters in the text."""
    return {text[start : start + GRAM] for start in range(len(text) - GRAM + 1)}


def prober(kind: Kind) -> Callable[[str], Collection[str]]:
    """Return the function from a value to the distinct lookup texts in a slot of this kind."""
    text_anchor = _of_text(kind)
    if not kind.lexeme:
        return (lambda value: text_anchor(fold(value))) if kind.fold else text_anchor

    def words_of(value: str) -> list[str]:
        return lexemes(fold(value) if kind.fold else value)

    if kind.op == "=":
        return lambda value: set(words_of(value))
    return lambda value: {text for word in words_of(value) for text in text_anchor(word)}


def _of_text(kind: Kind) -> Callable[[str], Collection[str]]:
    """Return the probes of one text, lexemes and folding left aside."""
    length = kind.length
    match kind.op:
        case "=":
            return lambda text: (text,)
        case "^":
            return lambda text: (text[:length],)
        case "$":
            return lambda text: (text[-length:],)
        case "~":
            return grams
        case "net":
            return lambda text: (address_prefix(text, length),)
    return lambda _text: ("",)


def weight(anchor: Anchor) -> float:
    """Return the assumed frequency of an anchor among messages, relative to a whole value."""
    op, length = anchor.kind.op, anchor.kind.length
    if op == "=":
        return 2.0 if anchor.kind.lexeme else 1.0
    if op in "^$":
        return {1: 64.0, 2: 16.0, 3: 4.0}.get(length, 1.5) * (2.0 if anchor.kind.lexeme else 1.0)
    if op == "net":
        return max(2.0, 1e6 / 2.0**length)
    return 16.0 if op == "~" else 1e6
