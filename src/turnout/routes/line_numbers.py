"""Line numbers of paths in a YAML text, so that a mistake can name its line."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

import yaml

Document: TypeAlias = dict[str, Any]
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
