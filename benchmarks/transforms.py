"""Chains of transforms: JSON flights parsed, transformed and serialised, typed and schemaless.

``parse and serialise`` is the baseline; every other case does that too, with transforms between.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks.harness import Options, Result, best_of
from turnout.spark.chain import compile_chain
from turnout.spark.session import build_session
from turnout.spark.values import decode_values, encode_values
from turnout.transforms import Chain, ValueFormat

DDL = (
    "year int, month int, day int, dep_time int, dep_delay int, arr_time int, arr_delay int, carrier string, "
    "flight int, tailnum string, origin string, dest string, air_time int, distance int, time_hour string"
)
FORMATS = {
    "typed": ValueFormat.from_config({"format": "json", "schema": DDL}),
    "schemaless": ValueFormat.from_config({"format": "json"}),
}
_PATTERN = "yyyy-MM-dd'T'HH:mm:ss'Z'"

ALONE: dict[str, dict[str, Any]] = {
    "Cast": {"type": "Cast$Value", "spec": "distance:float64,flight:string"},
    "DropHeaders": {"type": "DropHeaders", "headers": "Tail-Number"},
    "ExtractField": {"type": "ExtractField$Value", "field": "carrier"},
    "Filter": {"type": "Filter", "predicate": {"type": "TopicNameMatches", "pattern": "flights\\.JFK\\..*"}},
    "Flatten": {"type": "Flatten$Value", "delimiter": "_"},
    "HeaderFrom": {"type": "HeaderFrom$Value", "fields": "tailnum", "headers": "Tail", "operation": "move"},
    "HoistField": {"type": "HoistField$Value", "field": "flight"},
    "InsertField": {"type": "InsertField$Value", "topic.field": "route", "static.field": "set", "static.value": "nyc"},
    "InsertHeader": {"type": "InsertHeader", "header": "set", "value.literal": "nyc"},
    "MaskField": {"type": "MaskField$Value", "fields": "tailnum", "replacement": "N-----"},
    "RegexRouter": {"type": "RegexRouter", "regex": "flights\\.(.*)", "replacement": "eu.$1"},
    "ReplaceField": {"type": "ReplaceField$Value", "renames": "dep_delay:departure_delay", "exclude": "year,day"},
    "SetSchemaMetadata": {"type": "SetSchemaMetadata$Value", "schema.name": "Flight"},
    "TimestampConverter": {
        "type": "TimestampConverter$Value",
        "field": "time_hour",
        "format": _PATTERN,
        "target.type": "unix",
    },
    "TimestampRouter": {"type": "TimestampRouter"},
    "ValueToKey": {"type": "ValueToKey", "fields": "carrier,flight"},
    "SubjectTransform": {
        "type": "SubjectTransform",
        "source": "flights.*.*.*",
        "destination": "eu.{{wildcard(3)}}.{{wildcard(1)}}",
    },
}
WITHOUT_SCHEMA_FAILS = {"SetSchemaMetadata"}

SIX = [
    {"type": "Filter", "predicate": {"when": {"not": {"key": "value.dep_time", "exists": True}}}},
    ALONE["InsertField"],
    ALONE["ReplaceField"],
    {**ALONE["MaskField"], "predicate": {"type": "TopicNameMatches", "pattern": "flights\\..*\\.B6"}},
    ALONE["TimestampConverter"],
    {**ALONE["InsertHeader"], "predicate": {"type": "HasHeaderKey", "name": "Tail-Number"}},
]


def run(options: Options) -> list[Result]:
    size = options.rows(1_000_000, 20_000)
    spark = build_session("turnout-bench", master="local[2]", conf={"spark.driver.memory": "6g"})
    flights = _flights(spark, size).cache()
    flights.count()
    results: list[Result] = []
    for name, codec in FORMATS.items():
        base = f"{name}: parse and serialise"
        cases: dict[str, list[dict[str, Any]]] = {base: []}
        for alone, config in ALONE.items():
            if not (name == "schemaless" and alone in WITHOUT_SCHEMA_FAILS):
                cases[f"{name}: {alone}"] = [config]
        cases[f"{name}: six with three predicates"] = SIX
        _measure(
            flights, codec, base, {case: c for case, c in cases.items() if case == base or options.wants(case)}, results
        )
    return results


def _measure(
    flights: DataFrame, codec: ValueFormat, base: str, cases: dict[str, list[dict[str, Any]]], results: list[Result]
) -> None:
    size = flights.count()
    reference = 0.0
    for case, transforms in cases.items():
        rows = compile_chain(Chain.from_route(transforms), decode_values(flights, codec), "all")
        written = encode_values(rows.where(~F.col("_dropped")), codec)
        seconds = best_of(3, lambda: written.write.format("noop").mode("overwrite").save())  # noqa: B023
        rate = size / seconds
        reference = reference or rate
        is_base = case == base
        results.append(Result(case, size, rate, None if is_base else base, None if is_base else rate / reference))


def _flights(spark: SparkSession, size: int) -> DataFrame:
    """Flights as a stream would have them: JSON text in bytes, the route in the topic, one header on most."""
    number = F.col("id")
    carrier = F.element_at(F.array(*map(F.lit, ("UA", "AA", "B6", "DL", "EV", "WN"))), (number % 6 + 1).cast("int"))
    origin = F.element_at(F.array(*map(F.lit, ("JFK", "LGA", "EWR"))), (number % 3 + 1).cast("int"))
    dest = F.element_at(F.array(*map(F.lit, ("LAX", "ATL", "ORD", "MIA", "BQN"))), (number % 5 + 1).cast("int"))
    flies = number % 40 != 0
    hour = F.timestamp_seconds(F.lit(1_357_016_400) + number % 8760 * 3600)
    fields = {
        "year": F.lit(2013),
        "month": number % 12 + 1,
        "day": number % 28 + 1,
        "dep_time": F.when(flies, number % 2400),
        "dep_delay": F.when(flies, number % 90 - 20),
        "arr_time": F.when(flies, number % 2400),
        "arr_delay": F.when(flies, number % 120 - 30),
        "carrier": carrier,
        "flight": number % 8500,
        "tailnum": F.concat(F.lit("N"), number % 99999),
        "origin": origin,
        "dest": dest,
        "air_time": F.when(flies, number % 600),
        "distance": number % 4900 + 80,
        "time_hour": F.date_format(hour, _PATTERN),
    }
    text = F.to_json(F.struct(*[column.alias(name) for name, column in fields.items()]), {"ignoreNullFields": "false"})
    header = F.struct(F.lit("Tail-Number").alias("key"), F.encode(fields["tailnum"], "UTF-8").alias("value"))
    none = F.array().cast("array<struct<key:string,value:binary>>")
    return spark.range(0, size, 1, 8).select(
        F.concat_ws(".", F.lit("flights"), origin, dest, carrier).alias("topic"),
        F.lit(0).alias("partition"),
        number.alias("offset"),
        F.lit(None).cast("binary").alias("key"),
        F.encode(text, "UTF-8").alias("value"),
        F.when(number % 4 != 0, F.array(header)).otherwise(none).alias("headers"),
        hour.alias("timestamp"),
    )
