"""Accepting what happens now: the expectations of a file rewritten, and nothing else of it touched.

The new text replaces the old one at the position that the YAML parser reports, so that comments, quotes and line breaks
elsewhere are unchanged.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

import yaml

from turnout.base.files import replace_file
from turnout.base.untrusted import JsonObject
from turnout.base.yaml_values import compose
from turnout.errors import TurnoutError
from turnout.history.suite.cases import CaseResult, run_cases
from turnout.history.suite.outcomes import ABSENT, CaseOutcome, Difference
from turnout.history.suite.suite import Case, Suite
from turnout.routes import Route
from turnout.routes.yaml_text import Path, dotted


@dataclass(frozen=True, slots=True)
class _Edit:
    """New text for a range of characters."""

    start: int
    end: int
    text: str


def accept(suite: Suite, route: Route, results: Iterable[CaseResult]) -> int:
    """Rewrite the failed expectations of a suite's file; return their number.

    The new text is read and run before it is written: its tests pass, and nothing but expectations is different.

    Raises:
        TurnoutError: the file cannot be rewritten so; it is left as it is.
    """
    of_suite = [result for result in results if not result.passed and result.case.file == suite.file]
    text = accepted(suite.file.read_text(encoding="utf-8"), of_suite)
    again = Suite.parse(text, route, suite.file, suite.prefix)
    now = [] if again is None else [replace(case, expect=None, line=None) for case in again.cases]
    if again is None or now != [replace(case, expect=None, line=None) for case in suite.cases]:
        raise TurnoutError(f"{suite.file} is written in a way that cannot be edited safely: edit it by hand")
    paths = {result.case.path for result in of_suite}
    changed = [case for case in again.cases if case.path in paths]
    failed = run_cases(route, changed).failed
    if failed:
        raise TurnoutError(f"{_location(failed[0].case)}: cannot be rewritten so that it passes: edit it by hand")
    replace_file(suite.file.resolve(), text)
    return len(of_suite)


def _location(case: Case) -> str:
    return f"{case.file}:{case.line}"


def accepted(text: str, results: Iterable[CaseResult]) -> str:
    """Return the text of a test file with the expectations replaced by the actual results.

    Raises:
        TurnoutError: an expectation is written in a way that cannot be edited safely, as with anchors.
    """
    root = compose(text)
    if root is None:
        raise TurnoutError("a file without tests has nothing to accept")
    edits = [edit for result in results if not result.passed for edit in _edits(text, root, result)]
    edits.sort(key=lambda edit: edit.start, reverse=True)
    for later, earlier in pairwise(edits):
        if earlier.end > later.start:
            raise TurnoutError("two tests share an expectation by an anchor: edit it by hand")
    for edit in edits:
        text = text[: edit.start] + edit.text + text[edit.end :]
    return text


def _edits(text: str, root: yaml.Node, result: CaseResult) -> Iterator[_Edit]:
    case = _at(root, result.case.path)
    expect = result.case.expect
    node = _child(case, "expect")
    if node is None:
        yield _inserted(text, case, _expectation(result.ending))
        return
    if expect is None or any(difference.path == "outcome" for difference in result.differences):
        yield _rewritten(text, node, _expectation(result.ending))
        return
    parts = dict.fromkeys(_part(difference) for difference in result.differences)
    for part in parts:
        differences = [difference for difference in result.differences if _part(difference) == part]
        yield from _of_part(text, node, part, differences, result)


def _part(difference: Difference) -> str:
    return difference.path.partition(".")[0].partition("[")[0]


def _of_part(
    text: str, expect: yaml.Node, part: str, differences: list[Difference], result: CaseResult
) -> Iterator[_Edit]:
    """Yield edits of single values, if each is present before and after; else one edit of the whole part."""
    node = _child(expect, part)
    if node is None:
        raise TurnoutError(f"{_location(result.case)}: {part} is from a merge key: edit it by hand")
    scalars = [(_find(node, difference.path, part), difference) for difference in differences]
    if part in ("value", "headers", "key", "topic", "stage", "reason") and all(
        isinstance(scalar, yaml.ScalarNode) and not isinstance(difference.actual, dict | list | bytes)
        and difference.actual is not ABSENT
        for scalar, difference in scalars
    ):  # fmt: skip
        for scalar, difference in scalars:
            assert scalar is not None
            yield _Edit(scalar.start_mark.index, scalar.end_mark.index, _flow(difference.actual))
        return
    yield _replaced(text, node, _narrowed(result, part))


def _narrowed(result: CaseResult, part: str) -> object:
    """Return the actual part, limited to the expected fields."""
    now = _now(part, result.ending)
    expect = result.case.expect
    if expect is None or part in expect.exact or part not in ("value", "key", "headers"):
        return now
    return _as_asked(now, getattr(expect, part))


def _as_asked(now: object, expected: object) -> object:
    if isinstance(now, Mapping) and isinstance(expected, Mapping):
        # A field that is expected not to be there is still expected not to be.
        names = [name for name, value in expected.items() if name in now or value is None]
        return {name: _as_asked(now.get(name), expected[name]) for name in names}
    if isinstance(now, list) and isinstance(expected, list) and len(now) == len(expected):
        return [_as_asked(one, other) for one, other in zip(now, expected, strict=True)]
    return now


def _now(part: str, ending: CaseOutcome) -> object:
    """Return the actual value of a part of an expectation."""
    match part:
        case "key":
            return ending.plain_key
        case "value":
            return ending.plain_value
        case "valueBase64":
            return None if ending.value is None else base64.b64encode(ending.value).decode()
        case "headers":
            headers: JsonObject = {}
            for name, header in ending.headers:
                headers.setdefault(name, []).append(header)
            return {name: texts[0] if len(texts) == 1 else texts for name, texts in headers.items()}
        case "deliveries":
            return [
                {"subscription": subscription, "destination": destination} if subscription else destination
                for subscription, destination in ending.deliveries
            ]
    return getattr(ending, part)


def _expectation(ending: CaseOutcome) -> JsonObject:
    """Return a complete expectation for the outcome of a record."""
    parts: JsonObject = {"outcome": ending.outcome}
    if ending.stage is not None:
        parts |= {"stage": ending.stage, "reason": ending.reason}
    if ending.outcome == "unmatched":
        parts["topic"] = ending.topic
    if ending.outcome == "delivered":
        parts |= {"topic": ending.topic, "headers": _now("headers", ending), "deliveries": _now("deliveries", ending)}
        body = _now("value", ending)
        parts |= {"valueBase64": _now("valueBase64", ending)} if isinstance(body, bytes) else {"value": body}
    return parts


# Positions


def _at(node: yaml.Node, path: Path) -> yaml.Node:
    for step in path:
        below = node.value[step] if isinstance(step, int) else _child(node, step)
        if below is None:
            raise TurnoutError(f"{dotted(path)} is not where it was: run the tests again")
        node = below
    return node


def _child(node: yaml.Node, name: str) -> yaml.Node | None:
    if not isinstance(node, yaml.MappingNode):
        return None
    return next((value for key, value in node.value if key.value == name), None)


def _find(node: yaml.Node, path: str, part: str) -> yaml.Node | None:
    """Return the node of a difference's path below its part; None where the path names none for sure."""
    rest = path.removeprefix(part)
    if not rest:
        return node
    for key, value in _children(node):
        if rest == key:
            return value
        if rest.startswith((f"{key}.", f"{key}[")):
            return _find(value, rest.removeprefix(key), "")
    return None


def _children(node: yaml.Node) -> Iterator[tuple[str, yaml.Node]]:
    """Yield the child nodes, each with its path step in the notation of differences; longer names first."""
    if isinstance(node, yaml.MappingNode):
        yield from sorted(((f".{key.value}", value) for key, value in node.value), key=lambda entry: -len(entry[0]))
    elif isinstance(node, yaml.SequenceNode):
        yield from ((f"[{at}]", value) for at, value in enumerate(node.value))


# Output


def _flow(value: object) -> str:
    """Return a value on one line, valid in any YAML context."""
    dumped = yaml.safe_dump([value], default_flow_style=True, sort_keys=False, allow_unicode=True, width=float("inf"))
    line = str(dumped).strip()[1:-1]
    # Texts with line breaks are written over several lines, whose indentation would matter; JSON's are not.
    return json.dumps(value, ensure_ascii=False) if "\n" in line else line


def _end(text: str, node: yaml.Node) -> int:
    """Return the end of a node's own text; for a block, the next token behind blanks and comments."""
    if isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value:
        last = node.value[-1]
        return _end(text, last[1] if isinstance(last, tuple) else last)
    end = node.end_mark.index
    return len(text[:end].rstrip()) if isinstance(node, yaml.ScalarNode) and node.style in ("|", ">") else end


def _replaced(text: str, node: yaml.Node, value: object) -> _Edit:
    # A block of dashes may have the indentation of its name; braces may not.
    indent = "  " if isinstance(node, yaml.SequenceNode) and not node.flow_style else ""
    return _Edit(node.start_mark.index, _end(text, node), indent + _flow(value))


def _rewritten(text: str, node: yaml.Node, value: JsonObject) -> _Edit:
    """Return an edit that replaces a whole expectation; block style is kept."""
    if node.start_mark.index == node.end_mark.index:
        return _Edit(node.start_mark.index, node.end_mark.index, f" {_flow(value)}")
    if not isinstance(node, yaml.MappingNode) or node.flow_style:
        return _replaced(text, node, value)
    indent = " " * node.start_mark.column
    lines = "\n".join(_block(value, indent)).removeprefix(indent)
    return _Edit(node.start_mark.index, _end(text, node), lines)


def _inserted(text: str, case: yaml.Node, expect: JsonObject) -> _Edit:
    """Return an edit that adds an expectation behind a case's record."""
    record = _child(case, "record")
    assert isinstance(case, yaml.MappingNode)
    assert record is not None
    offset = _end(text, record)
    if case.flow_style:
        return _Edit(offset, offset, f", expect: {_flow(expect)}")
    indent = " " * case.value[0][0].start_mark.column
    line_end = text.find("\n", offset)
    offset = len(text) if line_end < 0 else line_end
    lines = [f"{indent}expect:", *_block(expect, indent + "  ")]
    return _Edit(offset, offset, "".join(f"\n{line}" for line in lines))


def _block(parts: JsonObject, indent: str) -> Iterator[str]:
    """Names and values, a line each."""
    return (f"{indent}{name}: {_flow(value)}" for name, value in parts.items())
