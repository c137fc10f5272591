"""YAML text as plain values with the line of each, within bounds of depth, aliases and tags.

A route file is written by people: whatever in it would be read as something else than it looks like, or could take much
memory or time, is a mistake with its line.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import yaml

from turnout.errors import Mistake, RouteError
from turnout.routes.places import Path, dotted, walk

__all__ = ["YamlText", "decoded"]

_DEEPEST = 50
"""This many blocks may stand inside one another; a route needs some ten."""

_MOST_ALIASED = 10_000
"""This many values may come from aliases, each counted as often as it is used."""

_LARGEST = 4 << 20
"""Characters of a file: fifty thousand mappings. A server's configuration that a route names may be larger."""

_TIMESTAMP = "tag:yaml.org,2002:timestamp"
_PLAIN_TAGS = frozenset(f"tag:yaml.org,2002:{name}" for name in ("str", "int", "float", "bool", "null", "map", "seq"))


@dataclass(frozen=True, slots=True)
class YamlText:
    """What a text says.

    Attributes:
        value: None, a text, a number, a list or a dict.
        lines: the line, from 1, on which each path begins.
        mistakes: keys that stand twice in one mapping.
    """

    value: Any
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
        if len(text) > _LARGEST:
            raise RouteError([Mistake("", f"found {len(text):,} characters, expected {_LARGEST:,} at most")], what=what)
        try:
            loader = _Loader(text)
            root = loader.get_single_node()
            if root is None:
                return cls(None, {}, ())
            # Before the values are made: that moves what merge keys name into the mappings.
            lines, mistakes = _lines(root)
            return cls(loader.construct_document(root), lines, mistakes)
        except yaml.YAMLError as failure:
            raise RouteError([_mistake(failure, text)], what=what) from failure


def _lines(root: yaml.Node) -> tuple[dict[Path, int], tuple[Mistake, ...]]:
    """The line of each path, and the keys that stand twice."""
    lines: dict[Path, int] = {}
    mistakes = []
    twice: Path | None = None
    for path, line in walk(root):
        # A merge key may stand several times: each adds what it names.
        if path in lines and path[-1] != "<<" and (twice is None or path[: len(twice)] != twice):
            twice = path
            mistakes.append(Mistake(dotted(path), f"occurs twice, first on line {lines[path]}", line))
        lines.setdefault(path, line)
    return lines, tuple(mistakes)


def decoded(content: bytes, *, what: str) -> str:
    """The text of a file's bytes.

    Raises:
        RouteError: they are no UTF-8; names the line and the byte.
    """
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as failure:
        line = content.count(b"\n", 0, failure.start) + 1
        problem = f"found the byte 0x{content[failure.start]:02x}, expected text in UTF-8"
        raise RouteError([Mistake("", problem, line)], what=what) from None


def _mistake(failure: Exception, text: str) -> Mistake:
    if isinstance(failure, yaml.reader.ReaderError):
        line = text.count("\n", 0, failure.position) + 1
        return Mistake("", f"not YAML: the character U+{failure.character:04X} is not allowed", line)
    mark = getattr(failure, "problem_mark", None)
    problem = getattr(failure, "problem", None) or str(failure)
    return Mistake("", f"not YAML: {problem}", mark.line + 1 if mark else None)


class _Loader(yaml.SafeLoader):
    """PyYAML's safe loader with bounds; times stay the texts that they are."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.yaml_implicit_resolvers = {
            first: [(tag, form) for tag, form in resolvers if tag != _TIMESTAMP]
            for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
        }
        self._depth = 0
        self._nodes = 0
        self._aliased = 0
        self._sizes: dict[str, int] = {}

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """Compose one node, counting how deep it stands and what aliases add."""
        event: Any = self.peek_event()  # type: ignore[no-untyped-call]
        if isinstance(event, yaml.AliasEvent):
            self._count_alias(event)
            return super().compose_node(parent, index)
        tag = getattr(event, "tag", None)
        if tag not in (None, "!") and tag not in _PLAIN_TAGS:
            raise _at(event, f"the tag {tag!r} is not understood here; write the value without it")
        if self._depth == _DEEPEST:
            raise _at(event, f"more than {_DEEPEST} blocks stand inside one another")
        before = self._nodes + self._aliased
        self._depth += 1
        self._nodes += 1
        node = super().compose_node(parent, index)
        self._depth -= 1
        if event.anchor is not None:
            self._sizes[event.anchor] = self._nodes + self._aliased - before
        return node

    def _count_alias(self, event: Any) -> None:
        if event.anchor in self.anchors and event.anchor not in self._sizes:
            raise _at(event, f"the alias *{event.anchor} stands inside what it names")
        self._aliased += self._sizes.get(event.anchor, 0)
        if self._aliased > _MOST_ALIASED:
            raise _at(event, f"aliases stand for more than {_MOST_ALIASED:,} values")

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        """The value of a node; one that its type cannot hold is a mistake at its place."""
        try:
            return super().construct_object(node, deep=deep)
        except (ValueError, OverflowError) as failure:
            raise _at(node, f"found {str(node.value)[:60]!r}, which is no {node.tag.rpartition(':')[2]}") from failure


def _at(place: Any, problem: str) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=problem, problem_mark=place.start_mark)
