r"""Text syntax of conditions: ``subject:orders* AND NOT location:Helsinki``.

::

    condition  = xor { "OR" xor }                     weakest
    xor        = and { "XOR" and }                    exactly one of them
    and        = unary { "AND" unary }                strongest
    unary      = "NOT" unary | "(" condition ")" | leaf
    leaf       = key ":" patterns                     the whole value matches; key may end with a kind
               | key "~" patterns                     one lexeme of it does
               | key ("<" | "<=" | "=" | "!=" | ">=" | ">") number
               | key ":[" number "TO" number "]"      both included
               | key ["NOT"] "in" network             an IP address in it: ip in 10.0.0.0/8
               | key ["NOT"] "in" "(" item { "," item } ")"
               | key "=~" expression                  a regular expression of RE2 has a match in it
               | key ["NOT"] "exists"
               | key ["NOT"] "matches" subject        a filter of NATS: subject matches orders.*.>
               | key ("<" | "<=" | "=" | "!=" | ">=" | ">") "field" "(" key ")"    both are present and compare so
               | "any" "(" key "," condition ")"      of one element of an array; in it, the key "." is the element
    key        = "*"                                  any value of the message; another key is a name
               | name [":" kind]                      of values: total:number=100, total:text:100
    patterns   = pattern | "(" condition ")"          of patterns where else leaves are: city:(Oulu OR Turku)
    item       = network | pattern                    quoted, it is a pattern

Flags are between two signs: ``city:i:oulu`` and ``city~i~oulu`` ignore case, ``t`` keeps a pattern to the kiwi-tree
dialect, and ``user=i=field(owner)`` ignores case, too. Words are read in any case. A key or pattern with spaces,
parentheses or quotes in it is written in double quotes, where two quotes are one; a backslash always belongs to the
pattern. A metadata key that is called ``*`` is quoted, too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from ipaddress import ip_interface
from typing import Final

from turnout.base.multivalued import ANY_KEY, metadata_key
from turnout.conditions.leaf import (
    INNER_KEY,
    ITEM,
    KEY,
    KINDS_TEXT,
    LUCENE,
    PATTERN,
    WORD,
    Leaf,
    Sign,
    read_key,
    unquoted,
)
from turnout.conditions.leaves import LEAVES, Cidr, Kiwi
from turnout.conditions.leaves.kiwi import read_pattern
from turnout.conditions.model import MAX_DEPTH, Condition, Group, Logic, inverse
from turnout.errors import ConditionError


def _signs() -> dict[str, list[Sign]]:
    """Return the signs of leaves by their text; those that need something behind them are first."""
    by_text: dict[str, list[Sign]] = {}
    for spec in LEAVES:
        for sign in spec.signs:
            by_text.setdefault(sign.text, []).append(sign)
    return {text: sorted(own, key=lambda sign: sign.ahead is None) for text, own in by_text.items()}


_SIGNS: Final = _signs()
_OPENINGS: Final = [spec.opening for spec in LEAVES if spec.opening is not None]


def _sign_text() -> str:
    """Return a regular expression of all signs, the longest first: the words that may follow NOT, and symbols."""
    texts = sorted(_SIGNS, key=len, reverse=True)
    words = "|".join(text for text in texts if text.isalpha())
    symbols = "|".join(re.escape(text) for text in texts if not text.isalpha())
    return rf"\s*(not\s+(?={words}))?({symbols}|(?:{words})(?![^\s()]))"


_SIGN = re.compile(_sign_text(), re.IGNORECASE)
_KIND = re.compile(rf":(?:{KINDS_TEXT})(?={_sign_text()})", re.IGNORECASE)
_SPACE = re.compile(r"\s*")
_LEVELS = (Logic.OR, Logic.XOR, Logic.AND)
"""From the weakest to the strongest."""


def parse(text: str) -> Condition:
    """Parse a condition from text; `format_condition` is the inverse.

    Raises:
        ConditionError: with the position where reading stopped.

    >>> parse("city:Oulu")
    Kiwi(key='city', pattern='Oulu', partial=False, ignore_case=False, negated=False, tree=False, id='')
    >>> parse("city:Oulu AND total>")
    Traceback (most recent call last):
        ...
    turnout.errors.ConditionError: expected a number, found the end (at 20)
      city:Oulu AND total>
                          ^
    """
    reader = ConditionReader(text)
    condition = reader.group(0)
    reader.skip()
    if reader.at < len(text):
        raise reader.expected("AND, OR, XOR or the end")
    return condition


_CONTEXT_CHARACTERS = 60
"""Characters of the text on each side of a mistake."""


class ConditionReader:
    """Reads from left to right; *at* is the next character."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.open = 0
        self.outer: Callable[[str], Condition] | None = None
        """Inside of ``key:(…)``, the leaf of a pattern."""

    # Characters

    def skip(self) -> None:
        """Skip space."""
        self.take(_SPACE)

    def take(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        """Take what matches a pattern here; return None if nothing does."""
        match = pattern.match(self.text, self.at)
        if match:
            self.at = match.end()
        return match

    def word(self, word: str) -> bool:
        """Take a word of `WORD`; return False if another one follows."""
        self.skip()
        return self.take(WORD[word]) is not None

    def require(self, pattern: re.Pattern[str], expected: str) -> str:
        """Return what matches a pattern behind the space here.

        Raises:
            ConditionError: nothing does; it says what was expected.
        """
        self.skip()
        match = self.take(pattern)
        if match is None:
            raise self.expected(expected)
        return match.group()

    def expected(self, expectation: str, at: int | None = None) -> ConditionError:
        """Return an error that says what was expected, here or at an offset, and what was found."""
        position = self.at if at is None else at
        rest = self.text[position : position + 20]
        return self.wrong(f"expected {expectation}, found {repr(rest) if rest else 'the end'}", position)

    def wrong(self, problem: str, at: int) -> ConditionError:
        """Return an error that shows the text around an offset."""
        # For long texts, and those of several lines, only the part around the position.
        begin = max(self.text.rfind("\n", 0, at) + 1, at - _CONTEXT_CHARACTERS)
        shown = self.text[begin : at + _CONTEXT_CHARACTERS].partition("\n")[0]
        return ConditionError(f"{problem} (at {at})\n  {shown}\n  {' ' * (at - begin)}^", text=self.text, position=at)

    # Conditions

    def group(self, level: int) -> Condition:
        """Return the condition up to an operator that is weaker than a level of `_LEVELS`."""
        if level == len(_LEVELS):
            return self.unary()
        logic = _LEVELS[level]
        children = [self.group(level + 1)]
        while self.word(logic.upper()):
            children.append(self.group(level + 1))
        return children[0] if len(children) == 1 else Group(logic, tuple(children))

    def unary(self) -> Condition:
        """Return a leaf or a group in parentheses, perhaps negated."""
        negated = False
        while self.word("NOT"):
            negated = not negated
        self.skip()
        condition = self.parenthesis() if self.text.startswith("(", self.at) else self.leaf()
        return inverse(condition) if negated else condition

    def parenthesis(self) -> Condition:
        """Return the group in parentheses, from before the first."""
        if self.open == MAX_DEPTH:
            raise self.expected(f"at most {MAX_DEPTH} open parentheses")
        self.at += 1
        self.open += 1
        condition = self.group(0)
        self.skip()
        if not self.text.startswith(")", self.at):
            raise self.expected("AND, OR, XOR or ')'")
        self.at += 1
        self.open -= 1
        return condition

    def leaf(self) -> Condition:
        """Return a leaf, or in ``key:(…)`` that of a pattern."""
        if self.outer is not None:
            return self.item(PATTERN, "a pattern, '(' or NOT", self.outer)
        begin = self.at
        for opening in _OPENINGS:
            if self.take(opening.pattern) is not None:
                return self.built(begin, partial(opening.read, self))
        if (first := self.text[begin : begin + 1]) in ("!", "-", "+"):
            written = "NOT" if first != "+" else "by AND, and a required leaf has no sign"
            meaning = "a negation" if first != "+" else "a conjunction"
            raise self.wrong(f"{meaning} is written {written}: {first!r} begins no key (in a name, quote it)", begin)
        key = self.require(KEY, "a key, '(' or NOT")
        if key.upper() in WORD:
            raise self.expected("a key, '(' or NOT", begin)
        signed = self.at
        kind = self.take(_KIND)
        if kind is not None and key == ANY_KEY:
            raise self.wrong("any value has no kind: a pattern that begins so is written in quotes", signed + 1)
        sign = self.take(_SIGN)
        if sign is None:
            raise self.expected(
                "':' or '~' and a pattern, a comparison, 'in', 'matches' or 'exists' after the key", signed
            )
        of_kind = kind.group().lower() if kind else ""
        if key in LUCENE and sign.group(2) == ":":
            field = self.require(PATTERN, "the key that has to be there")
            raise self.wrong(f"write {LUCENE[key].format(field)} (a key that is called {key} is quoted)", begin)
        symbol = sign.group(2).lower()
        candidates = _SIGNS[symbol]
        found = next(own for own in candidates if own.ahead is None or own.ahead.match(self.text, self.at))
        condition = self.built(self.at, lambda: found.read(self, read_key(key) + of_kind, symbol))
        return condition if sign.group(1) is None else inverse(condition)

    def inner_key(self, behind: str, expectation: str) -> str:
        """Return a key inside of parentheses, with its kind; *behind* is the pattern of what ends it."""
        key = read_key(self.require(INNER_KEY, expectation))
        kind = self.take(re.compile(rf":(?:{KINDS_TEXT})(?=\s*{behind})", re.IGNORECASE))
        return key + (kind.group().lower() if kind else "")

    def item(self, form: re.Pattern[str], expectation: str, leaf: Callable[[str], Condition]) -> Condition:
        """Return the leaf of the next pattern of several."""
        begin = self.at
        written = self.require(form, expectation)
        if written.upper() in WORD:
            raise self.expected(expectation, begin)
        return self.built(begin, lambda: leaf(written))

    def built(self, begin: int, leaf: Callable[[], Condition]) -> Condition:
        """Return the leaf; an error about its value, which begins at *begin*, gets the position in the whole text."""
        try:
            return leaf()
        except ConditionError as problem:
            if problem.text is self.text:
                raise
            raise self.wrong(str(problem), begin + (problem.position or 0)) from problem

    def patterns(self, leaf: Callable[[str], Condition]) -> Condition:
        """Parse a pattern as a leaf, or a group of leaves."""
        self.skip()
        if not self.text.startswith("(", self.at):
            return leaf(self.require(PATTERN, 'a pattern ("" for the empty one)'))
        self.outer = leaf
        group = self.parenthesis()
        self.outer = None
        return group

    def items(self, key: str) -> Condition:
        """Return the leaves of a list in parentheses, one of which has to be true."""
        leaves: list[Condition] = []
        separator = "("
        while self.text.startswith(separator, self.at):
            self.at += 1
            self.skip()
            leaves.append(self.item(ITEM, "a pattern or a network", partial(_item, key)))
            self.skip()
            separator = ","
        if not self.text.startswith(")", self.at):
            raise self.expected("',' or ')'")
        self.at += 1
        return leaves[0] if len(leaves) == 1 else Group(Logic.OR, tuple(leaves))


def _item(key: str, written: str) -> Condition:
    """Return the leaf of an item of a list: an address or a network if it reads as one, else a pattern."""
    try:
        ip_interface(written)
    except ValueError:
        return Kiwi(key, unquoted(written))
    return Cidr(key, written)


def leftovers(leaf: Leaf) -> Iterator[str]:
    """Yield a sentence for each part of a leaf that text refuses outside of quotes: it is of another query language.

    JSON and protobuf have no quotes, so such a part may be meant as it is.
    """
    return leftovers_of(leaf.key, leaf.pattern if isinstance(leaf, Kiwi) else None)


def leftovers_of(written_key: str, pattern: str | None) -> Iterator[str]:
    """Yield the sentences of `leftovers` for a leaf with this key, and this pattern if it compares with one."""
    key = metadata_key(written_key)
    if key.startswith(("!", "-", "+")):
        yield f"{key}: {key[0]!r} is part of the key; a negation is written NOT, or as the field not"
    if pattern is None:
        return
    if key in LUCENE:
        yield f"{key}: is a key; write {LUCENE[key].format(pattern)}, or an existsCondition"
    if not pattern.startswith((">", "<", "'")):
        return
    try:
        read_pattern(pattern, key)
    except ConditionError as problem:
        yield f"{key}: {pattern!r:.80} is compared as a text: {problem}"


def format_condition(condition: Condition) -> str:
    """Return the condition as text, which `parse` reads as an equal one.

    A group of one child is written as that child, which means the same; ids have no text.

    >>> from turnout.conditions import all_of, kiwi, not_
    >>> format_condition(not_(all_of(kiwi("city", "New York"), kiwi("state", "*Y*", partial=True))))
    'NOT (city:"New York" AND state~*Y*)'
    """
    return _written(condition, outermost=True)


def _written(condition: Condition, *, outermost: bool = False) -> str:
    negation = "NOT " if condition.negated else ""
    if not isinstance(condition, Group):
        return negation + condition.text()
    if len(condition.children) == 1:
        (child,) = condition.children
        return _written(replace(child, negated=child.negated != condition.negated), outermost=outermost)
    text = f" {condition.logic.upper()} ".join(_written(child) for child in condition.children)
    return text if outermost and not condition.negated else f"{negation}({text})"
