"""Validation of values by their JSON Schema, with the ``jsonschema-rs`` library."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from turnout.base.untrusted import JsonObject
from turnout.codecs.json_schema.branches import Documents, Node
from turnout.errors import MissingExtraError, RecordError, shortened

_MAX_BACKTRACKS: Final = 100_000
"""Steps of a regular expression for a value: a schema's may be one that takes exponential time."""

_MAX_WORK: Final = 20_000
"""Schemas that one part of a value is validated by: each level of ``anyOf`` over ``$ref`` may double their number."""

_SAME: Final = ("allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas", "dependencies")
"""Keywords whose schemas are about the value itself."""

_NAMED: Final = ("properties", "patternProperties")
_INNER: Final = (
    "additionalProperties", "items", "additionalItems", "prefixItems", "contains", "unevaluatedItems",
    "unevaluatedProperties", "propertyNames",
)  # fmt: skip
_REFERENCES: Final = ("$ref", "$dynamicRef", "$recursiveRef")

Validate = Callable[[bytes], None]
"""Raises a `RecordError` where a text is no value of the schema."""


def validator_of(text: str, references: Sequence[tuple[str, str]]) -> Validate:
    """Return the validator of a schema that refers to others by these names; nothing is fetched.

    Raises:
        ValueError: it is no schema, or refers to one that is not there.
        MissingExtraError: the library is not installed.
    """
    try:
        import jsonschema_rs
    except ModuleNotFoundError as missing:
        raise MissingExtraError("jsonschema", "jsonschema-rs") from missing
    work = _Work(Documents.parse(text, references))
    by_name: dict[str, JsonObject] = {name: json.loads(other) for name, other in references}

    def retrieve(uri: str) -> JsonObject:
        name = next((name for name in by_name if uri in (name, f"json-schema:///{name}")), None)
        if name is None:
            raise ValueError(f"no schema {uri!r} among the references")
        return by_name[name]

    try:
        validator = jsonschema_rs.validator_for(
            json.loads(text),
            retriever=retrieve,
            pattern_options=jsonschema_rs.FancyRegexOptions(backtrack_limit=_MAX_BACKTRACKS),
        )
    except (ValueError, jsonschema_rs.ReferencingError) as failure:
        raise ValueError(f"values cannot be validated by the schema: {failure}") from failure

    def validate(content: bytes) -> None:
        try:
            value = json.loads(content)
        except (ValueError, RecursionError) as failure:
            raise RecordError(f"the value is no JSON: {failure}") from None
        if work.max_depth is not None and _depth(value, work.max_depth) > work.max_depth:
            raise RecordError(
                f"the value nests deeper than {work.max_depth} levels: its recursive schema validates each of them "
                "several times over"
            )
        error = next(validator.iter_errors(value), None)
        if error is not None:
            where = "".join(f".{part}" if isinstance(part, str) else f"[{part}]" for part in error.instance_path)
            raise RecordError(f"the value is not valid: {where.removeprefix('.')}: {shortened(error.message)}")

    return validate


class _Work:
    """Bounds of the work that a schema makes of a value, found before the first one.

    Attributes:
        max_depth: levels of a value up to which its validation is bounded; None for any.

    Raises:
        ValueError: a part of a value is validated by too many schemas.
    """

    def __init__(self, documents: Documents) -> None:
        self.max_depth: int | None = None
        self._documents = documents
        self._anchors = {
            node[word]: (node, document)
            for document in (documents.root, *documents.by_name.values())
            for node in _objects(document)
            for word in ("$anchor", "$dynamicAnchor", "$id")
            if isinstance(node.get(word), str)
        }
        self._known: dict[int, tuple[int, Counter[tuple[str, int]]]] = {}
        self._nodes: dict[int, tuple[Node, Node]] = {}
        self._totals: dict[int, int] = {}
        self._around: set[int] = set()
        try:
            self._total(documents.root, documents.root)
        except RecursionError:
            raise ValueError("the schema nests too deep to be validated by") from None

    def _total(self, node: Node, document: Node) -> int:
        """Return the largest number of schemas for a part of a value, from the one that *node* is about inwards."""
        key = id(node)
        if key in self._totals:
            return self._totals[key]
        self._around.add(key)
        own, inner = self._expanded(node, document, frozenset())
        by_name: Counter[str] = Counter()
        back: Counter[str] = Counter()
        for (name, child), count in inner.items():
            if child in self._around:
                back[name] += count
            else:
                by_name[name] += count * self._total(*self._nodes[child])
        if (growth := max(back.values(), default=0)) > 1:
            depth = max(1, int(math.log(_MAX_WORK) / math.log(growth)))
            self.max_depth = depth if self.max_depth is None else min(depth, self.max_depth)
        self._around.discard(key)
        total = self._totals[key] = own + max(by_name.values(), default=0)
        self._check(total)
        return total

    def _expanded(self, node: Node, document: Node, around: frozenset[int]) -> tuple[int, Counter[tuple[str, int]]]:
        """Return the number of schemas for the value itself, and how often each schema is there for its parts."""
        key = id(node)
        if key in self._known:
            return self._known[key]
        if not isinstance(node, dict):
            return 1, Counter()
        if key in around:
            raise ValueError("a schema refers to itself for the same value, without end")
        around |= {key}
        count, inner = 1, Counter[tuple[str, int]]()
        for part, where in self._same(node, document):
            more, parts = self._expanded(part, where, around)
            count += more
            inner.update(parts)
            self._check(count)
        for word in _NAMED:
            named = node.get(word)
            for name, part in named.items() if isinstance(named, dict) else ():
                self._nodes[id(part)] = part, document
                inner[name if word == "properties" else "*", id(part)] += 1
        for word in _INNER:
            for part in _schemas(node.get(word)):
                self._nodes[id(part)] = part, document
                inner["*", id(part)] += 1
        self._known[key] = count, inner
        return count, inner

    def _same(self, node: JsonObject, document: Node) -> Iterator[tuple[Node, Node]]:
        for word in _SAME:
            found = node.get(word)
            many = found.values() if word.startswith("depend") and isinstance(found, dict) else _schemas(found)
            yield from ((part, document) for part in many)
        for word in _REFERENCES:
            reference = node.get(word)
            if isinstance(reference, str):
                try:
                    yield self._documents.resolve(reference, document)
                except ValueError:
                    # An anchor, or a name of its own; what is neither is refused by the validator.
                    known = self._anchors.get(reference) or self._anchors.get(reference.rpartition("#")[2])
                    if known is not None:
                        yield known

    @staticmethod
    def _check(count: int) -> None:
        if count > _MAX_WORK:
            raise ValueError(
                f"a part of a value would be validated by more than {_MAX_WORK:,} schemas: anyOf, oneOf or allOf of "
                "the same $ref at several levels double their number at each"
            )


def _schemas(found: object) -> list[Node]:
    return found if isinstance(found, list) else [found] if isinstance(found, dict) else []


def _objects(node: object) -> Iterator[JsonObject]:
    waiting = [node]
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict):
            yield one
            waiting += one.values()
        elif isinstance(one, list):
            waiting += one


def _depth(value: object, most: int) -> int:
    """Return how many objects and arrays are inside one another, as far as one more than *most*."""
    depth, level = 0, [value]
    while level and depth <= most:
        level = [
            item
            for one in level
            if isinstance(one, dict | list)
            for item in (one.values() if isinstance(one, dict) else one)
        ]
        depth += bool(level)
    return depth
