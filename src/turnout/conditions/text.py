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
               | "any" "(" key "," condition ")"      of one element of an array; in it, the key "." is the element
    key        = "*"                                  any value of the message; another key is a name
               | name [":" kind]                      of values: total:number=100, total:text:100
    patterns   = pattern | "(" condition ")"          of patterns where else leaves are: city:(Oulu OR Turku)
    item       = network | pattern                    quoted, it is a pattern

Flags are between two signs: ``city:i:oulu`` and ``city~i~oulu`` ignore case, ``t`` keeps a pattern to the kiwi-tree
dialect. Words are read in any case. A key or pattern with spaces, parentheses or quotes in it is written in double
quotes, where two quotes are one; a backslash always belongs to the pattern. A metadata key that is called ``*`` is
quoted, too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from ipaddress import ip_interface

from turnout.base.multivalued import ANY_KEY, KINDS, is_plain_key, leaf_key, metadata_key, split_kind
from turnout.conditions.build import between
from turnout.conditions.model import (
    MAX_DEPTH,
    Cidr,
    Compare,
    Condition,
    Element,
    Exists,
    Group,
    Kiwi,
    Leaf,
    Logic,
    Operator,
    Regex,
    SubjectMatch,
)
from turnout.errors import ConditionError

_QUOTED = r'"(?:[^"]|"")*"'
_SPACE = re.compile(r"\s*")
_KEY = re.compile(rf'{_QUOTED}|(?![!+-])(?:[^\s():~<>="!]|!(?!=))+')
_ANY = re.compile(r"any\s*\(", re.IGNORECASE)
_ELEMENT_KEY = re.compile(rf'{_QUOTED}|[^\s(),:~<>="!]+')
_ELEMENT_KIND = re.compile(rf":(?:{'|'.join(KINDS)})(?=\s*,)", re.IGNORECASE)
_PATTERN = re.compile(rf'{_QUOTED}|(?:\\.|[^\s()"\\])+', re.DOTALL)
_ITEM = re.compile(rf'{_QUOTED}|(?:\\.|[^\s()",\\])+', re.DOTALL)
_SIGN_TEXT = r"\s*(not\s+(?=in|exists|matches))?(:\[|[:~]|=~|<=|>=|!=|<|>|=|(?:exists|in|matches)(?![^\s()]))"
_SIGN = re.compile(_SIGN_TEXT, re.IGNORECASE)
_KIND = re.compile(rf":(?:{'|'.join(KINDS)})(?={_SIGN_TEXT})", re.IGNORECASE)
_LUCENE = {"_exists_": "{} exists", "_missing_": "NOT {} exists"}
"""Keys of Lucene's query language, and what they mean."""
_BEFORE_PATTERN = re.compile(rf'["\[<>]|\'.*\'$|[it]{{1,2}}[:~]|(?:{"|".join(KINDS)})(?:[:~<>=]|!=)', re.IGNORECASE)
"""Beginnings of a pattern that would be read as part of the text before it."""
_FLAGS = {sign: re.compile(rf"([it]{{1,2}}){sign}") for sign in ":~"}
_RANGE = re.compile(r"\s*([^\s\]]+)\s+TO\s+([^\s\]]+)\s*\]", re.IGNORECASE)
_VALUE = re.compile(r"[^\s()]+")
_WORD = {word: re.compile(rf"{word}(?![^\s()])", re.IGNORECASE) for word in ("AND", "OR", "XOR", "NOT")}
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
    reader = _ConditionReader(text)
    condition = reader.group(0)
    reader.skip()
    if reader.at < len(text):
        raise reader.expected("AND, OR, XOR or the end")
    return condition


_CONTEXT_CHARACTERS = 60
"""Characters of the text on each side of a mistake."""


class _ConditionReader:
    """Reads from left to right; *at* is the next character."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.open = 0
        self.outer: Callable[[str], Condition] | None = None
        """Inside of ``key:(…)``, the leaf of a pattern."""

    # Characters

    def skip(self) -> None:
        self.take(_SPACE)

    def take(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        match = pattern.match(self.text, self.at)
        if match:
            self.at = match.end()
        return match

    def word(self, word: str) -> bool:
        self.skip()
        return self.take(_WORD[word]) is not None

    def require(self, pattern: re.Pattern[str], expected: str) -> str:
        self.skip()
        match = self.take(pattern)
        if match is None:
            raise self.expected(expected)
        return match.group()

    def expected(self, expectation: str, at: int | None = None) -> ConditionError:
        position = self.at if at is None else at
        rest = self.text[position : position + 20]
        return self.wrong(f"expected {expectation}, found {repr(rest) if rest else 'the end'}", position)

    def wrong(self, problem: str, at: int) -> ConditionError:
        # For long texts, and those of several lines, only the part around the position.
        begin = max(self.text.rfind("\n", 0, at) + 1, at - _CONTEXT_CHARACTERS)
        shown = self.text[begin : at + _CONTEXT_CHARACTERS].partition("\n")[0]
        return ConditionError(f"{problem} (at {at})\n  {shown}\n  {' ' * (at - begin)}^", text=self.text, position=at)

    # Conditions

    def group(self, level: int) -> Condition:
        if level == len(_LEVELS):
            return self.unary()
        logic = _LEVELS[level]
        children = [self.group(level + 1)]
        while self.word(logic.upper()):
            children.append(self.group(level + 1))
        return children[0] if len(children) == 1 else Group(logic, tuple(children))

    def unary(self) -> Condition:
        negated = False
        while self.word("NOT"):
            negated = not negated
        self.skip()
        condition = self.parenthesis() if self.text.startswith("(", self.at) else self.leaf()
        return _not(condition) if negated else condition

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
        if self.outer is not None:
            return self.item(_PATTERN, "a pattern, '(' or NOT", self.outer)
        begin = self.at
        if self.take(_ANY) is not None:
            return self.built(begin, self.element)
        if (first := self.text[begin : begin + 1]) in ("!", "-", "+"):
            written = "NOT" if first != "+" else "by AND, and a required leaf has no sign"
            meaning = "a negation" if first != "+" else "a conjunction"
            raise self.wrong(f"{meaning} is written {written}: {first!r} begins no key (in a name, quote it)", begin)
        key = self.require(_KEY, "a key, '(' or NOT")
        if key.upper() in _WORD:
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
        if key in _LUCENE and sign.group(2) == ":":
            field = self.require(_PATTERN, "the key that has to be there")
            raise self.wrong(f"write {_LUCENE[key].format(field)} (a key that is called {key} is quoted)", begin)
        condition = self.built(self.at, lambda: self.test(_key_read(key) + of_kind, sign.group(2).lower()))
        return condition if sign.group(1) is None else _not(condition)

    def element(self) -> Condition:
        """Return the leaf about one element of an array, from behind its parenthesis."""
        if self.open == MAX_DEPTH:
            raise self.expected(f"at most {MAX_DEPTH} open parentheses")
        key = _key_read(self.require(_ELEMENT_KEY, "the key of an array"))
        kind = self.take(_ELEMENT_KIND)
        key += kind.group().lower() if kind else ""
        self.skip()
        if not self.text.startswith(",", self.at):
            raise self.expected("',' and a condition about an element")
        self.at += 1
        self.open += 1
        inner = self.group(0)
        self.skip()
        if not self.text.startswith(")", self.at):
            raise self.expected("AND, OR, XOR or ')'")
        self.at += 1
        self.open -= 1
        return Element(key, format_condition(inner))

    def item(self, form: re.Pattern[str], expectation: str, leaf: Callable[[str], Condition]) -> Condition:
        """Return the leaf of the next pattern of several."""
        begin = self.at
        written = self.require(form, expectation)
        if written.upper() in _WORD:
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

    def test(self, key: str, sign: str) -> Condition:
        """Return the leaf of this key, from behind its sign."""
        if sign in _FLAGS:
            flags = self.take(_FLAGS[sign])
            written = flags.group(1) if flags else ""
            kiwi = partial(Kiwi, key, partial=sign == "~", ignore_case="i" in written, tree="t" in written)
            return self.patterns(lambda pattern: kiwi(_pattern_read(pattern, key)))
        if sign == ":[":
            return self.range(key)
        if sign == "in":
            self.skip()
            listed = self.text.startswith("(", self.at)
            return self.items(key) if listed else Cidr(key, self.require(_VALUE, "a network, as in 10.0.0.0/8"))
        if sign == "exists":
            return Exists(key)
        if sign == "matches":
            return SubjectMatch(key, _unquoted(self.require(_PATTERN, "a subject, as in orders.>")))
        if sign == "=~":
            return Regex(key, _unquoted(self.require(_PATTERN, "a regular expression")))
        self.skip()
        at = self.at
        compared = Compare(key, Operator(sign.removeprefix("!")), self.number(self.require(_VALUE, "a number"), at))
        return _not(compared) if sign == "!=" else compared

    def patterns(self, leaf: Callable[[str], Condition]) -> Condition:
        """Parse a pattern as a leaf, or a group of leaves."""
        self.skip()
        if not self.text.startswith("(", self.at):
            return leaf(self.require(_PATTERN, 'a pattern ("" for the empty one)'))
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
            leaves.append(self.item(_ITEM, "a pattern or a network", partial(_item, key)))
            self.skip()
            separator = ","
        if not self.text.startswith(")", self.at):
            raise self.expected("',' or ')'")
        self.at += 1
        return leaves[0] if len(leaves) == 1 else Group(Logic.OR, tuple(leaves))

    def range(self, key: str) -> Condition:
        begin = self.at
        match = self.take(_RANGE)
        if match is None:
            raise self.expected("a range, as in [1 TO 5]", begin - 1)
        low, high = self.number(match.group(1), match.start(1)), self.number(match.group(2), match.start(2))
        if low > high:
            raise self.wrong("the range is empty: its first number is larger than its last", begin - 1)
        return between(key, low, high)

    def number(self, written: str, at: int) -> float:
        try:
            return float(written)
        except ValueError:
            raise self.expected("a number (texts are compared as in city:Oulu and NOT city:Oulu)", at) from None


def _item(key: str, written: str) -> Condition:
    """Return the leaf of an item of a list: an address or a network if it reads as one, else a pattern."""
    try:
        ip_interface(written)
    except ValueError:
        return Kiwi(key, _unquoted(written))
    return Cidr(key, written)


def _not(condition: Condition) -> Condition:
    return replace(condition, negated=not condition.negated)


def _key_read(written: str) -> str:
    """Return the key of leaves: in quotes it is the name of a metadata key, whatever its characters."""
    return leaf_key(_unquoted(written)) if written.startswith('"') else written


def _pattern_read(written: str, key: str) -> str:
    """Return a pattern that is not meant as something else in the language of a search engine.

    Raises:
        ConditionError: it begins like a comparison, or is in single quotes; in double quotes it is a text.
    """
    if written.startswith((">", "<")):
        raise ConditionError(f"write {key}{written} without the colon, or as a text {key}:{_quoted(written)}")
    if len(written) > 1 and written[0] == written[-1] == "'":
        inner = written[1:-1]
        raise ConditionError(f"write {key}:{_quoted(inner)}: single quotes belong to the text, unless it is quoted so")
    return _unquoted(written)


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
    if key in _LUCENE:
        yield f"{key}: is a key; write {_LUCENE[key].format(pattern)}, or an existsCondition"
    if not pattern.startswith((">", "<", "'")):
        return
    try:
        _pattern_read(pattern, key)
    except ConditionError as problem:
        yield f"{key}: {pattern!r:.80} is compared as a text: {problem}"


def _unquoted(written: str) -> str:
    return written[1:-1].replace('""', '"') if written.startswith('"') else written


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
        return negation + _leaf(condition)
    if len(condition.children) == 1:
        (child,) = condition.children
        return _written(replace(child, negated=child.negated != condition.negated), outermost=outermost)
    text = f" {condition.logic.upper()} ".join(_written(child) for child in condition.children)
    return text if outermost and not condition.negated else f"{negation}({text})"


def _leaf(leaf: Condition) -> str:
    match leaf:
        case Kiwi():
            sign = "~" if leaf.partial else ":"
            flags = "i" * leaf.ignore_case + "t" * leaf.tree
            return f"{_key(leaf.key)}{sign}{flags + sign if flags else ''}{_pattern(leaf.pattern)}"
        case Compare():
            short = f"{leaf.number:g}"
            return f"{_key(leaf.key)}{leaf.op}{short if float(short) == leaf.number else repr(leaf.number)}"
        case Exists():
            return f"{_key(leaf.key)} exists"
        case Cidr():
            return f"{_key(leaf.key)} in {leaf.network}"
        case Element():
            return f"any({_array_key(leaf.key)}, {leaf.where})"
        case SubjectMatch():
            return f"{_key(leaf.key)} matches {_subject(leaf.subject)}"
        case Regex():
            return f"{_key(leaf.key)}=~{_pattern(leaf.pattern)}"
    raise TypeError(f"not a leaf: {leaf!r}")


def _key(key: str) -> str:
    if key != ANY_KEY and not is_plain_key(key):
        return _quoted(metadata_key(key))
    base, kind = split_kind(key)
    if kind and base != ANY_KEY and not split_kind(base)[1]:
        return f"{_key(base)}:{kind}"
    plain = _KEY.fullmatch(key) and not key.startswith('"') and key.upper() not in _WORD and key not in _LUCENE
    return key if plain else _quoted(key)


def _array_key(key: str) -> str:
    base, kind = split_kind(key)
    if kind and base != ANY_KEY and not split_kind(base)[1]:
        return f"{_array_key(base)}:{kind}"
    return _key(key) if _ELEMENT_KEY.fullmatch(key) else _quoted(metadata_key(key))


def _pattern(pattern: str) -> str:
    # What follows a sign must not look like flags or a range.
    plain = _PATTERN.fullmatch(pattern) and not _BEFORE_PATTERN.match(pattern)
    return pattern if plain else _quoted(pattern)


def _subject(subject: str) -> str:
    return subject if _PATTERN.fullmatch(subject) and not subject.startswith('"') else _quoted(subject)


def _quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'
