"""Columns of a record in a frame: permitted types, types after a chain, and functions over their Arrow batches."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.udf import UserDefinedFunction
from pyspark.util import PythonEvalType

from turnout.errors import ConfigError, Mistake
from turnout.records.schema import DATE, DECIMAL, TIME, TIMESTAMP, Field, Schema
from turnout.transforms.schemas import common_schema

ERROR: Final = "_error"
"""The column that says why a record failed."""

ERROR_TYPE: Final = T.StructType(
    [
        T.StructField("stage", T.StringType()),
        T.StructField("class_name", T.StringType()),
        T.StructField("exception", T.StringType()),
        T.StructField("message", T.StringType()),
    ]
)

HEADERS: Final = T.ArrayType(
    T.StructType([T.StructField("key", T.StringType()), T.StructField("value", T.BinaryType())])
)

RECORD: Final[dict[str, T.DataType]] = {
    "topic": T.StringType(),
    "partition": T.IntegerType(),
    "timestamp": T.TimestampType(),
    "key": T.BinaryType(),
    "value": T.BinaryType(),
    "headers": HEADERS,
}
"""Columns of a record, with the default if a frame has none of that name; ``offset`` may be missing."""

ENCODINGS: Final = {"key": "__turnout.key.encoding", "value": "__turnout.value.encoding"}
"""Part of a record → header that says that its text is the Base64 of bytes that are no UTF-8."""

_BASE64: Final = "base64"

_INTEGERS = (T.ByteType, T.ShortType, T.IntegerType, T.LongType)
_TIMES = (T.TimestampType, T.TimestampNTZType)
_EXPECTED: Final[dict[str, tuple[tuple[type[T.DataType], ...], str]]] = {
    "topic": ((T.StringType,), "a string"),
    "partition": (_INTEGERS, "an integer"),
    "offset": (_INTEGERS, "an integer"),
    "timestamp": (_TIMES, "a timestamp"),
}
_VALUES = (
    *_INTEGERS, *_TIMES, T.FloatType, T.DoubleType, T.BooleanType, T.StringType, T.BinaryType, T.DecimalType,
    T.DateType, T.VariantType, T.NullType,
)  # fmt: skip


def case_rule(spark: SparkSession) -> Callable[[str], str]:
    """Return a function whose result is equal for names that Spark takes for one: see ``spark.sql.caseSensitive``."""
    return str if spark.conf.get("spark.sql.caseSensitive") == "true" else str.lower


def with_record_names(records: DataFrame, expected: Iterable[str] = ()) -> DataFrame:
    """Return the frame with the columns of a record under their own names, however they are written.

    Args:
        records: the frame.
        expected: names of columns that it must have.

    Raises:
        ConfigError: Spark takes the names of several columns for one, or an expected one is missing.
    """
    rule = case_rule(records.sparkSession)
    groups: dict[str, list[str]] = {}
    for name in records.columns:
        groups.setdefault(rule(name), []).append(name)
    mistakes = [
        Mistake(names[0], f"{' and '.join(names)} are one name, as Spark compares names: rename or drop all but one")
        for names in groups.values()
        if len(names) > 1
    ]
    columns = ", ".join(records.columns)
    mistakes += [
        Mistake(name, f"the column is missing; the frame has {columns}") for name in expected if name not in groups
    ]
    if mistakes:
        raise ConfigError(mistakes, what="bad columns of records")
    own = {groups[name][0]: name for name in (*RECORD, "offset") if name in groups and groups[name][0] != name}
    return records.withColumnsRenamed(own) if own else records


def complete(records: DataFrame) -> DataFrame:
    """Return the frame with every column of a record; missing columns, and columns of type void, are null."""
    types = {field.name: field.dataType for field in records.schema}
    missing = {
        name: F.lit(None).cast(type_)
        for name, type_ in RECORD.items()
        if isinstance(types.get(name, T.NullType()), T.NullType)
    }
    return records.withColumns(missing) if missing else records


def refused(schema: T.StructType) -> None:
    """Refuse columns of a record that have a type which a record cannot have.

    Raises:
        ConfigError: names each of them.
    """
    mistakes: list[Mistake] = []
    for name, (types, expected) in _EXPECTED.items():
        if name in schema.names and not isinstance(schema[name].dataType, types):
            mistakes.append(Mistake(name, f"expected {expected}, found {schema[name].dataType.simpleString()}"))
    if not is_headers(schema["headers"].dataType):
        actual = schema["headers"].dataType.simpleString()
        mistakes.append(Mistake("headers", f"expected {HEADERS.simpleString()}, found {actual}"))
    for name in ("key", "value"):
        mistakes += [
            Mistake(path, f"is {type_.simpleString()}, which Connect has no type for: cast it first")
            for path, type_ in foreign(name, schema[name].dataType)
        ]
    if mistakes:
        raise ConfigError(mistakes, what="bad columns for a chain")


def is_headers(type_: T.DataType) -> bool:
    """Return True for a column of headers; their values may be text, too."""
    pair = type_.elementType if isinstance(type_, T.ArrayType) else None
    return (
        isinstance(pair, T.StructType)
        and pair.names == ["key", "value"]
        and isinstance(pair["key"].dataType, T.StringType)
        and isinstance(pair["value"].dataType, T.BinaryType | T.StringType)
    )


def foreign(path: str, type_: T.DataType) -> Iterator[tuple[str, T.DataType]]:
    """Yield the parts of a type that Connect has no type for."""
    if isinstance(type_, T.StructType):
        for field in type_:
            yield from foreign(f"{path}.{field.name}", field.dataType)
    elif isinstance(type_, T.ArrayType):
        yield from foreign(f"{path}[]", type_.elementType)
    elif isinstance(type_, T.MapType):
        yield from foreign(f"{path} (keys)", type_.keyType)
        yield from foreign(f"{path} (values)", type_.valueType)
    elif not isinstance(type_, _VALUES):
        yield path, type_


def column_schema(possible: Iterable[Schema | None], before: Schema | None) -> Schema | None:
    """Return the schema of a column for values of these schemas, None for a VARIANT; *before* if all are null.

    Schemas of one Spark type keep it; attributes in which they differ are left out.
    """
    schemas = list(possible)
    typed = [schema for schema in schemas if schema is not None]
    if not schemas:
        return before
    if len(typed) < len(schemas) or any(spark_type(schema) != spark_type(typed[0]) for schema in typed[1:]):
        return None
    return common_schema(typed)


def value_field(name: str, schema: Schema | None) -> T.StructField:
    """Return the column of keys or values of this schema, which it keeps in its metadata."""
    return T.StructField(name, spark_type(schema), nullable=True, metadata=metadata_of(schema))


def schemas_of(schema: T.StructType) -> tuple[Schema | None, Schema | None]:
    """Return the schemas of keys and values."""
    return schema_of(schema["key"]), schema_of(schema["value"])


METADATA_KEY = "connect.schema"
"""The column metadata that holds the schema, in the JSON of Connect's JsonConverter."""

_PRIMITIVES: dict[str, T.DataType] = {
    "int8": T.ByteType(),
    "int16": T.ShortType(),
    "int32": T.IntegerType(),
    "int64": T.LongType(),
    "float32": T.FloatType(),
    "float64": T.DoubleType(),
    "boolean": T.BooleanType(),
    "string": T.StringType(),
    "bytes": T.BinaryType(),
    "variant": T.VariantType(),
}
_NAMES: dict[type[T.DataType], str] = {type(spark): name for name, spark in _PRIMITIVES.items()}
_LOGICAL: dict[str, T.DataType] = {
    DATE: T.DateType(),
    # A number of milliseconds: Connect's Time may be outside a day, Spark's TIME may not.
    TIME: T.IntegerType(),
    TIMESTAMP: T.TimestampType(),
}
_OF_LOGICAL: dict[type[T.DataType], tuple[str, str]] = {
    T.DateType: ("int32", DATE),
    T.TimestampType: ("int64", TIMESTAMP),
    T.TimestampNTZType: ("int64", TIMESTAMP),
}


def spark_type(schema: Schema | None) -> T.DataType:
    """Return the Spark type of values with this schema; VARIANT for None."""
    if schema is None:
        return T.VariantType()
    logical = schema.logical
    if logical == DECIMAL:
        return T.DecimalType(schema.digits, min(max(schema.scale, 0), 38))
    if logical is not None:
        return _LOGICAL[logical]
    if schema.type == "struct":
        return T.StructType([T.StructField(field.name, spark_type(field.schema)) for field in schema.fields])
    if schema.type == "array":
        return T.ArrayType(spark_type(schema.values))
    if schema.type == "map":
        return T.MapType(spark_type(schema.keys), spark_type(schema.values))
    return _PRIMITIVES[schema.type]


def schema_of(field: T.StructField) -> Schema | None:
    """Return the schema of a column, from its metadata or else its type; None for schemaless variants.

    Metadata that no longer fits the column's type (someone changed the column since) is ignored.
    """
    text = field.metadata.get(METADATA_KEY) if field.metadata else None
    if text:
        schema = Schema.from_json(json.loads(text))
        if spark_type(schema).simpleString() == field.dataType.simpleString():
            return schema
    return _derived(field.dataType)


def _derived(spark: T.DataType) -> Schema | None:
    """Return the schema that a Spark type alone defines: everything is optional, as in Spark."""
    if isinstance(spark, T.VariantType):
        return None
    if isinstance(spark, T.StructType):
        fields = tuple(Field(field.name, _nested(field.dataType)) for field in spark.fields)
        return Schema("struct", optional=True, fields=fields)
    return _nested(spark)


def _nested(spark: T.DataType) -> Schema:
    if isinstance(spark, T.DecimalType):
        return Schema("bytes", True, name=DECIMAL, version=1, parameters=(("scale", str(spark.scale)),))
    for kind, (type_, name) in _OF_LOGICAL.items():
        if isinstance(spark, kind):
            return Schema(type_, True, name=name, version=1)
    if isinstance(spark, T.ArrayType):
        return Schema("array", True, values=_nested(spark.elementType))
    if isinstance(spark, T.MapType):
        return Schema("map", True, keys=_nested(spark.keyType), values=_nested(spark.valueType))
    if isinstance(spark, T.StructType):
        return Schema("struct", True, fields=tuple(Field(f.name, _nested(f.dataType)) for f in spark.fields))
    # A type that Connect does not know is carried as it is.
    return Schema(_NAMES.get(type(spark), "variant"), True)


def metadata_of(schema: Schema | None) -> dict[str, object]:
    """Return the column metadata that keeps *schema*."""
    return {} if schema is None else {METADATA_KEY: json.dumps(schema.to_json(), ensure_ascii=False)}


def as_texts(messages: DataFrame) -> DataFrame:
    """Return messages with keys and values as texts: JSON of structs, and Base64 of bytes that are no UTF-8.

    A message with Base64 has a header `ENCODINGS` that says so, and `from_texts` reads it.
    """
    texts: dict[str, Column] = {}
    marks: list[Column] = []
    for name, header in ENCODINGS.items():
        text = _as_text(messages, name)
        if messages.schema[name].dataType.typeName() == "binary":
            is_text = F.coalesce(F.is_valid_utf8(text), F.lit(True))
            marks.append(F.when(~is_text, _mark(header)))
            text = F.when(is_text, text).otherwise(F.base64(name))
        texts[name] = text
    if marks:
        marked = F.array_compact(F.array(*marks))
        own = F.coalesce("headers", F.array().cast(HEADERS))
        texts["headers"] = F.when(F.size(marked) > 0, F.concat(own, marked)).otherwise(F.col("headers"))
    return messages.withColumns(texts)


def from_texts(records: DataFrame) -> DataFrame:
    """Return records whose keys and values are bytes again where `as_texts` has written them in Base64."""
    if records.schema["headers"].dataType.simpleString() != HEADERS.simpleString():
        return records
    read: dict[str, Column] = {}
    for name, header in ENCODINGS.items():
        if records.schema[name].dataType.typeName() == "string":
            own = F.col(name).cast("binary")
            raw = F.coalesce(F.try_to_binary(name, F.lit("base64")), own)
            read[name] = F.when(F.array_contains("headers", _mark(header)), raw).otherwise(own)
    if read:
        read["headers"] = F.filter("headers", lambda one: ~one["key"].isin(*ENCODINGS.values()))
    return records.withColumns(read)


def _mark(header: str) -> Column:
    return F.struct(F.lit(header).alias("key"), F.lit(_BASE64).cast("binary").alias("value"))


def _as_text(messages: DataFrame, name: str) -> Column:
    """Return a column for a sink of texts: structs and variants as JSON."""
    kind = messages.schema[name].dataType
    if isinstance(kind, T.StructType | T.MapType | T.ArrayType | T.VariantType):
        return F.to_json(name)
    return F.col(name).cast("string")


def map_in_arrow(
    frame: DataFrame,
    function: Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]],
    schema: T.StructType | str,
) -> DataFrame:
    """Apply *function* to each partition's batches.

    It is `DataFrame.mapInArrow`, which requires pandas to be installed, imports it (0.65 s) and does not use it. Where
    a frame is not of the JVM beside this process, as with Spark Connect, the original is called.
    """
    java = getattr(frame, "_jdf", None)
    if java is None:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas")
            return frame.mapInArrow(function, schema)
    udf = UserDefinedFunction(function, returnType=schema, evalType=PythonEvalType.SQL_MAP_ARROW_ITER_UDF)
    column = udf(*[frame[name] for name in frame.columns])
    # What `DataFrame.mapInArrow` itself does behind its import of pandas; no public way leads past that.
    return DataFrame(java.mapInArrow(column._jc, False, None), frame.sparkSession)  # noqa: SLF001
