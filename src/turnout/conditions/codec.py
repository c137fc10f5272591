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

_LOGICS = tuple(Logic)
"""In the order of the proto's enum, where And is 0."""


@singledispatch
def encode(condition: Condition) -> Json:
    """The condition as JSON; `decode` gives an equal one back, with the same ids and dialects."""
    raise TypeError(f"not a condition: {condition!r}")


def _common(node: Condition) -> Json:
    found: Json = {}
    if node.id:
        found["id"] = node.id
    if node.negated:
        found["not"] = True
    return found


@encode.register
def _(node: Group) -> Json:
    group = [encode(child) for child in node.children]
    return {"groupCondition": {**_common(node), "logic": node.logic.value, "group": group}}


@encode.register
def _(node: Kiwi) -> Json:
    body = {**_common(node), "key": node.key, "pattern": node.pattern}
    if node.partial:
        body["partial"] = True
    if node.ignore_case:
        body["ignoreCase"] = True
    return {"kiwiTreeCondition" if node.tree else "kiwiCondition": body}


@encode.register
def _(node: Compare) -> Json:
    return {"compareCondition": {**_common(node), "key": node.key, "op": node.op.value, "number": node.number}}


@encode.register
def _(node: Exists) -> Json:
    return {"existsCondition": {**_common(node), "key": node.key}}


@encode.register
def _(node: Cidr) -> Json:
    return {"cidrCondition": {**_common(node), "key": node.key, "network": node.network}}


def decode(data: object, path: str = "condition") -> Condition:
    """The condition that the JSON describes.

    Raises:
        ConditionError: for anything else; the message begins with the place, as in
            ``condition.group[1].pattern``.
    """
    if not isinstance(data, Mapping):
        raise _wrong(path, f"expected an object, found {_kind(data)}")
    if len(data) != 1:
        found = ", ".join(map(str, data)) or "nothing"
        raise _wrong(path, f"expected exactly one of {', '.join(_READERS)}, found {found}")
    ((kind, body),) = data.items()
    reader = _READERS.get(kind)
    if reader is None:
        raise _wrong(path, f"unknown kind {kind!r}{_hint(kind, _READERS)}; there are {', '.join(_READERS)}")
    if not isinstance(body, Mapping):
        raise _wrong(f"{path}.{kind}", f"expected an object, found {_kind(body)}")
    fields = _Fields(body, path)
    try:
        condition = reader(fields)
    except ConditionError as problem:
        if fields.owns(problem):
            raise
        raise _wrong(path, str(problem), text=problem.text, position=problem.position) from problem
    except RecursionError:
        raise _wrong(path, "groups nest too deep") from None
    fields.no_others()
    return condition


class _Fields:
    """The fields of one object, each taken once with the type it must have."""

    def __init__(self, body: Mapping[str, Any], path: str) -> None:
        self.body = body
        self.path = path
        self.known: set[str] = set()

    def owns(self, problem: ConditionError) -> bool:
        return str(problem).startswith(self.path)

    def take(self, name: str, type_: type | tuple[type, ...], default: Any = None) -> Any:
        self.known.add(name)
        value = self.body.get(name, default)
        wrong = not isinstance(value, type_) or (isinstance(value, bool) and type_ is not bool)
        if value is None or wrong:
            names = " or ".join(_NAMES[one] for one in (type_ if isinstance(type_, tuple) else (type_,)))
            raise _wrong(f"{self.path}.{name}", f"expected {names}, found {_kind(value)}")
        if isinstance(value, str) and not value.isascii():
            self._must_be_text(name, value)
        return value

    def _must_be_text(self, name: str, value: str) -> None:
        try:
            value.encode()
        except UnicodeEncodeError as problem:
            message = f"the character at {problem.start} is half of a surrogate pair"
            raise _wrong(f"{self.path}.{name}", message, text=value, position=problem.start) from None

    def common(self) -> dict[str, Any]:
        return {"negated": self.take("not", bool, False), "id": self.take("id", str, "")}

    def no_others(self) -> None:
        for name in self.body:
            if name not in self.known:
                known = ", ".join(sorted(self.known))
                raise _wrong(f"{self.path}.{name}", f"unknown field{_hint(name, self.known)}; there are {known}")


def _group(fields: _Fields) -> Condition:
    common = fields.common()
    written = fields.take("logic", (str, int), "And")
    try:
        logic = Logic(written) if isinstance(written, str) else _LOGICS[_not_negative(written)]
    except (ValueError, IndexError):
        known = ", ".join(f"{logic} or {number}" for number, logic in enumerate(_LOGICS))
        raise _wrong(f"{fields.path}.logic", f"expected {known}, found {written!r}") from None
    children = fields.take("group", list, [])
    path = f"{fields.path}.group"
    return Group(logic, tuple(decode(child, f"{path}[{n}]") for n, child in enumerate(children)), **common)


def _kiwi(fields: _Fields, *, tree: bool = False) -> Condition:
    return Kiwi(
        fields.take("key", str, ""),
        fields.take("pattern", str, ""),
        partial=fields.take("partial", bool, False),
        ignore_case=fields.take("ignoreCase", bool, False),
        tree=tree,
        **fields.common(),
    )


def _compare(fields: _Fields) -> Condition:
    op = fields.take("op", str, "")
    return Compare(fields.take("key", str, ""), op, fields.take("number", (int, float), 0), **fields.common())


def _exists(fields: _Fields) -> Condition:
    return Exists(fields.take("key", str, ""), **fields.common())


def _cidr(fields: _Fields) -> Condition:
    return Cidr(fields.take("key", str, ""), fields.take("network", str, ""), **fields.common())


_READERS: dict[str, Callable[[_Fields], Condition]] = {
    "groupCondition": _group,
    "kiwiCondition": _kiwi,
    "kiwiTreeCondition": lambda fields: _kiwi(fields, tree=True),
    "compareCondition": _compare,
    "existsCondition": _exists,
    "cidrCondition": _cidr,
}

_NAMES: dict[type, str] = {
    str: "text",
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    list: "a list",
}


def _not_negative(number: int) -> int:
    if number < 0:
        raise IndexError(number)
    return number


def _kind(value: object) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, Mapping):
        return "an object"
    return "a list" if isinstance(value, list) else repr(value)


def _hint(name: object, known: Mapping[str, object] | set[str]) -> str:
    near = get_close_matches(str(name), list(known), n=1)
    return f" (did you mean {near[0]!r}?)" if near else ""


def _wrong(path: str, problem: str, *, text: str = "", position: int | None = None) -> ConditionError:
    return ConditionError(f"{path}: {problem}", text=text, position=position)
