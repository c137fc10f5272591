"""Where a chain on Spark cannot be what it is on Connect: the one reviewed table, by reason."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

__all__ = ["PARITY"]

PARITY: Mapping[str, str] = MappingProxyType(
    {
        "integer width": (
            "A variant holds integers without a width: all are Connect's int64, so that what Connect does to a "
            "schemaless int8, int16 or int32 (keep its width, refuse it, wrap it) cannot be told apart."
        ),
        "schemaless decimal": (
            "JSON's fractions are decimals in a variant and float64 in Connect; a schemaless BigDecimal or BigInteger, "
            "which only a few connectors make, is taken for a float64."
        ),
        "date with a time of day": "Spark's DATE has no time of day; Connect's Date object may.",
        "decimal scale": (
            "Spark's DECIMAL has the scale of its column, 0 to 38, and 38 digits; Connect lets a value have its own "
            "scale. What MaskField puts into a decimal has the column's scale here, and a replacement that would have "
            "to be rounded is a failure; in Connect it keeps its own, and JsonConverter does not write it then. A "
            "decimal of more than 38 digits is a failure when it is read."
        ),
        "value against its schema": (
            "A value that breaks its own schema cannot be in a typed column: it is a failure when it is read, also "
            "where JsonConverter makes do (300 for an int8 is 44 there, a text for a number is 0)."
        ),
        "names that differ in case": (
            "Two fields of one struct whose names differ only in case need spark.sql.caseSensitive=true."
        ),
        "array or map of one element type": (
            "An array or a map has elements of one Spark type; Connect lets a schemaless one mix them in a header."
        ),
        "conditional change of type": (
            "Where a transform under a predicate changes the type of a key or value, all its rows become variants, "
            "those of the other type included: the schema is gone."
        ),
        "schema of a null": (
            "A column has one schema: where a stage changes it, nulls that Connect would pass under their old schema "
            "have the new one. A tombstone has no schema in Connect, and that of its column here: HoistField wraps it "
            "under that schema, and fails where it is not optional; Connect wraps it without one."
        ),
        "time zones by name": (
            "The letter z reads GMT, UTC, UT and offsets; a text with another zone's name (PST) is a failure."
        ),
        "range of dates": (
            "Spark's timestamps end in the years 290278 BC and 294246: a time beyond them is a failure."
        ),
    }
)
"""Reason → what is different."""
