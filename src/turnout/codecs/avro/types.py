"""Avro schemas as a tree of types, read from JSON."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field, replace
from typing import Final

from turnout.base.untrusted import JsonObject
from turnout.records.schema import DATE, DECIMAL, TIME, TIMESTAMP
from turnout.records.types import DynamicValue, Fields

PRIMITIVES: Final = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})

MAX_DEPTH: Final = 64
"""Maximum number of types inside one another."""

MAX_TYPES: Final = 20_000
"""Maximum number of types in a schema, each use of a named one counted."""

_MAX_DIGITS: Final = 900
_MAX_FIXED: Final = 1 << 24
_name = re.compile(r"[A-Za-z_][A-Za-z0-9_]*").fullmatch
_SIZES: Final = {"null": 0, "float": 4, "double": 8}
_KNOWN: Final = frozenset(
    {"type", "name", "namespace", "fields", "items", "values", "symbols", "size", "doc", "default", "aliases"}
)


@dataclass(frozen=True, slots=True)
class AvroField:
    """Field of a record.

    Attributes:
        default: in Avro's JSON; None where there is none, see *has_default*.
        has_default: whether the field has a default.
    """

    name: str
    type: AvroType
    default: DynamicValue = field(default=None, hash=False)
    has_default: bool = False
    doc: str | None = None


@dataclass(frozen=True, slots=True)
class AvroType:
    """Type of an Avro schema.

    Attributes:
        kind: a primitive type, ``record``, ``enum``, ``fixed``, ``array``, ``map`` or ``union``.
        name: full name of a record, an enum or a fixed.
        fields: fields of a record.
        inner: items of an array, values of a map, branches of a union.
        symbols: symbols of an enum.
        size: size of a fixed, in bytes.
        logical: the attribute ``logicalType``, or that of the logical type of Connect that ``connect.name`` names.
        scale: of a decimal.
        default: symbol that readers take for an unknown one of an enum.
        props: all attributes that the specification does not define, and ``precision`` and ``scale``.
        min_size: the fewest bytes that a value takes.
        weight: number of types inside, this one and each use of a named one counted.
        depth: number of types inside one another.
    """

    kind: str
    name: str | None = None
    fields: tuple[AvroField, ...] = ()
    inner: tuple[AvroType, ...] = ()
    symbols: tuple[str, ...] = ()
    size: int = 0
    logical: str | None = None
    scale: int = 0
    default: str | None = None
    doc: str | None = None
    props: Fields = field(default_factory=dict, hash=False)
    min_size: int = 0
    weight: int = 1
    depth: int = 1


def parse_schema(text: str, references: tuple[tuple[str, str], ...] = ()) -> AvroType:
    """Read a schema.

    Args:
        text: JSON.
        references: name and JSON of each schema that is referred to, those first that others need.

    Raises:
        ValueError: it is no schema, or a recursive one; names the place and what was expected.

    >>> schema = parse_schema('{"type": "record", "name": "a.R", "fields": [{"name": "n", "type": "long"}]}')
    >>> schema.name, [(field.name, field.type.kind) for field in schema.fields]
    ('a.R', [('n', 'long')])
    """
    parser = _SchemaParser()
    for _, definition in references:
        parser.parse(_json(definition), "", "", 0)
    return parser.parse(_json(text), "", "", 0)


def _json(text: str) -> DynamicValue:
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError(f"expected an Avro schema of at most {MAX_DEPTH} types inside of one another") from None
    except ValueError as failure:
        if re.fullmatch(r"\w+", text):
            return text
        raise ValueError(f"expected an Avro schema in JSON: {failure}") from None


class _SchemaParser:
    def __init__(self) -> None:
        self._named: dict[str, AvroType | None] = {}
        self._count = 0

    def parse(self, definition: DynamicValue, path: str, namespace: str, depth: int) -> AvroType:
        if depth > MAX_DEPTH:
            raise ValueError(f"{path or 'schema'}: expected at most {MAX_DEPTH} types inside of one another")
        self._count += 1
        if self._count > MAX_TYPES:
            raise ValueError(f"expected at most {MAX_TYPES} types in a schema")
        if isinstance(definition, str):
            return self._reference(definition, path, namespace)
        if isinstance(definition, list):
            return self._union(definition, path, namespace, depth)
        if not isinstance(definition, dict):
            raise ValueError(f"{path or 'schema'}: expected a type, found {definition!r}")  # noqa: TRY004 - as all here
        kind = definition.get("type")
        if isinstance(kind, dict | list):
            return self.parse(kind, path, namespace, depth + 1)
        if kind in ("record", "error", "enum", "fixed"):
            return self._define("record" if kind == "error" else kind, definition, path, namespace, depth)
        if kind in ("array", "map"):
            inside = "items" if kind == "array" else "values"
            item = self.parse(definition.get(inside), f"{path}.{inside}", namespace, depth + 1)
            return _bounded(AvroType(kind, inner=(item,), props=_props(definition), min_size=1), path)
        if kind in PRIMITIVES:
            logical, scale = _logical(kind, definition, path)
            return AvroType(
                kind,
                logical=logical,
                scale=scale,
                doc=_doc(definition),
                props=_props(definition),
                min_size=_SIZES.get(kind, 1),
            )
        return self._reference(kind, path, namespace)

    def _reference(self, name: object, path: str, namespace: str) -> AvroType:
        if name in PRIMITIVES:
            return AvroType(str(name), min_size=_SIZES.get(str(name), 1))
        full = _full(str(name), namespace)
        for candidate in (full, str(name)):
            if candidate in self._named:
                found = self._named[candidate]
                if found is None:
                    raise ValueError(
                        f"{path or 'schema'}: {candidate} contains itself: recursive schemas are not supported"
                    )
                return found
        raise ValueError(f"{path or 'schema'}: expected a type, found {name!r}")

    def _union(self, definition: list[DynamicValue], path: str, namespace: str, depth: int) -> AvroType:
        if not definition:
            raise ValueError(f"{path or 'schema'}: expected a union with branches, found none")
        branches = tuple(self.parse(one, f"{path}[{at}]", namespace, depth + 1) for at, one in enumerate(definition))
        names = [branch.name or branch.kind for branch in branches]
        if len(set(names)) < len(names) or "union" in names:
            raise ValueError(f"{path or 'schema'}: expected different types in the union, found {', '.join(names)}")
        size = 1 + min(branch.min_size for branch in branches)
        return _bounded(AvroType("union", inner=branches, min_size=size), path)

    def _define(self, kind: str, definition: JsonObject, path: str, namespace: str, depth: int) -> AvroType:
        name = definition.get("name")
        if not isinstance(name, str) or not all(map(_name, name.split("."))):
            raise ValueError(f"{path or 'schema'}: expected the name of the {kind}, found {name!r}")
        space = definition.get("namespace", namespace)
        full = _full(name, space if isinstance(space, str) else namespace)
        if full in self._named:
            raise ValueError(f"{path or 'schema'}: {full} is defined twice")
        self._named[full] = None
        type_ = getattr(self, f"_{kind}")(definition, full, path, full.rpartition(".")[0], depth)
        self._named[full] = type_
        assert isinstance(type_, AvroType)
        return type_

    def _record(self, definition: JsonObject, full: str, path: str, namespace: str, depth: int) -> AvroType:
        members = definition.get("fields")
        if not isinstance(members, list):
            raise ValueError(f"{path or 'schema'}: expected the fields of the record {full}, found {members!r}")  # noqa: TRY004
        fields = tuple(self._field(one, path, namespace, depth) for one in members)
        if len({one.name for one in fields}) < len(fields):
            raise ValueError(f"{path or 'schema'}: two fields of the record {full} have one name")
        size = sum(one.type.min_size for one in fields)
        return _bounded(
            AvroType("record", full, fields, doc=_doc(definition), props=_props(definition), min_size=size), path
        )

    def _field(self, definition: DynamicValue, path: str, namespace: str, depth: int) -> AvroField:
        name = definition.get("name") if isinstance(definition, dict) else None
        if not isinstance(name, str) or not _name(name):
            raise ValueError(f"{path or 'schema'}: expected a field with a name, found {str(definition)[:80]}")
        type_ = self.parse(definition.get("type"), f"{path}.{name}".removeprefix("."), namespace, depth + 1)
        return AvroField(name, type_, definition.get("default"), "default" in definition, _doc(definition))

    def _enum(self, definition: JsonObject, full: str, path: str, _namespace: str, _depth: int) -> AvroType:
        symbols = definition.get("symbols")
        if not isinstance(symbols, list) or not all(isinstance(one, str) for one in symbols) or not symbols:
            raise ValueError(f"{path or 'schema'}: expected the symbols of the enum {full}, found {symbols!r}")
        if len(set(symbols)) < len(symbols):
            raise ValueError(f"{path or 'schema'}: a symbol of the enum {full} occurs twice")
        default = definition.get("default")
        return AvroType(
            "enum",
            full,
            symbols=tuple(symbols),
            default=default if default in symbols else None,
            doc=_doc(definition),
            props=_props(definition),
            min_size=1,
        )

    def _fixed(self, definition: JsonObject, full: str, path: str, _namespace: str, _depth: int) -> AvroType:
        size = definition.get("size")
        if type(size) is not int or not 0 <= size <= _MAX_FIXED:
            raise ValueError(f"{path or 'schema'}: expected a size of 0 to {_MAX_FIXED} for {full}, found {size!r}")
        logical, scale = _logical("fixed", definition, path)
        return AvroType("fixed", full, size=size, logical=logical, scale=scale, props=_props(definition), min_size=size)


def _bounded(type_: AvroType, path: str) -> AvroType:
    """Return a type with weight and depth: a short schema may stand for an enormous one."""
    inner = [*(one.type for one in type_.fields), *type_.inner]
    weight = 1 + sum(one.weight for one in inner)
    depth = 1 + max((one.depth for one in inner), default=0)
    if weight > MAX_TYPES or depth > MAX_DEPTH:
        raise ValueError(
            f"{path or 'schema'}: expected at most {MAX_TYPES} types, {MAX_DEPTH} of them inside of one another"
        )
    return replace(type_, weight=weight, depth=depth)


def _full(name: str, namespace: str) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"


def _doc(definition: Fields) -> str | None:
    doc = definition.get("doc")
    return doc if isinstance(doc, str) else None


def _props(definition: Fields) -> JsonObject:
    return {name: value for name, value in definition.items() if name not in _KNOWN}


_LOGICAL: Final = {
    "date": ("int",),
    "time-millis": ("int",),
    "time-micros": ("long",),
    "timestamp-millis": ("long",),
    "timestamp-micros": ("long",),
    "timestamp-nanos": ("long",),
    "local-timestamp-millis": ("long",),
    "local-timestamp-micros": ("long",),
    "local-timestamp-nanos": ("long",),
    "uuid": ("string", "fixed"),
    "duration": ("fixed",),
    "decimal": ("bytes", "fixed"),
}
_OF_CONNECT: Final = {DATE: "date", TIME: "time-millis", TIMESTAMP: "timestamp-millis", DECIMAL: "decimal"}
_FIXED_SIZES: Final = {"uuid": 16, "duration": 12}


def _logical(kind: str, definition: Fields, path: str) -> tuple[str | None, int]:
    """Return the logical type, and the scale of a decimal.

    An unknown or invalid one is ignored by the specification. AvroData decides by Connect's name, which old converters
    write without ``logicalType``, and which all write where it is not valid: Oracle's NUMBER has the scale 127.
    """
    name = definition.get("logicalType")
    size = definition.get("size")
    if not isinstance(name, str) or kind not in _LOGICAL.get(name, ()) or size != _FIXED_SIZES.get(name, size):
        name = None
    scale = definition.get("scale", 0)
    if name == "decimal":
        precision = definition.get("precision")
        if (
            type(precision) is not int
            or type(scale) is not int
            or not 0 <= scale <= precision
            or not 1 <= precision <= _MAX_DIGITS
        ):
            name = None
    connect_name = definition.get("connect.name")
    of_connect = _OF_CONNECT.get(connect_name) if isinstance(connect_name, str) else None
    if of_connect is None or kind not in _LOGICAL[of_connect] or name in _OF_CONNECT.values():
        return name, scale if name == "decimal" else 0
    return of_connect, _scale_of_connect(definition, path) if of_connect == "decimal" else 0


def _scale_of_connect(definition: Fields, path: str) -> int:
    """Return the scale of Connect's Decimal: that of ``logicalType``, else the parameter."""
    parameters = definition.get("connect.parameters")
    found = parameters.get("scale") if isinstance(parameters, dict) else None
    if definition.get("logicalType") == "decimal":
        found = definition.get("scale", 0 if found is None else found)
    try:
        scale = int(str(found))
    except ValueError:
        scale = _MAX_DIGITS + 1
    if abs(scale) > _MAX_DIGITS:
        raise ValueError(
            f"{path or 'schema'}: expected the scale of a Decimal, at most {_MAX_DIGITS}, as the attribute scale or "
            f"among connect.parameters, found {found!r}"
        )
    return scale
