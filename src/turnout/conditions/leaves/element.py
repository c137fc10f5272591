"""One element of an array: the test of a condition on it, as if it were a message of its own.

An element is a text of JSON, as it is under a key that a route lists as ``value.items[]``; its fields are the metadata
of the condition, by the same paths. The key ``.`` is the element itself. A condition inside of it about an array is
tested on the values themselves: a text there is not read as JSON.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from turnout.base.multivalued import ANY_KEY, Expanded, Metadata, Texts, metadata_key, split_kind, texts_or_none
from turnout.conditions.anchor import PRESENCE, Anchor
from turnout.conditions.leaf import (
    TEXT,
    Atom,
    AtomKind,
    Check,
    Leaf,
    LeafField,
    LeafKind,
    LeafSpec,
    Literal,
    Opening,
    ValueTest,
    inner_key_text,
    need_key,
)
from turnout.conditions.leaves.cidr import Cidr
from turnout.conditions.leaves.compare import Compare
from turnout.conditions.leaves.kiwi import Kiwi
from turnout.conditions.model import MAX_DEPTH, Condition, Group, Logic, evaluate, leaves
from turnout.errors import ConditionError
from turnout.records.field_paths import (
    ADDRESS,
    EACH,
    PathError,
    flat_elements,
    leaf_texts,
    parse_elements,
    text_of_kind,
)
from turnout.records.text import NumberText
from turnout.records.types import DynamicValue

if TYPE_CHECKING:
    from turnout.conditions.text import ConditionReader

ELEMENT: Final = 7
"""Rank of the atom that a value has an element for which a condition is true."""

MAX_ELEMENT_DEPTH = 30
"""Maximum nesting of conditions about elements."""

_SELF = "."
"""Key of an element itself."""

_ANY = re.compile(r"any\s*\(", re.IGNORECASE)

_LONG, _MOST_CACHED = 1 << 12, 1 << 18
"""Characters of a value beyond which it is kept for one record only, and beyond which each leaf reads it again."""


@dataclass(frozen=True, slots=True)
class Element(Leaf):
    """True when a condition is true of one element of the array under the key.

    The key's values, or the elements of a value that is an array, are read as JSON. Other than with leaves about
    ``items[].sku`` and ``items[].n``, it is one element that has to satisfy all. The condition may have such leaves in
    its turn, about arrays inside of the element.

    Attributes:
        key: key of the array.
        where: the condition about the fields of an element, as text in the form of `format_condition`.

    >>> from turnout.conditions import evaluate
    >>> items = {"items": ('{"sku": "A1", "n": 1}', '{"sku": "B2", "n": 5}')}
    >>> [evaluate(Element("items", where), items) for where in ("sku:A* AND n<2", "sku:A* AND n>2")]
    [True, False]
    """

    key: str
    where: str
    negated: bool = False
    id: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        need_key(self.key)
        if not self.where:
            raise ConditionError("any(…) needs a condition about the elements")
        where, depth = _element_condition(self.where)
        if depth >= MAX_ELEMENT_DEPTH:
            raise ConditionError(f"any(…) nests deeper than {MAX_ELEMENT_DEPTH}")
        object.__setattr__(self, "where", where)

    @property
    def inner(self) -> Condition:
        """The condition about an element."""
        return _inner(self.where)[0]

    def holds(self, value: str) -> bool:
        """Return True if a value has an element for which the condition is true."""
        return element_holds(self.where, value)

    def text(self) -> str:
        """Return the leaf as text."""
        return f"any({inner_key_text(self.key)}, {self.where})"

    def check(self) -> Check:
        """Return the leaf as data."""
        return Check(self.key, "any", self.where, negated=self.negated)

    def anchors(self) -> Iterator[Anchor]:
        """Yield the presence of the key."""
        yield Anchor(self.key, PRESENCE, "")

    def literals(self) -> tuple[Literal, ...]:
        """Return the atom that there is such an element."""
        return ((Atom(self.key, ELEMENT, text=self.where), True),)


@lru_cache(maxsize=4096)
def _element_condition(where: str) -> tuple[str, int]:
    """Return the normal form of an element's condition, and how deep ``any`` nests in it.

    It is cached because each ``any`` outside of another asks for it again.
    """
    # Text is read with the signs of all leaves.
    from turnout.conditions.text import format_condition, parse

    inner = parse(where)
    depths = [_element_condition(leaf.where)[1] + 1 for leaf in leaves(inner) if isinstance(leaf, Element)]
    return format_condition(inner), max(depths, default=0)


def any_element(key: str, where: str) -> Element:
    """True when a condition is true of one element of the array under the key; see `Element`.

    >>> from turnout.conditions import format_condition
    >>> format_condition(any_element("items", "sku:A* and n>2"))
    'any(items, sku:A* AND n>2)'
    """
    return Element(key, where)


def _read_leaf(reader: ConditionReader) -> Element:
    """Return the leaf from behind its parenthesis."""
    # Text is read with the signs of all leaves.
    from turnout.conditions.text import format_condition

    if reader.open == MAX_DEPTH:
        raise reader.expected(f"at most {MAX_DEPTH} open parentheses")
    key = reader.inner_key(",", "the key of an array")
    reader.skip()
    if not reader.text.startswith(",", reader.at):
        raise reader.expected("',' and a condition about an element")
    reader.at += 1
    reader.open += 1
    inner = reader.group(0)
    reader.skip()
    if not reader.text.startswith(")", reader.at):
        raise reader.expected("AND, OR, XOR or ')'")
    reader.at += 1
    reader.open -= 1
    return Element(key, format_condition(inner))


def element_holds(where: str, value: str) -> bool:
    """Return True if a condition holds for an element, or for one of an array; False for a value that is not JSON.

    >>> [element_holds("sku:A* AND n>2", text) for text in ('{"sku": "A1", "n": 3}', '{"sku": "A1", "n": 1}', "A1")]
    [True, False, False]
    >>> element_holds("any(n, .>2 AND .<5)", '[{"n": [1, 9]}, {"n": [1, 3]}]')
    True
    """
    condition, keys, nests = _inner(where)
    if nests or len(value) > _MOST_CACHED:
        return any(_holds(condition, _metadata(element, keys), element) for element in _elements_read(value))
    # One value is compared with many conditions, most of which read the same fields.
    read = _read if len(value) <= _LONG else _read_long
    return any(evaluate(condition, metadata) for metadata in read(value, keys))


@lru_cache(maxsize=4096)
def _inner(where: str) -> tuple[Condition, tuple[str, ...], bool]:
    """Return a condition, the keys that it reads as texts, and whether others are about elements in their turn."""
    # Text is read with the signs of all leaves.
    from turnout.conditions.text import parse

    condition = parse(where)
    own = list(leaves(condition))
    keys = dict.fromkeys(key for leaf in own if not isinstance(leaf, Element) for key in leaf.keys)
    return condition, tuple(keys), any(isinstance(leaf, Element) for leaf in own)


def _holds(condition: Condition, metadata: Metadata, element: DynamicValue) -> bool:
    """Return what `evaluate` does for the metadata of an element, where leaves may be about elements inside of it."""
    if isinstance(condition, Element):
        inner, keys, _ = _inner(condition.where)
        found = list(leaf_texts(element)) if condition.key == ANY_KEY else _at(element, metadata_key(condition.key))
        return any(_holds(inner, _metadata(item, keys), item) for item in flat_elements(found)) != condition.negated
    if not isinstance(condition, Group):
        return evaluate(condition, metadata)
    outcomes = (_holds(child, metadata, element) for child in condition.children)
    match condition.logic:
        case Logic.AND:
            holds = all(outcomes)
        case Logic.OR:
            holds = any(outcomes)
        case Logic.XOR:
            holds = sum(outcomes) == 1
    return holds != condition.negated


def _elements(value: str) -> Sequence[object]:
    try:
        read = json.loads(value, parse_float=NumberText)
    except (ValueError, RecursionError):
        return []
    return flat_elements([read])


_cached = lru_cache(maxsize=1024)(_elements)
_cached_long = lru_cache(maxsize=2)(_elements)


def _elements_read(value: str) -> Sequence[object]:
    if len(value) > _MOST_CACHED:
        return _elements(value)
    return _cached(value) if len(value) <= _LONG else _cached_long(value)


def _metadata(element: DynamicValue, keys: Iterable[str]) -> Metadata:
    texts: dict[str, Texts] = {}
    for key in keys:
        if key == ANY_KEY:
            own = texts_or_none(leaf_texts(element))
        else:
            path, kind = split_kind(metadata_key(key))
            own = texts_or_none(text_of_kind(value, None, kind) for value in _at(element, path))
        if own is not None:
            texts[key] = own
    return Expanded(texts)


def _all_metadata(value: str, keys: tuple[str, ...]) -> tuple[Metadata, ...]:
    return tuple([_metadata(element, keys) for element in _elements_read(value)])


_read = lru_cache(maxsize=1024)(_all_metadata)
_read_long = lru_cache(maxsize=4)(_all_metadata)


@lru_cache(maxsize=4096)
def _steps(path: str) -> tuple[str, ...] | None:
    try:
        return parse_elements(path)
    except PathError:
        return None


def _at(element: DynamicValue, path: str) -> Sequence[object]:
    """Return the values at a path in an element."""
    if path == _SELF:
        return [element]
    steps = _steps(path)
    values: Sequence[object] = [] if steps is None else [element]
    for step in steps or ():
        if step is EACH:
            values = flat_elements(values)
        else:
            values = [value[step] for value in values if isinstance(value, dict) and step in value]
    return values


def below(path: str, condition: Condition) -> Condition:
    """Return a condition with a path before its keys."""
    if isinstance(condition, Group):
        return replace(condition, children=tuple(below(path, child) for child in condition.children))
    return condition.with_keys(path.__add__)


def read_as_json(condition: Condition) -> Condition:
    """Return a condition whose arrays are read as JSON: a text that looks like JSON is no array."""
    if isinstance(condition, Group):
        return replace(condition, children=tuple(map(read_as_json, condition.children)))
    if not isinstance(condition, Element):
        return condition
    quoted = f"`{condition.key}`" if condition.key in ADDRESS else condition.key
    return replace(condition, key=f"{quoted}:json")


def implied(condition: Condition) -> Iterator[Condition]:
    """Yield conditions that follow from one about an element, and can be looked up."""
    if not isinstance(condition, Element) or condition.negated:
        return
    inner = condition.inner
    for part in inner.children if isinstance(inner, Group) and is_conjunction(inner) else (inner,):
        if isinstance(part, Element):
            yield from implied(replace(part, key=f"{condition.key}[].{part.key}"))
        elif isinstance(part, Group) and part.logic is Logic.OR and all(map(_is_looked_up, part.children)):
            yield Group(Logic.OR, tuple(_of_elements(condition.key, leaf) for leaf in part.children))
        elif _is_looked_up(part):
            yield _of_elements(condition.key, part)


def _of_elements(key: str, leaf: Condition) -> Condition:
    assert not isinstance(leaf, Group)
    _, is_self, kind = leaf.key.partition(f"{_SELF}:")
    own = f"{key}[]:{kind}" if is_self and leaf.key.startswith(_SELF) else f"{key}[].{leaf.key}"
    return replace(leaf, key=own)


def _is_looked_up(condition: Condition) -> bool:
    return isinstance(condition, (Kiwi, Compare, Cidr)) and not condition.negated


def is_conjunction(condition: Condition) -> bool:
    """Return True for a group of leaves and groups that all have to hold."""
    return isinstance(condition, Group) and condition.logic is Logic.AND and not condition.negated


def path_step(name: str) -> str:
    """Return a name as a step of a path."""
    if name and name != "*" and not set(name) & set(".`[]"):
        return name
    if "`." in name or name.endswith("`"):
        problem = f"the name {name!r:.60} has a backtick at its end or before a dot: no path has it"
        raise ConditionError(problem, text=name)
    return f"`{name}`"


ELEMENT_LEAF: Final = LeafSpec(
    Element,
    (LeafKind("elementCondition", Element, (LeafField("where", "where", TEXT, ""),)),),
    opening=Opening(_ANY, _read_leaf),
    tests=(ValueTest("any", 13, lambda check, value: element_holds(check.text, value)),),
    atoms=(AtomKind(ELEMENT, lambda atom, value: element_holds(atom.text, value)),),
)
