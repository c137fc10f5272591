"""Wildcard patterns, of the whole value or of a lexeme in it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Final

from turnout.conditions.anchor import Anchor, Kind, Lookups, lookups_of_pieces
from turnout.conditions.leaf import (
    FLAG,
    TEXT,
    Atom,
    AtomKind,
    Check,
    Choice,
    Leaf,
    LeafField,
    LeafKind,
    LeafSpec,
    Literal,
    Sign,
    ValueTest,
    key_text,
    need_key,
    pattern_text,
    quoted,
    unquoted,
)
from turnout.conditions.leaves.exists import PRESENT
from turnout.conditions.pattern import (
    ANY,
    ONE,
    Piece,
    Tokens,
    check_pattern,
    escape,
    fold,
    folded,
    includes,
    lexemes,
    meet,
    parse_pattern,
    pattern_matcher,
    tokens_of,
)
from turnout.errors import ConditionError

if TYPE_CHECKING:
    from turnout.conditions.model import Condition
    from turnout.conditions.text import ConditionReader

PATTERN: Final = 4
"""Rank of the atom that a value matches a pattern."""

_FLAGS = {sign: re.compile(rf"([it]{{1,2}}){sign}") for sign in ":~"}


@dataclass(frozen=True, slots=True)
class Kiwi(Leaf):
    r"""True when the key's value matches a wildcard pattern: ``*`` any run, ``?`` one character, ``\`` escapes.

    Attributes:
        key: the metadata key to test.
        pattern: pattern of its whole value.
        partial: let the pattern match any single lexeme of the value instead of the whole.
        ignore_case: compare without regard to case.
        negated: true where the rest is false, so also where the key is missing.
        tree: written in the *kiwi tree* dialect, which has ``*`` only at the end. The meaning is the same.
        id: the leaf's name in a store.

    >>> from turnout.conditions import evaluate
    >>> [evaluate(Kiwi("city", pattern), {"city": "Oulu"}) for pattern in ("O?lu", "O*", "ulu", "*")]
    [True, True, False, True]
    """

    key: str
    pattern: str
    partial: bool = False
    ignore_case: bool = False
    negated: bool = False
    tree: bool = field(default=False, compare=False)
    id: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        need_key(self.key)
        check_pattern(self.pattern, tree=self.tree)

    def holds(self, value: str) -> bool:
        """Return True if a value, or a lexeme of it, matches the pattern."""
        matches = pattern_matcher(self.pattern, ignore_case=self.ignore_case)
        text = fold(value) if self.ignore_case else value
        if self.partial:
            return any(map(matches, lexemes(text)))
        return matches(text)

    def text(self) -> str:
        """Return the leaf as text."""
        sign = "~" if self.partial else ":"
        flags = "i" * self.ignore_case + "t" * self.tree
        return f"{key_text(self.key)}{sign}{flags + sign if flags else ''}{pattern_text(self.pattern)}"

    def check(self) -> Check:
        """Return the leaf as data: a pattern that is a text, a beginning, an end or a part needs no expression."""
        op, text = shape(self.pattern)
        if self.ignore_case and op != "glob":
            text = fold(text)
        return Check(self.key, op, text, partial=self.partial, fold=self.ignore_case, negated=self.negated)

    def anchors(self) -> Iterator[Anchor]:
        """Yield the text, or beginning, end and runs of characters between wildcards."""
        pattern = self.pattern
        if "*" not in pattern and "?" not in pattern and "\\" not in pattern:
            text = fold(pattern) if self.ignore_case else pattern
            yield Anchor(self.key, Kind("=", 0, self.partial, self.ignore_case), text)
            return
        pieces = _folded(parse_pattern(pattern), self.ignore_case)
        for kind, texts in lookups_of_pieces(pieces, self.partial, self.ignore_case):
            for text in texts:
                yield Anchor(self.key, kind, text)

    def is_decided_by(self, anchor: Anchor) -> bool:
        """Return True if the anchor is the whole pattern."""
        op, length = anchor.kind.op, anchor.kind.length
        if op == "=":
            return True
        pieces = parse_pattern(self.pattern)
        if op == "^":
            return len(pieces) == 2 and pieces[1] is ANY and len(anchor.text) == length == _size(pieces[0])
        if op == "$":
            return len(pieces) == 2 and pieces[0] is ANY and len(anchor.text) == length == _size(pieces[1])
        return op == "has" and pieces == (ANY,) and not self.partial

    def literals(self) -> tuple[Literal, ...] | None:
        """Return the atom of the pattern; None if no lexeme can match it."""
        atom = _atom(self.key, self.pattern, self.partial, self.ignore_case)
        return None if atom is None else ((atom, True),)

    def value_pattern(self) -> str | None:
        """Return the pattern, where it is of the whole value and regards case."""
        return None if self.negated or self.partial or self.ignore_case else self.pattern


def kiwi(key: str, pattern: str, *, partial: bool = False, ignore_case: bool = False, tree: bool = False) -> Kiwi:
    """True when the key's value matches a wildcard pattern; see `Kiwi`.

    >>> from turnout.conditions import evaluate
    >>> title = {"title": "night trains"}
    >>> evaluate(kiwi("title", "tr*"), title), evaluate(kiwi("title", "tr*", partial=True), title)
    (False, True)
    >>> evaluate(kiwi("title", "Night*"), title), evaluate(kiwi("title", "Night*", ignore_case=True), title)
    (False, True)
    """
    return Kiwi(key, pattern, partial=partial, ignore_case=ignore_case, tree=tree)


def _size(piece: Piece) -> int:
    # Folding can change the length of a text ("İ"), and then the anchor was cut elsewhere: verify.
    return len(piece) if isinstance(piece, str) and len(fold(piece)) == len(piece) else -1


def _folded(pieces: tuple[Piece, ...], ignore_case: bool) -> tuple[Piece, ...]:
    return tuple(fold(piece) if isinstance(piece, str) else piece for piece in pieces) if ignore_case else pieces


def _read(reader: ConditionReader, key: str, sign: str) -> Condition:
    """Return the leaf of a pattern, or those of a group of patterns."""
    flags = reader.take(_FLAGS[sign])
    written = flags.group(1) if flags else ""
    leaf = partial(Kiwi, key, partial=sign == "~", ignore_case="i" in written, tree="t" in written)
    return reader.patterns(lambda pattern: leaf(read_pattern(pattern, key)))


def read_pattern(written: str, key: str) -> str:
    """Return a pattern that is not meant as something else in the language of a search engine.

    Raises:
        ConditionError: it begins like a comparison, or is in single quotes; in double quotes it is a text.
    """
    if written.startswith((">", "<")):
        raise ConditionError(f"write {key}{written} without the colon, or as a text {key}:{quoted(written)}")
    if len(written) > 1 and written[0] == written[-1] == "'":
        inner = written[1:-1]
        raise ConditionError(f"write {key}:{quoted(inner)}: single quotes belong to the text, unless it is quoted so")
    return unquoted(written)


# Checks


def shape(pattern: str) -> tuple[str, str]:
    """Return the cheapest operation that decides the pattern, and the text it needs."""
    if "*" not in pattern and "?" not in pattern and "\\" not in pattern:
        return "=", pattern
    return shape_of(parse_pattern(pattern), pattern)


def shape_of(pieces: tuple[Piece, ...], pattern: str) -> tuple[str, str]:
    """Return the cheapest operation and its text for a pattern that is parsed into pieces."""
    match pieces:
        case ():
            return "=", ""
        case (str(text),):
            return "=", text
        case (str(text), last) if last is ANY:
            return "^", text
        case (first, str(text)) if first is ANY:
            return "$", text
        case (first, str(text), last) if first is ANY and last is ANY:
            return "~", text
    return "glob", pattern


def _equals(check: Check, value: str) -> bool:
    text = fold(value) if check.fold else value
    return check.text in lexemes(text) if check.partial else text == check.text


def _begins(check: Check, value: str) -> bool:
    text = fold(value) if check.fold else value
    return any(word.startswith(check.text) for word in lexemes(text)) if check.partial else text.startswith(check.text)


def _ends(check: Check, value: str) -> bool:
    text = fold(value) if check.fold else value
    return any(word.endswith(check.text) for word in lexemes(text)) if check.partial else text.endswith(check.text)


def _contains(check: Check, value: str) -> bool:
    text = fold(value) if check.fold else value
    return any(check.text in word for word in lexemes(text)) if check.partial else check.text in text


def _matches(check: Check, value: str) -> bool:
    matches = pattern_matcher(check.text, ignore_case=check.fold)
    text = fold(value) if check.fold else value
    return any(map(matches, lexemes(text))) if check.partial else matches(text)


def _lookups(check: Check, pieces: tuple[Piece, ...] | None) -> Lookups:
    match check.op:
        case "=":
            return [(Kind("=", 0, check.partial, check.fold), (check.text,))]
        case "^":
            pieces = (check.text, ANY)
        case "$":
            pieces = (ANY, check.text)
        case "~":
            pieces = (ANY, check.text, ANY)
        case _ if pieces is None:
            pieces = _folded(parse_pattern(check.text), check.fold)
    return lookups_of_pieces(pieces or (), check.partial, check.fold, every_run=False)


# Proofs


@lru_cache(maxsize=1 << 16)
def _atom(key: str, pattern: str, partial: bool, ignore_case: bool) -> Atom | None:
    if "*" not in pattern and "?" not in pattern and "\\" not in pattern and not (partial or ignore_case):
        return Atom(key, PATTERN, text=pattern)
    pieces = _folded(parse_pattern(pattern), ignore_case)
    if pieces == (ANY,) and not partial:
        return Atom(key, PRESENT)
    if partial and (not pieces or any(lexemes(piece) != [piece] for piece in pieces if isinstance(piece, str))):
        # A lexeme is never empty, and consists of the characters of words.
        return None
    text = "".join(escape(token) if isinstance(token, str) else token.value for token in tokens_of(pieces))
    return Atom(key, PATTERN, text=text, partial=partial, fold=ignore_case)


def _holds(atom: Atom, value: str) -> bool:
    return Kiwi(atom.key, atom.text, atom.partial, atom.fold).holds(value)


def only_text(atom: Atom) -> str | None:
    """Return the only value that makes the atom of a pattern true; None if other values do, too."""
    if atom.rank != PATTERN or atom.partial or atom.fold:
        return None
    return _literal_text(_tokens(atom))


def _literal_text(tokens: Tokens) -> str | None:
    return None if ANY in tokens or ONE in tokens else "".join(map(str, tokens))


def _tokens(atom: Atom) -> Tokens:
    return tokens_of(parse_pattern(atom.text))


def _relation(premise: Atom, conclusion: Atom) -> bool | None:
    """Return the relation of two patterns, neither of which is equivalent to a single value."""
    one, other = _tokens(premise), _tokens(conclusion)
    text = _literal_text(one)
    if text is not None and premise.fold and conclusion.fold and not premise.partial:
        return Kiwi(conclusion.key, conclusion.text, conclusion.partial).holds(text)
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


def _values(atom: Atom) -> Iterator[str]:
    for any_, one in (("", "x"), ("x", "y"), ("q", "q")):
        fills = {ANY: any_, ONE: one}
        yield "".join(piece if isinstance(piece, str) else fills[piece] for piece in parse_pattern(atom.text))


_FIELDS = (
    LeafField("pattern", "pattern", TEXT, ""),
    LeafField("partial", "partial", FLAG, False),
    LeafField("ignoreCase", "ignore_case", FLAG, False),
)

KIWI: Final = LeafSpec(
    Kiwi,
    (
        LeafKind("kiwiCondition", Kiwi, _FIELDS, {"tree": False}),
        LeafKind("kiwiTreeCondition", Kiwi, _FIELDS, {"tree": True}),
    ),
    signs=(Sign(":", _read), Sign("~", _read)),
    tests=(
        ValueTest("=", 0, _equals, _lookups),
        ValueTest("^", 1, _begins, _lookups),
        ValueTest("$", 2, _ends, _lookups),
        ValueTest("~", 3, _contains, _lookups),
        ValueTest("glob", 4, _matches, _lookups),
    ),
    atoms=(AtomKind(PATTERN, _holds, _relation, _values),),
    choices={
        "is": Choice("is", lambda key, value: Kiwi(key, escape(value))),
        "begins": Choice("begins with", lambda key, value: Kiwi(key, f"{escape(value)}*")),
        "contains": Choice("contains", lambda key, value: Kiwi(key, f"*{escape(value)}*")),
        "word": Choice("has the word", lambda key, value: Kiwi(key, escape(value), partial=True)),
        "like": Choice("is like, with * and ?", Kiwi),
    },
)
