"""JSON Schemas as Connect schemas, by the rules of Confluent's JsonSchemaData."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Final

import msgspec

from turnout.codecs.json_schema.documents import Documents, Node
from turnout.codecs.json_schema.options import JsonSchemaOptions
from turnout.codecs.json_schema.values import ENUM, UNION, reader_of, union_field
from turnout.records import Field, Schema
from turnout.records.block import rows_of
from turnout.untrusted import JsonMapping, JsonObject

_MAX_TYPES: Final = 20_000
_MAX_DEPTH: Final = 64

_NUMBERS: Final = frozenset(("int8", "int16", "int32", "int64", "float32", "float64", "bytes"))
_OF_TYPE: Final = {
    "object": frozenset(("properties", "additionalProperties", "required", "minProperties", "maxProperties")),
    "array": frozenset(("items", "minItems", "maxItems", "uniqueItems")),
    "string": frozenset(("minLength", "maxLength", "pattern", "format")),
    "number": frozenset(("minimum", "maximum", "multipleOf", "exclusiveMinimum", "exclusiveMaximum")),
}
"""Keywords that imply the type of a schema without ``type``."""

_OUTER: Final = frozenset(("title", "description", "default", "connect.index", "connect.version", "connect.parameters"))
"""Words of a schema with several types that belong to it, and not to each of them."""

_COMBINED: Final = ("allOf", "anyOf", "oneOf")
_encode = msgspec.json.Encoder(decimal_format="number").encode


def connect_schema_of(documents: Documents, options: JsonSchemaOptions) -> Schema:
    """Return the Connect schema of the values of a JSON Schema.

    Raises:
        ValueError: Connect has no schema for it; says which part.
    """
    try:
        return _Types(documents, options).schema(documents.root, documents.root)
    except (TypeError, AttributeError, LookupError, RecursionError) as failure:
        raise ValueError(f"the schema is malformed: {failure}") from failure


class _Types:
    """Makes the Connect schemas of one JSON Schema."""

    def __init__(self, documents: Documents, options: JsonSchemaOptions) -> None:
        self._documents = documents
        self._options = options
        self._around: list[int] = []
        self._count = 0

    def schema(self, node: Node, document: Node, *, optional: bool = False) -> Schema:
        """Return the schema of a part of a document."""
        self._count += 1
        if self._count > _MAX_TYPES or len(self._around) > _MAX_DEPTH:
            raise ValueError(f"the schema has more than {_MAX_TYPES:,} types, or {_MAX_DEPTH} inside one another")
        if id(node) in self._around:
            raise ValueError("the schema contains itself: recursive schemas have no Connect schema here")
        self._around.append(id(node))
        try:
            return self._schema(node, document, optional=optional)
        finally:
            self._around.pop()

    def _schema(self, node: Node, document: Node, *, optional: bool) -> Schema:
        if not isinstance(node, dict):
            raise ValueError(f"expected an object as schema, found {node!r}")  # noqa: TRY004 - as all here
        if "$ref" in node:
            found, where = self._documents.resolve(node["$ref"], document)
            return self.schema(found, where, optional=optional)
        parts = self._parts(node)
        if parts is not None:
            return self._all_of(node, parts, document, optional=optional)
        for word in ("anyOf", "oneOf"):
            if word in node:
                return self._any_of(node, _list(node, word), document, optional=optional)
        types = node.get("type")
        if isinstance(types, list):
            if len(types) != 1:
                inner = {name: value for name, value in node.items() if name not in _OUTER}
                return self._any_of(node, [{**inner, "type": one} for one in types], document, optional=optional)
            types = types[0]
        return self._finished(self._bare(node, _type_of(node, types), document), node, optional=optional)

    def _parts(self, node: JsonMapping) -> list[Node] | None:
        """Return the schemas that all apply to a value; None where there is one only."""
        combined = [word for word in _COMBINED if word in node]
        others = {name: value for name, value in node.items() if name not in (*_COMBINED, *_OUTER)}
        own = any(name in others for name in ("type", "enum", "const", *_OF_TYPE["object"]))
        if combined == ["allOf"] or len(combined) > 1 or (combined and own):
            parts = [others] if own else []
            parts += _list(node, "allOf") if "allOf" in node else []
            return parts + [{word: node[word]} for word in combined if word != "allOf"]
        return None

    def _all_of(self, node: JsonMapping, parts: list[Node], document: Node, *, optional: bool) -> Schema:
        properties: dict[str, tuple[Node, Node]] = {}
        required: set[str] = set()
        leaves: list[JsonMapping] = []
        for part, where in self._flat(parts, document, 0):
            if isinstance(part.get("properties"), dict):
                properties |= {name: (inner, where) for name, inner in part["properties"].items()}
                required.update(map(str, part.get("required") or ()))
            elif part.get("type") != "object" and not part.keys() <= _OF_TYPE["object"]:
                leaves.append(part)
        if properties and not leaves:
            return self._finished(self._struct(properties, required), node, optional=optional)
        if leaves and not properties:
            merged: JsonObject = {}
            for part in leaves:
                merged = {**merged, **part}
            if not any(word in merged for word in _COMBINED) and len({str(one.get("type")) for one in leaves}) <= 2:
                return self._finished(
                    self._bare(merged, _type_of(merged, merged.get("type")), document), node, optional=optional
                )
        raise ValueError(f"allOf of these schemas has no Connect schema: {_describe(parts)}")

    def _flat(self, parts: list[Node], document: Node, depth: int) -> Iterator[tuple[JsonMapping, Node]]:
        """Yield schemas with those in the place of references and of ``allOf``."""
        if depth > _MAX_DEPTH:
            raise ValueError("the schema contains itself: recursive schemas have no Connect schema here")
        for part in parts:
            self._count += 1
            if self._count > _MAX_TYPES:
                raise ValueError(f"the schema has more than {_MAX_TYPES:,} types")
            if not isinstance(part, dict):
                raise ValueError(f"expected an object as schema, found {part!r}")  # noqa: TRY004 - as all here
            if "$ref" in part:
                found, where = self._documents.resolve(part["$ref"], document)
                yield from self._flat([found], where, depth + 1)
                continue
            inner = self._parts(part)
            if inner is None:
                yield part, document
            else:
                yield from self._flat(inner, document, depth + 1)

    def _any_of(self, node: JsonMapping, members: list[Node], document: Node, *, optional: bool) -> Schema:
        others = [member for member in members if not _is_null(member)]
        if len(members) == 2 and len(others) == 1:
            return self.schema(others[0], document, optional=True)
        if not others:
            raise ValueError("a value that can only be null has no Connect schema")
        fields = tuple(
            Field(union_field(index), self.schema(member, document, optional=True))
            for index, member in enumerate(others)
        )
        union = Schema("struct", len(others) < len(members), fields=fields)
        return self._finished(union, node, optional=optional).with_(name=UNION)

    def _bare(self, node: JsonMapping, kind: str, document: Node) -> Schema:
        """Return the schema of a value of one type, without its attributes."""
        connect = node.get("connect.type")
        if "enum" in node and kind == "string":
            symbols = [str(symbol) for symbol in _list(node, "enum")]
            return Schema("string", parameters=((ENUM, ""), *((f"{ENUM}.{symbol}", symbol) for symbol in symbols)))
        if kind in ("integer", "number"):
            if connect is not None and connect not in _NUMBERS:
                raise ValueError(f"connect.type: expected the type of a number, found {connect!r}")
            return Schema(connect or ("int64" if kind == "integer" else "float64"))
        if kind == "string":
            return Schema("bytes" if connect == "bytes" else "string")
        if kind == "boolean":
            return Schema("boolean")
        if kind == "array":
            return self._array(node, document)
        if kind == "object" and connect == "map":
            values = node.get("additionalProperties")
            if not isinstance(values, dict):
                raise ValueError("a map has no schema of its values (additionalProperties)")
            return Schema("map", keys=Schema("string"), values=self.schema(values, document))
        if kind == "object":
            properties = node.get("properties", {})
            if not isinstance(properties, dict):
                raise ValueError(f"properties: expected an object, found {properties!r}")
            required = {str(name) for name in node.get("required") or ()}
            return self._struct({name: (inner, document) for name, inner in properties.items()}, required)
        raise ValueError(f"a value of the type {kind!r} has no Connect schema")

    def _array(self, node: JsonMapping, document: Node) -> Schema:
        items = node.get("items")
        if not isinstance(items, dict):
            raise ValueError("an array has no schema of its items, or a schema for each of them")  # noqa: TRY004
        entry = items.get("properties") if node.get("connect.type") == "map" else None
        if isinstance(entry, dict) and entry.keys() >= {"key", "value"}:
            return Schema("map", keys=self.schema(entry["key"], document), values=self.schema(entry["value"], document))
        return Schema("array", values=self.schema(items, document))

    def _struct(self, properties: Mapping[str, tuple[Node, Node]], required: set[str]) -> Schema:
        loose = self._options.use_optional_for_nonrequired
        ordered = sorted(enumerate(properties.items()), key=_position)
        return Schema(
            "struct",
            fields=tuple(
                Field(name, self.schema(inner, where, optional=loose and name not in required))
                for _, (name, (inner, where)) in ordered
            ),
        )

    def _finished(self, schema: Schema, node: JsonMapping, *, optional: bool) -> Schema:
        """Return a schema with the attributes of its JSON Schema."""
        title, doc, version = node.get("title"), node.get("description"), node.get("connect.version")
        parameters = node.get("connect.parameters")
        schema_parameters = (
            tuple((str(k), str(v)) for k, v in parameters.items()) if isinstance(parameters, dict) else ()
        )
        schema = schema.with_(
            optional=schema.optional or optional,
            name=title if isinstance(title, str) else schema.name,
            doc=doc if isinstance(doc, str) else None,
            version=version if type(version) is int else None,
            parameters=(*schema.parameters, *schema_parameters),
        )
        default = node.get("default")
        if default is None or (default == "" and schema.type not in ("string", "bytes")):
            return schema
        blocks, errors = reader_of(schema).read(rows_of(1), [_encode(default)])
        if errors:
            raise ValueError(f"default: {errors[0]}")
        return schema.with_(default=blocks[0].whole()[0])


def _type_of(node: JsonMapping, declared: object) -> str:
    if isinstance(declared, str):
        return declared
    if "enum" in node:
        return "string"
    if "const" in node:
        return _type_of_value(node["const"])
    for kind, words in _OF_TYPE.items():
        if not words.isdisjoint(node):
            return kind
    raise ValueError(f"a schema without a type has no Connect schema: {_describe(node)}")


def _type_of_value(value: object) -> str:
    kinds = {bool: "boolean", int: "integer", float: "number", Decimal: "number", str: "string"}
    return kinds.get(type(value), "null" if value is None else type(value).__name__)


def _is_null(node: Node) -> bool:
    return isinstance(node, dict) and node.get("type") in ("null", ["null"])


def _position(pair: tuple[int, tuple[str, tuple[Node, Node]]]) -> int:
    at, (_, (inner, _)) = pair
    index = inner.get("connect.index") if isinstance(inner, dict) else None
    return index if type(index) is int else at


def _list(node: JsonMapping, word: str) -> list[Node]:
    found = node[word]
    if not isinstance(found, list) or not found:
        raise ValueError(f"{word}: expected a list of schemas, found {found!r}")
    return found


def _describe(node: Node) -> str:
    text = repr(node)
    return text if len(text) <= 80 else f"{text[:77]}..."
