"""Avro schemas as Connect schemas and back, by the rules of Confluent's AvroData."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from decimal import Context, Decimal
from typing import Final

from turnout.base.clocks import MILLISECONDS_PER_DAY
from turnout.base.untrusted import JsonObject
from turnout.codecs.avro.types import AvroField, AvroType
from turnout.errors import RecordError
from turnout.records import Field, Moment, Schema
from turnout.records.schema import ANY, DATE, DECIMAL, TIME, TIMESTAMP
from turnout.records.types import DynamicValue

_CONFLUENT: Final = "io.confluent.connect.avro"
UNION: Final = f"{_CONFLUENT}.Union"
"""Name of the struct that a union of several types becomes."""

_DEFAULT_NAME: Final = f"{_CONFLUENT}.ConnectDefault"
_MAP_ENTRY: Final = "MapEntry"
_ENUM: Final = f"{_CONFLUENT}.Enum"
_FIXED: Final = "connect.fixed.size"
_PRECISION: Final = "connect.decimal.precision"
_MOST_DIGITS: Final = 64
LOGICAL: Final = "turnout.avro.logicalType"
"""Parameter of a schema whose Avro type has a logical type that Connect does not know: it is written again."""

NAME: Final = "turnout.avro.name"
"""Parameter of a decimal whose Avro type is a fixed: its name there."""

DEFAULT: Final = "turnout.avro.enum.default"
"""Parameter of an enum: the symbol that readers take for one that they do not know."""

_TYPES: Final = {
    "boolean": "boolean",
    "int": "int32",
    "long": "int64",
    "float": "float32",
    "double": "float64",
    "bytes": "bytes",
    "fixed": "bytes",
    "string": "string",
    "enum": "string",
    "array": "array",
    "map": "map",
    "record": "struct",
}
_AVRO: Final = {"int8": "int", "int16": "int", **{connect: avro for avro, connect in _TYPES.items() if len(avro) > 4}}
_AVRO.update(int32="int", int64="long", bytes="bytes", string="string")
_NAMES: Final = {"date": DATE, "time-millis": TIME, "timestamp-millis": TIMESTAMP, "decimal": DECIMAL}
_LOGICALS: Final = {DATE: "date", TIME: "time-millis", TIMESTAMP: "timestamp-millis"}
_EXACT: Final = Context(prec=1000)
_name = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*").fullmatch


def is_map_entry(type_: AvroType) -> bool:
    """Return True for an array that stands for a map with keys that are no strings."""
    return (
        type_.kind == "array"
        and type_.inner[0].kind == "record"
        and type_.inner[0].props.get("connect.internal.type") == _MAP_ENTRY
        and [field.name for field in type_.inner[0].fields] == ["key", "value"]
    )


def nullable_of(type_: AvroType) -> tuple[AvroType, int] | None:
    """Return the other branch of a union with null, and the index of null; None for any other type."""
    if type_.kind != "union" or len(type_.inner) != 2:
        return None
    kinds = [branch.kind for branch in type_.inner]
    if kinds.count("null") != 1:
        return None
    null = kinds.index("null")
    return type_.inner[1 - null], null


def branch_name(type_: AvroType) -> str:
    """Return the name of the field that a branch of a union becomes."""
    return type_.name.rpartition(".")[2] if type_.name is not None else type_.kind


def connect_schema_of(type_: AvroType, *, optional: bool = False) -> Schema:
    """Return the Connect schema of values of an Avro type.

    Raises:
        ValueError: Connect has no schema for it; says which type.
    """
    if type_.kind == "union":
        return _union(type_, optional=optional)
    if type_.kind == "null":
        raise ValueError("a value that can only be null has no Connect schema")
    props = type_.props
    schema = Schema(_TYPES[type_.kind], optional, doc=_text(props.get("connect.doc")) or type_.doc)
    narrow = props.get("connect.type")
    if type_.kind == "int" and narrow in ("int8", "int16"):
        schema = schema.with_(type=narrow)
    schema = _with_parts(schema, type_)
    name, version, parameters = _attributes(type_)
    connect_parameters = props.get("connect.parameters")
    if isinstance(connect_parameters, Mapping):
        parameters = {**{str(key): str(value) for key, value in connect_parameters.items()}, **parameters}
    return schema.with_(name=name, version=version, parameters=tuple(parameters.items()))


def _with_parts(schema: Schema, type_: AvroType) -> Schema:
    if type_.kind == "record":
        return schema.with_(fields=tuple(Field(field.name, _field(field)) for field in type_.fields))
    if is_map_entry(type_):
        key, value = type_.inner[0].fields
        return schema.with_(type="map", keys=connect_schema_of(key.type), values=connect_schema_of(value.type))
    if type_.kind == "array":
        return schema.with_(values=connect_schema_of(type_.inner[0]))
    if type_.kind == "map":
        return schema.with_(keys=Schema("string"), values=connect_schema_of(type_.inner[0]))
    return schema


def _attributes(type_: AvroType) -> tuple[str | None, int | None, dict[str, str]]:
    """Return name, version and parameters."""
    name = _text(type_.props.get("connect.name"))
    version = type_.props.get("connect.version")
    parameters: dict[str, str] = {}
    if type_.name is not None and name is None and type_.name != _DEFAULT_NAME:
        name = type_.name
    if type_.kind == "enum":
        parameters = {_ENUM: str(type_.name), **{f"{_ENUM}.{symbol}": symbol for symbol in type_.symbols}}
        if type_.default is not None:
            parameters[DEFAULT] = type_.default
    if type_.kind == "fixed":
        parameters = {_FIXED: str(type_.size)}
    if type_.logical in _NAMES:
        name, version = _NAMES[type_.logical], 1
        if type_.logical == "decimal":
            parameters = {"scale": str(type_.scale), **parameters}
            precision = type_.props.get("precision")
            if type(precision) is int and precision != _MOST_DIGITS:
                parameters[_PRECISION] = str(precision)
            if type_.kind == "fixed":
                parameters[NAME] = str(type_.name)
    elif type_.logical is not None:
        parameters[LOGICAL] = type_.logical
    return name, version if type(version) is int else None, parameters


def _union(type_: AvroType, *, optional: bool) -> Schema:
    branches = [branch for branch in type_.inner if branch.kind != "null"]
    if not branches:
        raise ValueError("a value that can only be null has no Connect schema")
    optional = optional or len(branches) < len(type_.inner)
    if len(branches) == 1:
        return connect_schema_of(branches[0], optional=optional)
    names = [branch_name(branch) for branch in branches]
    if len(set(names)) < len(names):
        raise ValueError(f"expected different names in a union without namespaces, found {', '.join(names)}")
    fields = tuple(
        Field(name, connect_schema_of(branch, optional=True)) for name, branch in zip(names, branches, strict=True)
    )
    return Schema("struct", optional, name=UNION, fields=fields)


def _field(field: AvroField) -> Schema:
    schema = connect_schema_of(field.type)
    if field.doc is not None and schema.doc is None:
        schema = schema.with_(doc=field.doc)
    if field.has_default and field.default is not None:
        first = field.type.inner[0] if field.type.kind == "union" else field.type
        schema = schema.with_(default=_default(first, schema, field.default))
    return schema


def _default(type_: AvroType, schema: Schema, default: DynamicValue) -> DynamicValue:
    """Return a default in Avro's JSON as a value; None if it does not have the type. A union has that of its first."""
    try:
        value = _value(type_, default)
    except (TypeError, ValueError, LookupError, ArithmeticError, AttributeError):
        return None
    return (
        {**dict.fromkeys(field.name for field in schema.fields), branch_name(type_): value}
        if (schema.name == UNION)
        else value
    )


def _value(type_: AvroType, value: DynamicValue) -> DynamicValue:
    if type_.kind == "union":
        if value is None:
            return None
        chosen = _value(type_.inner[0], value)
        names = [branch_name(branch) for branch in type_.inner if branch.kind != "null"]
        return chosen if len(names) == 1 else {**dict.fromkeys(names), branch_name(type_.inner[0]): chosen}
    if type_.kind == "record":
        return {field.name: _value(field.type, value.get(field.name, field.default)) for field in type_.fields}
    if type_.kind == "array":
        return [_value(type_.inner[0], item) for item in value]
    if type_.kind == "map":
        return {str(key): _value(type_.inner[0], item) for key, item in value.items()}
    if type_.kind in ("bytes", "fixed"):
        raw = value.encode("latin-1")
        return decimal_of(raw, type_.scale) if type_.logical == "decimal" else raw
    if type_.logical == "date":
        return Moment(value * MILLISECONDS_PER_DAY)
    if type_.logical in ("time-millis", "timestamp-millis"):
        return Moment(value)
    if type_.kind in ("float", "double"):
        return float(value)
    expected = {"boolean": bool, "int": int, "long": int}.get(type_.kind, str)
    if type(value) is not expected:
        raise TypeError(value)
    return value


def decimal_of(raw: bytes, scale: int) -> Decimal:
    """Return the decimal of an unscaled integer in bytes."""
    return Decimal(int.from_bytes(raw, "big", signed=True)).scaleb(-scale, _EXACT)


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


# Connect to Avro


def avro_schema_of(schema: Schema) -> DynamicValue:
    """Return the Avro schema of a Connect schema in JSON, as AvroData writes it.

    Raises:
        RecordError: Avro has no type for it; says which.
    """
    return _AvroWriter().schema(schema, "")


class _AvroWriter:
    """Writer of one schema, which defines each name at its first use."""

    def __init__(self) -> None:
        self._defined: dict[str, Schema] = {}

    def schema(self, schema: Schema, path: str) -> DynamicValue:
        written = self._required(schema, path)
        if not schema.optional or written is None:
            return written
        branches = written if isinstance(written, list) else [written]
        return [*branches, "null"] if schema.default is not None else ["null", *branches]

    def _required(self, schema: Schema, path: str) -> DynamicValue:
        if schema.name == UNION and schema.type == "struct":
            return [self._required(field.schema, f"{path}.{field.name}") for field in schema.fields]
        if schema.type == ANY:
            raise RecordError(f"{path.removeprefix('.') or 'the value'} has no schema, and Avro needs one")
        parameters = dict(schema.parameters)
        if schema.type == "string" and _ENUM in parameters:
            return self._enum(schema, parameters)
        if schema.type == "struct":
            return self._record(schema, path)
        if schema.type in ("array", "map"):
            return self._container(schema, path)
        if _FIXED in parameters and (NAME in parameters or (schema.logical is None and schema.name)):
            return self._fixed(schema, parameters)
        return self._primitive(schema, parameters, {"type": _AVRO[schema.type]})

    def _fixed(self, schema: Schema, parameters: dict[str, str]) -> DynamicValue:
        size, name = int(parameters.pop(_FIXED)), parameters.pop(NAME, schema.name)
        document = self._named(schema, {"type": "fixed", "name": name, "size": size})
        if isinstance(document, str) or (schema.logical is None and LOGICAL not in parameters):
            return document
        return self._primitive(schema, parameters, document)

    def _primitive(self, schema: Schema, parameters: dict[str, str], document: JsonObject) -> DynamicValue:
        if schema.type in ("int8", "int16"):
            document["connect.type"] = schema.type
        if schema.logical == DECIMAL:
            document |= {
                "logicalType": "decimal",
                "precision": int(parameters.get(_PRECISION, _MOST_DIGITS)),
                "scale": schema.scale,
            }
        elif schema.logical is not None:
            document["logicalType"] = _LOGICALS[schema.logical]
        elif LOGICAL in parameters:
            document["logicalType"] = parameters.pop(LOGICAL)
        document |= _described(schema, parameters)
        return document["type"] if len(document) == 1 else document

    def _container(self, schema: Schema, path: str) -> DynamicValue:
        if schema.values is None:
            raise RecordError(f"{path.removeprefix('.') or 'the value'} has items without a schema, and Avro needs one")
        if schema.type == "array":
            return {"type": "array", "items": self.schema(schema.values, f"{path}[]"), **_described(schema, {})}
        if schema.keys is None or schema.keys.type != "string" or schema.keys.optional:
            raise RecordError(
                f"{path.removeprefix('.') or 'the value'} is a map with keys that are no strings, which is not written "
                "as Avro"
            )
        return {"type": "map", "values": self.schema(schema.values, f"{path}{{}}"), **_described(schema, {})}

    def _enum(self, schema: Schema, parameters: dict[str, str]) -> DynamicValue:
        symbols = [value for name, value in parameters.items() if name.startswith(f"{_ENUM}.")]
        document: JsonObject = {"type": "enum", "name": parameters[_ENUM], "symbols": symbols}
        return self._named(schema, document | ({"default": parameters[DEFAULT]} if DEFAULT in parameters else {}))

    def _record(self, schema: Schema, path: str) -> DynamicValue:
        name = schema.name or _DEFAULT_NAME
        for one in (name, *(field.name for field in schema.fields)):
            if not _name(one) or (one != name and "." in one):
                raise RecordError(f"{path.removeprefix('.') or 'the value'}: {one!r} is no name in Avro")
        if name == _DEFAULT_NAME and name in self._defined and not _is_same(self._defined[name], schema):
            # Structs without a name would all have one: AvroData fails there.
            name = f"{_DEFAULT_NAME}{len(self._defined) + 1}"
        document: JsonObject = {"type": "record", "name": name}
        definition = self._defined_name(name, schema)
        if definition is not None:
            return definition
        document["fields"] = [self._field(field, f"{path}.{field.name}") for field in schema.fields]
        if schema.name is not None:
            document["connect.name"] = schema.name
        return document | _described(schema.with_(name=None), dict(schema.parameters))

    def _field(self, field: Field, path: str) -> JsonObject:
        schema = field.schema
        document: JsonObject = {"name": field.name, "type": self.schema(schema, path)}
        if schema.default is not None:
            document["default"] = _default_json(schema, schema.default)
        elif schema.optional:
            document["default"] = None
        return document

    def _named(self, schema: Schema, document: JsonObject) -> DynamicValue:
        definition = self._defined_name(document["name"], schema)
        return document if definition is None else definition

    def _defined_name(self, name: str, schema: Schema) -> str | None:
        """Return the name if it is defined already; define it otherwise."""
        before = self._defined.setdefault(name, schema)
        if before is schema:
            return None
        if not _is_same(before, schema):
            raise RecordError(f"two different schemas have the name {name}, which Avro does not allow")
        return name


def _is_same(one: Schema, other: Schema) -> bool:
    return one.with_(optional=False, default=None, doc=None) == other.with_(optional=False, default=None, doc=None)


def _described(schema: Schema, parameters: Mapping[str, str]) -> JsonObject:
    document: JsonObject = {}
    if schema.doc is not None:
        document["connect.doc"] = schema.doc
    if schema.version is not None:
        document["connect.version"] = schema.version
    if parameters:
        document["connect.parameters"] = dict(parameters)
    if schema.name is not None:
        document["connect.name"] = schema.name
    return document


def _default_json(schema: Schema, value: DynamicValue) -> DynamicValue:
    """Return a default as Avro's JSON has it."""
    if value is None:
        return None
    if schema.type == "struct" and schema.name == UNION:
        return next(
            _default_json(field.schema, value[field.name]) for field in schema.fields if value[field.name] is not None
        )
    if schema.type == "struct":
        return {field.name: _default_json(field.schema, value.get(field.name)) for field in schema.fields}
    if schema.type == "array" and schema.values is not None:
        return [_default_json(schema.values, item) for item in value]
    if schema.type == "map" and schema.values is not None:
        return {key: _default_json(schema.values, item) for key, item in value.items()}
    if isinstance(value, Decimal):
        number = int(value.scaleb(schema.scale, _EXACT))
        value = number.to_bytes((number + (number < 0)).bit_length() // 8 + 1, "big", signed=True)
    if isinstance(value, bytes):
        return value.decode("latin-1")
    if schema.logical == DATE:
        return int(value) // MILLISECONDS_PER_DAY
    return int(value) if isinstance(value, int) and type(value) is not bool else value


def schema_text(document: DynamicValue) -> str:
    """Return an Avro schema as the text that is registered."""
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"))
