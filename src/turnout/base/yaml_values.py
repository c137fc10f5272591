"""YAML text as plain values, within bounds of size, depth, aliases and tags.

Every YAML text that turnout reads is parsed here. PyYAML's own loaders are not enough: the one in C composes nodes
recursively and ends the process on a text of 60,000 brackets, both expand merge keys without a limit, and both let
exceptions of other kinds through.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import yaml

_MAX_DEPTH = 50
"""Blocks inside one another; a route needs some ten."""

_MAX_ALIASED = 10_000
"""Values of aliases, each counted as often as it is used."""

_MAX_CHARACTERS = 4 << 20
"""Characters of a text: fifty thousand mappings."""

_MAX_NODES = 500_000
"""Values of a text; each takes about a kilobyte while the text is read."""

_MAX_NUMBER = 400
"""Characters of a number. The value of one in base 60 takes time that grows with the square of its length."""

_TIMESTAMP = "tag:yaml.org,2002:timestamp"
_NUMBERS = frozenset(("tag:yaml.org,2002:int", "tag:yaml.org,2002:float"))
_PLAIN_TAGS = frozenset(f"tag:yaml.org,2002:{name}" for name in ("str", "int", "float", "bool", "null", "map", "seq"))
_DOCUMENT_START = re.compile(r"^---(?=\s|\Z)", re.MULTILINE)
_SURROGATE = re.compile("[\ud800-\udfff]")

if TYPE_CHECKING:
    _Parser = Any
elif yaml.__with_libyaml__:
    _Parser = yaml.cyaml.CParser
else:

    class _Parser(yaml.reader.Reader, yaml.scanner.Scanner, yaml.parser.Parser):
        """YAML parser in pure Python."""

        def __init__(self, text: str) -> None:
            yaml.reader.Reader.__init__(self, text)
            yaml.scanner.Scanner.__init__(self)
            yaml.parser.Parser.__init__(self)


def compose(text: str, *, max_depth: int = _MAX_DEPTH, with_tags: bool = False) -> yaml.Node | None:
    """Compose the one document of a text; None where the text is empty.

    Args:
        text: YAML.
        max_depth: blocks inside one another.
        with_tags: read a value with a tag of its application, ``!Ref x``, as a mapping from the tag, ``{"!Ref": "x"}``.

    Raises:
        yaml.MarkedYAMLError: the text is no YAML, or beyond the bounds; nothing else is raised.
    """
    try:
        return _loader(text, max_depth, with_tags=with_tags).get_single_node()
    except RecursionError as failure:
        raise yaml.MarkedYAMLError(problem="too many nested blocks") from failure


def construct(node: yaml.Node | None) -> Any:
    """Construct the value of a composed document: None, a text, a number, a list or a dict; times stay texts.

    Merge keys are moved into the mappings of *node*.

    Raises:
        yaml.MarkedYAMLError: a value does not fit its tag; nothing else is raised.
    """
    return None if node is None else _Loader("", _MAX_DEPTH).construct_document(node)


def load(text: str, *, max_depth: int = _MAX_DEPTH, with_tags: bool = False) -> Any:
    """Load the value of a text; see `compose`.

    Raises:
        yaml.MarkedYAMLError: the text is no YAML, or beyond the bounds; nothing else is raised.

    >>> load("a: [1, 2020-02-30]")
    {'a': [1, '2020-02-30']}
    >>> load("a: !!bool maybe")
    Traceback (most recent call last):
        ...
    yaml.error.MarkedYAMLError: found 'maybe', which is no bool
      in "<unicode string>", line 1, column 4
    """
    node = compose(text, max_depth=max_depth, with_tags=with_tags)
    if (repeated := repeated_key(node)) is not None:
        path, mark = repeated
        raise yaml.MarkedYAMLError(problem=f"{path} occurs twice in its mapping", problem_mark=mark)
    return construct(node)


def load_all(text: str) -> list[Any]:
    r"""Load the documents of a text, as of Kubernetes, without empty ones; see `load`.

    Raises:
        yaml.MarkedYAMLError: one is no YAML, or beyond the bounds; nothing else is raised.

    >>> load_all("# two\n---\na: 1\n--- {b: 2}\n")
    [{'a': 1}, {'b': 2}]
    """
    documents, lines = [], 0
    for part in _DOCUMENT_START.split(text):
        try:
            documents.append(load(part))
        except yaml.MarkedYAMLError as failure:
            at = failure.problem_mark
            if at is None:
                raise
            raise _error(yaml.Mark("", 0, lines + at.line, at.column, None, 0), str(failure.problem)) from failure
        lines += part.count("\n")
    return [document for document in documents if document is not None]


def repeated_key(root: yaml.Node | None) -> tuple[str, yaml.Mark] | None:
    r"""Return the path and the position of the first key that a mapping has twice; None if there is none.

    A merge key may occur several times: each adds its mapping.

    >>> repeated_key(compose("a: {b: 1, b: 2}"))[0], repeated_key(compose("a: {b: 1}\nb: 2"))
    ('a.b', None)
    """
    stack: list[tuple[yaml.Node, str]] = [] if root is None else [(root, "")]
    walked: set[int] = set()
    while stack:
        node, path = stack.pop()
        # An alias is the same node.
        if id(node) in walked or isinstance(node, yaml.ScalarNode):
            continue
        walked.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            stack += [(item, f"{path}[{number}]") for number, item in reversed(list(enumerate(node.value)))]
            continue
        names: set[str] = set()
        for key, _ in node.value:
            name = str(key.value) if isinstance(key, yaml.ScalarNode) else ""
            if name and name in names and name != "<<":
                return f"{path}.{name}".lstrip("."), key.start_mark
            names.add(name)
        stack += [(value, f"{path}.{key.value}".lstrip(".")) for key, value in reversed(node.value)]
    return None


def position_of(failure: yaml.YAMLError) -> tuple[str, int | None]:
    """Return the problem in one line, and its line from 1; the column is part of the problem."""
    mark = getattr(failure, "problem_mark", None)
    problem = getattr(failure, "problem", None) or " ".join(str(failure).split())
    return (problem, None) if mark is None else (f"{problem}, in column {mark.column + 1}", mark.line + 1)


def _loader(text: str, max_depth: int, *, with_tags: bool) -> _Loader:
    if len(text) > _MAX_CHARACTERS:
        raise yaml.MarkedYAMLError(problem=f"found {len(text):,} characters, expected {_MAX_CHARACTERS:,} at most")
    wrong = yaml.reader.Reader.NON_PRINTABLE.search(text)
    if wrong is not None:
        raise _error(_mark(text, wrong.start()), f"the character U+{ord(wrong[0]):04X} is not allowed")
    return _Loader(text, max_depth, with_tags=with_tags)


def _mark(text: str, index: int) -> yaml.Mark:
    line_start = text.rfind("\n", 0, index) + 1
    return yaml.Mark("", index, text.count("\n", 0, index), index - line_start, None, 0)


def _error(mark: yaml.Mark, problem: str) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=problem, problem_mark=mark)


class _Loader(yaml.composer.Composer, _Parser, yaml.constructor.SafeConstructor, yaml.resolver.Resolver):  # type: ignore[misc]
    """Safe loader with bounds: events from libyaml where it is there, nodes composed in Python.

    libyaml's parser of events is a state machine; what recurses, and ends the process, is PyYAML's composer in C.
    """

    def __init__(self, text: str, max_depth: int, *, with_tags: bool = False) -> None:
        _Parser.__init__(self, text)
        yaml.composer.Composer.__init__(self)
        yaml.constructor.SafeConstructor.__init__(self)
        yaml.resolver.Resolver.__init__(self)
        self.yaml_implicit_resolvers = {
            first: [(tag, form) for tag, form in resolvers if tag != _TIMESTAMP]
            for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
        }
        self._max_depth = max_depth
        self._with_tags = with_tags
        self._depth = 0
        self._nodes = 0
        self._aliased = 0
        self._sizes: dict[str, int] = {}

    def compose_node(self, parent: yaml.Node | None, index: object) -> yaml.Node:  # noqa: ARG002
        """Compose one node; count its depth and the nodes that aliases add."""
        event: Any = self.peek_event()
        if isinstance(event, yaml.AliasEvent):
            return self._named(self.get_event())
        tag = event.tag if self._with_tags and (event.tag or "").startswith("!") and event.tag != "!" else None
        if tag is not None:
            event.tag = None
            event.implicit = (False, True) if isinstance(event, yaml.ScalarEvent) else True
        self._check(event)
        anchor: Any = event.anchor
        before = self._nodes + self._aliased
        self._depth += 1
        self._nodes += 1
        if isinstance(event, yaml.ScalarEvent):
            node: yaml.Node = self.compose_scalar_node(anchor)
        elif isinstance(event, yaml.SequenceStartEvent):
            node = self.compose_sequence_node(anchor)
        else:
            node = self.compose_mapping_node(anchor)
        self._depth -= 1
        if anchor is not None:
            self._sizes[anchor] = self._nodes + self._aliased - before
        if tag is not None:
            name = yaml.ScalarNode("tag:yaml.org,2002:str", tag, event.start_mark, event.start_mark)
            node = yaml.MappingNode("tag:yaml.org,2002:map", [(name, node)], node.start_mark, node.end_mark)
            if anchor is not None:
                self.anchors[anchor] = node
        return node

    def _check(self, event: Any) -> None:
        if event.anchor in self.anchors:
            raise _error(event.start_mark, f"found duplicate anchor {event.anchor!r}")
        if event.tag not in (None, "!") and event.tag not in _PLAIN_TAGS:
            problem = f"the tag {event.tag[:60]!r} is not understood here; write the value without it"
            raise _error(event.start_mark, problem)
        if self._depth == self._max_depth:
            raise _error(event.start_mark, f"more than {self._max_depth} nested blocks")
        if self._nodes == _MAX_NODES:
            raise _error(event.start_mark, f"found more than {_MAX_NODES:,} values")
        # An escape in quotes can stand for half of a character, which no output can encode.
        surrogate = _SURROGATE.search(getattr(event, "value", ""))
        if surrogate is not None:
            raise _error(event.start_mark, f"the character U+{ord(surrogate[0]):04X} is not allowed")

    def _named(self, event: Any) -> yaml.Node:
        """Return the node that an alias refers to."""
        if event.anchor not in self.anchors:
            raise _error(event.start_mark, f"found undefined alias {event.anchor!r}")
        if event.anchor not in self._sizes:
            raise _error(event.start_mark, f"the alias *{event.anchor} is inside its own anchor")
        self._aliased += self._sizes[event.anchor]
        if self._aliased > _MAX_ALIASED:
            raise _error(event.start_mark, f"aliases stand for more than {_MAX_ALIASED:,} values")
        return self.anchors[event.anchor]

    def construct_object(self, node: yaml.Node, deep: bool = False) -> object:
        """Construct the value of a node; one that its type cannot hold is a mistake at its place."""
        if node.tag in _NUMBERS and len(node.value) > _MAX_NUMBER:
            expected = f"expected {_MAX_NUMBER} at most, or a text in quotes"
            raise _error(node.start_mark, f"found a number of {len(node.value):,} characters, {expected}")
        try:
            return super().construct_object(node, deep=deep)
        except (ValueError, OverflowError, LookupError, TypeError, AttributeError) as failure:
            kind = node.tag.rpartition(":")[2]
            raise _error(node.start_mark, f"found {str(node.value)[:60]!r}, which is no {kind}") from failure
