"""YAML text as plain values with the line of each, so that a mistake can name its line.

A route file is written by people: whatever in it would be read as something else than it looks like is a mistake with
its line.

Limits of size and aliases are in `turnout.base.yaml_values`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

import yaml

from turnout.base.untrusted import JsonObject
from turnout.base.yaml_values import compose, construct, position_of
from turnout.errors import Mistake, RouteError

Document: TypeAlias = JsonObject
"""Unchecked block of YAML or JSON."""

Path = tuple[str | int, ...]
"""Keys and list positions from the top of the file."""


def dotted(path: Path) -> str:
    """Return the path in dotted notation: ``transforms[0].predicate.type``."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        elif "." in step or " " in step:
            text += f'["{step}"]'
        else:
            text += f".{step}" if text else step
    return text


def walk(node: yaml.Node, path: Path = ()) -> Iterator[tuple[Path, int]]:
    """Yield each path below a composed node with the line, from 1, on which it begins."""
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            below = (*path, str(key.value))
            yield below, key.start_mark.line + 1
            yield from walk(value, below)
    elif isinstance(node, yaml.SequenceNode):
        for position, value in enumerate(node.value):
            yield (*path, position), value.start_mark.line + 1
            yield from walk(value, (*path, position))


def line_of(lines: dict[Path, int], path: Path) -> int | None:
    """Return the line of *path*, or of the nearest place above it that is in the file."""
    while path:
        if path in lines:
            return lines[path]
        path = path[:-1]
    return None


@dataclass(frozen=True, slots=True)
class YamlText:
    """Parsed YAML text.

    Attributes:
        value: None, a text, a number, a list or a dict.
        lines: the line, from 1, on which each path begins.
        mistakes: duplicate keys of one mapping.
    """

    value: object
    lines: dict[Path, int]
    mistakes: tuple[Mistake, ...]

    @classmethod
    def parse(cls, text: str, *, what: str) -> YamlText:
        """Read a text.

        Args:
            text: the YAML.
            what: how the error's first line names it.

        Raises:
            RouteError: it is no YAML, or beyond the bounds.
        """
        try:
            root = compose(text)
            if root is None:
                return cls(None, {}, ())
            # Before the values are made: that moves what merge keys name into the mappings.
            lines, mistakes = _lines(root)
            return cls(construct(root), lines, mistakes)
        except yaml.YAMLError as failure:
            problem, line = position_of(failure)
            raise RouteError([Mistake("", f"not YAML: {problem}", line)], what=what) from failure


def _lines(root: yaml.Node) -> tuple[dict[Path, int], tuple[Mistake, ...]]:
    """Return the line of each path, and a mistake for each duplicate key."""
    lines: dict[Path, int] = {}
    mistakes = []
    twice: Path | None = None
    for path, line in walk(root):
        # A merge key may occur several times: each adds its mapping.
        if path in lines and path[-1] != "<<" and (twice is None or path[: len(twice)] != twice):
            twice = path
            mistakes.append(Mistake(dotted(path), f"occurs twice, first on line {lines[path]}", line))
        lines.setdefault(path, line)
    return lines, tuple(mistakes)


def decoded(content: bytes, *, what: str) -> str:
    """Return the text of a file's bytes.

    Raises:
        RouteError: they are no UTF-8; names the line and the byte.
    """
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as failure:
        line = content.count(b"\n", 0, failure.start) + 1
        problem = f"found the byte 0x{content[failure.start]:02x}, expected text in UTF-8"
        raise RouteError([Mistake("", problem, line)], what=what) from None
