"""JSON values of JsonSchemaData: unions as the value alone, and maps with other keys as lists of key and value.

Of a union, the schema that a value has is found among its branches.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import partial
from typing import Any, Final, TypeAlias
from urllib.parse import unquote, urldefrag, urljoin

import msgspec
import numpy as np
from msgspec import UNSET

from turnout.base.untrusted import JsonMapping
from turnout.codecs.codec import Decoded
from turnout.codecs.json_nodes import JsonType, Misfit, Node, Slow, each, json_of, json_text, slow_node, wire_leaf
from turnout.codecs.json_reading import Reader
from turnout.codecs.json_writing import Form, wire_form
from turnout.errors import RecordError
from turnout.records import Block, Positions, Schema, Struct
from turnout.records.types import Column, DynamicValue, Entries, NewColumn

SchemaNode: TypeAlias = Any
"""A schema inside a document: an object, true or false."""

_MAX_TEXT: Final = 4 << 20

parsed = msgspec.json.Decoder(float_hook=Decimal).decode
"""Fractions as they are written: a decimal's default has its scale by that."""


@dataclass(frozen=True, slots=True)
class Documents:
    """Schema with its references.

    Attributes:
        root: the schema.
        by_name: the others, by the names of the references and by their ``$id``.
    """

    root: SchemaNode
    by_name: Mapping[str, SchemaNode]

    @classmethod
    def parse(cls, text: str, references: Sequence[tuple[str, str]] = ()) -> Documents:
        """Read the text of a schema, and those of the schemas that it refers to by name.

        Raises:
            ValueError: one of them is no JSON, or they are too long.
        """
        if len(text) + sum(len(other) for _, other in references) > _MAX_TEXT:
            raise ValueError(f"expected a schema of at most {_MAX_TEXT:,} characters")
        root = _json(text, "the schema")
        by_name: dict[str, SchemaNode] = {}
        for name, other in references:
            document = _json(other, f"the schema {name!r}")
            by_name[name] = document
            by_name.setdefault(_id_of(document), document)
        by_name.setdefault(_id_of(root), root)
        return cls(root, by_name)

    def resolve(self, reference: object, document: SchemaNode) -> tuple[SchemaNode, SchemaNode]:
        """Return the schema that a ``$ref`` of a document names, and the document that it is in.

        Raises:
            ValueError: there is none.
        """
        if not isinstance(reference, str):
            raise ValueError(f"$ref: expected a text, found {reference!r}")  # noqa: TRY004 - as all here
        address, pointer = urldefrag(reference)
        found = document if not address else self._document(address, document)
        if pointer and not pointer.startswith("/"):
            raise ValueError(f"$ref: expected a name or a JSON pointer, found {reference!r}")
        node = found
        for part in pointer.split("/")[1:]:
            name = unquote(part).replace("~1", "/").replace("~0", "~")
            try:
                node = node[int(name)] if isinstance(node, list) else node[name]
            except (LookupError, TypeError, ValueError):
                raise ValueError(f"$ref: {reference!r} names no schema") from None
        return node, found

    def _document(self, address: str, document: SchemaNode) -> SchemaNode:
        for name in (address, urljoin(_id_of(document), address)):
            if name in self.by_name:
                return self.by_name[name]
        names = ", ".join(sorted(name for name in self.by_name if name)) or "none"
        raise ValueError(f"$ref: no schema {address!r} among the references (there are: {names})")


def _json(text: str, what: str) -> SchemaNode:
    try:
        return parsed(text)
    except (ValueError, RecursionError) as failure:
        raise ValueError(f"{what} is no JSON: {failure}") from failure


def _id_of(document: SchemaNode) -> str:
    name = document.get("$id") if isinstance(document, dict) else None
    return name if isinstance(name, str) else ""


UNION: Final = "io.confluent.connect.json.OneOf"
_INTEGERS: Final = frozenset(("int8", "int16", "int32", "int64"))
_FLOATS: Final = frozenset(("float32", "float64"))
_LONG: Final = 1 << 63
_MAX_RULES: Final = 20_000
_MAX_DEPTH: Final = 64

_Fits: TypeAlias = Callable[[JsonType], bool]
_Rank: TypeAlias = tuple[bool, int]
"""Validity of a value by a schema, as far as it is examined, and the number of its names that the schema has."""


def union_field(index: int) -> str:
    """Return the name of a union's field."""
    return f"{UNION}.field.{index}"


def is_union(schema: Schema) -> bool:
    """Return True for the struct that a ``oneOf`` or ``anyOf`` becomes."""
    return schema.type == "struct" and schema.name == UNION


def has_entries(schema: Schema) -> bool:
    """Return True for a map that JSON has as a list: its keys are no texts, or may be null."""
    return schema.type == "map" and schema.keys is not None and (schema.keys.type != "string" or schema.keys.optional)


class Branches:
    """Choice among the schemas of unions.

    JsonSchemaData takes the first schema of the value's JSON type, and of objects the one that has most of the value's
    names. Here a schema that excludes the value by ``const``, ``enum``, ``required``, ``type`` or
    ``additionalProperties: false``, at any depth, comes after all others.
    """

    def __init__(self) -> None:
        # By the identity of the fields: copies of a union with other attributes share them.
        self._fits: dict[int, tuple[Sequence[object], list[_Fits]]] = {}
        self._count = 0

    def add(self, union: Schema, members: Sequence[SchemaNode], documents: Documents, document: SchemaNode) -> None:
        """Add the schemas of a union's fields, as parts of a document.

        Raises:
            ValueError: they have too many parts.
        """
        fits = [self._rule(documents, member, document, 0) for member in members]
        self._fits[id(union.fields)] = (union.fields, fits)

    def choose(self, union: Schema, value: JsonType) -> int | None:
        """Return the index of the field whose schema a value has; None if no schema has its JSON type."""
        return self._ranked(union, value)[0]

    def _ranked(self, union: Schema, value: JsonType) -> tuple[int | None, _Rank]:
        _, fits = self._fits.get(id(union.fields), ((), []))
        chosen: int | None = None
        best: _Rank = (False, -1)
        for index, field in enumerate(union.fields):
            names = self._matching(field.schema, value)
            rank = (index >= len(fits) or fits[index](value), names)
            if names >= 0 and (chosen is None or rank > best):
                chosen, best = index, rank
        return chosen, best

    def _matching(self, schema: Schema, value: JsonType) -> int:
        """Return how many names of a value the schema has, 0 for other values than objects; -1 for another type."""
        if is_union(schema):
            return self._ranked(schema, value)[1][1]
        if schema.type == "struct" and isinstance(value, dict):
            return sum(field.name in value for field in schema.fields)
        return 0 if _is_of(schema, value) else -1

    def _rule(self, documents: Documents, node: SchemaNode, document: SchemaNode, depth: int) -> _Fits:
        self._count += 1
        if self._count > _MAX_RULES:
            raise ValueError(f"the schemas of oneOf and anyOf have more than {_MAX_RULES:,} parts")
        if not isinstance(node, dict) or depth > _MAX_DEPTH:
            return lambda _: node is not False
        if "$ref" in node:
            return self._rule(documents, *documents.resolve(node["$ref"], document), depth + 1)

        def inner(part: SchemaNode) -> _Fits:
            return self._rule(documents, part, document, depth + 1)

        rules = [*_scalar_rules(node), *_container_rules(node, inner)]
        for word, combine in (("allOf", all), ("anyOf", any), ("oneOf", any)):
            parts = node.get(word)
            if isinstance(parts, list) and parts:
                rules.append(_combined(combine, [inner(part) for part in parts]))
        return _combined(all, rules)


def _combined(combine: Callable[[Sequence[bool] | map[bool]], bool], rules: list[_Fits]) -> _Fits:
    return lambda value: combine(map(lambda rule: rule(value), rules))  # noqa: C417 - lazy


def _scalar_rules(node: JsonMapping) -> list[_Fits]:
    rules: list[_Fits] = []
    if "const" in node:
        rules.append(_one_of([node["const"]]))
    if isinstance(node.get("enum"), list):
        rules.append(_one_of(node["enum"]))
    types = node.get("type")
    types = [types] if isinstance(types, str) else types
    if isinstance(types, list):
        names = frozenset(map(str, types))
        rules.append(lambda value: not names.isdisjoint(types_of(value)))
    return rules


def _container_rules(node: JsonMapping, inner: Callable[[SchemaNode], _Fits]) -> list[_Fits]:
    rules: list[_Fits] = []
    properties = node.get("properties")
    properties = properties if isinstance(properties, dict) else {}
    required = node.get("required")
    required = frozenset(map(str, required)) if isinstance(required, list) else frozenset()
    if required:
        rules.append(lambda value: not isinstance(value, dict) or required <= value.keys())
    if properties:
        parts = {name: inner(part) for name, part in properties.items()}
        rules.append(
            lambda value: (
                not isinstance(value, dict) or all(rule(value[name]) for name, rule in parts.items() if name in value)
            )
        )
    if node.get("additionalProperties") is False and "patternProperties" not in node:
        rules.append(lambda value: not isinstance(value, dict) or value.keys() <= properties.keys())
    if isinstance(node.get("items"), dict):
        item = inner(node["items"])
        rules.append(lambda value: not isinstance(value, list) or all(map(item, value)))
    return rules


def _one_of(allowed: Sequence[JsonType]) -> _Fits:
    strings = frozenset(one for one in allowed if isinstance(one, str))
    texts = frozenset(_canonical(one) for one in allowed if not isinstance(one, str))
    sizes = {len(one) for one in allowed if isinstance(one, dict | list)}

    def fits(value: JsonType) -> bool:
        if isinstance(value, str):
            return value in strings
        # A large value is not written for each of many schemas that have small ones.
        if isinstance(value, dict | list) and len(value) not in sizes:
            return False
        return _canonical(value) in texts

    return fits


def _canonical(value: JsonType) -> str:
    """Return a text that equal values of JSON share: 1 is 1.0, and no boolean."""
    return json.dumps(_plain(value), sort_keys=True)


def _plain(value: JsonType) -> JsonType:
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, float | Decimal):
        return int(value) if value == value.__floor__() else float(value)
    return value


def types_of(value: JsonType) -> tuple[str, ...]:
    """Return JSON Schema's types of a value: an integer is a number too.

    >>> types_of(2.0), types_of(True), types_of(None)
    (('integer', 'number'), ('boolean',), ('null',))
    """
    if isinstance(value, bool):
        return ("boolean",)
    if isinstance(value, int | float | Decimal):
        return ("integer", "number") if value == value.__floor__() else ("number",)
    names = (("string", str), ("object", dict), ("array", list))
    return (next((name for name, kind in names if isinstance(value, kind)), "null"),)


def _is_of(schema: Schema, value: JsonType) -> bool:
    """Return whether a value is of a schema by its JSON type."""
    kind = schema.type
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if kind == "bytes":
        return isinstance(value, str) or (schema.logical is not None and number)
    if kind in _INTEGERS:
        return number and value == value.__floor__() and -_LONG <= value < _LONG
    if kind in _FLOATS:
        return number
    if kind == "map":
        return isinstance(value, list if has_entries(schema) else dict)
    return isinstance(value, {"boolean": bool, "string": str, "array": list}.get(kind, ()))


class UnionReader:
    """Reader of values that are of one of several schemas: each is read with its own, and has no form of the union.

    A transform then sees the fields of an event and not those of Connect's struct of a union.

    Args:
        schema: Connect's struct of the union.
        branches: the choice among its schemas.
        reader_of: the reader of values of one schema.
    """

    def __init__(self, schema: Schema, branches: Branches, reader_of: Callable[[Schema], Reader | UnionReader]) -> None:
        self.schema = schema
        self._branches = branches
        self._readers = [reader_of(field.schema.with_(optional=False)) for field in schema.fields]

    @property
    def schemas(self) -> list[Schema]:
        """Connect schemas of values, with that of the union for nulls."""
        return [self.schema, *(schema for reader in self._readers for schema in schemas_of(reader))]

    def read(self, rows: Positions, texts: Sequence[bytes]) -> Decoded:
        """See `turnout.codecs.json_reading.Reader.read`."""
        errors: dict[int, RecordError] = {}
        by_branch: dict[int | None, list[int]] = {}
        for index, text in enumerate(texts):
            try:
                by_branch.setdefault(self._choose(text), []).append(index)
            except Misfit as misfit:
                errors[int(rows[index])] = RecordError(f"the value is not of its schema: {misfit}")
        blocks: list[Block] = []
        for branch, indices in by_branch.items():
            where = rows[np.array(indices, np.intp)]
            if branch is None:
                blocks.append(Block(where, self.schema))
                continue
            more, failed = self._readers[branch].read(where, [texts[index] for index in indices])
            blocks += more
            errors |= failed
        return blocks, errors

    def _choose(self, text: bytes) -> int | None:
        try:
            value = json_of(text)
        except (ValueError, RecursionError):
            value = json_of(json_text(text))
        if value is None and self.schema.optional:
            return None
        branch = self._branches.choose(self.schema, value)
        if branch is None:
            raise Misfit("a value of one of the schemas of oneOf", text)
        return branch


def schemas_of(reader: Reader | UnionReader) -> list[Schema]:
    """Return the Connect schemas that the values of a reader may have."""
    return reader.schemas if isinstance(reader, UnionReader) else [reader.schema]


NAMESPACE: Final = "io.confluent.connect.json"
ENUM: Final = f"{NAMESPACE}.Enum"

_items = msgspec.json.Decoder(list[msgspec.Raw]).decode
_entry = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def reader_of(schema: Schema, branches: Branches) -> Reader | UnionReader:
    """Return the reader of values of a schema.

    Raises:
        ValueError: the schema is not one.
    """
    if is_union(schema):
        return UnionReader(schema, branches, partial(reader_of, branches=branches))
    return Reader.of(schema, _leaf, partial(_composite, branches))


def form_of(schema: Schema | None, *, numeric: bool) -> Form:
    """Return how values of a schema are written."""
    return wire_form(schema, defaults=True, numeric=numeric, composite=_composite_form)


def field_form_of(schema: Schema | None, *, numeric: bool) -> Form:
    """Return how a field of an object is written: one that may be absent is omitted where it has no value."""
    return _omitting(schema, form_of(schema, numeric=numeric))


def _omitting(schema: Schema | None, form: Form) -> Form:
    if schema is None or not schema.omissible:
        return form
    convert = form.column

    def column(values: Column) -> Column:
        if None not in values:
            return values if convert is None else convert(values)
        present = [value for value in values if value is not None]
        converted = iter(present if convert is None or not present else convert(present))
        return [UNSET if value is None else next(converted) for value in values]

    return Form(column, form.free, form.whole)


def _leaf(schema: Schema, digits: int) -> Node:
    """Read a primitive value; other than JsonConverter's, whole numbers may have a fraction of zero."""
    node = wire_leaf(schema, digits)
    if schema.type in _INTEGERS:
        return replace(node, slow=_whole(node.slow))
    if schema.type == "string":
        return replace(node, slow=_text)
    return node


def _whole(read: Slow) -> Slow:
    def slow(text: bytes) -> DynamicValue:
        try:
            number = json_of(text)
        except (ValueError, RecursionError):
            number = None
        if type(number) is float and number.is_integer():
            return read(str(int(number)).encode())
        return read(text)

    return slow


def _text(text: bytes) -> str:
    if text[:1] != b'"':
        raise Misfit("a text", text)
    try:
        return str(json_of(text))
    except ValueError:
        raise Misfit("a text", text) from None


def _composite(branches: Branches, schema: Schema, inner: Callable[[Schema], Node]) -> Node | None:
    if is_union(schema):
        return slow_node(_union(branches, schema, inner))
    if has_entries(schema):
        assert schema.keys is not None
        if schema.values is None:
            raise ValueError("expected the schema of the map's elements, found none")
        return slow_node(_entries(inner(schema.keys), inner(schema.values)))
    return None


def _union(branches: Branches, schema: Schema, inner: Callable[[Schema], Node]) -> Slow:
    members = [(field.name, inner(field.schema)) for field in schema.fields]
    absent = dict.fromkeys(name for name, _ in members)

    def read(text: bytes) -> Entries:
        try:
            value = json_of(text)
        except (ValueError, RecursionError):
            raise Misfit("JSON", text) from None
        branch = branches.choose(schema, value)
        if branch is None:
            raise Misfit("a value of one of the schemas of oneOf", text)
        name, node = members[branch]
        return {**absent, name: node.slow(text)}

    return read


def _entries(key: Node, item: Node) -> Slow:
    def read(text: bytes) -> Entries:
        values = {}
        try:
            entries = [_entry(raw) for raw in _items(text)]
        except (ValueError, RecursionError):
            raise Misfit("a list of objects with key and value", text) from None
        for at, entry in enumerate(entries):
            if entry.keys() != {"key", "value"}:
                raise Misfit("a list of objects with key and value", text)
            try:
                values[key.slow(bytes(entry["key"]))] = item.slow(bytes(entry["value"]))
            except Misfit as misfit:
                misfit.path.insert(0, f"[{at}]")
                raise
            except TypeError:
                raise Misfit("a key that can be looked up", bytes(entry["key"])) from None
        return values

    return read


def _composite_form(schema: Schema, form: Callable[[Schema | None], Form]) -> Form | None:
    if is_union(schema):
        members = {field.name: form(field.schema) for field in schema.fields}
        return Form(each(partial(_chosen, members)), any(member.free for member in members.values()), whole=True)
    if schema.type == "struct":
        fields = {field.name: _omitting(field.schema, form(field.schema)) for field in schema.fields}
        return Form(each(partial(_object, fields)), any(field.free for field in fields.values()))
    if has_entries(schema):
        keys, items = form(schema.keys), form(schema.values)
        return Form(each(partial(_as_list, keys, items)), items.free)
    return None


def _object(fields: dict[str, Form], value: DynamicValue) -> Entries:
    """Return the fields of a struct that are not omitted."""
    values = value.fields if isinstance(value, Struct) else value
    found = {name: _converted(form, [values.get(name)])[0] for name, form in fields.items()}
    return {name: item for name, item in found.items() if item is not UNSET}


def _chosen(members: dict[str, Form], value: DynamicValue) -> DynamicValue:
    """Return the first value of a union that is set."""
    fields = value.fields if isinstance(value, Struct) else value
    for name, form in members.items():
        if fields.get(name) is not None:
            return _converted(form, [fields[name]])[0]
    return None


def _as_list(keys: Form, items: Form, value: Entries) -> NewColumn:
    names, values = _converted(keys, list(value)), _converted(items, list(value.values()))
    return [{"key": name, "value": item} for name, item in zip(names, values, strict=True)]


def _converted(form: Form, values: NewColumn) -> NewColumn:
    return values if form.column is None else list(form.column(values))
