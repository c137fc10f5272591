"""The predicates: Connect's three, and those that its users ask for."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import yaml

from turnout.conditions import Condition as ConditionTree
from turnout.conditions import decode, leaves
from turnout.errors import ConditionError
from turnout.transforms.base import Predicate
from turnout.transforms.checks import java_regex, non_empty
from turnout.transforms.options import Option, OptionError, Options

__all__ = [
    "Condition",
    "HasHeaderKey",
    "RecordIsTombstone",
    "SubjectMatches",
    "TopicNameMatches",
]


def _pattern(value: str | None) -> str | None:
    return non_empty(value) or java_regex(value)


@dataclass(frozen=True, slots=True)
class TopicNameMatches(Predicate):
    """See ``summary``."""

    summary: ClassVar[str] = "True where the whole topic matches a Java regular expression."
    options: ClassVar[tuple[Option, ...]] = (
        Option("pattern", "STRING", "The expression.", check=_pattern, valid="java.util.regex, not empty"),
    )

    pattern: str = ""


@dataclass(frozen=True, slots=True)
class HasHeaderKey(Predicate):
    """See ``summary``."""

    summary: ClassVar[str] = "True where at least one header has this name."
    options: ClassVar[tuple[Option, ...]] = (
        Option("name", "STRING", "The header's name.", check=non_empty, valid="not empty"),
    )

    name: str = ""


@dataclass(frozen=True, slots=True)
class RecordIsTombstone(Predicate):
    """See ``summary``."""

    summary: ClassVar[str] = "True where the value is null."


@dataclass(frozen=True, slots=True)
class SubjectMatches(Predicate):
    """See ``summary``. Connect has no such predicate."""

    summary: ClassVar[str] = "True where the topic matches a NATS subject filter with * and >."
    options: ClassVar[tuple[Option, ...]] = (
        Option("subject", "STRING", "The filter.", check=non_empty, valid="a NATS subject filter"),
    )

    subject: str = ""


@dataclass(frozen=True, slots=True)
class Condition(Predicate):
    """See ``summary``. Connect has no such predicate.

    A key of the condition is ``topic`` (or ``subject``), ``key``, a path that begins with ``value.`` or ``key.``
    (dots between the steps, backticks around a step with dots, KIP-821), or else a header's name.
    """

    summary: ClassVar[str] = "True where a condition over topic, headers, key and value fields holds."
    options: ClassVar[tuple[Option, ...]] = (
        Option("when", "STRING", "The condition, in the language of subscriptions, as JSON or YAML."),
    )

    tree: ConditionTree
    keys: tuple[str, ...] = field(default=())

    @classmethod
    def from_options(cls, options: Options) -> Self:
        """Read the condition."""
        try:
            tree = decode_condition(options["when"])
        except ConditionError as error:
            raise OptionError("when", f"expected a condition: {error}") from None
        return cls(tree, tuple(dict.fromkeys(leaf.key for leaf in leaves(tree))))


_SHORT_GROUPS = {"all": "And", "any": "Or", "xor": "Xor"}
_SHORT_LEAVES = {
    "pattern": "kiwiCondition",
    "equals": "kiwiCondition",
    "exists": "existsCondition",
    "cidr": "cidrCondition",
    "op": "compareCondition",
}
_OPERATORS = ("<", "<=", "=", ">=", ">")


def decode_condition(text: str | None) -> ConditionTree:
    """The condition that *text* is, in its JSON form or in the short one that is easier to write.

    Short: ``{key: value.distance, ">": 1000}``, ``{key: carrier, pattern: "A*"}``, ``{key: x, exists: true}``,
    ``{all: […]}``, ``{any: […]}``, ``{xor: […]}``, ``{not: …}``.

    Raises:
        ConditionError: when it is neither.
    """
    try:
        found = yaml.safe_load(text or "")
    except yaml.YAMLError as error:
        raise ConditionError(f"neither JSON nor YAML: {error}", text=text or "") from None
    return decode(_long_form(found))


def _long_form(found: Any) -> dict[str, Any]:
    """The JSON that the condition package reads, of a condition in the short form; the long form passes."""
    if not isinstance(found, dict):
        raise ConditionError(f"expected a mapping, found {json.dumps(found, default=str)}")
    for short, logic in _SHORT_GROUPS.items():
        if short in found:
            _only(found, short)
            return {"groupCondition": {"logic": logic, "group": [_long_form(child) for child in found[short]]}}
    if "not" in found and "key" not in found:
        _only(found, "not")
        inner = _long_form(found["not"])
        (kind, body), *_rest = inner.items()
        return {kind: {**body, "not": not body.get("not", False)}}
    return _long_leaf(found) if "key" in found else found


def _only(found: dict[str, Any], name: str) -> None:
    if len(found) != 1:
        raise ConditionError(f"expected {name!r} to stand alone, found {', '.join(map(str, found))}")


def _long_leaf(found: dict[str, Any]) -> dict[str, Any]:
    common = {"key": found["key"], **({"not": True} if found.get("not") is True else {})}
    rest = {name: value for name, value in found.items() if name not in ("key", "not")}
    operator = next((name for name in rest if name in _OPERATORS), None)
    if operator is not None:
        return {"compareCondition": {**common, "op": operator, "number": rest[operator]}}
    if "exists" in rest:
        common = common if rest["exists"] else {**common, "not": not common.get("not", False)}
        return {"existsCondition": common}
    if "equals" in rest:
        return {"kiwiCondition": {**common, "pattern": _escape(str(rest["equals"]))}}
    if "cidr" in rest:
        return {"cidrCondition": {**common, "network": rest["cidr"]}}
    return {"kiwiCondition": {**common, **rest}}


def _escape(text: str) -> str:
    """A wildcard pattern that matches only *text*."""
    return "".join("\\" + char if char in "*?\\" else char for char in text)
