"""Anchors of patterns, and probes of messages that find them.

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
`turnout.subscriptions.index.ranges`.

``w`` before a kind takes each lexeme of the value for the value, ``i`` folds it first. The key and the kind
together are a *slot*: a message is probed only in the slots that an index has, and not once per pattern.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from functools import lru_cache, singledispatch
from typing import NamedTuple

from turnout.conditions.check import Check
from turnout.conditions.evaluate import address_prefix, network_span, span_prefix
from turnout.conditions.model import Cidr, Compare, Element, Exists, Kiwi, Leaf, Regex, SubjectMatch
from turnout.conditions.pattern import ANY, Piece, fold, lexemes, parse_pattern, subject_pattern
from turnout.conditions.required_texts import required_texts

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


ALWAYS = Anchor("", Kind("always"), "")
"""The anchor of a condition that can be true of any message: it cannot be looked up."""


@singledispatch
def anchors_of(leaf: Leaf) -> Iterator[Anchor]:
    """Yield the lookup anchors of the leaf's test, without its negation; any one of them suffices."""
    raise TypeError(f"not a leaf: {leaf!r}")


@anchors_of.register(Compare)
@anchors_of.register(Exists)
@anchors_of.register(Element)
def _(leaf: Compare | Exists | Element) -> Iterator[Anchor]:
    yield Anchor(leaf.key, Kind("has"), "")


@anchors_of.register
def _(leaf: Cidr) -> Iterator[Anchor]:
    length, prefix = span_prefix(*network_span(leaf.network))
    yield Anchor(leaf.key, Kind("net", length), prefix)


@anchors_of.register
def _(leaf: Kiwi) -> Iterator[Anchor]:
    pattern = leaf.pattern
    if "*" not in pattern and "?" not in pattern and "\\" not in pattern:
        text = fold(pattern) if leaf.ignore_case else pattern
        yield Anchor(leaf.key, Kind("=", 0, leaf.partial, leaf.ignore_case), text)
        return
    pieces = _folded(parse_pattern(pattern), leaf.ignore_case)
    yield from _anchors(leaf.key, _of_pieces(pieces, leaf.partial, leaf.ignore_case))


@anchors_of.register
def _(leaf: SubjectMatch) -> Iterator[Anchor]:
    yield from _anchors(leaf.key, _of_pieces(parse_pattern(subject_pattern(leaf.subject)), False, False))


@anchors_of.register
def _(leaf: Regex) -> Iterator[Anchor]:
    texts, folded = required_texts(leaf.pattern)
    yield from _anchors(leaf.key, _of_pieces(_between_any(texts), False, folded))


def _between_any(texts: Iterable[str]) -> tuple[Piece, ...]:
    """Return the pieces of a pattern that is true where all texts are, wherever in the value."""
    return (ANY, *(piece for text in texts for piece in (text, ANY)))


def _anchors(key: str, lookups: Iterable[tuple[Kind, Iterable[str]]]) -> Iterator[Anchor]:
    return (Anchor(key, kind, text) for kind, texts in lookups for text in texts)


def lookups_of(check: Check, glob: tuple[Piece, ...] | None = None) -> list[tuple[Kind, Iterable[str]]]:
    """Return the lookup texts of a check, by kind; any one suffices; empty if the check is negated.

    Runs of characters inside a beginning or an end that can be looked up are not among them: more messages have those.

    Args:
        check: the check.
        glob: the pieces of its pattern, where that has been read before and is not to be folded.
    """
    if check.negated:
        return []
    match check.op:
        case "=":
            return [(Kind("=", 0, check.partial, check.fold), (check.text,))]
        case "^":
            pieces: tuple[Piece, ...] = (check.text, ANY)
        case "$":
            pieces = (ANY, check.text)
        case "~":
            pieces = (ANY, check.text, ANY)
        case "glob" if glob is not None:
            pieces = glob
        case "glob":
            pieces = _folded(parse_pattern(check.text), check.fold)
        case "cidr":
            length, prefix = span_prefix(check.text, check.last)
            return [(Kind("net", length), (prefix,))]
        case "subject":
            pieces = parse_pattern(subject_pattern(check.text))
        case "re":
            texts, folded = required_texts(check.text)
            return _of_pieces(_between_any(texts), False, folded)
        case _:
            pieces = (ANY,)
    return _of_pieces(pieces, check.partial, check.fold, every_run=False)


def _folded(pieces: tuple[Piece, ...], ignore_case: bool) -> tuple[Piece, ...]:
    return tuple(fold(piece) if isinstance(piece, str) else piece for piece in pieces) if ignore_case else pieces


def _of_pieces(
    pieces: tuple[Piece, ...], partial: bool, ignore_case: bool, *, every_run: bool = True
) -> list[tuple[Kind, Iterable[str]]]:
    """Return the texts of each kind that the pieces allow; without *every_run* only those not implied by another."""
    if not pieces:
        return [(Kind("=", 0, partial, ignore_case), ("",))]
    first, last = pieces[0], pieces[-1]
    if len(pieces) == 1 and type(first) is str:
        return [(Kind("=", 0, partial, ignore_case), (first,))]
    begins, ends, runs = _kinds(partial, ignore_case)
    lookups: list[tuple[Kind, Iterable[str]]] = []
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
    return lookups or [(Kind("has"), ("",))]


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


def implies(anchor: Anchor, leaf: Leaf) -> bool:
    """Return True if a message with this anchor of the leaf's passes its test, with nothing left to verify."""
    if isinstance(leaf, Exists) or anchor.kind.op == "net":
        return True
    if not isinstance(leaf, Kiwi):
        return False
    op, length = anchor.kind.op, anchor.kind.length
    if op == "=":
        return True
    pieces = parse_pattern(leaf.pattern)
    if op == "^":
        return len(pieces) == 2 and pieces[1] is ANY and len(anchor.text) == length == _size(pieces[0])
    if op == "$":
        return len(pieces) == 2 and pieces[0] is ANY and len(anchor.text) == length == _size(pieces[1])
    return op == "has" and pieces == (ANY,) and not leaf.partial


def _size(piece: Piece) -> int:
    # Folding can change the length of a text ("İ"), and then the anchor was cut elsewhere: verify.
    return len(piece) if isinstance(piece, str) and len(fold(piece)) == len(piece) else -1


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
