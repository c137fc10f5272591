"""Elements of arrays as messages of their own: the test of a leaf on one element.

An element is a text of JSON, as it is under a key that a route lists as ``value.items[]``; its fields are the metadata
of the condition, by the same paths.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from turnout.conditions.evaluate import evaluate
from turnout.conditions.model import Condition, leaves
from turnout.conditions.text import parse
from turnout.multivalued import ANY_KEY, Expanded, Metadata, Texts, metadata_key, split_kind, texts_or_none
from turnout.records.field_paths import EACH, PathError, parse_elements
from turnout.records.path_texts import leaf_texts
from turnout.records.text import NumberText, kind_of_type, text_of
from turnout.records.types import DynamicValue

_LONG, _MOST_CACHED = 1 << 12, 1 << 18
"""Characters of a value beyond which it is kept for one record only, and beyond which each leaf reads it again."""


def element_holds(where: str, value: str) -> bool:
    """Return True if a condition holds for an element, or for one of an array; False for a value that is not JSON.

    >>> [element_holds("sku:A* AND n>2", text) for text in ('{"sku": "A1", "n": 3}', '{"sku": "A1", "n": 1}', "A1")]
    [True, False, False]
    """
    condition, keys = _inner(where)
    if len(value) > _MOST_CACHED:
        return any(evaluate(condition, _metadata(element, keys)) for element in _elements(value))
    # One value is compared with many conditions, most of which read the same fields.
    read = _read if len(value) <= _LONG else _read_long
    return any(evaluate(condition, metadata) for metadata in read(value, keys))


@lru_cache(maxsize=4096)
def _inner(where: str) -> tuple[Condition, tuple[str, ...]]:
    condition = parse(where)
    return condition, tuple(dict.fromkeys(leaf.key for leaf in leaves(condition)))


def _elements(value: str) -> list[Any]:
    try:
        read = json.loads(value, parse_float=NumberText)
    except (ValueError, RecursionError):
        return []
    return read if isinstance(read, list) else [read]


_cached = lru_cache(maxsize=1024)(_elements)
_cached_long = lru_cache(maxsize=2)(_elements)


def _metadata(element: DynamicValue, keys: Iterable[str]) -> Metadata:
    texts: dict[str, Texts] = {}
    for key in keys:
        if key == ANY_KEY:
            own = texts_or_none(leaf_texts(element))
        else:
            own = texts_or_none(map(text_of, _at(element, metadata_key(key))))
        if own is not None:
            texts[key] = own
    return Expanded(texts)


def _all_metadata(value: str, keys: tuple[str, ...]) -> tuple[Metadata, ...]:
    elements = _cached(value) if len(value) <= _LONG else _cached_long(value)
    return tuple([_metadata(element, keys) for element in elements])


_read = lru_cache(maxsize=1024)(_all_metadata)
_read_long = lru_cache(maxsize=4)(_all_metadata)


@lru_cache(maxsize=4096)
def _steps(path: str) -> tuple[str, ...] | None:
    try:
        return parse_elements(path)
    except PathError:
        return None


def _at(element: DynamicValue, path: str) -> list[Any]:
    """Return the values at a path in an element, of its kind if it ends with one."""
    path, kind = split_kind(path)
    steps = _steps(path)
    values = [] if steps is None else [element]
    for step in steps or ():
        if step is EACH:
            values = [item for value in values for item in (value if isinstance(value, list) else [value])]
        else:
            values = [value[step] for value in values if isinstance(value, dict) and step in value]
    return [value for value in values if kind_of_type(type(value)) == kind] if kind else values
