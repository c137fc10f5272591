"""Codec of JSON with a JSON Schema of a registry or of a file, by which values are validated if asked."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import ClassVar, Final

import msgspec
import numpy as np

from turnout.base.untrusted import JsonObject
from turnout.codecs.codec import Decoded, attempt, with_tombstones
from turnout.codecs.conversion import converted
from turnout.codecs.json_schema.connect_schema import connect_schema_of
from turnout.codecs.json_schema.kind import JSON_SCHEMA_CONVERTER, JsonSchemaOptions
from turnout.codecs.json_schema.values import (
    ENUM,
    NAMESPACE,
    Branches,
    Documents,
    SchemaNode,
    field_form_of,
    form_of,
    has_entries,
    is_union,
    reader_of,
    schemas_of,
)
from turnout.codecs.json_writing import Written, texts_of
from turnout.codecs.schema_registry import Indexes, Position, RegisteringCodec, RegistryOptions, SchemaText, Writing
from turnout.errors import MissingExtraError, RecordError, shortened
from turnout.records import Block, Origin, Positions, Schema

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
        self._nodes: dict[int, tuple[SchemaNode, SchemaNode]] = {}
        self._totals: dict[int, int] = {}
        self._around: set[int] = set()
        try:
            self._total(documents.root, documents.root)
        except RecursionError:
            raise ValueError("the schema nests too deep to be validated by") from None

    def _total(self, node: SchemaNode, document: SchemaNode) -> int:
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

    def _expanded(
        self, node: SchemaNode, document: SchemaNode, around: frozenset[int]
    ) -> tuple[int, Counter[tuple[str, int]]]:
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

    def _same(self, node: JsonObject, document: SchemaNode) -> Iterator[tuple[SchemaNode, SchemaNode]]:
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


def _schemas(found: object) -> list[SchemaNode]:
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


class Plan:
    """Reader and writer of the values of one schema; see `turnout.codecs.schema_registry.codec.SchemaPlan`.

    An unchanged value is written as its original bytes, with the properties that its schema
    does not list. Of one that was changed those are lost, as in Connect.

    Args:
        text: the schema.
        references: name and text of each schema that it refers to.
        options: options of the mapping to Connect.
        prefix: bytes before each value.
    """

    def __init__(
        self, text: str, references: Sequence[tuple[str, str]], options: JsonSchemaOptions, prefix: bytes = b""
    ) -> None:
        documents, branches = Documents.parse(text, references), Branches()
        self.schema = connect_schema_of(documents, options, branches)
        self._prefix = prefix
        self._reader = reader_of(self.schema, branches)
        self.schemas = schemas_of(self._reader)
        numeric = options.decimal_format == "NUMERIC"
        self._form_of, self._field_form_of = partial(form_of, numeric=numeric), partial(field_form_of, numeric=numeric)
        self._validate: Validate | None = validator_of(text, references) if options.json_fail_invalid_schema else None

    def decode(self, rows: Positions, texts: Sequence[bytes], codec: object = None) -> Decoded:
        """Return the values of texts with their prefix."""
        del codec
        start = len(self._prefix)
        payloads = [text[start:] for text in texts] if start else texts
        errors: dict[int, RecordError] = {}
        if self._validate is not None:
            for row, payload in zip(rows.tolist(), payloads, strict=True):
                _check(self._validate, payload, row, errors)
            if errors:
                good = np.flatnonzero(~np.isin(rows, list(errors)))
                payloads = [payloads[index] for index in good.tolist()]
                rows = rows[good]
        blocks, failed = self._reader.read(rows, payloads) if len(rows) else ([], {})
        for block in blocks:
            indices = np.searchsorted(rows, block.rows).tolist()
            whole = len(indices) == len(payloads)
            block.origin = Origin(self, payloads if whole else [payloads[index] for index in indices])
        return blocks, errors | failed

    def fitted(self, rows: Positions, texts: Sequence[bytes]) -> Decoded:
        """Return the values of texts without a prefix, which are written as they are if they are valid."""
        return self.decode(rows, [self._prefix + text for text in texts] if self._prefix else texts)

    def encode(self, block: Block) -> Written:
        """Return the texts with their prefix."""
        if block.origin is not None and block.origin.codec is self:
            return [self._prefix + text for text in block.origin.texts], {}
        if block.kind == "null":
            block = Block(block.rows, block.schema, values=[None] * len(block))
        texts, errors = texts_of(block, self._form_of, self._field_form_of)
        if self._validate is not None:
            for index, text in enumerate(texts):
                if text is not None and index not in errors:
                    _check(self._validate, text, index, errors)
        return [None if text is None else self._prefix + text for text in texts], errors


def _check(validate: Validate, content: bytes, at: int, errors: dict[int, RecordError]) -> None:
    try:
        validate(content)
    except RecordError as error:
        errors[at] = error


class JsonSchemaFile:
    """Values of the schema of a file, without anything before them."""

    format: ClassVar[str] = "jsonSchema"
    class_name: ClassVar[str] = JSON_SCHEMA_CONVERTER

    def __init__(self, text: str, options: JsonSchemaOptions) -> None:
        """Create a codec of the schema in *text*.

        Raises:
            ValueError: it is no schema, or Connect has no equivalent.
        """
        self._plan = Plan(text, (), options)

    def decode(self, rows: Positions, texts: Sequence[bytes | None]) -> Decoded:
        """See `turnout.codecs.Codec.decode`."""
        return with_tombstones(rows, texts, self._plan.decode)

    def encode(self, block: Block) -> Sequence[bytes | None]:
        """See `turnout.codecs.Codec.encode`."""
        if block.schema is None:
            if block.kind == "null":
                return [None] * len(block)
            raise RecordError("the value has no schema, and JSON Schema needs one")
        if block.schema not in self._plan.schemas:
            raise RecordError(
                "the schema of the value was changed, and readers would not know it: they have the schema of the file; "
                "write JSON Schema with a registry, or another format"
            )
        return attempt(*self._plan.encode(block))

    def converted(self, block: Block) -> Written:
        """See `turnout.codecs.conversion.OfOneSchema`."""
        return converted(block, self._plan)

    def schema(self) -> Schema | None:
        """Return the schema of the file, in Connect; None for several schemas, of which each value has one."""
        return self._plan.schema if len(self._plan.schemas) == 1 else None


class JsonSchemaRegistry(RegisteringCodec):
    """Values in Confluent's wire format, with schemas of a registry."""

    format: ClassVar[str] = "jsonSchema"
    class_name: ClassVar[str] = JSON_SCHEMA_CONVERTER
    language: ClassVar[str] = "JSON"

    def __init__(
        self, registry: RegistryOptions, options: JsonSchemaOptions, writing: Writing, schema: str | None = None
    ) -> None:
        super().__init__(registry, writing, schema)
        self._mapping = options

    def _plan_of(self, text: SchemaText, indexes: Indexes, position: Position) -> Plan:
        del indexes
        return Plan(text.text, text.references, self._mapping, position.prefix)

    def _text_of(self, schema: Schema) -> SchemaText:
        return SchemaText("JSON", definition_of(schema, self._mapping))

    def _name_of(self, text: SchemaText) -> str | None:
        title = json.loads(text.text).get("title")
        return title if isinstance(title, str) else None
