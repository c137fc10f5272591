"""Event patterns of Amazon EventBridge as conditions, over the paths of an event's fields as metadata keys.

A field is tested as each element of an array; another value counts as an array of one: ``a.state`` has the key
``a[].state[]``, and a route lists all such paths with ``metadata: {"*": value.*}``. The key ends with the kind of
values that the pattern names, ``a[].state[]:text``. ``detail`` of an event is always an object.

Fields below one array have to hold in one element of it, and so become ``any(…)``. A field that has to be missing is
missing in the element that the fields before it have chosen, in the order of their names; without such, in all
elements. Before each ``any`` are the leaves that follow from it and can be looked up.
Sources: EventBridge's user guide, "Comparison operators for use in event patterns"; the answers of event-ruler 2.0.1.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_network
from itertools import chain, product
from typing import Final, NamedTuple, TypeAlias

from turnout.base.untrusted import JsonMapping, RepeatedKeyError, unique_object
from turnout.conditions import Condition, Element, Group, all_of, cidr, compare, exists, format_condition, kiwi, not_
from turnout.conditions.leaves.element import below, implied, is_conjunction, path_step, read_as_json
from turnout.conditions.model import both, either
from turnout.conditions.pattern import escape
from turnout.errors import ConditionError

_MOST_DEPTH: Final = 29
_MOST_ALTERNATIVES: Final = 1_000
"""Combinations of ``$or`` that a pattern may have, as for EventBridge."""

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
    """Rule of an event bus.

    Attributes:
        name: empty for a pattern alone.
        pattern: its event pattern.
        targets: empty if they are not known.
        bus: name of its event bus; empty for the default one.
        enabled: False for a rule that is disabled.
        more: further patterns, any of which suffices.
        notes: parts that are taken in another form, with the reason.
    """

    name: str
    pattern: object
    targets: tuple[JsonMapping, ...] = ()
    bus: str = ""
    enabled: bool = True
    more: tuple[object, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def condition(self) -> Condition:
        """Condition of the events that the rule is for.

        Raises:
            PatternError: see `condition_of`.
        """
        return either([condition_of(pattern) for pattern in (self.pattern, *self.more)])

    @property
    def id(self) -> str:
        """Name of the rule, unique among the buses; empty for a pattern alone.

        >>> EventRule("paid", {}, bus="shop").id, EventRule("paid", {}).id
        ('shop:paid', 'paid')
        """
        return f"{self.bus}:{self.name}" if self.bus and self.name else self.name


def rules_of(document: object) -> Iterator[EventRule | PatternError]:
    """Yield the rules of a document: a pattern, a rule with ``Name`` and ``EventPattern``, or the answer of list-rules.

    A rule may have its ``Targets``, as it has in a template. A rule that is none gives its mistake, and the others
    follow.
    """
    if isinstance(document, dict) and isinstance(document.get("Rules"), list):
        for rule in document["Rules"]:
            yield from rules_of(rule)
        return
    try:
        yield rule_of(document)
    except PatternError as problem:
        yield problem


def rule_of(document: object) -> EventRule:
    """Return the rule that a document is.

    Raises:
        PatternError: it has no pattern, or one that cannot be read.
    """
    if not isinstance(document, dict) or not _RULE & document.keys() or isinstance(document.get("Name"), list):
        return EventRule("", document)
    name = str(document.get("Name", ""))
    if "EventPattern" not in document:
        schedule = document.get("ScheduleExpression")
        reason = (
            f"has the schedule {schedule} and no pattern: start it by a timer" if schedule else "has no EventPattern"
        )
        raise PatternError(name, reason)
    pattern = document["EventPattern"]
    path = f"{name}.EventPattern".lstrip(".")
    if isinstance(pattern, str):
        try:
            pattern = json.loads(pattern, object_pairs_hook=unique_object)
        except RepeatedKeyError as problem:
            raise PatternError(path, str(problem)) from None
        except (ValueError, RecursionError) as problem:
            raise PatternError(path, f"is no JSON: {problem}") from None
    targets = document.get("Targets") or []
    if not isinstance(targets, list) or not all(isinstance(target, dict) for target in targets):
        raise PatternError(f"{name}.Targets".lstrip("."), "expected a list of targets")
    state = document.get("State", "ENABLED")
    if state not in _STATES:
        raise PatternError(
            f"{name}.State".lstrip("."), f"expected one of {', '.join(_STATES)}, found {_describe(state)}"
        )
    return EventRule(name, pattern, tuple(targets), _bus(document), state != "DISABLED")


_RULE: Final = frozenset({"EventPattern", "ScheduleExpression", "EventBusName", "State"})
"""Fields of a rule, by one of which it is known from a pattern."""

_STATES: Final = ("ENABLED", "DISABLED", "ENABLED_WITH_ALL_CLOUDTRAIL_MANAGEMENT_EVENTS")


def _bus(rule: JsonMapping) -> str:
    """Return the name of a rule's bus, which may be written as its ARN; empty for the default one."""
    name = str(rule.get("EventBusName") or "")
    if not name and ":rule/" in (arn := str(rule.get("Arn", ""))):
        name = arn.partition(":rule/")[2].rpartition("/")[0]
    name = name.rpartition(":event-bus/")[2]
    return "" if name == "default" else name


def condition_of(pattern: object) -> Condition:
    """Return the condition of an event pattern.

    Raises:
        PatternError: it is no pattern, or EventBridge refuses it, or no condition expresses it.

    >>> from turnout.conditions import format_condition
    >>> format_condition(condition_of({"source": ["shop"], "detail": {"state": ["paid", {"prefix": "re"}]}}))
    'source[]:text:shop AND (detail.state[]:text:paid OR detail.state[]:text:re*)'
    >>> format_condition(condition_of({"items": {"sku": ["A1"], "n": [{"anything-but": 0}]}}))
    'items[].sku[]:text:A1 AND any(items:json, any(n, .:scalar exists AND NOT .:number=0) AND sku[]:text:A1)'
    """
    try:
        condition = _all_of(_document(_parts(pattern, (), "")))
    except ConditionError as problem:
        raise PatternError("", str(problem)) from problem
    except RecursionError:
        raise PatternError("", "patterns nest too deep") from None
    negations = condition.children if is_conjunction(condition) and isinstance(condition, Group) else (condition,)
    if all(part.negated for part in negations):
        # Every record has a subject; a condition of negations only cannot be looked up.
        return all_of(exists("subject"), *negations)
    return condition


# Patterns

Steps: TypeAlias = tuple[str, ...]


class _Test(NamedTuple):
    """Test of one value of a field.

    Attributes:
        condition: gives it for the key of the value.
        single: whether it is one leaf, so that it holds for some value of a key if it holds for one of them.
        absent: whether the field has to be missing.
    """

    condition: Callable[[str], Condition]
    single: bool = True
    absent: bool = False


class _Field(NamedTuple):
    """Field of a pattern, and the tests one of which a value has to pass."""

    steps: Steps
    tests: tuple[_Test, ...]


class _Choice(NamedTuple):
    """Patterns one of which has to match."""

    patterns: tuple[tuple[_Part, ...], ...]

    @property
    def fields(self) -> Iterator[_Field]:
        """All fields of all patterns."""
        for parts in self.patterns:
            yield from _fields_of(parts)


_Part: TypeAlias = _Field | _Choice


def _fields_of(parts: Iterable[_Part]) -> Iterator[_Field]:
    for part in parts:
        if isinstance(part, _Field):
            yield part
        else:
            yield from part.fields


def _parts(pattern: object, steps: Steps, path: str) -> tuple[_Part, ...]:
    """Parse a pattern: its fields and choices, in their order."""
    if not isinstance(pattern, dict) or not pattern:
        raise PatternError(path, f"expected an object of fields, found {_describe(pattern)}")
    if len(steps) > _MOST_DEPTH:
        raise PatternError(path, f"fields nest deeper than {_MOST_DEPTH + 1}")
    parts: list[_Part] = []
    for name, value in pattern.items():
        inner = f"{path}.{name}".lstrip(".")
        if name == "$or" and _is_choice(value):
            if len(value) < 2:
                raise PatternError(inner, f"expected a list of two patterns or more, found {_describe(value)}")
            patterns = [_parts(part, steps, f"{inner}[{number}]") for number, part in enumerate(value)]
            parts.append(_Choice(tuple(patterns)))
        elif isinstance(value, dict):
            parts += _parts(value, (*steps, name), inner)
        elif not isinstance(value, list) or not value:
            raise PatternError(inner, f"expected a list of values, or an object of fields, found {_describe(value)}")
        else:
            tests = [_test(one, f"{inner}[{number}]") for number, one in enumerate(value)]
            parts.append(_Field((*steps, name), tuple(tests)))
    return tuple(parts)


def _is_choice(value: object) -> bool:
    """Return True if the value of ``$or`` is a list of patterns; else a field has this name."""
    return isinstance(value, list) and not any(
        not isinstance(part, dict) or not part or part.keys() & _COMPARISONS.keys() for part in value
    )


# Conditions

_DETAIL: Final = "detail"


def _document(parts: tuple[_Part, ...]) -> list[Condition]:
    """Return the conditions of a pattern, one for each group of parts that have an array in common."""
    conditions: list[Condition] = []
    for group in _groups(parts):
        roots = {found.steps[: _root_length(found.steps)] for found in _fields_of(group)}
        if len(roots) > 1 and len(group) == 1 and isinstance(group[0], _Choice):
            # Nothing outside of the choice has an array in common with it.
            conditions.append(either([_all_of(_document(pattern)) for pattern in group[0].patterns]))
        else:
            conditions.append(_alternatives(group))
    return conditions


def _root_length(steps: Steps) -> int:
    """Return the number of steps to the first one that may be an array."""
    return 2 if steps[0] == _DETAIL and len(steps) > 1 else 1


def _groups(parts: Iterable[_Part]) -> list[tuple[_Part, ...]]:
    """Divide parts by the first arrays of their fields."""
    groups: list[tuple[set[Steps], list[_Part]]] = []
    for part in parts:
        roots = {found.steps[: _root_length(found.steps)] for found in _fields_of((part,))}
        own = (set(roots), [part])
        # The order of the parts counts: of a field that is named twice the later one.
        met = [group for group in groups if group[0] & roots]
        for group in reversed(met):
            own = (own[0] | group[0], [*group[1], *own[1]])
        groups = [group for group in groups if group not in met] + [own]
    return [tuple(group) for _, group in groups]


def _alternatives(parts: tuple[_Part, ...]) -> Condition:
    """Return the condition of parts that may have arrays in common: each combination of their choices by itself."""
    combinations: list[dict[Steps, tuple[_Test, ...]]] = list(_combinations(parts, [{}]))
    single = [one for combination in combinations for one in _without_absent(combination)]
    conditions = [_Scope.of(combination).conditions() for combination in single]
    common = [one for one in conditions[0] if all(one in others for others in conditions[1:])]
    rest = [[one for one in own if one not in common] for own in conditions]
    return _all_of([*common, *([either(list(map(_all_of, rest)))] if all(rest) else [])])


def _combinations(
    parts: Iterable[_Part], before: list[dict[Steps, tuple[_Test, ...]]]
) -> list[dict[Steps, tuple[_Test, ...]]]:
    """Return the fields of each combination of choices; of a field that is named twice, the later one is taken."""
    for part in parts:
        if isinstance(part, _Field):
            before = [{**own, part.steps: part.tests} for own in before]
        else:
            before = [own for pattern in part.patterns for own in _combinations(pattern, before)]
        if len(before) > _MOST_ALTERNATIVES:
            raise PatternError("", f"$or gives more than {_MOST_ALTERNATIVES} combinations")
    return before


def _without_absent(combination: dict[Steps, tuple[_Test, ...]]) -> list[dict[Steps, tuple[_Test, ...]]]:
    """Divide fields that may be missing or have a value: other fields are tested in the element of a value alone."""
    choices: list[list[tuple[_Test, ...]]] = []
    count = 1
    for tests in combination.values():
        absent = tuple(test for test in tests if test.absent)
        present = tuple(test for test in tests if not test.absent)
        choices.append([kind for kind in (absent[:1], present) if kind])
        count *= len(choices[-1])
        if count > _MOST_ALTERNATIVES:
            raise PatternError("", f"fields that may be missing give more than {_MOST_ALTERNATIVES} combinations")
    return [dict(zip(combination, chosen, strict=True)) for chosen in product(*choices)]


@dataclass(slots=True)
class _Scope:
    """Fields that have to be in one element of an array, or in the document.

    Attributes:
        values: names of fields, and the tests one of which a value has to pass.
        inner: names of arrays inside, with the fields that have to be in one element.
        absent: paths that have to be missing.
    """

    values: dict[str, tuple[_Test, ...]] = field(default_factory=dict)
    inner: dict[str, _Scope] = field(default_factory=dict)
    absent: list[Steps] = field(default_factory=list)

    @classmethod
    def of(cls, fields: Mapping[Steps, tuple[_Test, ...]]) -> _Scope:
        """Return the scope of a document."""
        document = cls()
        # Names are compared as in Java.
        for steps in sorted(fields, key=lambda steps: ".".join(steps).encode("utf-16-be", "surrogatepass")):
            tests, scope = fields[steps], document
            if tests[0].absent:
                depth = 0
                while depth < len(steps) - 1 and steps[depth] in scope.inner:
                    scope = scope.inner[steps[depth]]
                    depth += 1
                scope.absent.append(steps[depth:])
                continue
            for name in steps[:-1]:
                scope = scope.inner.setdefault(name, cls())
            scope.values[steps[-1]] = tests
        return document

    def conditions(self) -> list[Condition]:
        """Return the conditions of a document's fields."""
        detail = self.inner.get(_DETAIL, _Scope())
        inner = {name: scope for name, scope in self.inner.items() if scope is not detail}
        parts = _Scope(self.values, inner, self.absent).parts()
        parts += [below(f"{_DETAIL}.", part) for part in detail.parts()]
        return list(dict.fromkeys([*(leaf for part in parts for leaf in implied(part)), *map(read_as_json, parts)]))

    def parts(self) -> list[Condition]:
        """Return the conditions of the fields, which all have to hold."""
        values = [either([_of_value(name, test) for test in tests]) for name, tests in self.values.items()]
        inner = [scope.somewhere(name) for name, scope in self.inner.items()]
        return [*values, *inner, *map(_absent, self.absent)]

    def somewhere(self, name: str) -> Condition:
        """Return the condition that all fields are in one element of the array of this name."""
        parts = self.parts()
        if len(parts) == 1:
            return below(f"{path_step(name)}[].", parts[0])
        return Element(path_step(name), format_condition(_all_of(parts)))


def _of_value(name: str, test: _Test) -> Condition:
    key = path_step(name)
    return test.condition(f"{key}[]") if test.single else Element(key, format_condition(test.condition(_SELF)))


_SELF: Final = "."
"""Key of an element itself."""


def _absent(steps: Steps) -> Condition:
    return not_(exists(f"{'.'.join(f'{path_step(name)}[]' for name in steps)}:scalar"))


# Values


def _test(value: object, path: str) -> _Test:
    if not isinstance(value, dict):
        return _equal(value, path)
    if len(value) != 1:
        raise PatternError(path, f"expected one comparison, found {', '.join(value) or 'none'}")
    ((name, operand),) = value.items()
    if name not in _COMPARISONS:
        raise PatternError(path, f"the comparison {name!r} is not known; there are {', '.join(_COMPARISONS)}")
    return _COMPARISONS[name](operand, path)


def _equal(value: object, path: str) -> _Test:
    if value is None:
        return _Test(lambda key: exists(f"{key}:null"))
    if isinstance(value, bool):
        return _Test(lambda key: kiwi(f"{key}:boolean", "true" if value else "false"))
    if isinstance(value, (int, float)):
        return _Test(lambda key: compare(f"{key}:number", "=", value))
    return _kiwi(escape(_text(value, path)))


def _kiwi(pattern: str, *, ignore_case: bool = False) -> _Test:
    return _Test(lambda key: kiwi(f"{key}:text", pattern, ignore_case=ignore_case))


def _text(value: object, path: str) -> str:
    if not isinstance(value, str):
        raise PatternError(path, f"expected a text, found {_describe(value)}")
    return value


def _affix(before: str, after: str) -> Callable[[object, str], _Test]:
    def test_of(value: object, path: str) -> _Test:
        text, folds = value, isinstance(value, dict) and list(value) == ["equals-ignore-case"]
        if folds and isinstance(value, dict):
            text = value["equals-ignore-case"]
        return _kiwi(f"{before}{escape(_text(text, path))}{after}", ignore_case=folds)

    return test_of


def _exactly(value: object, path: str) -> _Test:
    return _kiwi(escape(_text(value, path)))


def _ignoring_case(value: object, path: str) -> _Test:
    return _kiwi(escape(_text(value, path)), ignore_case=True)


def _wildcard(value: object, path: str) -> _Test:
    text = _text(value, path)
    rest = text.replace("\\\\", "").replace("\\*", "")
    if "\\" in rest:
        raise PatternError(path, f"a backslash precedes a star or another backslash, in {_describe(value)}")
    if "**" in text.replace("\\\\", "").replace("\\*", " "):
        raise PatternError(path, f"one star suffices: EventBridge refuses several in a row, in {_describe(value)}")
    # There a question mark is itself.
    return _kiwi(text.replace("?", "\\?"))


def _numeric(value: object, path: str) -> _Test:
    if not isinstance(value, list) or len(value) not in (2, 4):
        raise PatternError(path, f"expected an operator and a number, once or twice, found {_describe(value)}")
    bounds: list[tuple[str, float]] = []
    for operator, number in zip(value[::2], value[1::2], strict=True):
        if operator not in _OPERATORS or isinstance(number, bool) or not isinstance(number, (int, float)):
            raise PatternError(path, f"expected one of {' '.join(_OPERATORS)} and a number, found {_describe(value)}")
        bounds.append((operator, number))
    if len(bounds) == 2:
        (low, least), (high, most) = bounds
        if not low.startswith(">") or not high.startswith("<") or least >= most:
            raise PatternError(path, f"expected > or >=, a number, < or <= and a larger one, found {_describe(value)}")
    return _Test(lambda key: _all_of([compare(f"{key}:number", *bound) for bound in bounds]), single=len(bounds) == 1)


def _exists(value: object, path: str) -> _Test:
    if not isinstance(value, bool):
        raise PatternError(path, f"expected true or false, found {_describe(value)}")
    return _Test(lambda key: exists(f"{key}:scalar"), absent=not value)


def _network(value: object, path: str) -> _Test:
    text = _text(value, path)
    try:
        network = ip_network(text, strict=False)
    except ValueError as problem:
        raise PatternError(path, f"expected an address, a slash and a number of bits: {problem}") from None
    if "/" not in text or network.prefixlen == network.max_prefixlen:
        raise PatternError(
            path, f"expected a network with fewer than {network.max_prefixlen} bits, found {_describe(value)}"
        )
    return _Test(lambda key: cidr(f"{key}:text", str(network)))


def _anything_but(value: object, path: str) -> _Test:
    if isinstance(value, dict):
        ((name, operand),) = value.items() if len(value) == 1 else (("", None),)
        if name not in ("prefix", "suffix", "wildcard", "equals-ignore-case"):
            raise PatternError(
                path, f"expected prefix, suffix, wildcard or equals-ignore-case, found {_describe(value)}"
            )
        several = operand if isinstance(operand, list) else [operand]
        if name in ("prefix", "suffix") and "" in several:
            raise PatternError(path, f"every text has an empty {name}: nothing would match")
        refused = [_COMPARISONS[name](_text(one, path), path) for one in several]
    else:
        values = value if isinstance(value, list) else [value]
        kinds = {str if isinstance(one, str) else float for one in values}
        if any(isinstance(one, bool) or not isinstance(one, (str, int, float)) for one in values) or len(kinds) > 1:
            raise PatternError(path, f"expected texts, or numbers, and not both, found {_describe(value)}")
        refused = [_equal(one, path) for one in values]
    if not refused:
        raise PatternError(path, "expected values, found none")
    return _Test(
        lambda key: all_of(exists(f"{key}:scalar"), *dict.fromkeys(not_(test.condition(key)) for test in refused)),
        single=False,
    )


_COMPARISONS: Final[Mapping[str, Callable[[object, str], _Test]]] = {
    "prefix": _affix("", "*"),
    "suffix": _affix("*", ""),
    "exactly": _exactly,
    "equals-ignore-case": _ignoring_case,
    "wildcard": _wildcard,
    "anything-but": _anything_but,
    "numeric": _numeric,
    "exists": _exists,
    "cidr": _network,
}


def _all_of(parts: Sequence[Condition]) -> Condition:
    single = (part.children if isinstance(part, Group) and is_conjunction(part) else (part,) for part in parts)
    return both(chain.from_iterable(single))


def _describe(value: object) -> str:
    return f"{json.dumps(value, default=str):.60}"


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


def projection_of(target: JsonMapping, rule: str) -> str:
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
