"""The Connect vectors: configurations through `Chain.from_config`, records through `Chain.apply`."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest.mock import patch

from tests.vectors.outcome import Outcome
from turnout.errors import ConfigError, RecordError
from turnout.records import BigInt, Failure, Field, Float32, Header, Int8, Int16, Int32, Moment, Record, Schema, Struct
from turnout.transforms import Chain, Predicate, registry

_DATES = ("$date", "$time", "$timestamp")
_INTEGERS = {"$int8": Int8, "$int16": Int16, "$int32": Int32, "$int64": int, "$bigint": BigInt}


@dataclass(frozen=True, slots=True)
class Throwing(Predicate):
    """The predicate ``$throwing``: its test always fails."""

    def test(self, batch: Any, errors: Any) -> Any:
        errors.update({row: RecordError("thrown", "java.lang.RuntimeException") for row in range(len(batch))})
        return batch.outcomes == batch.outcomes


def run(path: Path) -> list[Outcome]:
    """The outcomes of all vectors of one file."""
    return [outcome(vector) for vector in json.loads(path.read_text(encoding="utf-8"))]


def outcome(vector: dict[str, Any]) -> Outcome:
    """Return the outcome of one vector."""
    problem = _problem(vector)
    return Outcome(vector["name"], "python", "failed" if problem else "passed", problem or "")


def properties(vector: dict[str, Any]) -> dict[str, Any]:
    """The connector's properties of a vector that gives only a transform's or a predicate's options."""
    config = vector["config"]
    if vector.get("level") == "connector":
        return config
    if ".predicates." in config["type"]:
        guard = {"transforms": "t", "transforms.t.type": "Filter", "transforms.t.predicate": "p", "predicates": "p"}
        return guard | {f"predicates.p.{name}": value for name, value in config.items()}
    return {"transforms": "t"} | {f"transforms.t.{name}": value for name, value in config.items()}


def is_kafkas(vector: dict[str, Any]) -> bool:
    """Whether a worker of Connect has all transforms and predicates; the others are turnout's own."""
    kinds: dict[str, Any] = {**registry.TRANSFORMS, **registry.PREDICATES}
    by_class = {name: kind for kind in registry.TRANSFORMS.values() for name in kind.java_names}
    types = (value for name, value in vector["config"].items() if name == "type" or name.endswith(".type"))
    classes = [str(type_).partition("$")[0] for type_ in types]
    named = (by_class.get(name) or kinds.get(name.rpartition(".")[2]) for name in classes)
    return all(kind is None or kind.kafka for kind in named)


def _problem(vector: dict[str, Any]) -> str | None:
    """Return the problem of a vector, None if there is none."""
    expect = vector["expect"]
    try:
        with patch.object(registry, "_plugins", lambda: {"$throwing": Throwing}):
            sink = vector.get("sink_validation", False)
            chain = Chain.from_config(properties(vector), strict=is_kafkas(vector), sink=sink)
    except ConfigError as error:
        phases = {getattr(mistake, "phase", None) for mistake in error.mistakes}
        if "config_error" not in expect:
            return f"refused: {error}"
        wrong_phase = "phase" in expect and phases != {expect["phase"]}
        return f"found at {phases}, expected at {expect['phase']}" if wrong_phase else None
    if "config_error" in expect:
        return f"accepted, expected a mistake: {expect.get('about')}"
    if vector["record"] is None:
        return None
    record = record_of(vector["record"])
    alone, *together = [*chain.apply([record]), *chain.apply([record, record])]
    if not all(same_outcome(alone, other) for other in together):
        return f"alone {alone}, among others {together}"
    return _compare(expect, alone)


def _compare(expect: dict[str, Any], actual: Record | Failure | None) -> str | None:
    if "matches" in expect:
        right = not isinstance(actual, Failure) and (actual is None) == expect["matches"]
    elif "record_error" in expect:
        right = isinstance(actual, Failure)
    elif expect.get("reported"):
        right = isinstance(actual, Failure) and (actual.stage, actual.class_name) == (expect["stage"], expect["class"])
    elif expect.get("dropped"):
        right = actual is None
    else:
        return _difference(expect, actual)
    return None if right else f"expected {expect}, found {actual}"


def _difference(expect: dict[str, Any], actual: Record | Failure | None) -> str | None:
    if not isinstance(actual, Record):
        return f"expected a record, found {actual}"
    record = record_of(expect)
    for name in ("topic", "partition", "offset", "timestamp"):
        if getattr(record, name) != getattr(actual, name):
            return f"{name}: expected {getattr(record, name)!r}, found {getattr(actual, name)!r}"
    if not same_outcome(record, actual):
        return f"expected {record}, found {actual}"
    return None


# --- vectors as records ---------------------------------------------------------------------------------------------


def record_of(given: dict[str, Any]) -> Record:
    """The record that a vector describes."""
    key, value = given["key"], given["value"]
    headers = [Header(name, value_of(schema_of(side["schema"]), side["value"]), schema_of(side["schema"]))
               for name, side in given["headers"]]  # fmt: skip
    return Record(
        given["topic"],
        value_of(schema_of(value["schema"]), value["value"]),
        value_of(schema_of(key["schema"]), key["value"]),
        headers,
        given["partition"],
        given.get("offset"),
        given["timestamp"],
        schema_of(key["schema"]),
        schema_of(value["schema"]),
    )


def schema_of(given: dict[str, Any] | None) -> Schema | None:
    """The schema that a vector describes."""
    if given is None:
        return None
    bare = Schema(
        given["type"],
        given.get("optional", False),
        name=given.get("name"),
        version=given.get("version"),
        doc=given.get("doc"),
        parameters=tuple((given.get("parameters") or {}).items()),
        fields=tuple(Field(f["name"], schema_of(f["schema"])) for f in given.get("fields", ())),  # type: ignore[arg-type]
        keys=schema_of(given.get("keys")),
        values=schema_of(given.get("values")),
    )
    default = given.get("default")
    return bare if default is None else bare.with_(default=value_of(bare, default))


def value_of(schema: Schema | None, given: Any) -> Any:
    """The value that a vector describes; a tag says what its schema does not."""
    if isinstance(given, dict) and len(given) == 1 and next(iter(given)).startswith("$"):
        ((tag, inner),) = given.items()
        return _tagged(schema, tag, inner)
    if isinstance(given, dict):
        if schema is not None and schema.type == "struct":
            return {field.name: value_of(field.schema, given[field.name]) for field in schema.fields}
        inner_schema = None if schema is None else schema.values
        return {key: value_of(inner_schema, item) for key, item in given.items()}
    if isinstance(given, list):
        return [value_of(None if schema is None else schema.values, item) for item in given]
    if schema is not None and schema.type in ("float32", "float64") and type(given) in (int, float):
        return _single(given) if schema.type == "float32" else float(given)
    return given


def _tagged(schema: Schema | None, tag: str, inner: Any) -> Any:
    if tag in _INTEGERS:
        # Under a schema of another width the value keeps its own, so that it is refused as Java refuses it.
        return int(inner) if schema is not None and schema.type == tag[1:] else _INTEGERS[tag](inner)
    if tag in _DATES:
        return Moment(inner)
    if tag == "$bytes":
        return bytes.fromhex(inner)
    if tag == "$decimal":
        return Decimal(inner)
    if tag == "$float":
        return _single(float(inner)) if schema is not None and schema.type == "float32" else float(inner)
    if tag == "$float32":
        single = _single(float(inner))
        return single if schema is not None and schema.type == "float32" else Float32(single)
    if tag == "$map":
        keys, values = (None, None) if schema is None else (schema.keys, schema.values)
        return {value_of(keys, key): value_of(values, item) for key, item in inner}
    assert tag == "$struct", tag
    own = schema_of(inner["schema"])
    assert own is not None
    return Struct(own, value_of(own, inner["value"]))


def _single(number: float) -> float:
    return float(struct.unpack("<f", struct.pack("<f", number))[0])


# --- strict equality --------------------------------------------------------------------------------------------------


def same_outcome(one: Record | Failure | None, other: Record | Failure | None) -> bool:
    """Whether two outcomes are the same: types, widths, schemas and the order of headers and fields count."""
    if not isinstance(one, Record) or not isinstance(other, Record):
        return one == other
    if len(one.headers) != len(other.headers):
        return False
    plain = ("topic", "partition", "offset", "timestamp")
    sides = [(one.key_schema, one.key, other.key_schema, other.key)]
    sides.append((one.value_schema, one.value, other.value_schema, other.value))
    for left, right in zip(one.headers, other.headers, strict=True):
        if left.name != right.name:
            return False
        sides.append((left.schema, left.value, right.schema, right.value))
    return all(getattr(one, name) == getattr(other, name) for name in plain) and all(
        same_schema(schema, other_schema) and same(schema, value, other_value)
        for schema, value, other_schema, other_value in sides
    )


def same_schema(one: Schema | None, other: Schema | None) -> bool:
    """Whether two schemas are the same in every attribute, their defaults strictly compared."""
    if one is None or other is None:
        return one is other
    flat = ("type", "optional", "name", "version", "doc")
    return (
        all(getattr(one, name) == getattr(other, name) for name in flat)
        and dict(one.parameters) == dict(other.parameters)
        and [field.name for field in one.fields] == [field.name for field in other.fields]
        and all(same_schema(a.schema, b.schema) for a, b in zip(one.fields, other.fields, strict=True))
        and same_schema(one.keys, other.keys)
        and same_schema(one.values, other.values)
        and same(one, one.default, other.default)
    )


def same(schema: Schema | None, one: Any, other: Any) -> bool:
    """Whether two values of a schema are the same; without one their types say what they are."""
    if one is None or other is None:
        return one is other
    if isinstance(one, Struct) and isinstance(other, Struct):
        return same_schema(one.schema, other.schema) and same(one.schema, one.fields, other.fields)
    if isinstance(one, dict):
        return isinstance(other, dict) and _same_members(schema, one, other)
    if isinstance(one, list | tuple):
        inner = None if schema is None else schema.values
        sized = isinstance(other, list | tuple) and len(one) == len(other)
        return sized and all(same(inner, a, b) for a, b in zip(one, other, strict=True))
    if isinstance(one, float):
        single = isinstance(one, Float32) or (schema is not None and schema.type == "float32")
        return _type(schema, one) is _type(schema, other) and _bits(one, single) == _bits(other, single)
    if isinstance(one, Decimal):
        return isinstance(other, Decimal) and one.as_tuple() == other.as_tuple()
    return _type(schema, one) is _type(schema, other) and bool(one == other)


def _type(schema: Schema | None, value: Any) -> type:
    """The type that counts: a default may hold a date object as a plain number."""
    dated = schema is not None and schema.name is not None and type(value) in (int, Moment) and schema.logical
    return Moment if dated else type(value)


def _same_members(schema: Schema | None, one: dict[Any, Any], other: dict[Any, Any]) -> bool:
    if schema is not None and schema.type == "struct":
        names = [field.name for field in schema.fields]
        return (
            list(one) == names
            and list(other) == names
            and all(same(field.schema, one[field.name], other[field.name]) for field in schema.fields)
        )
    inner = None if schema is None else schema.values
    keys = {(type(key), key) for key in one}
    return keys == {(type(key), key) for key in other} and all(same(inner, one[key], other[key]) for key in one)


def _bits(number: float, single: bool) -> bytes:
    return b"nan" if number != number else struct.pack("<f" if single else "<d", number)
