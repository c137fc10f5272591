"""``${NAME}`` and ``${NAME:-otherwise}`` in the parts of a route that depend on where it runs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Self

from turnout.routes.places import Path

__all__ = ["PLACES", "UnsetVariable", "fill_in"]

PLACES = ("source", "sink", "sinks", "subscriptions", "cluster", "checkpoint", "spark")
"""The top-level keys in which variables are filled in.

Not in ``transforms`` and ``mappings``: ``${topic}`` belongs to TimestampRouter there.
"""

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")


class UnsetVariable(str):
    """What a text became in which a variable was not set: the text as it stood, and the name."""

    __slots__ = ("name",)
    name: str

    def __new__(cls, text: str, name: str) -> Self:
        """Keep *text* and remember *name*."""
        made = super().__new__(cls, text)
        made.name = name
        return made


def fill_in(document: Mapping[str, Any], variables: Mapping[str, str]) -> tuple[dict[str, Any], list[tuple[Path, str]]]:
    """The document with its variables filled in, and the (path, name) of those that are not set."""
    unset: list[tuple[Path, str]] = []
    filled = dict(document)
    for key in PLACES:
        if key in filled:
            filled[key] = _fill(filled[key], variables)
            unset += [((key, *path), name) for path, name in _unset(filled[key])]
    return filled, unset


def _fill(value: Any, variables: Mapping[str, str]) -> Any:
    if isinstance(value, str):
        return _fill_text(value, variables)
    if isinstance(value, dict):
        return {key: _fill(below, variables) for key, below in value.items()}
    if isinstance(value, list):
        return [_fill(below, variables) for below in value]
    return value


def _fill_text(text: str, variables: Mapping[str, str]) -> str:
    for found in _VARIABLE.finditer(text):
        if found[1] not in variables and found[2] is None:
            return UnsetVariable(text, found[1])
    return _VARIABLE.sub(lambda found: variables.get(found[1]) or found[2] or "", text)


def _unset(value: Any) -> Iterator[tuple[Path, str]]:
    if isinstance(value, UnsetVariable):
        yield (), value.name
    elif isinstance(value, dict):
        for key, below in value.items():
            yield from (((str(key), *path), name) for path, name in _unset(below))
    elif isinstance(value, list):
        for position, below in enumerate(value):
            yield from (((position, *path), name) for path, name in _unset(below))
