"""JSON Schemas as Connect schemas, by the rules of Confluent's JsonSchemaData."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from turnout.base.untrusted import JsonMapping, JsonObject
from turnout.codecs.json_schema.kind import JsonSchemaOptions
from turnout.codecs.json_schema.values import (
    ENUM,
    UNION,
    Branches,
    Documents,
    SchemaNode,
    is_union,
    reader_of,
    types_of,
    union_field,
)
from turnout.records import Field, Schema
from turnout.records.block import rows_of

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


def connect_schema_of(documents: Documents, options: JsonSchemaOptions, branches: Branches | None = None) -> Schema:
    """Return the Connect schema of the values of a JSON Schema.

    Args:
        documents: the JSON Schema.
        options: options of the mapping to Connect.
        branches: gets the schemas of the unions.

    Raises:
        ValueError: Connect has no schema for it; says which part.
    """
    try:
        return _Types(documents, options, branches or Branches()).schema(documents.root, documents.root)
    except (TypeError, AttributeError, LookupError, RecursionError) as failure:
        raise ValueError(f"the schema is malformed: {failure}") from failure


class _Types:
    """Makes the Connect schemas of one JSON Schema."""

    def __init__(self, documents: Documents, options: JsonSchemaOptions, branches: Branches) -> None:
        self._documents = documents
        self._options = options
        self._branches = branches
        self._around: list[int] = []
        self._count = 0

    def schema(self, node: SchemaNode, document: SchemaNode, *, optional: bool = False) -> Schema:
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

    def _schema(self, node: SchemaNode, document: SchemaNode, *, optional: bool) -> Schema:
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
        types = node.get("type", _types_of_enum(node))
        if isinstance(types, list):
            if len(types) != 1:
                inner = {name: value for name, value in node.items() if name not in _OUTER}
                members = [{**inner, "type": one} for one in types]
                return self._any_of(node, members, document, optional=optional)
            types = types[0]
        return self._finished(self._bare(node, _type_of(node, types), document), node, optional=optional)

    def _parts(self, node: JsonMapping) -> list[SchemaNode] | None:
        """Return the schemas that all apply to a value; None where there is one only."""
        combined = [word for word in _COMBINED if word in node]
        others = {name: value for name, value in node.items() if name not in (*_COMBINED, *_OUTER)}
        own = any(name in others for name in ("type", "enum", "const", *_OF_TYPE["object"]))
        if combined == ["allOf"] or len(combined) > 1 or (combined and own):
            parts = [others] if own else []
            parts += _list(node, "allOf") if "allOf" in node else []
            return parts + [{word: node[word]} for word in combined if word != "allOf"]
        return None

    def _all_of(self, node: JsonMapping, parts: list[SchemaNode], document: SchemaNode, *, optional: bool) -> Schema:
        properties: dict[str, list[tuple[SchemaNode, SchemaNode]]] = {}
        required: set[str] = set()
        leaves: list[JsonMapping] = []
        unions: list[tuple[JsonMapping, SchemaNode]] = []
        for part, where in self._flat(parts, document, 0):
            if any(word in part for word in _COMBINED):
                unions.append((part, where))
            elif isinstance(part.get("properties"), dict):
                properties |= {name: [(inner, where)] for name, inner in part["properties"].items()}
                required.update(map(str, part.get("required") or ()))
            elif not _is_object(part) and _has_type(part):
                leaves.append(part)
            optional = optional or (isinstance(part.get("type"), list) and "null" in part["type"])
        if not leaves and len(unions) == 1 and not properties and not any(map(_is_object, parts)):
            return self.schema(*unions[0], optional=optional)
        others = self._alternatives(unions)
        if others is not None:
            properties = {**others, **properties} if others else properties
            if properties and not leaves:
                return self._finished(self._struct(properties, required), node, optional=optional)
            if leaves and not properties and len({str(one.get("type")) for one in leaves}) <= 2:
                merged: JsonObject = {}
                for part in leaves:
                    merged = {**merged, **part}
                bare = self._bare(merged, _type_of(merged, merged.get("type")), document)
                return self._finished(bare, node, optional=optional)
        raise ValueError(f"allOf of these schemas has no Connect schema: {_describe(parts)}")

    def _alternatives(
        self, unions: list[tuple[JsonMapping, SchemaNode]]
    ) -> dict[str, list[tuple[SchemaNode, SchemaNode]]] | None:
        """Return the properties of the schemas of unions beside ``properties``; None if one is not of objects."""
        properties: dict[str, list[tuple[SchemaNode, SchemaNode]]] = {}
        for union, document in unions:
            members = [member for word in ("anyOf", "oneOf") if word in union for member in _list(union, word)]
            for part, where in self._flat(members, document, 0):
                if any(word in part for word in _COMBINED):
                    inner = self._alternatives([(part, where)])
                    if inner is None:
                        return None
                    for name, found in inner.items():
                        properties.setdefault(name, []).extend(found)
                elif isinstance(part.get("properties"), dict):
                    for name, property_ in part["properties"].items():
                        properties.setdefault(name, []).append((property_, where))
                elif not _is_object(part) and _has_type(part):
                    return None
        return properties

    def _flat(
        self, parts: list[SchemaNode], document: SchemaNode, depth: int
    ) -> Iterator[tuple[JsonMapping, SchemaNode]]:
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

    def _any_of(self, node: JsonMapping, members: list[SchemaNode], document: SchemaNode, *, optional: bool) -> Schema:
        others = [member for member in members if not _is_null(member)]
        if len(members) == 2 and len(others) == 1:
            return self.schema(others[0], document, optional=True)
        if not others:
            raise ValueError("a value that can only be null has no Connect schema")
        found = [self.schema(member, document) for member in others]
        nullable = len(others) < len(members) or any(schema.optional for schema in found)
        fields = tuple(Field(union_field(index), schema.with_(optional=True)) for index, schema in enumerate(found))
        union = Schema("struct", nullable, name=UNION, fields=fields)
        self._branches.add(union, others, self._documents, document)
        return self._finished(union, node, optional=optional).with_(name=UNION)

    def _bare(self, node: JsonMapping, kind: str, document: SchemaNode) -> Schema:
        """Return the schema of a value of one type, without its attributes."""
        connect = node.get("connect.type")
        if "enum" in node and kind == "string":
            symbols = [symbol for symbol in _list(node, "enum") if isinstance(symbol, str)]
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
            return self._struct({name: [(inner, document)] for name, inner in properties.items()}, required)
        raise ValueError(f"a value of the type {kind!r} has no Connect schema")

    def _array(self, node: JsonMapping, document: SchemaNode) -> Schema:
        items = node.get("items")
        if not isinstance(items, dict):
            raise ValueError("an array has no schema of its items, or a schema for each of them")  # noqa: TRY004
        entry = items.get("properties") if node.get("connect.type") == "map" else None
        if isinstance(entry, dict) and entry.keys() >= {"key", "value"}:
            return Schema("map", keys=self.schema(entry["key"], document), values=self.schema(entry["value"], document))
        return Schema("array", values=self.schema(items, document))

    def _struct(self, properties: Mapping[str, Sequence[tuple[SchemaNode, SchemaNode]]], required: set[str]) -> Schema:
        """Return the schema of an object; a property with several schemas has any of them."""
        loose = self._options.use_optional_for_nonrequired
        fields = []
        for _, (name, found) in sorted(enumerate(properties.items()), key=_position):
            schema = self._property(found)
            if name not in required:
                absent = not schema.optional and schema.default is None
                schema = schema.with_(optional=schema.optional or loose, omissible=absent)
            fields.append(Field(name, schema))
        return Schema("struct", fields=tuple(fields))

    def _property(self, found: Sequence[tuple[SchemaNode, SchemaNode]]) -> Schema:
        schemas = list(dict.fromkeys(self.schema(node, document) for node, document in found))
        kinds = {schema.type for schema in schemas}
        if len(schemas) == 1:
            return schemas[0]
        optional = any(schema.optional for schema in schemas)
        if len(kinds) == 1 and kinds <= {"string", "boolean", "int64", "float64"}:
            # They differ in enums, or in texts about them.
            return Schema(kinds.pop(), optional)
        fields = tuple(Field(union_field(at), schema.with_(optional=True)) for at, schema in enumerate(schemas))
        return Schema("struct", optional, name=UNION, fields=fields)

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
        if is_union(schema):
            return schema  # As AvroData, and JsonSchemaData ignores it.
        blocks, errors = reader_of(schema, self._branches).read(rows_of(1), [_encode(default)])
        if errors:
            raise ValueError(f"default: {errors[0]}")
        return schema.with_(default=blocks[0].whole()[0])


def _types_of_enum(node: JsonMapping) -> list[str] | None:
    """Return the types of an enum's values, in their order; None without an enum."""
    symbols = node.get("enum")
    if not isinstance(symbols, list) or not symbols:
        return None
    types = list(dict.fromkeys(types_of(symbol)[0] for symbol in symbols))
    return [one for one in types if one != "integer" or "number" not in types]


def _has_type(part: JsonMapping) -> bool:
    """Return whether a part of ``allOf`` says the type of its values, and not only rules that they keep."""
    words = {word for kind, words in _OF_TYPE.items() if kind != "object" for word in words}
    return not part.keys().isdisjoint({"type", "enum", "const", *words})


def _is_object(part: SchemaNode) -> bool:
    """Return whether the type of a part is that of an object, or of one that may be null."""
    return isinstance(part, dict) and part.get("type") in ("object", ["object"], ["object", "null"], ["null", "object"])


def _type_of(node: JsonMapping, declared: object) -> str:
    if isinstance(declared, str):
        return declared
    if "const" in node:
        return types_of(node["const"])[0]
    for kind, words in _OF_TYPE.items():
        if not words.isdisjoint(node):
            return kind
    raise ValueError(f"a schema without a type has no Connect schema: {_describe(node)}")


def _is_null(node: SchemaNode) -> bool:
    return isinstance(node, dict) and node.get("type") in ("null", ["null"])


def _position(pair: tuple[int, tuple[str, Sequence[tuple[SchemaNode, SchemaNode]]]]) -> int:
    at, (_, ((inner, _), *_)) = pair
    index = inner.get("connect.index") if isinstance(inner, dict) else None
    return index if type(index) is int else at


def _list(node: JsonMapping, word: str) -> list[SchemaNode]:
    found = node[word]
    if not isinstance(found, list) or not found:
        raise ValueError(f"{word}: expected a list of schemas, found {found!r}")
    return found


def _describe(node: SchemaNode) -> str:
    text = repr(node)
    return text if len(text) <= 80 else f"{text[:77]}..."
