"""TimestampConverter."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import Column
from pyspark.sql import functions as F

from turnout.spark.java_calendar import DAY, floor_days
from turnout.spark.java_time import format_millis, parse_millis
from turnout.spark.record import Record, Step, copied
from turnout.spark.transforms.compile import compile_transform, need_map, need_struct
from turnout.spark.typed import Object, Struct, Typed
from turnout.spark.variants import kind_of, or_json_null, without_json_null
from turnout.transforms.schema import DATE, TIME, TIMESTAMP, Field, Schema
from turnout.transforms.timestamp_converter import TimestampConverter

__all__: list[str] = []

_PURPOSE = "converting timestamp formats"
_CONNECT = "org.apache.kafka.connect.errors.ConnectException"
_PER_MILLI = {"microseconds": 1000, "nanoseconds": 1_000_000}
_SPARK_MILLIS = 9_223_372_036_854_775
_MAX, _MIN = (1 << 63) - 1, -(1 << 63)

TARGETS = {
    "string": Schema("string"),
    "unix": Schema("int64"),
    "Date": Schema("int32", name=DATE, version=1),
    "Time": Schema("int32", name=TIME, version=1),
    "Timestamp": Schema("int64", name=TIMESTAMP, version=1),
}


@compile_transform.register
def _(transform: TimestampConverter, record: Record) -> Step:
    side = record.side(transform.side)
    step = Step(record)
    if transform.field:
        made = _field(transform, side, step)
    elif side.schema is None:
        made = Typed(_variant(transform, side.column, step), None)
    else:
        made = _whole(transform, side, step)
    step.record = record.with_side(transform.side, made)
    return step


def _whole(transform: TimestampConverter, side: Typed, step: Step) -> Typed:
    assert side.schema is not None
    target = TARGETS[transform.target_type].with_(optional=side.schema.optional)
    converted = _typed(transform, side.column, side.schema, step, F.lit(True))
    return side if converted is None else Typed(converted, target)


def _field(transform: TimestampConverter, side: Typed, step: Step) -> Typed:
    name = transform.field
    if isinstance(side, Object):
        need_map(step, side, _PURPOSE)
        converted = _variant(transform, without_json_null(step.bind(side.get(name))), step)
        return side.with_fields({name: or_json_null(converted)})
    if not need_struct(step, side, _PURPOSE):
        return side
    assert side.schema is not None
    fields: list[Field] = []
    columns: list[tuple[str, Column]] = []
    present = side.present
    for field, column in copied(side, step, lambda one: one != name, defaults=transform.replace_null_with_default):
        fields.append(field)
        columns.append((field.name, column))
    found = side.schema.field(name)
    if found is not None:
        read = side.field(name, defaults=transform.replace_null_with_default).column
        made = _typed(transform, read, found, step, present)
        if made is None:
            return side
        if not found.optional:
            step.fail(present & made.isNull(), f'Invalid value: null used for required field: "{name}"')
        at = [field.name for field in side.schema.fields].index(name)
        fields.insert(at, Field(name, TARGETS[transform.target_type].with_(optional=found.optional)))
        columns.insert(at, (name, made))
    schema = side.schema.basics(tuple(fields)).with_(optional=side.schema.optional, default=side.schema.default)
    return Struct(columns, side.present, schema)


def _source_of(schema: Schema) -> str | None:
    """Which of the target types a schema is; None if it is none of them."""
    by_name = {TIMESTAMP: "Timestamp", DATE: "Date", TIME: "Time"}
    if schema.name in by_name:
        return by_name[schema.name]
    return {"string": "string", "int64": "unix"}.get(schema.type)


def _typed(transform: TimestampConverter, column: Column, schema: Schema, step: Step, present: Column) -> Column | None:
    """The converted column; None if the schema cannot be converted, and then every record fails."""
    source = _source_of(schema)
    if source is None:
        step.fail(present, f"Schema {schema.type} does not correspond to a known timestamp type format", _CONNECT)
        return None
    return _from_millis(transform, _to_millis(transform, column, source, step), step)


def _to_millis(
    transform: TimestampConverter, column: Column, source: str, step: Step, when: Column | None = None
) -> Column:
    """Epoch milliseconds of a column of one of the five types, failures noted where *when* holds."""
    match source:
        case "Timestamp":
            return F.unix_millis(column)
        case "Date":
            return F.unix_date(column).cast("bigint") * DAY
        case "Time":
            return column.cast("bigint")
        case "unix":
            return _millis_of_unix(column, transform.unix_precision)
    guard = column.isNotNull() if when is None else when
    if not transform.format:
        step.fail(guard, "a string needs a format", "java.lang.NullPointerException")
        return F.lit(None).cast("bigint")
    parsed = parse_millis(column, transform.format, step.bind)
    message = F.concat(
        F.lit("Could not parse timestamp: value ("),
        F.coalesce(column, F.lit("")),
        F.lit(f") does not match pattern ({transform.format})"),
    )
    step.fail(guard & parsed.failed, message)
    return parsed.millis


def _millis_of_unix(column: Column, precision: str) -> Column:
    if precision == "milliseconds":
        return column
    if precision == "seconds":
        return _saturating(column, 1000)
    return _toward_zero(column, _PER_MILLI[precision])


def _toward_zero(column: Column, by: int) -> Column:
    """Division that drops the fraction."""
    return F.call_function("div", column, F.lit(by).cast("bigint"))


def _saturating(column: Column, by: int) -> Column:
    """Multiplication that stops at the ends of 64 bits."""
    made = F.try_multiply(column, F.lit(by).cast("bigint"))
    edge = F.when(column > 0, F.lit(_MAX)).when(column < 0, F.lit(_MIN))
    return F.coalesce(made, edge)


def _from_millis(transform: TimestampConverter, millis: Column, step: Step) -> Column:
    millis = step.bind(millis)
    if transform.target_type in ("Date", "Timestamp"):
        held = millis.between(F.lit(-_SPARK_MILLIS), F.lit(_SPARK_MILLIS))
        step.fail(~held, "the time is beyond what Spark's timestamps hold")
        millis = F.when(held, millis)
    match transform.target_type:
        case "string":
            return format_millis(millis, transform.format, step.bind)
        case "unix":
            if transform.unix_precision == "milliseconds":
                return millis
            if transform.unix_precision == "seconds":
                return _toward_zero(millis, 1000)
            return _saturating(millis, _PER_MILLI[transform.unix_precision])
        case "Date":
            return F.date_from_unix_date(floor_days(millis).cast("int"))
        case "Time":
            return F.pmod(millis, F.lit(DAY).cast("bigint")).cast("int")
    return F.timestamp_millis(millis)


def _variant(transform: TimestampConverter, value: Column, step: Step) -> Column:
    """The converted variant, by the type that the record's own value has; null stays null."""
    value = step.bind(value)
    kind = step.bind(kind_of(value))
    is_time = kind.isin("TIMESTAMP", "TIMESTAMP_NTZ", "DATE")
    known = is_time | kind.isin("BIGINT", "STRING")
    step.fail(value.isNotNull() & ~known, F.concat(F.lit("Schemaless value is no timestamp: "), kind))
    read: list[tuple[Column, Callable[[], Column]]] = [
        (is_time, lambda: F.unix_millis(F.try_variant_get(value, "$", "timestamp"))),
        (kind == "BIGINT", lambda: _millis_of_unix(F.try_variant_get(value, "$", "bigint"), transform.unix_precision)),
    ]
    millis = F.when(
        kind == "STRING",
        _to_millis(transform, F.try_variant_get(value, "$", "string"), "string", step, when=kind == "STRING"),
    )
    for when, column in read:
        millis = millis.when(when, column())
    made = _from_millis(transform, millis, step)
    if transform.target_type == "Date":
        made = made.cast("timestamp")
    if transform.target_type == "Time":
        made = F.timestamp_millis(made.cast("bigint"))
    return made.cast("variant")
