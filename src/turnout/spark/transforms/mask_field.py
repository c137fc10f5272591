"""MaskField."""

from __future__ import annotations

from decimal import Context, Decimal, InvalidOperation
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F

from turnout.spark.record import Record, Step, copied
from turnout.spark.schemas import literal, spark_type
from turnout.spark.transforms.compile import compile_transform, need_map, need_struct
from turnout.spark.typed import Object, Struct
from turnout.spark.variants import kind_of, or_json_null, without_json_null
from turnout.transforms.mask_field import MaskField
from turnout.transforms.schema import DECIMAL, DIGITS, Schema

__all__: list[str] = []

_PURPOSE = "mask fields"
_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}


@compile_transform.register
def _(transform: MaskField, record: Record) -> Step:
    side = record.side(transform.side)
    step = Step(record)
    if isinstance(side, Object):
        need_map(step, side, _PURPOSE, null_fails=True)
        masked = {name: _masked_variant(transform, step.bind(side.get(name)), name, step) for name in transform.fields}
        step.record = record.with_side(transform.side, side.with_fields(masked))
    elif need_struct(step, side, _PURPOSE, null_fails=True):
        columns = []
        for field, column in copied(side, step, defaults=transform.replace_null_with_default):
            new = column
            if field.name in transform.fields:
                new = _masked(transform, column, field.schema, field.name, step)
            columns.append((field.name, new))
        assert side.schema is not None
        step.record = record.with_side(transform.side, Struct(columns, side.present, side.schema))
    return step


def decimal_of(text: str, schema: Schema) -> Decimal | None:
    """The replacement as a decimal of the column; None where the column cannot hold it exactly."""
    number = number_of(text)
    if number is None or (number != 0 and number.adjusted() >= DIGITS - schema.scale):
        return None
    # The scale of the column is below 39: what ends further right needs more digits than it has.
    held = number.quantize(Decimal(1).scaleb(-schema.scale), context=Context(prec=2 * DIGITS))
    return held if held == number else None


def integer_of(text: str, bits: int) -> int | None:
    """The replacement as an integer of that width: its fraction dropped, its low bits kept; None if no number."""
    number = number_of(text)
    if number is None:
        return None
    exponent = number.as_tuple().exponent
    if isinstance(exponent, int) and exponent >= bits:
        # Ten to that power has as many zero bits at its end; 1e999999999 need not be written out to know that.
        return 0
    low = int(number) & ((1 << bits) - 1)
    return low - (1 << bits) if low >> (bits - 1) else low


def number_of(text: str) -> Decimal | None:
    """The replacement as a decimal number; None if it is none. NaN and Infinity are none."""
    try:
        number = Decimal(text)
    except InvalidOperation:
        return None
    return number if number.is_finite() and text == text.strip() and "_" not in text else None


def _replacement(schema: Schema, text: str) -> Any:
    """The replacement as a value of the schema's type; None where it cannot be one."""
    if schema.logical == DECIMAL:
        return decimal_of(text, schema)
    if schema.logical is not None:
        return None
    if schema.type in _BITS:
        return integer_of(text, _BITS[schema.type])
    if schema.type in ("float32", "float64"):
        number = number_of(text)
        return None if number is None else float(number)
    return text if schema.type == "string" else None


def _masked(transform: MaskField, column: Column, schema: Schema, name: str, step: Step) -> Column:
    """The masked column: null stays null, everything else becomes the zero or the replacement."""
    if transform.replacement is None:
        zero = _zero(schema)
        if zero is None:
            step.fail(column.isNotNull(), f"Cannot mask value of type: {schema.type} (field {name!r})")
            return column
        return F.when(column.isNotNull(), zero)
    value = _replacement(schema, transform.replacement)
    if value is None:
        kind = f"decimal of scale {schema.scale}" if schema.logical == DECIMAL else schema.type
        problem = f"Cannot mask value of type {kind} with the custom replacement (field {name!r})"
        step.fail(column.isNotNull(), problem)
        return column
    return F.when(column.isNotNull(), literal(schema.with_(optional=True), value))


def _zero(schema: Schema) -> Column | None:
    if schema.type == "array":
        return F.array().cast(spark_type(schema))
    if schema.type == "map":
        return F.create_map().cast(spark_type(schema))
    if schema.logical == DECIMAL:
        return literal(schema, Decimal(0))
    if schema.type in ("bytes", "struct", "variant"):
        return None
    zero: Any = {"boolean": False, "string": ""}.get(schema.type, 0)
    return literal(schema, zero)


def _masked_variant(transform: MaskField, column: Column, name: str, step: Step) -> Column:
    """The masked variant, by the type that the record's own value has."""
    column = without_json_null(column)
    kind = step.bind(kind_of(column))
    integer, real = kind == "BIGINT", kind.isin("FLOAT", "DOUBLE") | kind.startswith("DECIMAL")
    text = transform.replacement
    if text is None:
        step.fail(kind.isin("BINARY"), f"Cannot mask value of type: bytes (field {name!r})")
        cases = [
            (integer, F.lit(0)),
            (kind == "FLOAT", F.lit(0.0).cast("float")),
            (real, F.lit(0.0)),
            (kind == "STRING", F.lit("")),
            (kind == "BOOLEAN", F.lit(False)),
            (kind.isin("TIMESTAMP", "TIMESTAMP_NTZ", "DATE"), F.timestamp_millis(F.lit(0))),
            (kind.startswith("ARRAY"), F.parse_json(F.lit("[]"))),
            (kind.startswith("OBJECT"), F.parse_json(F.lit("{}"))),
        ]
    else:
        whole, number = integer_of(text, 64), number_of(text)
        fits = F.lit(False)
        cases = [(kind == "STRING", F.lit(text))]
        if whole is not None and number is not None:
            cases += [(integer, F.lit(whole)), (kind == "FLOAT", F.lit(float(number)).cast("float"))]
            cases += [(real, F.lit(float(number)))]
        for when, _ in cases:
            fits = fits | when
        problem = f"Cannot mask value with the custom replacement (field {name!r})"
        step.fail(column.isNotNull() & ~fits, problem)
    masked: Column = F.lit(None).cast("variant")
    for when, new in reversed(cases):
        masked = F.when(when, new.cast("variant")).otherwise(masked)
    return or_json_null(F.when(column.isNotNull(), masked))
