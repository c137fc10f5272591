"""Connect schemas as JSON Schemas, by the rules of Confluent's JsonSchemaData."""

from __future__ import annotations

from typing import Final

import msgspec

from turnout.base.untrusted import JsonObject
from turnout.codecs.json_schema.branches import has_entries, is_union
from turnout.codecs.json_schema.kind import JsonSchemaOptions
from turnout.codecs.json_schema.values import ENUM, NAMESPACE, form_of
from turnout.errors import RecordError
from turnout.records import Schema

_NULL: Final = {"type": "null"}
_NUMBERS: Final = {
    **dict.fromkeys(("int8", "int16", "int32", "int64"), "integer"),
    **dict.fromkeys(("float32", "float64"), "number"),
}
_encode = msgspec.json.Encoder(decimal_format="number").encode


def definition_of(schema: Schema, options: JsonSchemaOptions) -> str:
    """Return the text of the JSON Schema of a Connect schema's values.

    Raises:
        RecordError: there is none.
    """
    return _encode(_Definitions(options).of(schema)).decode()


class _Definitions:
    """Makes JSON Schemas."""

    def __init__(self, options: JsonSchemaOptions) -> None:
        self._options = options

    def of(self, schema: Schema, index: int | None = None, *, optional: bool | None = None) -> JsonObject:
        """Return the definition of a schema.

        Args:
            schema: of values in Connect.
            index: index of the field.
            optional: whether null is allowed; by default as the schema says.
        """
        nullable = schema.optional if optional is None else optional
        index_part: JsonObject = {} if index is None else {"connect.index": index}
        if is_union(schema):
            members = [self.of(field.schema, at, optional=False) for at, field in enumerate(schema.fields)]
            return {"oneOf": [*([_NULL] if nullable else []), *members], **index_part}
        found = {**self._bare(schema), **self._attributes(schema)}
        return {"oneOf": [_NULL, found], **index_part} if nullable else {**found, **index_part}

    def _bare(self, schema: Schema) -> JsonObject:
        kind = schema.type
        if kind in _NUMBERS:
            return {"type": _NUMBERS[kind], "connect.type": kind}
        if kind == "boolean":
            return {"type": "boolean"}
        if kind == "string":
            parameters = dict(schema.parameters)
            if ENUM in parameters:
                return {"enum": [text for name, text in schema.parameters if name.startswith(f"{ENUM}.")]}
            return {"type": "string"}
        if kind == "bytes":
            return {"type": "number" if schema.logical else "string", "connect.type": "bytes"}
        if kind == "struct":
            return self._struct(schema)
        if schema.values is None or (kind == "map" and schema.keys is None):
            raise RecordError(f"expected the schema of the {kind}'s elements, found none")
        if kind == "array":
            return {"type": "array", "items": self.of(schema.values)}
        if kind == "map" and has_entries(schema):
            assert schema.keys is not None
            entry = {"key": self.of(schema.keys, 0), "value": self.of(schema.values, 1)}
            return {"type": "array", "items": {"type": "object", "properties": entry}, "connect.type": "map"}
        if kind == "map":
            return {"type": "object", "additionalProperties": self.of(schema.values), "connect.type": "map"}
        raise RecordError(f"a value of the type {kind} has no JSON Schema")

    def _struct(self, schema: Schema) -> JsonObject:
        node: JsonObject = {
            "type": "object",
            "properties": {
                field.name: self.of(field.schema, at, optional=False if field.schema.omissible else None)
                for at, field in enumerate(schema.fields)
            },
        }
        if self._options.use_optional_for_nonrequired:
            required = [field.name for field in schema.fields if not (field.schema.optional or field.schema.omissible)]
            node |= {"required": required} if required else {}
        if not self._options.object_additional_properties:
            node["additionalProperties"] = False
        return node

    def _attributes(self, schema: Schema) -> JsonObject:
        found: dict[str, object] = {
            "title": schema.name,
            "description": schema.doc,
            "connect.version": schema.version,
            "connect.parameters": {
                name: text for name, text in schema.parameters if not name.startswith(NAMESPACE)
            } or None,
        }  # fmt: skip
        if schema.default is not None:
            column = form_of(schema, numeric=self._options.decimal_format == "NUMERIC").column
            found["default"] = schema.default if column is None else column([schema.default])[0]
        return {name: value for name, value in found.items() if value is not None}
