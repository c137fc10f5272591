"""The Connect vectors: configurations through `Chain.from_config`, records through Spark, by the hundred in one job."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest.mock import patch

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from tests.settings import interpreted, settings
from tests.vectors.outcome import Outcome
from tests.vectors.variant_codec import Float32, Int, Millis, decode, encode
from turnout.errors import ConfigError, NotCompilableError
from turnout.spark.chain import compile_chain
from turnout.spark.predicates import Test, compile_predicate
from turnout.spark.record import Failure
from turnout.spark.schemas import literal, metadata_of, spark_type
from turnout.spark.session import build_session
from turnout.spark.variants import to_variant
from turnout.transforms import Chain, Predicate, registry
from turnout.transforms.parity import PARITY
from turnout.transforms.schema import DATE, DECIMAL, TIME, TIMESTAMP, Field, Schema

PURE, SPARK = "python", "spark"
BATCH = 100
_DAY = 86_400_000


class Unsupported(Exception):
    """Raised with a reason of `PARITY` where Spark cannot hold what the vector has."""


class Throwing(Predicate):
    """The predicate ``$throwing``: its test always fails."""


@compile_predicate.register
def _(_predicate: Throwing, _record: object) -> Test:
    failure = Failure(F.lit(True), "java.lang.RuntimeException", F.lit("thrown"))
    return Test(F.lit(True), [failure])


def run(path: Path) -> list[Outcome]:
    """The outcomes of all vectors of one file."""
    spark = build_session(
        "turnout-vectors", master="local[2]", conf={"spark.sql.shuffle.partitions": "2", "spark.driver.memory": "3g"}
    )
    return run_vectors(spark, json.loads(path.read_text(encoding="utf-8")))


def run_vectors(spark: SparkSession, vectors: list[dict[str, Any]], *, codegen: bool = False) -> list[Outcome]:
    """The outcomes of *vectors*, the records among them compiled together."""
    with (
        patch.object(registry, "_plugins", lambda: {"$throwing": Throwing}),
        settings(spark, {"spark.sql.caseSensitive": "true"}),
        # A hundred plans of one row each are not worth a compiler's time.
        nullcontext() if codegen else interpreted(spark),
    ):
        cases = [_configured(vector) for vector in vectors]
        pending = [case for case in cases if case.outcome is None]
        for at in range(0, len(pending), BATCH):
            _run_batch(spark, pending[at : at + BATCH])
    return [case.outcome for case in cases if case.outcome is not None]


@dataclass
class Case:
    vector: dict[str, Any]
    chain: Chain | None = None
    outcome: Outcome | None = None
    schemas: dict[str, Schema | None] = field(default_factory=dict)

    def settle(self, status: str, reason: str = "", implementation: str = SPARK) -> None:
        assert status != "unsupported" or reason in PARITY, f"{reason!r} is no reviewed reason"
        self.outcome = Outcome(self.vector["name"], implementation, status, reason)  # type: ignore[arg-type]


def properties(vector: dict[str, Any]) -> dict[str, Any]:
    """The connector's properties of a vector that gives only a transform's or a predicate's options."""
    config = vector["config"]
    if vector.get("level") == "connector":
        return config
    if ".predicates." in config["type"]:
        guard = {"transforms": "t", "transforms.t.type": "Filter", "transforms.t.predicate": "p", "predicates": "p"}
        return guard | {f"predicates.p.{name}": value for name, value in config.items()}
    return {"transforms": "t"} | {f"transforms.t.{name}": value for name, value in config.items()}


def _configured(vector: dict[str, Any]) -> Case:
    """The vector with its chain; settled already where it is about the configuration alone."""
    case = Case(vector)
    expect = vector["expect"]
    try:
        case.chain = Chain.from_config(properties(vector), strict=True, sink=vector.get("sink_validation", False))
    except ConfigError as error:
        phases = {mistake.phase for mistake in error.mistakes}
        if "config_error" not in expect:
            case.settle("failed", f"refused: {error}", PURE)
        elif "phase" in expect and phases != {expect["phase"]}:
            case.settle("failed", f"found at {phases}, expected at {expect['phase']}", PURE)
        else:
            case.settle("passed", implementation=PURE)
        return case
    if "config_error" in expect:
        case.settle("failed", f"accepted, expected a mistake: {expect.get('about')}", PURE)
    elif vector["record"] is None:
        case.settle("passed", implementation=PURE)
    return case


# --- vectors into Spark ---------------------------------------------------------------------------------------------


def schema_of(given: dict[str, Any] | None) -> Schema | None:
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
    return bare if default is None else bare.with_(default=typed(bare, default))


def typed(schema: Schema, value: Any) -> Any:
    """A vector's value as the Python value that `literal` takes; Unsupported where Spark's type cannot hold it."""
    if value is None:
        return None
    if isinstance(value, dict) and len(value) == 1 and next(iter(value)).startswith("$"):
        return _tagged(schema, *next(iter(value.items())))
    if schema.type == "struct":
        return {f.name: typed(f.schema, value.get(f.name)) for f in schema.fields}
    if schema.type == "array":
        return [typed(schema.values, item) for item in value] if schema.values else value
    if schema.type == "map":
        return {key: typed(schema.values, item) for key, item in value.items()} if schema.values else value
    if schema.logical is not None:
        raise Unsupported("value against its schema")
    if schema.type == "float32":
        return struct.unpack("<f", struct.pack("<f", value))[0]
    return value


def _tagged(schema: Schema, tag: str, inner: Any) -> Any:
    wanted = {"$date": DATE, "$time": TIME, "$timestamp": TIMESTAMP, "$decimal": DECIMAL}
    if tag in wanted and schema.logical != wanted[tag]:
        raise Unsupported("value against its schema")
    if tag == "$date" and inner % _DAY:
        raise Unsupported("date with a time of day")
    if tag in ("$date", "$time", "$timestamp"):
        if abs(inner) > (1 << 63) // 1000:
            raise Unsupported("range of dates")
        return inner
    if tag == "$decimal":
        number = Decimal(inner)
        if -int(number.as_tuple().exponent) != schema.scale or len(number.as_tuple().digits) > 38:
            raise Unsupported("decimal scale")
        return number
    if tag == "$bytes" and schema.type == "bytes":
        return bytes.fromhex(inner)
    if tag == "$float":
        return float(inner)
    if tag == "$map":
        return {key: typed(schema.values, item) if schema.values else item for key, item in inner}
    raise Unsupported("value against its schema")


def _variant(value: Any) -> Any:
    if value is None:
        return None
    try:
        return encode(value)
    except ValueError as error:
        raise Unsupported(str(error)) from None


_BASE = T.StructType(
    [
        T.StructField("id", T.IntegerType()),
        T.StructField("key", T.VariantType()),
        T.StructField("value", T.VariantType()),
        T.StructField("headers", T.ArrayType(T.VariantType())),
    ]
)


def _schemaless(side: dict[str, Any]) -> Any:
    return _variant(side["value"]) if side["schema"] is None else None


def _side(side: dict[str, Any], column: Column) -> tuple[Column, Schema | None]:
    schema = schema_of(side["schema"])
    if schema is None:
        return column, None
    made = literal(schema, typed(schema, side["value"]))
    # Not a constant: Spark must compute the chain, not fold it.
    return F.when(F.col("id") >= 0, made).cast(spark_type(schema)), schema


def _input(base: DataFrame, at: int, case: Case) -> DataFrame:
    record = case.vector["record"]
    row = base.where(F.col("id") == at)
    headers = []
    for number, (name, side) in enumerate(record["headers"]):
        schema = schema_of(side["schema"])
        if schema is None:
            value, text = F.col("headers")[number], F.lit(None).cast("string")
        else:
            value = to_variant(literal(schema, typed(schema, side["value"])), schema)
            text = F.lit(json.dumps(schema.to_json()))
        headers.append(F.struct(F.lit(name).alias("key"), value.alias("value"), text.alias("schema")))
    typed_headers = "array<struct<key:string,value:variant,schema:string>>"
    columns = [F.col("id"), _live(F.lit(record["topic"]).cast("string"), "topic")]
    columns.append(_live(F.lit(record["partition"]).cast("int"), "partition"))
    if record["kind"] == "sink":
        columns.append(_live(F.lit(record["offset"]).cast("bigint"), "offset"))
    for name in ("key", "value"):
        column, schema = _side(record[name], F.col(name))
        columns.append(column.alias(name, metadata=metadata_of(schema)))
    columns.append(F.array(*headers).cast(typed_headers).alias("headers"))
    stamp = record["timestamp"]
    moment = F.lit(None).cast("timestamp") if stamp is None else F.timestamp_millis(F.lit(stamp).cast("bigint"))
    columns.append(_live(moment, "timestamp"))
    return row.select(*columns)


def _live(column: Column, name: str) -> Column:
    return F.when(F.col("id") >= 0, column).alias(name)


def _run_batch(spark: SparkSession, cases: list[Case]) -> None:
    rows, usable = [], []
    for case in cases:
        record = case.vector["record"]
        try:
            headers = [_schemaless(side) for _, side in record["headers"]]
            rows.append((len(rows), _schemaless(record["key"]), _schemaless(record["value"]), headers))
        except Unsupported as reason:
            case.settle("unsupported", str(reason))
        else:
            usable.append(case)
    if not usable:
        return
    base = spark.createDataFrame(rows, _BASE).coalesce(1)
    frames = [frame for at, case in enumerate(usable) if (frame := _compiled(base, at, case)) is not None]
    if not frames:
        return
    for found in _union(frames).collect():
        case = usable[found["id"]]
        try:
            problem = _compare(case, decode(found["out"]))
        except Unsupported as reason:
            case.settle("unsupported", str(reason))
        else:
            case.settle("failed" if problem else "passed", problem or "")


def _union(frames: list[DataFrame]) -> DataFrame:
    """All frames in one, joined pairwise: each union analyses all that is below it."""
    while len(frames) > 1:
        odd = frames[-1:] if len(frames) % 2 else []
        frames = [left.union(right) for left, right in zip(frames[::2], frames[1::2], strict=False)] + odd
    return frames[0]


def _compiled(base: DataFrame, at: int, case: Case) -> DataFrame | None:
    assert case.chain is not None
    try:
        frame = compile_chain(case.chain, _input(base, at, case), "all")
    except Unsupported as reason:
        case.settle("unsupported", str(reason))
        return None
    except NotCompilableError as reason:
        known = next((known for known, text in PARITY.items() if text[:20] in str(reason) or known in str(reason)), "")
        case.settle("unsupported" if known else "failed", known or str(reason))
        return None
    from turnout.spark.schemas import schema_of as column_schema

    case.schemas = {name: column_schema(frame.schema[name]) for name in ("key", "value")}
    parts = [
        to_variant(F.col(name), case.schemas[name]).alias(name) if name in ("key", "value") else F.col(name)
        for name in frame.columns
        if name != "id"
    ]
    return frame.select("id", F.to_variant_object(F.struct(*parts)).alias("out"))


# --- Spark's answer beside the expected one ---------------------------------------------------------------------------


def _compare(case: Case, out: dict[str, Any]) -> str | None:
    """What is wrong, None if nothing."""
    expect = case.vector["expect"]
    error, dropped = out["_error"], out["_dropped"]
    if "matches" in expect:
        return None if error is None and dropped == expect["matches"] else f"matches {dropped}, error {error}"
    if "record_error" in expect:
        if error is None:
            _explained(case)
        return None if error is not None else f"no error, expected one: {expect.get('about')}; found {out}"
    if expect.get("reported"):
        if error is None:
            return "not reported"
        found = (error["stage"], error["class_name"])
        return None if found == (expect["stage"], expect["class"]) else f"reported as {found}"
    if error is not None:
        return f"error {error}"
    if expect.get("dropped") or dropped:
        return None if expect.get("dropped") and dropped else f"dropped is {dropped}"
    return _compare_record(case, expect, out)


_SCHEMALESS_TAGS = {
    "integer width": ("$int8", "$int16", "$int32"),
    "schemaless decimal": ("$decimal", "$bigint"),
}


def _explained(case: Case) -> None:
    """Raise Unsupported where a failure was to be told by a type that a variant does not tell."""
    record = case.vector["record"]
    text = json.dumps([record[name]["value"] for name in ("key", "value") if record[name]["schema"] is None])
    for reason, tags in _SCHEMALESS_TAGS.items():
        if any(f'"{tag}"' in text for tag in tags):
            raise Unsupported(reason)


def _compare_record(case: Case, expect: dict[str, Any], out: dict[str, Any]) -> str | None:
    width = False
    for name in ("topic", "partition", "offset", "timestamp"):
        if expect.get(name) != out.get(name):
            return f"{name}: expected {expect.get(name)!r}, found {out.get(name)!r}"
    sides = [(name, expect[name], case.schemas[name], out[name]) for name in ("key", "value")]
    if [name for name, _ in expect["headers"]] != [header["key"] for header in out["headers"]]:
        return f"headers: found {out['headers']}"
    for (name, wanted), header in zip(expect["headers"], out["headers"], strict=True):
        text = header["schema"]
        schema = None if text is None else Schema.from_json(json.loads(text))
        sides.append((f"header {name}", wanted, schema, header["value"]))
    for name, wanted, schema, value in sides:
        wanted_schema = schema_of(wanted["schema"])
        if wanted_schema != schema:
            if schema is None and case.chain is not None and any(stage.guards for stage in case.chain.stages):
                raise Unsupported("conditional change of type")
            if None not in (schema, wanted_schema) and wanted["value"] is None and value is None:
                raise Unsupported("schema of a null")
            return f"{name}: schema expected {wanted_schema}, found {schema}"
        same = _same(wanted_schema, wanted["value"], value)
        if same is False:
            return f"{name}: expected {wanted['value']!r}, found {value!r}"
        width = width or same is None
    if width:
        raise Unsupported("integer width")
    return None


def _all(results: Iterable[bool | None]) -> bool | None:
    """False if one is, else None if one is, else true."""
    found = list(results)
    return False if False in found else None if None in found else True


def _same(schema: Schema | None, wanted: Any, found: Any) -> bool | None:
    """Whether the values are the same; None where only an integer's width is not."""
    if schema is None:
        return _same_schemaless(wanted, found)
    value = typed(schema, wanted)
    return _same_typed(schema, value, found)


def _same_typed(schema: Schema, wanted: Any, found: Any) -> bool | None:
    if wanted is None or found is None:
        return wanted is None and found is None
    if schema.type == "struct":
        if set(found) != {f.name for f in schema.fields}:
            return False
        return _all(_same_typed(f.schema, wanted[f.name], found[f.name]) for f in schema.fields)
    if schema.type == "array":
        if len(wanted) != len(found):
            return False
        if schema.values is None:
            return _all(_same_schemaless(a, b) for a, b in zip(wanted, found, strict=True))
        return _all(_same_typed(schema.values, a, b) for a, b in zip(wanted, found, strict=True))
    if schema.type == "map":
        wanted = {str(key): item for key, item in wanted.items()}
        if set(wanted) != set(found):
            return False
        if schema.values is None:
            return _all(_same_schemaless(wanted[key], found[key]) for key in wanted)
        return _all(_same_typed(schema.values, wanted[key], found[key]) for key in wanted)
    if isinstance(wanted, bool) or isinstance(found, bool):
        return wanted is found
    if isinstance(wanted, float):
        return isinstance(found, float) and _bits(schema.type, wanted) == _bits(schema.type, found)
    if isinstance(found, Decimal):
        return bool(Decimal(wanted) == found)
    return bool(wanted == found)


def _bits(type_: str, number: float) -> bytes:
    return b"nan" if number != number else struct.pack("<f" if type_ == "float32" else "<d", number)


def _same_schemaless(wanted: Any, found: Any) -> bool | None:
    if isinstance(wanted, dict) and len(wanted) == 1 and next(iter(wanted)).startswith("$"):
        return _same_tagged(*next(iter(wanted.items())), found)
    if isinstance(wanted, dict):
        if not isinstance(found, dict) or set(wanted) != set(found):
            return False
        return _all(_same_schemaless(wanted[name], found[name]) for name in wanted)
    if isinstance(wanted, list):
        if not isinstance(found, list) or len(wanted) != len(found):
            return False
        return _all(_same_schemaless(a, b) for a, b in zip(wanted, found, strict=True))
    if isinstance(wanted, bool) or wanted is None:
        return wanted is found
    if isinstance(wanted, int):
        return isinstance(found, Int) and int(found) == wanted
    if isinstance(wanted, float):
        return type(found) is float and _bits("float64", wanted) == _bits("float64", found)
    return type(found) is str and wanted == found


def _same_tagged(tag: str, wanted: Any, found: Any) -> bool | None:
    if tag in ("$int8", "$int16", "$int32", "$int64"):
        if not isinstance(found, Int) or int(found) != wanted:
            return False
        return True if found.bits == int(tag[4:]) or tag == "$int64" else None
    if tag == "$float32":
        return isinstance(found, Float32) and _bits("float32", float(wanted)) == _bits("float32", found)
    if tag == "$float":
        return type(found) is float and _bits("float64", float(wanted)) == _bits("float64", found)
    if tag in ("$decimal", "$bigint"):
        if isinstance(found, Decimal) and found == Decimal(wanted):
            return True
        raise Unsupported("schemaless decimal")
    if tag == "$bytes":
        return isinstance(found, bytes) and found.hex() == wanted.lower()
    return isinstance(found, Millis) and int(found) == wanted
