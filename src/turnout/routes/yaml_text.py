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
from turnout.secrets import is_secret

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
        warnings: values among Connect's or Spark's options, which are texts, that YAML reads as something else.
    """

    value: object
    lines: dict[Path, int]
    mistakes: tuple[Mistake, ...]
    warnings: tuple[Mistake, ...] = ()

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
            value = construct(root)
            return cls(value, lines, mistakes, tuple(_misread(root, value, lines)))
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


_OPTIONS = frozenset({"transforms", "predicates", "spark", "options", "security", "catalog"})
_WITHOUT_OPTIONS = frozenset({"mappings", "tests"})


def _misread(root: yaml.Node, value: object, lines: dict[Path, int]) -> Iterator[Mistake]:
    """Yield a warning for each option whose text differs from that of the value that YAML 1.1 reads.

    They are words for true and false, numbers with zeros at an end, in base 8, 16 or 60, and with more digits than a
    double has.
    """
    if isinstance(root, yaml.MappingNode):
        parts = [pair for pair in root.value if pair[0].value not in _WITHOUT_OPTIONS]
        root = yaml.MappingNode(root.tag, parts)
    for path, text, read in _plain_values(root, value, ()):
        is_option = not _OPTIONS.isdisjoint(path) and path[-1] != "negate"
        if is_option and read not in (text.removeprefix("+"), text.lower()):
            is_shown = not is_secret(str(path[-1]))
            found = f"{text}, which YAML reads as {read}" if is_shown else "a value that YAML reads otherwise"
            yield Mistake(dotted(path), f"found {found}: put it in quotes if its text is meant", line_of(lines, path))


def _plain_values(node: yaml.Node, value: object, path: Path) -> Iterator[tuple[Path, str, str]]:
    """Yield path, text and the text of what is read for each number, true and false that is not in quotes."""
    if isinstance(node, yaml.MappingNode) and isinstance(value, dict):
        for key, item in node.value:
            yield from _plain_values(item, value.get(key.value), (*path, str(key.value)))
    elif isinstance(node, yaml.SequenceNode) and isinstance(value, list):
        for number, (item, one) in enumerate(zip(node.value, value, strict=True)):
            yield from _plain_values(item, one, (*path, number))
    elif isinstance(node, yaml.ScalarNode) and isinstance(value, int | float) and not node.style:
        yield path, node.value, str(value).lower() if isinstance(value, bool) else str(value)


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
