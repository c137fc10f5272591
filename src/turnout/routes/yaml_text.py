"""YAML text as plain values with the line of each.

A route file is written by people: whatever in it would be read as something else than it looks like is a mistake with
its line.

Limits of size and aliases are in `turnout.base.yaml_values`.
"""

from __future__ import annotations

from dataclasses import dataclass

import yaml

from turnout.base.yaml_values import compose, construct, position_of
from turnout.errors import Mistake, RouteError
from turnout.routes.line_numbers import Path, dotted, walk


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
