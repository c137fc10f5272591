"""Rule files: each document of YAML gives a condition, or the reason why it does not."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import yaml

from turnout.base.files import read_file as bytes_of
from turnout.base.yaml_values import compose, construct, position_of, repeated_key
from turnout.conditions import Condition, Element, Group, all_of, format_condition, kiwi, leaves
from turnout.conditions.leaves.element import below, implied, path_step, read_as_json
from turnout.conditions.pattern import escape
from turnout.errors import ConditionError
from turnout.subscriptions.model import Subscription
from turnout.subscriptions.sigma.errors import InexpressibleError
from turnout.subscriptions.sigma.expression import both, either, parse_expression
from turnout.subscriptions.sigma.values import field_condition
from turnout.subscriptions.validation import check

LEVELS = ("informational", "low", "medium", "high", "critical")
"""Severities of a rule, from the least to the most severe."""

_MAX_BYTES = 4 << 20
_DOCUMENTS = re.compile(r"^---(?=\s|\Z)", re.MULTILINE)
_SOURCES = ("product", "category", "service")
_MAX_TEXT = 500


@dataclass(frozen=True, slots=True)
class SigmaRule:
    """Rule with the condition that it stands for.

    Attributes:
        file: it was read from.
        id: id of the rule; empty if it has none.
        title: title of the rule.
        level: its severity, one of `LEVELS`; empty if it has none of these.
        logsource: product, category and service of the events that it is for.
        condition: over the fields of an event.
    """

    file: Path
    id: str
    title: str
    level: str
    logsource: Mapping[str, str]
    condition: Condition

    def subscription(self, destinations: Sequence[str], *, with_logsource: bool = False) -> Subscription:
        """Return the rule as a subscription.

        Args:
            destinations: destinations of matching events; ``{level}`` in them is the rule's.
            with_logsource: require the rule's product, category and service, as keys of these names.

        Raises:
            SubscriptionInvalidError: a store would refuse it.
        """
        metadata = {"title": self.title, "level": self.level, **self.logsource}
        condition = self.condition
        if with_logsource and self.logsource:
            sources = [kiwi(name, escape(text), ignore_case=True) for name, text in self.logsource.items()]
            condition = all_of(*sources, condition)
        level = self.level or "unknown"
        topics = [destination.replace("{level}", level) for destination in destinations]
        subscription = Subscription(topics, condition, {name: text for name, text in metadata.items() if text}, self.id)
        check(subscription)
        return subscription


@dataclass(frozen=True, slots=True)
class SkippedRule:
    """Rule, or file, that gives no condition.

    Attributes:
        file: it is in.
        path: path of the part that cannot be expressed, as its author would name it; empty for the whole.
        reason: the part that cannot be expressed.
        line: line of the part in the file, from 1; None if unknown.
    """

    file: Path
    path: str
    reason: str
    line: int | None = None

    def __str__(self) -> str:
        path = f": {self.path}" if self.path else ""
        return f"{self.file}{path}: {self.reason}" + (f" (line {self.line})" if self.line else "")


def rule_files(paths: Sequence[Path]) -> Iterator[Path]:
    """Yield files, and the files ``*.yml`` and ``*.yaml`` below folders, in the order of their names."""
    for path in paths:
        if not path.is_dir():
            yield path
            continue
        yield from sorted(file for file in path.rglob("*") if file.suffix in (".yml", ".yaml") and file.is_file())


def read_file(path: Path, *, arrays: bool = False) -> Iterator[SigmaRule | SkippedRule]:
    """Yield each rule of a file; a file that cannot be read is left as a whole. See `read_text`."""
    try:
        text = bytes_of(path, max_bytes=_MAX_BYTES).decode("utf-8-sig")
    except OSError as failure:
        yield SkippedRule(path, "", failure.strerror or str(failure))
        return
    except UnicodeDecodeError as failure:
        yield SkippedRule(path, "", f"is not UTF-8: the byte at {failure.start}")
        return
    yield from read_text(text, path, arrays=arrays)


def read_text(text: str, path: Path, *, arrays: bool = False) -> Iterator[SigmaRule | SkippedRule]:
    """Yield each rule of a text, which has one in each of its YAML documents.

    Args:
        text: YAML.
        path: name of the file.
        arrays: read each step of a field with dots as an array; fields of one search that are below the same one
            have to be in one element.

    >>> rule = "{title: Shell, detection: {selection: {Image|endswith: '/sh'}, condition: selection}}"
    >>> (found,) = read_text(rule, Path("shell.yml"))
    >>> found.condition.key, found.condition.pattern, found.condition.ignore_case
    ('Image', '*/sh', True)
    """
    starts = [0, *(match.end() for match in _DOCUMENTS.finditer(text))]
    for start, end in zip(starts, [*(match.start() for match in _DOCUMENTS.finditer(text)), len(text)], strict=True):
        found = _read_document(text[start:end], path, text.count("\n", 0, start), arrays=arrays)
        if found is not None:
            yield found


def _read_document(text: str, file: Path, first_line: int, *, arrays: bool) -> SigmaRule | SkippedRule | None:
    try:
        node = compose(text)
        repeated = repeated_key(node)
        document = construct(node)
    except yaml.YAMLError as failure:
        problem, line = position_of(failure)
        return SkippedRule(file, "", f"is no YAML: {problem}", None if line is None else first_line + line)
    if document is None:
        return None
    if repeated is not None:
        path, mark = repeated
        return SkippedRule(file, path, "occurs twice: only one of them would count", first_line + mark.line + 1)
    try:
        return _rule(document, file, arrays=arrays)
    except InexpressibleError as failure:
        line = _line_of(node, failure.path)
        return SkippedRule(file, failure.path, failure.reason, None if line is None else first_line + line)


def _rule(document: object, file: Path, *, arrays: bool) -> SigmaRule:
    if not isinstance(document, dict):
        raise InexpressibleError("", "expected a rule, which is a mapping")
    if "correlation" in document:
        raise InexpressibleError("correlation", "correlates several events: a condition sees one")
    detection = document.get("detection")
    if not isinstance(detection, dict) or "condition" not in detection:
        raise InexpressibleError("" if detection is None else "detection", "expected a detection with a condition")
    try:
        condition = _condition(detection, arrays=arrays)
    except InexpressibleError as failure:
        raise InexpressibleError(f"detection.{failure.path}", failure.reason) from failure
    except ConditionError as failure:
        raise InexpressibleError("detection", str(failure)) from failure
    source = document.get("logsource")
    source = source if isinstance(source, dict) else {}
    level = _text(document.get("level"))
    return SigmaRule(
        file,
        _text(document.get("id")),
        _text(document.get("title")),
        level if level in LEVELS else "",
        {name: _text(source[name]) for name in _SOURCES if _text(source.get(name))},
        condition,
    )


def _text(value: object) -> str:
    return str(value)[:_MAX_TEXT] if isinstance(value, (str, int)) else ""


def _condition(detection: Mapping[object, object], *, arrays: bool) -> Condition:
    searches = {
        str(name): _search(str(name), body, arrays=arrays)
        for name, body in detection.items()
        if name not in ("condition", "timeframe")
    }
    written = detection["condition"]
    expressions = written if isinstance(written, list) else [written]
    if not expressions:
        raise InexpressibleError("condition", "has no alternatives")
    return either([parse_expression(_expression(text), searches) for text in expressions])


def _expression(written: object) -> str:
    if not isinstance(written, str):
        raise InexpressibleError("condition", f"expected a text, found {written!r:.60}")
    return written


def _search(path: str, body: object, *, arrays: bool) -> Condition:
    """Return the condition of a search: a map of fields that all have to match, or a list of alternatives."""
    if isinstance(body, list):
        if not body:
            raise InexpressibleError(path, "has no alternatives")
        return either([_search(f"{path}[{number}]", part, arrays=arrays) for number, part in enumerate(body)])
    if not isinstance(body, dict):
        return field_condition(path, "", body)
    if not body:
        raise InexpressibleError(path, "has no fields")
    conditions = [(str(name), field_condition(f"{path}.{name}", str(name), value)) for name, value in body.items()]
    if not arrays:
        return both([condition for _, condition in conditions])
    for name, condition in conditions:
        if any("." in key for leaf in leaves(condition) if len(leaf.keys) > 1 for key in leaf.keys):
            raise InexpressibleError(f"{path}.{name}", "fieldref with a field inside of arrays cannot be expressed")
    parts = _in_elements([(name.partition("|")[0].split("."), condition) for name, condition in conditions])
    return both([*(leaf for part in parts for leaf in implied(part)), *map(read_as_json, parts)])


def _in_elements(fields: Sequence[tuple[Sequence[str], Condition]]) -> list[Condition]:
    """Return conditions on fields: those that have an array in common hold in one element of it."""
    by_name: dict[str, list[tuple[Sequence[str], Condition]]] = {}
    for (name, *steps), condition in fields:
        by_name.setdefault(name, []).append((steps, condition))
    parts: list[Condition] = []
    for name, own in by_name.items():
        if not name:
            # A keyword is looked for in all fields.
            parts += [condition for _, condition in own]
            continue
        key = path_step(name)
        parts += [_with_key(condition, f"{key}[]") for steps, condition in own if not steps]
        inner = _in_elements([(steps, condition) for steps, condition in own if steps])
        if len(inner) == 1:
            parts.append(below(f"{key}[].", inner[0]))
        elif inner:
            parts.append(Element(key, format_condition(both(inner))))
    return parts


def _with_key(condition: Condition, key: str) -> Condition:
    if isinstance(condition, Group):
        return replace(condition, children=tuple(_with_key(child, key) for child in condition.children))
    return replace(condition, key=key) if len(condition.keys) == 1 else condition.with_keys("{}[]".format)


def _line_of(node: yaml.Node | None, path: str) -> int | None:
    """Return the line of the deepest node on a path, from 1."""
    line = None if node is None else node.start_mark.line + 1
    rest = path
    while rest and node is not None:
        found = None
        if isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                name = str(key.value)
                if rest == name or rest.startswith((f"{name}.", f"{name}[")):
                    found, line, rest = value, key.start_mark.line + 1, rest[len(name) :].removeprefix(".")
                    break
        elif isinstance(node, yaml.SequenceNode) and rest.startswith("["):
            number, _, rest = rest[1:].partition("]")
            rest = rest.removeprefix(".")
            found = node.value[int(number)] if number.isdecimal() and int(number) < len(node.value) else None
            line = line if found is None else found.start_mark.line + 1
        node = found
    return line
