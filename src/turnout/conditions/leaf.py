"""Declarations of a kind of leaf: its names in JSON, its signs in text, its tests of values, and its meaning.

A leaf is a test of one key, or of several. Everything about one is in its module below `turnout.conditions.leaves`:
the class, which derives from `Leaf`, and a `LeafSpec`, which `turnout.conditions.leaves.LEAVES` lists.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import Field, dataclass, field, replace
from enum import StrEnum
from itertools import starmap
from sys import intern
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple, TypeAlias

from turnout.base.multivalued import (
    ANY_KEY,
    KINDS,
    Metadata,
    is_plain_key,
    leaf_key,
    metadata_key,
    seen_texts,
    split_kind,
)
from turnout.errors import ConditionError

if TYPE_CHECKING:
    from typing import Self

    from turnout.conditions.anchor import Anchor, Lookups
    from turnout.conditions.model import Condition
    from turnout.conditions.pattern import Piece
    from turnout.conditions.text import ConditionReader


QUOTED: Final = r'"(?:[^"]|"")*"'
KINDS_TEXT: Final = "|".join(KINDS)
KEY: Final = re.compile(rf'{QUOTED}|(?![!+-])(?:[^\s():~<>="!]|!(?!=))+')
INNER_KEY: Final = re.compile(rf'{QUOTED}|[^\s(),:~<>="!]+')
"""Key inside of parentheses."""
PATTERN: Final = re.compile(rf'{QUOTED}|(?:\\.|[^\s()"\\])+', re.DOTALL)
ITEM: Final = re.compile(rf'{QUOTED}|(?:\\.|[^\s()",\\])+', re.DOTALL)
VALUE: Final = re.compile(r"[^\s()]+")
WORD: Final = {word: re.compile(rf"{word}(?![^\s()])", re.IGNORECASE) for word in ("AND", "OR", "XOR", "NOT")}
LUCENE: Final = {"_exists_": "{} exists", "_missing_": "NOT {} exists"}
"""Keys of Lucene's query language, and what they mean."""

_BEFORE_PATTERN = re.compile(rf'["\[<>]|\'.*\'$|[it]{{1,2}}[:~]|(?:{KINDS_TEXT})(?:[:~<>=]|!=)', re.IGNORECASE)
"""Beginnings of a pattern that would be read as part of the text before it."""


def quoted(text: str) -> str:
    """Return the text in quotes."""
    return '"' + text.replace('"', '""') + '"'


def unquoted(written: str) -> str:
    """Return the text that is written, perhaps in quotes."""
    return written[1:-1].replace('""', '"') if written.startswith('"') else written


def read_key(written: str) -> str:
    """Return the key of leaves: in quotes it is the name of a metadata key, whatever its characters."""
    return leaf_key(unquoted(written)) if written.startswith('"') else written


def key_text(key: str) -> str:
    """Return the text of a leaf's key."""
    if key != ANY_KEY and not is_plain_key(key):
        return quoted(metadata_key(key))
    base, kind = split_kind(key)
    if kind and base != ANY_KEY and not split_kind(base)[1]:
        return f"{key_text(base)}:{kind}"
    plain = KEY.fullmatch(key) and not key.startswith('"') and key.upper() not in WORD and key not in LUCENE
    return key if plain else quoted(key)


def inner_key_text(key: str) -> str:
    """Return the text of a key inside of parentheses."""
    base, kind = split_kind(key)
    if kind and base != ANY_KEY and not split_kind(base)[1]:
        return f"{inner_key_text(base)}:{kind}"
    return key_text(key) if INNER_KEY.fullmatch(key) else quoted(metadata_key(key))


def pattern_text(pattern: str) -> str:
    """Return the text of a pattern behind a sign."""
    # What follows a sign must not look like flags or a range.
    plain = PATTERN.fullmatch(pattern) and not _BEFORE_PATTERN.match(pattern)
    return pattern if plain else quoted(pattern)


class Check(NamedTuple):
    """Leaf as plain data for testing a value.

    Attributes:
        key: key of the value.
        op: operation of a `ValueTest`: ``=`` equals, ``^`` begins with, ``$`` ends with, ``~`` contains, ``glob``,
            ``has``, ``cidr``, ``re``, ``subject``, ``any`` (of elements), ``field``, or a comparison: ``n<`` ``n<=``
            ``n=`` ``n>=`` ``n>``.
        text: text to compare with; the pattern for ``glob``, ``re`` and ``subject``, the condition for ``any``; the
            first address for ``cidr``, the other key for ``field``.
        last: the last address for ``cidr``, the operator for ``field``.
        number: number to compare with, of a comparison alone.
        partial: any lexeme will do.
        fold: fold the value first; *text* is folded already, but for a pattern.
        negated: the other way round, also for a missing key.
    """

    key: str
    op: str
    text: str = ""
    last: str = ""
    number: float = 0.0
    partial: bool = False
    fold: bool = False
    negated: bool = False

    @property
    def other(self) -> str | None:
        """The second key that the test reads; None if it reads one."""
        return self.text if self.op == FIELD else None


FIELD: Final = "field"
"""Operation of a check that reads two keys."""


class ValueTest(NamedTuple):
    """Operation of checks.

    Attributes:
        op: as in `Check.op`.
        number: number of the operation in segments of an index. They are stored, so it never changes; from 0 to 63.
        passes: whether a check, without its negation, is true of a present value.
        lookups: texts to look messages up by, as `turnout.conditions.terms.lookups_of` returns them, of a check and
            the pieces of its pattern, if these are known; None if only the presence of its key is needed.
    """

    op: str
    number: int
    passes: Callable[[Check, str], bool]
    lookups: Callable[[Check, tuple[Piece, ...] | None], Lookups] | None = None


class Atom(NamedTuple):
    """A question about the value of one key; it is false where the key is absent. Atoms sort by key.

    Attributes:
        rank: number of its `AtomKind`.
        number: number of a bound, or a comparison.
        text: what its kind compares with: ``<`` or ``<=`` of a bound, the operator of a comparison, the network of an
            address, the pattern of a text, an expression, the condition about an element.
        partial: any lexeme of the value will do.
        fold: the value is folded first; the pattern is folded already.
    """

    key: str
    rank: int
    number: float = 0.0
    text: str = ""
    partial: bool = False
    fold: bool = False


Literal: TypeAlias = tuple[Atom, bool]
"""An atom, and whether it has to be true."""


class AtomKind(NamedTuple):
    """Kind of atoms.

    Attributes:
        rank: number of the kind, which atoms of one key are sorted by.
        holds: whether an atom is true of a present value.
        relation: the truth of the second atom that follows if the first is true of the same value, both of this kind
            or family; None if nothing follows.
        values: some values that an atom is true of, or nearly.
        family: no value of one family of kinds is of another one; empty if nothing is known.
        needs_more: True if a value of the key does not decide an atom, because there are others.
    """

    rank: int
    holds: Callable[[Atom, str], bool]
    relation: Callable[[Atom, Atom], bool | None] = lambda _premise, _conclusion: None
    values: Callable[[Atom], Iterable[str]] = lambda _atom: ()
    family: str = ""
    needs_more: bool = False


TEXT: Final[tuple[type, ...]] = (str,)
FLAG: Final[tuple[type, ...]] = (bool,)
NUMBER: Final[tuple[type, ...]] = (int, float)
"""Types that JSON may have for a numeric field; a whole number of JSON is an int."""


class LeafField(NamedTuple):
    """Field of a leaf in addition to the common fields (key, negation, id).

    Attributes:
        name: in JSON and protobuf.
        attribute: in Python.
        types: its JSON types.
        default: its value if absent. A flag that is false is left out of JSON.
    """

    name: str
    attribute: str
    types: tuple[type, ...]
    default: object


@dataclass(frozen=True, slots=True)
class LeafKind:
    """Name of a leaf outside Python, and its fields: JSON, rows and documents of stores, and protobuf have these.

    Attributes:
        name: name of the object in JSON, and of the message in protobuf's oneof.
        leaf: the class. Its fields are the key, *fields*, the negation, the implied ones, and the id.
        fields: its own.
        implied: attributes whose value is implied by the name.
    """

    name: str
    leaf: Callable[..., Leaf]
    fields: tuple[LeafField, ...] = ()
    implied: Mapping[str, bool] = field(default_factory=dict)
    _defaults: tuple[tuple[str, object], ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        own = ((field.name, field.default) for field in self.fields)
        object.__setattr__(self, "_defaults", (("key", ""), *own, ("not", False), *self.implied.items(), ("id", "")))

    def read(self, get: Callable[[str, object], object]) -> Leaf:
        """Build the leaf; *get(name, default)* returns each field.

        Raises:
            ConditionError: the values make no leaf of this kind.
        """
        *values, id_ = starmap(get, self._defaults)
        # Keys are few and patterns repeat: a million subscriptions share them.
        return self.leaf(*[intern(value) if type(value) is str else value for value in values], id_)

    def values(self, leaf: Leaf) -> Iterator[tuple[str, object]]:
        """Yield the leaf's own fields as plain values by name, in order."""
        for name, attribute, _, _ in self.fields:
            value = getattr(leaf, attribute)
            # An operator is a kind of str; formats are given its plain text.
            yield name, value.value if isinstance(value, StrEnum) else value


class Sign(NamedTuple):
    """Beginning of a leaf in text, behind its key.

    Attributes:
        text: symbol or word, in small letters.
        read: returns the leaf of a key, from behind the sign.
        ahead: what has to follow the sign; without it the sign is that of another leaf.
    """

    text: str
    read: Callable[[ConditionReader, str, str], Condition]
    ahead: re.Pattern[str] | None = None


class Opening(NamedTuple):
    """Beginning of a leaf in text that has its key inside of parentheses."""

    pattern: re.Pattern[str]
    read: Callable[[ConditionReader], Condition]


class Choice(NamedTuple):
    """Test that people choose by its title.

    Attributes:
        title: between the key and the value, as in "begins with".
        leaf: returns the leaf of a key and a value.
    """

    title: str
    leaf: Callable[[str, str], Condition]


@dataclass(frozen=True, slots=True)
class LeafSpec:
    """Everything about a kind of leaf that is not the meaning of one.

    Attributes:
        leaf: the class.
        kinds: its names outside Python. Of several, the first one is that of protobuf's answers.
        signs: signs of its text.
        opening: of a text that does not begin with the key.
        tests: operations of its checks.
        atoms: kinds of atoms that it consists of.
        choices: by name, in an order for people.
    """

    leaf: type[Leaf]
    kinds: tuple[LeafKind, ...]
    signs: tuple[Sign, ...] = ()
    opening: Opening | None = None
    tests: tuple[ValueTest, ...] = ()
    atoms: tuple[AtomKind, ...] = ()
    choices: Mapping[str, Choice] = field(default_factory=dict)


class Leaf:
    """Test of a message's metadata.

    Each kind is a frozen dataclass with the fields *key* first, *negated* and *id* behind its own.
    """

    __slots__ = ()

    if TYPE_CHECKING:
        __dataclass_fields__: ClassVar[dict[str, Field[object]]]

        @property
        def key(self) -> str:
            """The metadata key to test."""

        @property
        def negated(self) -> bool:
            """True where the rest is false, so also where the key is missing."""

        @property
        def id(self) -> str:
            """The leaf's name in a store."""

    @property
    def keys(self) -> tuple[str, ...]:
        """All keys that it reads."""
        return (self.key,)

    @property
    def inner(self) -> Condition | None:
        """The condition about the elements of its key; None if it has none."""
        return None

    def holds(self, value: str) -> bool:
        """Return True if the test, without its negation, holds for a present value of the only key."""
        raise NotImplementedError

    def is_met(self, metadata: Metadata) -> bool:
        """Return True if the test, without its negation, holds for a message."""
        texts = seen_texts(metadata, self.key)
        if isinstance(texts, tuple):
            return any(map(self.holds, texts))
        return texts is not None and self.holds(texts)

    def text(self) -> str:
        """Return the leaf as text, without its negation."""
        raise NotImplementedError

    def check(self) -> Check:
        """Return the leaf as data."""
        raise NotImplementedError

    def anchors(self) -> Iterator[Anchor]:
        """Yield the lookup anchors of the test, without its negation; any one of them suffices."""
        raise NotImplementedError

    def is_decided_by(self, anchor: Anchor) -> bool:  # noqa: ARG002 - most leaves are verified
        """Return True if a message with this anchor of the leaf's passes its test, with nothing left to verify."""
        return False

    def literals(self) -> tuple[Literal, ...] | None:
        """Return the literals that together are the test, its negation left aside; None if it can never be true."""
        raise NotImplementedError

    def value_pattern(self) -> str | None:
        """Return a pattern that every value matches for which the leaf, negation included, is true; None for any."""
        return None

    def with_keys(self, rename: Callable[[str], str]) -> Self:
        """Return the leaf with each key renamed."""
        return replace(self, key=rename(self.key))


def need_key(key: str) -> None:
    """Refuse an empty key."""
    if not key:
        raise ConditionError("a leaf needs the key of the metadata to test")
