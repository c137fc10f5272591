"""Cast's conversions, with Java's rules: integers wrap, floats saturate, text is strict."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from functools import cache

from pyspark.sql import Column
from pyspark.sql import functions as F

from turnout.spark.java_calendar import DAY, Bind
from turnout.spark.java_time import format_millis
from turnout.spark.schemas import spark_type
from turnout.spark.typed import Typed
from turnout.spark.variants import kind_of
from turnout.transforms.schema import DATE, DECIMAL, TIME, TIMESTAMP, Schema

__all__ = ["Casted", "cast_typed", "cast_variant"]

_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
_FLOATS = ("float32", "float64")
_FLOAT_TEXT = (
    r"\A[\x00-\x20]*[+-]?(NaN|Infinity|((\d+\.?\d*|\.\d+)([eE][+-]?\d+)?"
    r"|0[xX]([0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][+-]?\d+)[fFdD]?)[\x00-\x20]*\z"
)


@dataclass(frozen=True)
class Casted:
    """The converted column; *bad* is true where the value cannot be converted (null is never bad)."""

    column: Column
    bad: Column


def cast_typed(value: Typed, target: str, bind: Bind) -> Casted:
    """A value with a schema as the primitive type *target*; null stays null."""
    assert value.schema is not None
    schema, column = value.schema, value.column
    wanted = spark_type(Schema(target))
    if schema.type in ("array", "map", "struct") or (
        schema.type == "bytes" and schema.logical != DECIMAL and target != "string"
    ):
        return Casted(F.lit(None).cast(wanted), column.isNotNull())
    if schema.type == "variant":
        made = cast_variant(column, target, bind)
        return Casted(F.try_variant_get(made.column, "$", wanted.simpleString()), made.bad)
    if target == "string":
        return Casted(_text(column, schema, bind), F.lit(False))
    if schema.logical in (DATE, TIME, TIMESTAMP):
        number, bad = _number_of_date(column, schema)
        made = cast_typed(Typed(number, Schema("int64")), target, bind)
        return Casted(made.column, bad)
    if schema.type == "string":
        return _from_text(column, target)
    if schema.type == "boolean":
        return Casted(column if target == "boolean" else column.cast("int").cast(wanted), F.lit(False))
    return Casted(_from_number(column, schema, target), F.lit(False))


def cast_variant(value: Column, target: str, bind: Bind) -> Casted:
    """Schemaless data as the primitive type *target*, by the type that each record's own value has."""
    value = bind(value)
    kind = bind(kind_of(value))
    sources = {
        "int64": (kind == "BIGINT", "bigint"),
        "float32": (kind == "FLOAT", "float"),
        # JSON's fractions are decimals in a variant, and doubles in Connect.
        "float64": ((kind == "DOUBLE") | kind.startswith("DECIMAL"), "double"),
        "boolean": (kind == "BOOLEAN", "boolean"),
        "string": (kind == "STRING", "string"),
        "bytes": (kind == "BINARY", "binary"),
    }
    column, bad = F.lit(None).cast("variant"), value.isNotNull() & (kind != "VOID")
    for name, (when, type_) in sources.items():
        if name == "bytes" and target != "string":
            continue
        source = bind(F.when(when, F.try_variant_get(value, "$", type_)))
        made = cast_typed(Typed(source, Schema(name)), target, bind)
        column = F.when(when, made.column.cast("variant")).otherwise(column)
        bad = F.when(when, made.bad).otherwise(bad)
    return Casted(column, bad)


def _low_bits(number: Column, bits: int) -> Column:
    """The low bits of a 64-bit number, as a signed number of that width."""
    if bits == 64:
        return number
    kept = F.shiftright(F.shiftleft(number, 64 - bits), 64 - bits)
    return kept.cast(spark_type(Schema(f"int{bits}")))


def _from_number(column: Column, schema: Schema, target: str) -> Column:
    if target in _FLOATS:
        return column.cast(spark_type(Schema(target)))
    whole = _whole(column, schema, narrow=target in ("int8", "int16", "int32"))
    return whole != 0 if target == "boolean" else _low_bits(whole, _BITS[target])


def _whole(column: Column, schema: Schema, *, narrow: bool) -> Column:
    """The number without its fraction, as 64 bits: integers as they are, floats saturated, decimals cut."""
    if schema.logical == DECIMAL:
        cut = F.when(column < 0, F.ceil(column)).otherwise(F.floor(column)).cast("decimal(38,0)")
        span = F.lit(str(1 << 64)).cast("decimal(38,0)")
        low = F.pmod(cut, span)
        signed = F.when(low >= F.lit(str(1 << 63)).cast("decimal(38,0)"), low - span).otherwise(low)
        return signed.cast("bigint")
    if schema.type in _FLOATS:
        bits = 31 if narrow else 63
        real = column.cast("double")
        top, bottom = (1 << bits) - 1, -(1 << bits)
        return (
            F.when(real.isNull(), F.lit(None).cast("bigint"))
            .when(F.isnan(real), F.lit(0).cast("bigint"))
            .when(real >= float(top), F.lit(top).cast("bigint"))
            .when(real <= float(bottom), F.lit(bottom).cast("bigint"))
            .otherwise(real.cast("bigint"))
        )
    return column.cast("bigint")


@cache
def _foreign_digits() -> tuple[str, str]:
    """Every decimal digit that is not ASCII, and the ASCII digit for each."""
    digits = [chr(code) for code in range(128, 0x10000) if unicodedata.category(chr(code)) == "Nd"]
    return "".join(digits), "".join(str(unicodedata.decimal(digit)) for digit in digits)


def _from_text(column: Column, target: str) -> Casted:
    wanted = spark_type(Schema(target))
    if target == "boolean":
        return Casted(F.lower(column) == "true", F.lit(False))
    if target in _FLOATS:
        made = F.when(column.rlike(_FLOAT_TEXT), column.try_cast(wanted))
    else:
        plain = F.when(column.rlike(r"[^\x00-\x7f]"), F.translate(column, *_foreign_digits())).otherwise(column)
        made = F.when(plain.rlike(r"\A[+-]?[0-9]+\z"), plain.try_cast(wanted))
    return Casted(made, column.isNotNull() & made.isNull())


def _number_of_date(column: Column, schema: Schema) -> tuple[Column, Column]:
    """The number that carries a logical date, and where it cannot be one."""
    if schema.logical == TIMESTAMP:
        return F.unix_millis(column), F.lit(False)
    if schema.logical == DATE:
        return F.unix_date(column).cast("bigint"), F.lit(False)
    return column.cast("bigint"), F.coalesce(~column.between(0, DAY), F.lit(False))


def _text(column: Column, schema: Schema, bind: Bind) -> Column:
    if schema.logical == DECIMAL:
        return _decimal_text(column, schema.scale)
    if schema.type == "bytes":
        return F.base64(column)
    if schema.logical == TIMESTAMP:
        return _date_text(F.unix_millis(column), bind)
    if schema.logical == DATE:
        return _date_text(F.unix_date(column).cast("bigint") * DAY, bind)
    if schema.logical == TIME:
        return _date_text(column.cast("bigint"), bind)
    return column.cast("string")


def _date_text(millis: Column, bind: Bind) -> Column:
    """Connect picks the pattern by the number: below a day a time, whole days a date, else both."""
    millis = bind(millis)
    day, time = bind(format_millis(millis, "yyyy-MM-dd", bind)), bind(format_millis(millis, "HH:mm:ss.SSS'Z'", bind))
    return F.when(millis < DAY, time).when(millis % DAY == 0, day).otherwise(F.concat(day, F.lit("T"), time))


def _decimal_text(column: Column, scale: int) -> Column:
    """``BigDecimal.toString``: scientific where the number is below 1e-6."""
    plain = column.cast("string")
    if scale <= 6:
        return plain
    digits = F.regexp_replace(F.regexp_replace(plain, r"[-.]", ""), r"\A0+(?=\d)", "")
    exponent = F.length(digits) - 1 - scale
    mantissa = F.when(F.length(digits) == 1, digits).otherwise(
        F.concat(F.substring(digits, 1, 1), F.lit("."), F.substring(digits, 2, 38))
    )
    sign = F.when(column < 0, "-").otherwise("")
    return F.when(exponent < -6, F.concat(sign, mantissa, F.lit("E"), exponent.cast("string"))).otherwise(plain)
