"""Condition ↔ plain JSON: the one shape that stores, the CLI, the vectors and proto3's JSON share.

It is the JSON of the published proto, so a ``grpcurl`` body is a condition as it stands::

    {"groupCondition": {"logic": "And", "group": [
        {"kiwiTreeCondition": {"key": "subject", "pattern": "orders*"}},
        {"kiwiCondition": {"not": true, "key": "location", "pattern": "*sinki", "partial": true}}]}}

Beside these there are ``compareCondition`` (key, op, number), ``existsCondition`` (key) and
``cidrCondition`` (key, network). Fields at their default are left out when encoding.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from functools import singledispatch
from typing import Any, TypeAlias

from turnout.conditions.model import Cidr, Compare, Condition, Exists, Group, Kiwi, Logic
from turnout.errors import ConditionError

__all__ = ["Json", "decode", "encode"]

Json: TypeAlias = dict[str, Any]

_OBJECT = (dict, Mapping)
"""What is taken as an object; the plain one first, because asking for the other takes ten times as long."""


@singledispatch
def encode(condition: Condition) -> Json:
    """The condition as JSON; `decode` gives an equal one back, with the same ids and dialects."""
    raise TypeError(f"not a condition: {condition!r}")


def _named(node: Condition) -> Json:
    """The body of a node with the fields that every node has."""
    body: Json = {"id": node.id} if node.id else {}
    if node.negated:
        body["not"] = True
    return body


@encode.register
def _(node: Group) -> Json:
    body = _named(node)
    body["logic"] = node.logic.value
    body["group"] = [_kiwi_to(child) if type(child) is Kiwi else encode(child) for child in node.children]
    return {"groupCondition": body}


@encode.register(Kiwi)
def _kiwi_to(node: Kiwi) -> Json:
    body = _named(node)
    body["key"] = node.key
    body["pattern"] = node.pattern
    if node.partial:
        body["partial"] = True
    if node.ignore_case:
        body["ignoreCase"] = True
    return {"kiwiTreeCondition" if node.tree else "kiwiCondition": body}


@encode.register
def _(node: Compare) -> Json:
    return {"compareCondition": {**_named(node), "key": node.key, "op": node.op.value, "number": node.number}}


@encode.register
def _(node: Exists) -> Json:
    return {"existsCondition": {**_named(node), "key": node.key}}


@encode.register
def _(node: Cidr) -> Json:
    return {"cidrCondition": {**_named(node), "key": node.key, "network": node.network}}


def decode(data: object, path: str = "condition") -> Condition:
    """The condition that the JSON describes.

    Raises:
        ConditionError: for anything else; the message begins with the place, as in
            ``condition.group[1].pattern``.
    """
    kind, body = _opened(data, path)
    fields = _FIELDS[kind]
    for name, value in body.items():
        # Imports come through here by the million: a valid field costs no call.
        type_ = type(value)
        if type_ not in fields.get(name, ()) or (type_ is str and not value.isascii()):
            _examine(name, value, fields, path)
    if kind == "groupCondition":
        return _group(body, path)
    try:
        return _LEAVES[kind](body)
    except ConditionError as problem:
        raise _located(path, problem) from problem


def _opened(data: object, path: str) -> tuple[str, Mapping[str, Any]]:
    """The kind of a node, checked to be a known one, and its body."""
    if not isinstance(data, _OBJECT):
        raise _wrong(path, f"expected an object, found {_kind(data)}")
    if len(data) != 1:
        kinds = ", ".join(map(str, data)) or "nothing"
        raise _wrong(path, f"expected exactly one of {', '.join(_FIELDS)}, found {kinds}")
    ((kind, body),) = data.items()
    if kind not in _FIELDS:
        raise _wrong(path, f"unknown kind {kind!r}{_hint(kind, _FIELDS)}; there are {', '.join(_FIELDS)}")
    if not isinstance(body, _OBJECT):
        raise _wrong(f"{path}.{kind}", f"expected an object, found {_kind(body)}")
    return kind, body


def _examine(name: str, value: object, fields: Mapping[str, tuple[type, ...]], path: str) -> None:
    """Raise for a field that the quick check did not accept, if it is wrong."""
    if name not in fields:
        known = ", ".join(sorted(fields))
        raise _wrong(f"{path}.{name}", f"unknown field{_hint(name, fields)}; there are {known}")
    types = fields[name]
    if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
        expected = " or ".join(_NAMES[one] for one in types)
        raise _wrong(f"{path}.{name}", f"expected {expected}, found {_kind(value)}")
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError as problem:
            message = f"the character at {problem.start} is half of a surrogate pair"
            raise _wrong(f"{path}.{name}", message, text=value, position=problem.start) from None


def _group(body: Mapping[str, Any], path: str) -> Condition:
    written = body.get("logic", Logic.AND)
    logic = _LOGICS.get(written)
    if logic is None:
        known = ", ".join(f"{logic} or {number}" for number, logic in enumerate(Logic))
        raise _wrong(f"{path}.logic", f"expected {known}, found {written!r}")
    try:
        children = tuple([decode(child, f"{path}.group[{n}]") for n, child in enumerate(body.get("group", ()))])
    except RecursionError:
        raise _wrong(path, "groups nest too deep") from None
    try:
        return Group(logic, children, body.get("not", False), body.get("id", ""))
    except ConditionError as problem:
        raise _located(path, problem) from problem


def _kiwi(body: Mapping[str, Any], *, tree: bool = False) -> Condition:
    take = body.get
    return Kiwi(
        take("key", ""),
        take("pattern", ""),
        take("partial", False),
        take("ignoreCase", False),
        take("not", False),
        tree,
        take("id", ""),
    )


def _compare(body: Mapping[str, Any]) -> Condition:
    op = body.get("op", "")
    return Compare(body.get("key", ""), op, body.get("number", 0), body.get("not", False), body.get("id", ""))


def _exists(body: Mapping[str, Any]) -> Condition:
    return Exists(body.get("key", ""), body.get("not", False), body.get("id", ""))


def _cidr(body: Mapping[str, Any]) -> Condition:
    return Cidr(body.get("key", ""), body.get("network", ""), body.get("not", False), body.get("id", ""))


_LEAVES: dict[str, Callable[[Mapping[str, Any]], Condition]] = {
    "kiwiCondition": _kiwi,
    "kiwiTreeCondition": lambda body: _kiwi(body, tree=True),
    "compareCondition": _compare,
    "existsCondition": _exists,
    "cidrCondition": _cidr,
}

_TEXT, _FLAG = (str,), (bool,)
_NODE: dict[str, tuple[type, ...]] = {"id": _TEXT, "not": _FLAG}
_LEAF = _NODE | {"key": _TEXT}
_KIWI = _LEAF | {"pattern": _TEXT, "partial": _FLAG, "ignoreCase": _FLAG}

_FIELDS: dict[str, Mapping[str, tuple[type, ...]]] = {
    "groupCondition": _NODE | {"logic": (str, int), "group": (list,)},
    "kiwiCondition": _KIWI,
    "kiwiTreeCondition": _KIWI,
    "compareCondition": _LEAF | {"op": _TEXT, "number": (int, float)},
    "existsCondition": _LEAF,
    "cidrCondition": _LEAF | {"network": _TEXT},
}
"""The kinds of node, and the types that each field may have."""

_LOGICS: dict[str | int, Logic] = {logic.value: logic for logic in Logic} | dict(enumerate(Logic))
"""By name, and by the number that the proto's enum has."""

_NAMES: dict[type, str] = {
    str: "text",
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    list: "a list",
}


def _kind(value: object) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, Mapping):
        return "an object"
    return "a list" if isinstance(value, list) else repr(value)


def _hint(name: object, known: Mapping[str, object]) -> str:
    near = get_close_matches(str(name), list(known), n=1)
    return f" (did you mean {near[0]!r}?)" if near else ""


def _wrong(path: str, problem: str, *, text: str = "", position: int | None = None) -> ConditionError:
    return ConditionError(f"{path}: {problem}", text=text, position=position)


def _located(path: str, problem: ConditionError) -> ConditionError:
    return _wrong(path, str(problem), text=problem.text, position=problem.position)
