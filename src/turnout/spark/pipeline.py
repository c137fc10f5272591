"""A route compiled: records in, messages out, as two plans that Spark runs one after the other.

`prepare` is fixed for the life of a run: decode, transform, map. `deliveries` depends on the subscriptions of the
moment, so it is applied to each micro-batch: match, fan out, encode. Without subscriptions both can be one plan. A
record stays one row until it fans out; what became of it on the way stands in the column `OUTCOME`.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F

from turnout.routes import Route
from turnout.spark.chain import compile_chain, error_headers, logged_error
from turnout.spark.error_log import observed_failures
from turnout.spark.matching import Matching
from turnout.spark.origin import RAW, message_id, with_origin, with_raw
from turnout.spark.subjects import map_subjects
from turnout.spark.values import decode_values, encode_values

__all__ = [
    "DELIVERED",
    "MESSAGE_ID",
    "PREPARED",
    "SINK",
    "decode",
    "deliveries",
    "map_topics",
    "match",
    "prepare",
    "transform",
]

PREPARED: Final = "prepared"
"""The name under which a streaming query reports what `prepare` counted."""

DELIVERED: Final = "delivered"
"""The name under which it reports what `deliveries` counted, where that is part of it."""

SINK: Final = "_sink"
"""The column of `deliveries` that names the sink that a message is for."""

MESSAGE_ID: Final = "_message_id"
"""The column of `deliveries` with the message's id; null where the record's origin is unknown."""

OUTCOME: Final = "_outcome"
_ALIVE, _FILTERED, _FAILED, _LOST, _UNMATCHED = "alive", "filtered", "failed", "lost", "unmatched"

_FIRST: Final = "_first"
"""True on exactly one of the rows that a record has become."""


# What happens to every record, in order


def decode(route: Route, records: DataFrame) -> DataFrame:
    """The records with their values decoded; what they came as is kept beside it."""
    return decode_values(with_raw(with_origin(records)), route.value)


def transform(route: Route, decoded: DataFrame) -> DataFrame:
    """What the chain makes of them."""
    return compile_chain(route.chain, decoded, tolerance=route.errors.tolerance)


def map_topics(route: Route, transformed: DataFrame) -> DataFrame:
    """Their topics mapped; null where the weights mean loss."""
    if not len(route.mappings):
        return transformed
    seed = [F.col(RAW["topic"]), F.col("partition"), F.col("offset")]
    return map_subjects(transformed, route.mappings, cluster=route.cluster, seed=seed)


def prepare(route: Route, records: DataFrame, observation: str | Observation = PREPARED) -> DataFrame:
    """The records decoded, transformed and mapped; only those that live on, and those that failed, remain.

    Counts ``read``, ``filtered`` and ``lost_by_weight`` under *observation*.
    """
    rows = map_topics(route, transform(route, decode(route, records)))
    outcome = (
        F.when(F.col("_error").isNotNull(), _FAILED)
        .when(F.col("_dropped"), _FILTERED)
        .when(F.col("topic").isNull(), _LOST)
        .otherwise(_ALIVE)
    )
    rows = rows.withColumn(OUTCOME, outcome)
    rows = rows.observe(
        observation,
        F.count(F.lit(1)).alias("read"),
        F.count_if(F.col(OUTCOME) == _FILTERED).alias("filtered"),
        F.count_if(F.col(OUTCOME) == _LOST).alias("lost_by_weight"),
    )
    return rows.where(F.col(OUTCOME).isin(_ALIVE, _FAILED)).drop("_dropped")


# What depends on the subscriptions of the moment


def match(prepared: DataFrame, matching: Matching | None) -> DataFrame:
    """One row for each (record, subscription, destination); what nobody wants, and what failed, stays one row."""
    if matching is None:
        return prepared.withColumns({"destination": F.col("topic"), _FIRST: F.lit(True)})
    rows = matching.match(prepared, unmatched="keep", where=F.col(OUTCOME) == _ALIVE, first=_FIRST)
    wanted = F.col("subscription_id").isNotNull() | (F.col(OUTCOME) == _FAILED)
    return rows.withColumn(OUTCOME, F.when(wanted, F.col(OUTCOME)).otherwise(_UNMATCHED))


def deliveries(
    route: Route, prepared: DataFrame, matching: Matching | None, observation: str | Observation = DELIVERED
) -> DataFrame:
    """The messages of one micro-batch, or of all without a *matching*: the record's columns, `MESSAGE_ID` and `SINK`.

    Counts ``unmatched``, ``delivered``, ``dead_lettered``, ``discarded`` and ``messages`` under *observation*.
    """
    rows = match(prepared, matching)
    delivered = F.col(OUTCOME) == _ALIVE
    dead = F.col(OUTCOME) == _FAILED
    unwanted = F.col(OUTCOME) == _UNMATCHED
    if route.unmatched == "pass":
        delivered, unwanted = delivered | unwanted, F.lit(False)
    elif route.unmatched == "deadLetter":
        dead, unwanted = dead | unwanted, F.lit(False)
    discarded = F.lit(False)
    if route.dead_letter is None:
        discarded, dead = dead, F.lit(False)
    rows = rows.observe(
        observation,
        F.count_if(unwanted).alias("unmatched"),
        F.count_if(delivered & F.col(_FIRST)).alias("delivered"),
        F.count_if(dead).alias("dead_lettered"),
        F.count_if(discarded).alias("discarded"),
        F.count_if(delivered).alias("messages"),
        *observed_failures(route.errors, logged_error(rows), F.col(_FIRST), _consumed()),
    )
    rows = rows.where(delivered | dead).withColumn("_dead", dead)
    return _messages(route, encode_values(rows, route.value), by_subscription=matching is not None)


def _consumed() -> dict[str, Column]:
    """The parts of the record as it was read."""
    raw = {name: F.col(RAW[name]) for name in ("topic", "key", "value")}
    return {**raw, **{name: F.col(name) for name in ("partition", "offset", "timestamp")}}


def _messages(route: Route, rows: DataFrame, *, by_subscription: bool) -> DataFrame:
    """The columns of what is written: a dead letter as it was read, anything else as it has become."""
    dead = F.col("_dead")
    topic = F.coalesce(F.col("destination"), F.col("topic"))
    # The route and the destination are part of it: two routes may send the same record to the same stream.
    of_route = F.lit(route.name)
    wanted_by = [F.coalesce("subscription_id", F.lit(""))] if by_subscription else []
    message = message_id(of_route, *wanted_by, topic)
    value = F.col("value").cast("binary")
    headers = F.col("headers")
    key = F.col("key")
    if route.dead_letter is not None:
        topic = F.when(dead, F.lit(route.dead_letter.topic)).otherwise(topic)
        message = F.when(dead, message_id(of_route, F.lit("dead"))).otherwise(message)
        value = F.when(dead, F.col(RAW["value"]).cast("binary")).otherwise(value)
        headers = F.when(dead, _dead_headers(route)).otherwise(headers)
    columns = {"topic": topic, MESSAGE_ID: message, "value": value, "headers": headers, "key": key}
    rows = rows.select(*(column.alias(name) for name, column in columns.items()), "partition", "offset", "timestamp")
    return _to_sinks(route, rows)


def _dead_headers(route: Route) -> Column:
    raw = F.coalesce(F.col(RAW["headers"]), F.array().cast("array<struct<key:string,value:binary>>"))
    if route.dead_letter is None or not route.dead_letter.context_headers:
        return raw
    place = (F.col(RAW["topic"]), F.col("partition"), F.col("offset"))
    return F.concat(raw, error_headers(F.col("_error"), *place, name=route.name))


def _to_sinks(route: Route, rows: DataFrame) -> DataFrame:
    """`SINK` from ``name:topic``, and the topic without it; what names no sink goes to the first."""
    names = list(route.sinks)
    if len(names) == 1:
        return rows.withColumn(SINK, F.lit(names[0]))
    name = F.substring_index(F.col("topic"), ":", 1)
    named = F.col("topic").contains(":") & name.isin(names)
    rest = F.expr("substring(topic, locate(':', topic) + 1)")
    return rows.withColumns(
        {SINK: F.when(named, name).otherwise(names[0]), "topic": F.when(named, rest).otherwise(F.col("topic"))}
    )
