"""Condition ↔ plain JSON: the one shape that stores, the CLI, the vectors and proto3's JSON share.

It is the JSON of the published proto, so a ``grpcurl`` body is a condition::

    {"groupCondition": {"logic": "And", "group": [
        {"kiwiTreeCondition": {"key": "subject", "pattern": "orders*"}},
        {"kiwiCondition": {"not": true, "key": "location", "pattern": "*sinki", "partial": true}}]}}

Beside these there are ``compareCondition`` (key, op, number), ``existsCondition`` (key), ``cidrCondition`` (key,
network), ``regexCondition`` (key, regex), ``subjectCondition`` (key, subject), ``elementCondition`` (key, where) and
``fieldCondition`` (key, op, field, ignoreCase).
Fields at their default are left out when encoding.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from turnout.base.terminal import nearest
from turnout.base.untrusted import JsonMapping, JsonObject
from turnout.conditions.leaf import FLAG, TEXT, Leaf, LeafKind
from turnout.conditions.leaves import LEAVES
from turnout.conditions.model import Condition, Group, Logic
from turnout.errors import ConditionError

Json: TypeAlias = JsonObject

_OBJECT = (dict, Mapping)
"""Types accepted as an object; ``dict`` first, because the test for ``Mapping`` takes ten times as long."""


def encode(condition: Condition, make: Callable[[], str] = str) -> Json:
    """Return the condition as JSON; `decode` gives an equal one back, with the same ids and dialects.

    Args:
        condition: the condition.
        make: gives an id to each node that has none, from the root on; without it they stay so.

    >>> from turnout.conditions import parse
    >>> encode(parse("NOT city:Oulu"))
    {'kiwiCondition': {'not': True, 'key': 'city', 'pattern': 'Oulu'}}
    """
    id_ = condition.id or make()
    body: Json = {"id": id_} if id_ else {}
    if condition.negated:
        body["not"] = True
    if isinstance(condition, Group):
        body["logic"] = condition.logic.value
        body["group"] = [encode(child, make) for child in condition.children]
        return {"groupCondition": body}
    kind = kind_of(condition)
    body["key"] = condition.key
    for name, value in kind.values(condition):
        if value is not False:
            body[name] = value
    return {kind.name: body}


def decode(data: object, path: str = "condition") -> Condition:
    """Return the condition that the JSON describes.

    Raises:
        ConditionError: for anything else; the message begins with the place, as in
            ``condition.group[1].pattern``.

    >>> from turnout.conditions import parse
    >>> decode(encode(parse("city:Oulu AND total>5"))) == parse("city:Oulu AND total>5")
    True
    >>> decode({"kiwiCondition": {"key": 5}})
    Traceback (most recent call last):
        ...
    turnout.errors.ConditionError: condition.key: expected text, found 5
    """
    kind, body = _opened(data, path)
    fields = _FIELDS[kind]
    for name, value in body.items():
        # Called millions of times by imports: a valid field costs no call.
        type_ = type(value)
        if type_ not in fields.get(name, ()) or (type_ is str and not value.isascii()):
            _examine(name, value, fields, path)
    if kind == "groupCondition":
        return _group(body, path)
    try:
        return KINDS[kind].read(body.get)
    except ConditionError as problem:
        raise _located(path, problem) from problem


def _opened(data: object, path: str) -> tuple[str, JsonMapping]:
    """Return the kind of a node, checked to be a known one, and its body."""
    if not isinstance(data, _OBJECT):
        raise _wrong(path, f"expected an object, found {_described(data)}")
    if len(data) != 1:
        kinds = ", ".join(map(str, data)) or "nothing"
        raise _wrong(path, f"expected exactly one of {', '.join(_FIELDS)}, found {kinds}")
    ((kind, body),) = data.items()
    if kind not in _FIELDS:
        raise _wrong(path, f"unknown kind {kind!r}{_hint(kind, _FIELDS)}; there are {', '.join(_FIELDS)}")
    if not isinstance(body, _OBJECT):
        raise _wrong(f"{path}.{kind}", f"expected an object, found {_described(body)}")
    return kind, body


def _examine(name: str, value: object, fields: Mapping[str, tuple[type, ...]], path: str) -> None:
    """Raise for a field that the quick check did not accept, if it is wrong."""
    if name not in fields:
        names = ", ".join(sorted(fields))
        raise _wrong(f"{path}.{name}", f"unknown field{_hint(name, fields)}; there are {names}")
    types = fields[name]
    if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
        expected = " or ".join(_NAMES[type_] for type_ in types)
        raise _wrong(f"{path}.{name}", f"expected {expected}, found {_described(value)}")
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError as problem:
            message = f"the character at {problem.start} is half of a surrogate pair"
            raise _wrong(f"{path}.{name}", message, text=value, position=problem.start) from None


def _group(body: JsonMapping, path: str) -> Condition:
    written = body.get("logic", Logic.AND)
    logic = _LOGICS.get(written)
    if logic is None:
        names = ", ".join(f"{logic} or {number}" for number, logic in enumerate(Logic))
        raise _wrong(f"{path}.logic", f"expected {names}, found {written!r}")
    try:
        children = tuple([decode(child, f"{path}.group[{n}]") for n, child in enumerate(body.get("group", ()))])
    except RecursionError:
        raise _wrong(path, "groups nest too deep") from None
    try:
        return Group(logic, children, body.get("not", False), body.get("id", ""))
    except ConditionError as problem:
        raise _located(path, problem) from problem


KINDS: Final[dict[str, LeafKind]] = {kind.name: kind for spec in LEAVES for kind in spec.kinds}
"""By name. Of several names of one class the first is the one that protobuf's answers have."""

_NODE: dict[str, tuple[type, ...]] = {"id": TEXT, "not": FLAG}

_FIELDS: dict[str, dict[str, tuple[type, ...]]] = {
    "groupCondition": _NODE | {"logic": (str, int), "group": (list,)}
} | {name: _NODE | {"key": TEXT} | {field.name: field.types for field in kind.fields} for name, kind in KINDS.items()}
"""The kinds of node, and the types that each field may have."""

_LOGICS: dict[str | int, Logic] = {logic.value: logic for logic in Logic} | dict(enumerate(Logic))
"""By name, and by the number that the proto's enum has."""

_NAMES: dict[type, str] = {str: "text", bool: "true or false", int: "a whole number", float: "a number", list: "a list"}


def _described(value: object) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, Mapping):
        return "an object"
    return "a list" if isinstance(value, list) else repr(value)


def _hint(name: object, names: Mapping[str, object]) -> str:
    guess = nearest(str(name), names)
    return f" (did you mean {guess!r}?)" if guess else ""


def _wrong(path: str, problem: str, *, text: str = "", position: int | None = None) -> ConditionError:
    return ConditionError(f"{path}: {problem}", text=text, position=position)


def _located(path: str, problem: ConditionError) -> ConditionError:
    return _wrong(path, str(problem), text=problem.text, position=problem.position)


_BY_CLASS = {(kind.leaf, kind.implied.get("tree", False)): kind for kind in KINDS.values()}


def kind_of(leaf: Leaf) -> LeafKind:
    """Return the row of a leaf; of a pattern, that of its dialect.

    Raises:
        TypeError: it is no leaf.
    """
    try:
        return _BY_CLASS[type(leaf), getattr(leaf, "tree", False)]
    except KeyError:
        raise TypeError(f"not a condition: {leaf!r}") from None
