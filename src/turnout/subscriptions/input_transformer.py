"""Input of an EventBridge target (``Input``, ``InputPath``, ``InputTransformer``) as an expression of CEL.

Source: EventBridge's user guide, "Input transformation".
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from turnout.subscriptions.eventbridge import PatternError

# A text that is not closed goes to the end: a search behind its quote would read the rest again.
_PART: Final = re.compile(r'"(?:[^"\\]|\\.)*+"?|<([^<>"\s]*)>', re.DOTALL)
_VARIABLE: Final = re.compile(r"<([^<>\s]*)>")
_STEP: Final = re.compile(r"""\.([^.\[\]*'"\s]+)|\[(\d{1,9})\]|\[(?:'([^']*)'|"([^"]*)")\]""")
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_RESERVED: Final = frozenset(
    {"as", "break", "const", "continue", "else", "false", "for", "function", "if", "import", "in", "let", "loop"}
    | {"namespace", "null", "package", "return", "true", "var", "void", "while"}
)
_VALUE_MARK: Final = "\0"
"""Prefix of a text that denotes a variable outside of quotes; JSON texts have it only escaped."""


def projection_of(target: Mapping[str, Any], rule: str) -> str:
    """Return the expression for the body of a target's messages; empty for the event as it is.

    Args:
        target: as a template or ``aws events list-targets-by-rule`` has it.
        rule: the name of its rule.

    Raises:
        PatternError: no expression says the same.

    >>> transformer = {"InputPathsMap": {"id": "$.detail.instance-id"}, "InputTemplate": '{"instance": <id>}'}
    >>> projection_of({"InputTransformer": transformer}, "r")
    '{"instance": value.detail["instance-id"]}'
    >>> projection_of({"InputPath": "$.detail"}, "r")
    'value.detail'
    """
    inputs = [name for name in ("Input", "InputPath", "InputTransformer") if target.get(name) is not None]
    if len(inputs) > 1:
        raise PatternError(inputs[1], f"a target has one input, found {' and '.join(inputs)}")
    if not inputs:
        return ""
    (name,) = inputs
    if name == "InputPath":
        return _path(target[name], name)
    if name == "Input":
        return _literal(_json(target[name], name), str)
    try:
        return _transformed(target[name], rule)
    except RecursionError:
        raise PatternError(name, "the template nests too deep") from None


def _transformed(transformer: object, rule: str) -> str:
    if not isinstance(transformer, dict) or not isinstance(transformer.get("InputTemplate"), str):
        raise PatternError("InputTransformer", "expected an InputTemplate as a text")
    template = transformer["InputTemplate"]
    paths = transformer.get("InputPathsMap") or {}
    if not isinstance(paths, dict):
        raise PatternError("InputTransformer.InputPathsMap", "expected a path for each variable")
    paths_by_name = {name: _path(path, f"InputTransformer.InputPathsMap.{name}") for name, path in paths.items()}
    paths_by_name |= {
        "aws.events.rule-name": json.dumps(rule),
        "aws.events.event": "value",
        "aws.events.event.json": "value",
    }
    path = "InputTransformer.InputTemplate"

    def variable(name: str) -> str:
        if name not in paths_by_name:
            raise PatternError(path, f"<{name}> has no path; there are {', '.join(paths_by_name)}")
        return paths_by_name[name]

    def written(text: str) -> str:
        if text.startswith(_VALUE_MARK):
            return variable(text.removeprefix(_VALUE_MARK))
        parts = _VARIABLE.split(text)
        pieces = [
            f"string({variable(part)})" if number % 2 else json.dumps(part, ensure_ascii=False)
            for number, part in enumerate(parts)
            if part or number % 2
        ]
        return " + ".join(pieces) or '""'

    marked = _PART.sub(lambda found: found[0] if found[1] is None else f'"\\u0000{found[1]}"', template)
    return _literal(_json(marked, path), written)


def _json(text: object, path: str) -> object:
    try:
        return json.loads(text) if isinstance(text, str) else text
    except (ValueError, RecursionError) as problem:
        raise PatternError(path, f"is no JSON, nor one text in quotes: {problem}") from None


def _literal(value: object, text: Callable[[str], str]) -> str:
    """Return a value of JSON in CEL; *text* writes its texts."""
    if isinstance(value, str):
        return text(value) if text is not str else json.dumps(value, ensure_ascii=False)
    if isinstance(value, dict):
        entries = (f"{json.dumps(name, ensure_ascii=False)}: {_literal(item, text)}" for name, item in value.items())
        return f"{{{', '.join(entries)}}}"
    if isinstance(value, list):
        return f"[{', '.join(_literal(item, text) for item in value)}]"
    return json.dumps(value)


def _path(path: object, where: str) -> str:
    """Return a path of JSON, as ``$.detail.items[0]``, in CEL."""
    if not isinstance(path, str) or not path.startswith("$"):
        raise PatternError(where, f"expected a path as $.detail.state, found {path!r:.60}")
    at, expression = 1, "value"
    while at < len(path):
        step = _STEP.match(path, at)
        if step is None:
            raise PatternError(
                where, f"a path here has names and indexes only; found {path[at : at + 20]!r} in {path!r:.60}"
            )
        name = next((found for found in (step[1], step[3], step[4]) if found is not None), None)
        if name is None:
            expression += f"[{step[2]}]"
        elif _NAME.fullmatch(name) and name not in _RESERVED:
            expression += f".{name}"
        else:
            expression += f"[{json.dumps(name, ensure_ascii=False)}]"
        at = step.end()
    return expression
