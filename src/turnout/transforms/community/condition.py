"""Predicate ``Condition``: a condition over topic, headers, key and value, in the language of subscriptions."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Self

import yaml

from turnout.base.multivalued import ANY_KEY, metadata_key, split_kind
from turnout.base.startup import np
from turnout.base.yaml_values import load, position_of
from turnout.conditions import Condition as ConditionTree
from turnout.conditions import Group, Leaf, Logic, decode, evaluate, keys_of
from turnout.conditions.leaf import Check
from turnout.conditions.model import MAX_DEPTH
from turnout.conditions.terms import check_of, passes
from turnout.errors import ConditionError
from turnout.records import Batch
from turnout.records.field_paths import PathError, parse_path, texts_at
from turnout.records.types import DynamicValue
from turnout.transforms.base import Errors, Mask, NamedField, Predicate, Side
from turnout.transforms.options import STRING, Option, OptionError, Options


@dataclass(frozen=True, slots=True)
class Condition(Predicate):
    """See ``summary``. Not part of Connect.

    A key of the condition is ``topic`` (or ``subject``), ``key``, a path that begins with ``value.`` or ``key.``
    (dots between the steps, backticks around a step with dots, KIP-821), or else a header's name.
    """

    summary: ClassVar[str] = "True where a condition over topic, headers, key and value fields holds."
    takes_mixed: ClassVar[bool] = True
    options: ClassVar[tuple[Option, ...]] = (
        Option("when", STRING, "The condition, in the language of subscriptions, as JSON or YAML.", block=True),
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
        condition = cls.of(tree)
        try:
            for key in condition.keys:
                check_key(key)
        except PathError as error:
            raise OptionError("when", f"expected a condition: {error}") from None
        return condition

    @classmethod
    def of(cls, tree: ConditionTree) -> Self:
        """Return the predicate that a condition is."""
        return cls(tree, tuple(keys_of(tree)))

    def named_fields(self) -> Iterator[NamedField]:
        """Yield a field for each key of the condition that is a path."""
        paths = [_side_and_path(key) for key in self.keys]
        yield from (NamedField("when", Side(side.capitalize()), path) for side, path, _ in filter(None, paths) if path)

    def named_headers(self) -> Iterator[tuple[str, str]]:
        """Yield the header of each key of the condition that is one."""
        names = (key for key in self.keys if key not in ("topic", "subject") and _side_and_path(key) is None)
        return (("when", metadata_key(key)) for key in names)

    def test(self, batch: Batch, errors: Errors) -> Mask:  # noqa: ARG002 - cannot fail
        """Reads each key's texts once, and tests each leaf on each distinct text."""
        return _holds(self.tree, {key: texts_of(batch, key) for key in self.keys})


def texts_of(batch: Batch, key: str) -> Sequence[str | None]:
    """Return for each row the text of *key* in a condition; None if the row has none."""
    if key in ("topic", "subject"):
        return batch.topics
    found = _side_and_path(key)
    if found is None:
        return batch.headers.last(metadata_key(key))
    side, path, kind = found
    return texts_at(batch.key if side == "key" else batch.value, path, len(batch), kind)


def check_key(key: str) -> None:
    """Raise for a key of a condition that is no path.

    Raises:
        PathError: a backtick in it is never closed, or it tests all values, which only subscriptions' metadata has.
    """
    if key == ANY_KEY:
        raise PathError("the key * tests the metadata of subscriptions; here name topic, key, value.… or a header")
    _side_and_path(key)


def _side_and_path(key: str) -> tuple[str, tuple[str, ...], str] | None:
    """Return the side, the path and the kind that a key names, None where it is a header's name."""
    key, kind = split_kind(key)
    side, dot, path = key.partition(".")
    if side in ("key", "value") and (path or not dot):
        return side, parse_path(path), kind
    return None


def _holds(condition: ConditionTree, texts: Mapping[str, Sequence[str | None]]) -> Mask:
    if not isinstance(condition, Group):
        if len(condition.keys) > 1:
            return _together(condition, list(zip(*(texts[key] for key in condition.keys), strict=True)))
        check = check_of(condition)
        return _passing(check, texts[check.key])
    masks = [_holds(child, texts) for child in condition.children]
    match condition.logic:
        case Logic.AND:
            holds: Mask = np.logical_and.reduce(masks)
        case Logic.OR:
            holds = np.logical_or.reduce(masks)
        case Logic.XOR:
            holds = np.sum(masks, axis=0) == 1
    return ~holds if condition.negated else holds


def _passing(check: Check, texts: Sequence[str | None]) -> Mask:
    answers = {text: text is not None and passes(check, text) for text in set(texts)}
    holds = np.fromiter(map(answers.__getitem__, texts), np.bool_, len(texts))
    return ~holds if check.negated else holds


def _together(leaf: Leaf, rows: Sequence[tuple[str | None, ...]]) -> Mask:
    """Return where a leaf about several keys, whose texts each row has, is true."""
    answers = {
        row: evaluate(leaf, {key: text for key, text in zip(leaf.keys, row, strict=True) if text is not None})
        for row in set(rows)
    }
    return np.fromiter(map(answers.__getitem__, rows), np.bool_, len(rows))


_MAX_YAML_DEPTH = 3 * MAX_DEPTH + 10
"""Blocks inside one another in the long form: three for each group."""

_SHORT_GROUPS = {"all": "And", "any": "Or", "xor": "Xor"}
_OPERATORS = ("<", "<=", "=", ">=", ">")


def decode_condition(text: str | None) -> ConditionTree:
    """Return the condition that *text* is, in its JSON form or in the short one that is easier to write.

    Short: ``{key: value.distance, ">": 1000}``, ``{key: carrier, pattern: "A*"}``, ``{key: x, exists: true}``,
    ``{all: […]}``, ``{any: […]}``, ``{xor: […]}``, ``{not: …}``.

    Raises:
        ConditionError: when it is neither.
    """
    try:
        document = load(text or "", max_depth=_MAX_YAML_DEPTH)
    except yaml.YAMLError as error:
        problem, _ = position_of(error)
        raise ConditionError(f"neither JSON nor YAML: {problem}", text=text or "") from None
    return decode(_long_form(document))


def _long_form(document: object) -> dict[str, DynamicValue]:
    """Return the JSON that the condition package reads, of a condition in the short form; the long form passes."""
    if not isinstance(document, dict):
        raise ConditionError(f"expected a mapping, found {json.dumps(document, default=str)}")
    for short, logic in _SHORT_GROUPS.items():
        if short in document:
            _only(document, short)
            if not isinstance(document[short], list):
                found = json.dumps(document[short], default=str)
                raise ConditionError(f"{short}: expected a list of conditions, found {found[:60]}")
            return {"groupCondition": {"logic": logic, "group": [_long_form(child) for child in document[short]]}}
    if "not" in document and "key" not in document:
        _only(document, "not")
        inner = _long_form(document["not"])
        (kind, body), *_rest = inner.items()
        return {kind: {**body, "not": not body.get("not", False)}}
    return _long_leaf(document) if "key" in document else document


def _only(document: dict[str, object], name: str) -> None:
    if len(document) != 1:
        raise ConditionError(f"expected {name!r} without other keys, found {', '.join(map(str, document))}")


def _long_leaf(document: dict[str, DynamicValue]) -> dict[str, DynamicValue]:
    common = {"key": document["key"], **({"not": True} if document.get("not") is True else {})}
    rest = {name: value for name, value in document.items() if name not in ("key", "not")}
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
    """Return a wildcard pattern that matches only *text*."""
    return "".join("\\" + char if char in "*?\\" else char for char in text)
