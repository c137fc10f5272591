"""Event patterns of Amazon EventBridge as conditions, over the paths of an event's fields as metadata keys.

A field is tested as each element of an array; another value counts as an array of one: ``detail.state`` has the key
``detail[].state[]``, and a route lists all such paths with ``metadata: {"*": value.*}``. The key ends with the kind of
values that the pattern names, ``detail[].state[]:text``. Distinctions that conditions cannot make are refused: null
from a missing field. Source: EventBridge's user guide, "Comparison operators for use in event
patterns".
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from turnout.conditions import Condition, all_of, any_of, cidr, compare, exists, kiwi, not_
from turnout.conditions.pattern import escape
from turnout.errors import ConditionError

_MOST_DEPTH: Final = 30
_OPERATORS: Final = ("<", "<=", "=", ">", ">=")


class PatternError(ValueError):
    """Raised for a pattern that is none, or that no condition expresses.

    Attributes:
        path: path of the part.
        reason: its fault.
    """

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}" if path else reason)
        self.path = path
        self.reason = reason


@dataclass(frozen=True, slots=True)
class EventRule:
    """Rule of an event bus; the name is empty for a pattern alone, and it has no targets if they are not known."""

    name: str
    pattern: object
    targets: tuple[Mapping[str, Any], ...] = ()


def rules_of(document: object) -> Iterator[EventRule]:
    """Yield the rules of a document: a pattern, a rule with ``Name`` and ``EventPattern``, or the answer of list-rules.

    A rule may have its ``Targets``, as it has in a template.

    Raises:
        PatternError: a rule's pattern is no JSON, or its targets are none.
    """
    if isinstance(document, dict) and isinstance(document.get("Rules"), list):
        for rule in document["Rules"]:
            yield from rules_of(rule)
    elif isinstance(document, dict) and "EventPattern" in document:
        pattern = document["EventPattern"]
        if isinstance(pattern, str):
            try:
                pattern = json.loads(pattern)
            except (ValueError, RecursionError) as problem:
                raise PatternError("EventPattern", f"is no JSON: {problem}") from None
        targets = document.get("Targets") or []
        if not isinstance(targets, list) or not all(isinstance(target, dict) for target in targets):
            raise PatternError("Targets", "expected a list of targets")
        yield EventRule(str(document.get("Name", "")), pattern, tuple(targets))
    else:
        yield EventRule("", document)


def condition_of(pattern: object) -> Condition:
    """Return the condition of an event pattern.

    Raises:
        PatternError: it is no pattern, or needs a distinction that conditions cannot make.

    >>> from turnout.conditions import format_condition
    >>> format_condition(condition_of({"source": ["shop"], "detail": {"state": ["paid", {"prefix": "re"}]}}))
    'source[]:text:shop AND (detail[].state[]:text:paid OR detail[].state[]:text:re*)'
    """
    try:
        return _fields(pattern, (), "")
    except ConditionError as problem:
        raise PatternError("", str(problem)) from problem
    except RecursionError:
        raise PatternError("", "patterns nest too deep") from None


def _fields(pattern: object, steps: tuple[str, ...], path: str) -> Condition:
    if not isinstance(pattern, dict) or not pattern:
        raise PatternError(path, f"expected an object of fields, found {_describe(pattern)}")
    if len(steps) > _MOST_DEPTH:
        raise PatternError(path, f"fields nest deeper than {_MOST_DEPTH}")
    return _all_of([_field(name, value, steps, f"{path}.{name}".lstrip(".")) for name, value in pattern.items()])


def _field(name: str, value: object, steps: tuple[str, ...], path: str) -> Condition:
    if name == "$or":
        if not isinstance(value, list) or len(value) < 2:
            raise PatternError(path, f"expected a list of two patterns or more, found {_describe(value)}")
        return _any_of([_fields(part, steps, f"{path}[{number}]") for number, part in enumerate(value)])
    steps = (*steps, name)
    if isinstance(value, dict):
        return _fields(value, steps, path)
    if not isinstance(value, list) or not value:
        raise PatternError(path, f"expected a list of values, or an object of fields, found {_describe(value)}")
    key = ".".join(map(_step, steps))
    return _any_of([_value(key, one, f"{path}[{number}]") for number, one in enumerate(value)])


def _step(name: str) -> str:
    plain = name and not set(name) & set(".`[]")
    return f"{name}[]" if plain else f"`{name}`[]"


def _value(key: str, value: object, path: str) -> Condition:
    if isinstance(value, dict):
        if len(value) != 1:
            raise PatternError(path, f"expected one comparison, found {', '.join(value) or 'none'}")
        ((name, operand),) = value.items()
        if name not in _COMPARISONS:
            raise PatternError(path, f"the comparison {name!r} is not known; there are {', '.join(_COMPARISONS)}")
        return _COMPARISONS[name](key, operand, path)
    return _equal(key, value, path)


def _equal(key: str, value: object, path: str) -> Condition:
    if value is None:
        raise PatternError(path, 'null cannot be distinguished from a missing field: use {"exists": false}')
    if isinstance(value, bool):
        return kiwi(f"{key}:boolean", "true" if value else "false")
    if isinstance(value, (int, float)):
        return compare(f"{key}:number", "=", value)
    return kiwi(f"{key}:text", escape(_text(value, path)))


def _text(value: object, path: str) -> str:
    if not isinstance(value, str):
        raise PatternError(path, f"expected a text, found {_describe(value)}")
    return value


def _affix(before: str, after: str) -> Callable[[str, Any, str], Condition]:
    def leaf_of(key: str, value: object, path: str) -> Condition:
        text, folds = value, isinstance(value, dict) and list(value) == ["equals-ignore-case"]
        if folds and isinstance(value, dict):
            text = value["equals-ignore-case"]
        return kiwi(f"{key}:text", f"{before}{escape(_text(text, path))}{after}", ignore_case=folds)

    return leaf_of


def _ignoring_case(key: str, value: object, path: str) -> Condition:
    return kiwi(f"{key}:text", escape(_text(value, path)), ignore_case=True)


def _wildcard(key: str, value: object, path: str) -> Condition:
    # There a question mark is itself, and a backslash escapes a star or itself.
    return kiwi(f"{key}:text", _text(value, path).replace("?", "\\?"))


def _numeric(key: str, value: object, path: str) -> Condition:
    if not isinstance(value, list) or len(value) not in (2, 4):
        raise PatternError(path, f"expected an operator and a number, once or twice, found {_describe(value)}")
    parts: list[Condition] = []
    for operator, number in zip(value[::2], value[1::2], strict=True):
        if operator not in _OPERATORS or isinstance(number, bool) or not isinstance(number, (int, float)):
            raise PatternError(path, f"expected one of {' '.join(_OPERATORS)} and a number, found {_describe(value)}")
        parts.append(compare(f"{key}:number", operator, number))
    return _all_of(parts)


def _exists(key: str, value: object, path: str) -> Condition:
    if not isinstance(value, bool):
        raise PatternError(path, f"expected true or false, found {_describe(value)}")
    return exists(key) if value else not_(exists(key))


def _network(key: str, value: object, path: str) -> Condition:
    return cidr(f"{key}:text", _text(value, path))


def _anything_but(key: str, value: object, path: str) -> Condition:
    if isinstance(value, dict):
        ((name, operand),) = value.items() if len(value) == 1 else (("", None),)
        if name not in ("prefix", "suffix", "wildcard", "equals-ignore-case"):
            raise PatternError(
                path, f"expected prefix, suffix, wildcard or equals-ignore-case, found {_describe(value)}"
            )
        several = operand if isinstance(operand, list) else [operand]
        refused = [_COMPARISONS[name](key, one, path) for one in several]
    else:
        refused = [_equal(key, one, path) for one in (value if isinstance(value, list) else [value])]
    if not refused:
        raise PatternError(path, "expected values, found none")
    return all_of(exists(key), *map(not_, refused))


_COMPARISONS: Final[Mapping[str, Callable[[str, Any, str], Condition]]] = {
    "prefix": _affix("", "*"),
    "suffix": _affix("*", ""),
    "equals-ignore-case": _ignoring_case,
    "wildcard": _wildcard,
    "anything-but": _anything_but,
    "numeric": _numeric,
    "exists": _exists,
    "cidr": _network,
}


def _all_of(parts: list[Condition]) -> Condition:
    distinct = list(dict.fromkeys(parts))
    return distinct[0] if len(distinct) == 1 else all_of(*distinct)


def _any_of(parts: list[Condition]) -> Condition:
    distinct = list(dict.fromkeys(parts))
    return distinct[0] if len(distinct) == 1 else any_of(*distinct)


def _describe(value: object) -> str:
    return f"{json.dumps(value, default=str):.60}"
