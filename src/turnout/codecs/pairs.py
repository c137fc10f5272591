"""Losses of values that are read in one format and written in another; tests compare them with the codecs.

The form between them is Connect's, so that a pair loses what the reading format has in it and the written one has not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from turnout.codecs.format import Format
from turnout.records import Schema
from turnout.records.schema import DATE, DECIMAL, TIME, TIMESTAMP


class Feature(StrEnum):
    """Kind of values that not every format has."""

    INT64 = "integers from 2^53"
    WIDTHS = "widths of numbers"
    NAN = "NaN and infinities"
    BYTES = "bytes"
    DECIMALS = "decimals"
    DATES = "dates"
    TIMES = "times of day"
    TIMESTAMPS = "timestamps"
    FINE_TIMES = "times finer than milliseconds"
    ENUMS = "enums"
    UNIONS = "unions"
    KEYS = "keys that are no texts"
    NULLS = "null and absent fields"


_F = Feature
_ALL: Final = frozenset(Feature)

HAS: Final[Mapping[str, frozenset[Feature]]] = {
    "raw": frozenset({_F.BYTES}),
    "string": frozenset(),
    "numbers": frozenset({_F.INT64, _F.WIDTHS, _F.NAN}),
    "json": frozenset({_F.INT64, _F.NULLS}),
    "json with schema": frozenset(
        {_F.INT64, _F.WIDTHS, _F.NAN, _F.BYTES, _F.DECIMALS, _F.DATES, _F.TIMESTAMPS, _F.NULLS}
    ),
    "connect-json": _ALL - {_F.FINE_TIMES, _F.ENUMS, _F.UNIONS},
    "msgpack": frozenset({_F.INT64, _F.NAN, _F.BYTES, _F.TIMESTAMPS, _F.KEYS, _F.NULLS}),
    "avro": _ALL,
    "jsonSchema": _ALL - {_F.NAN, _F.FINE_TIMES},
    "protobuf": _ALL,
}
"""Features of values by the format that is read."""

_TEXTS: Final = {
    _F.WIDTHS: "numbers",
    _F.NAN: "texts",
    _F.BYTES: "base64",
    _F.DECIMALS: "numbers with their digits",
    _F.DATES: "ISO 8601 texts",
    _F.TIMES: "milliseconds",
    _F.TIMESTAMPS: "ISO 8601 texts",
    _F.FINE_TIMES: "numbers of their unit",
    _F.ENUMS: "texts",
    _F.UNIONS: "objects with a field for each member",
    _F.KEYS: "texts",
}
_INTEGERS_IN_JSON: Final = "numbers with all digits, which readers with doubles round"

BECOME: Final[Mapping[str, Mapping[Feature, str]]] = {
    "json": {_F.INT64: _INTEGERS_IN_JSON, **_TEXTS},
    "json with schema": {_F.INT64: _INTEGERS_IN_JSON, **_TEXTS},
    "json, mapping: protobuf": {
        **_TEXTS,
        _F.INT64: "texts, as all integers of 64 bits",
        _F.DECIMALS: "objects with value, precision and scale",
        _F.DATES: "objects with year, month and day",
        _F.TIMES: "objects with hours, minutes, seconds and nanos",
        _F.FINE_TIMES: "texts with the number of their unit",
        _F.UNIONS: "fields of the object around them",
        _F.NULLS: "absent",
    },
    "connect-json": {},
    "connect-json, schemas.enable: false": {
        **_TEXTS,
        _F.INT64: _INTEGERS_IN_JSON,
        _F.DECIMALS: "base64 of their integer, or numbers by decimal.format",
        _F.DATES: "numbers of days",
        _F.TIMESTAMPS: "milliseconds",
        _F.KEYS: "lists of pairs",
    },
    "msgpack": {
        _F.WIDTHS: "numbers",
        _F.DECIMALS: "texts",
        _F.DATES: "timestamps",
        _F.TIMES: "timestamps",
        _F.FINE_TIMES: "numbers of their unit",
        _F.ENUMS: "texts",
        _F.UNIONS: "maps with a key for each member",
    },
    "avro": {_F.KEYS: "refused"},
    "jsonSchema": {_F.NAN: "texts"},
    "protobuf": {
        _F.WIDTHS: "what the message's field is",
        _F.FINE_TIMES: "what the message's field is, or refused",
        _F.ENUMS: "values of the message's enum, or refused",
        _F.UNIONS: "refused, but those of Protobuf",
    },
}
"""Replacements of features by the format that is written; those that are not named are unchanged."""

BECOME_AS_JSON: Final = ("raw", "string")
"""Formats that write texts and bytes as they are, and anything else as JSON."""

_JSON: Final = ("json, mapping: protobuf", "connect-json", "connect-json, schemas.enable: false")
SCALARS: Final = ("raw", "string", "numbers")
"""Formats whose values are no objects when they are read, which is what messages are made of."""

_NUMBERS: Final = frozenset({"short", "integer", "long", "float", "double", "boolean"})
WITH_SCHEMA: Final = frozenset(
    {"raw", "string", "numbers", "avro", "jsonSchema", "protobuf", "connect-json", "json with schema"}
)
"""Formats whose values have a schema of Connect when they are read."""

NEEDS_SCHEMA: Final = frozenset({"avro", "jsonSchema", "protobuf", "json with schema"})
"""Formats that write values of a schema alone."""


@dataclass(frozen=True, slots=True)
class Pair:
    """Losses of values that are read in one format and written in another.

    Attributes:
        notes: what changes, a sentence for each.
        warnings: what is probably meant otherwise.
    """

    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def pair_of(read: Format, written: Format, schema: Schema | None = None) -> Pair:
    """Return what becomes of values; nothing is known of the formats of other packages.

    Args:
        read: format that is read.
        written: format that is written.
        schema: schema that all values are read with; None where that is not known.

    >>> pair_of(Format("msgpack"), Format("json")).notes[0][:59]
    'integers from 2^53 are numbers with all digits, which reade'
    """
    reader, writer = name_of(read), name_of(written)
    if read == written or reader not in HAS:
        return Pair()
    features = HAS[reader] if schema is None else HAS[reader] & {*features_of(schema)}
    warnings = tuple(_warnings(reader, writer, written, schema))
    if warnings or (writer not in BECOME and writer not in BECOME_AS_JSON):
        return Pair((), warnings)
    notes = [f"{feature} are {text}" for feature, text in losses(reader, writer, features)]
    return Pair((*notes, *_schema_notes(reader, writer, written)))


def losses(reader: str, writer: str, features: frozenset[Feature] | None = None) -> list[tuple[Feature, str]]:
    """Return the features that a pair changes, with what becomes of them."""
    # Without a schema these formats have values as JSON has them.
    as_json = writer in BECOME_AS_JSON or (reader not in WITH_SCHEMA and writer in _JSON)
    become = BECOME["json" if as_json else writer]
    has = HAS[reader] if features is None else features
    return [(feature, become[feature]) for feature in Feature if feature in has and feature in become]


def _warnings(reader: str, writer: str, written: Format, schema: Schema | None) -> Iterator[str]:
    if reader == "raw" and writer in BECOME and writer != "msgpack":
        yield (
            f"values are read as bytes, so that {written.format} has each of them as bytes (base64 in JSON); say how "
            "they are read by the route's own format"
        )
    if writer == "protobuf" and reader in SCALARS and reader != "raw":
        yield "values are no objects, and messages need their fields: each record becomes a dead letter"
    alone = schema is not None and schema.type in ("struct", "array", "map")
    if writer in ("numbers", "bytes") and (alone or reader in ("json with schema", "protobuf")):
        yield (
            f"values are objects, which {written.format} does not write: without a transform that takes a field out "
            "(ExtractField), each record becomes a dead letter"
        )


def _schema_notes(reader: str, writer: str, written: Format) -> Iterator[str]:
    if writer in NEEDS_SCHEMA and reader not in WITH_SCHEMA:
        if "schema" in written.settings:
            yield "values have no schema, and are written with the one that is given; what does not fit it is refused"
        else:
            yield (
                "values have no schema, and are written with the last version of the subject in the registry; what "
                "does not fit it is refused"
            )
    elif reader in NEEDS_SCHEMA | {"connect-json"} and writer not in WITH_SCHEMA:
        yield "the schema is not written"


def name_of(format_: Format) -> str:
    """Return the name of a format in `HAS` and `BECOME`, by its settings.

    >>> name_of(Format("json", schema="n INT")), name_of(Format("short"))
    ('json with schema', 'numbers')
    """
    name, settings = format_.format, format_.settings
    if name in _NUMBERS:
        return "numbers"
    if name == "json" and settings.get("mapping") == "PROTOBUF":
        return "json, mapping: protobuf"
    if name == "json" and settings.get("schema") is not None:
        return "json with schema"
    if name == "connect-json" and settings.get("schemas.enable") is False:
        return "connect-json, schemas.enable: false"
    return name


_OF_TYPES: Final = {
    **dict.fromkeys(("int8", "int16", "int32"), (_F.WIDTHS,)),
    "int64": (_F.INT64,),
    "float32": (_F.WIDTHS, _F.NAN),
    "float64": (_F.NAN,),
    "bytes": (_F.BYTES,),
}
_OF_LOGICALS: Final = {DECIMAL: _F.DECIMALS, DATE: _F.DATES, TIME: _F.TIMES, TIMESTAMP: _F.TIMESTAMPS}


def features_of(schema: Schema) -> Iterator[Feature]:
    """Yield the features that values of a schema have.

    >>> [feature.name for feature in features_of(Schema("array", values=Schema("int64", optional=True)))]
    ['NULLS', 'INT64']
    """
    parameters = dict(schema.parameters)
    if schema.optional:
        yield Feature.NULLS
    if schema.logical is not None:
        yield _OF_LOGICALS[schema.logical]
    elif parameters.get("turnout.avro.logicalType", "").endswith(("-micros", "-nanos")):
        yield Feature.FINE_TIMES
    elif any(name.endswith(".Enum") for name in parameters):
        yield Feature.ENUMS
    elif any(part in (schema.name or "") for part in (".Union", ".OneOf")):
        yield Feature.UNIONS
    else:
        yield from _OF_TYPES.get(schema.type, ())
    if schema.keys is not None and schema.keys.type != "string":
        yield Feature.KEYS
    for inner in (*(field.schema for field in schema.fields), schema.keys, schema.values):
        if inner is not None:
            yield from features_of(inner)
