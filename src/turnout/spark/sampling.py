"""What typical records of a route look like to its subscriptions: a sample, to index by what is rare in it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql import Observation, SparkSession
from pyspark.sql import functions as F

from turnout.routes import Route
from turnout.routes.endpoints import NatsSource
from turnout.spark import pipeline
from turnout.spark.matching import Matching
from turnout.wire import Connection, ConnectionOptions, PullReader, Range, stream_info

__all__ = ["learn_from_stream"]

_PLACES = 40
_AT_EACH = 50


def learn_from_stream(route: Route, spark: SparkSession, matching: Matching) -> None:
    """Have *matching* index its subscriptions by what is rare among messages that the route's stream holds.

    They are taken at many places, since neighbours are alike: a day's records say nothing of another day's. Only speed
    depends on them. Nothing is learnt from an empty stream, or from a source that is not NATS.
    """
    if not isinstance(route.source, NatsSource):
        return
    batches = list(_messages(route.source))
    if not batches:
        return
    tolerant = replace(route, chain=replace(route.chain, errors=replace(route.chain.errors, tolerance="all")))
    records = spark.createDataFrame(pa.Table.from_batches(batches))
    prepared = pipeline.prepare(tolerant, records, Observation())
    matching.learn(prepared.where(F.col("_error").isNull()))


def _messages(source: NatsSource) -> Iterator[Any]:
    """Record batches from places spread over each stream, with the stream's name as a column."""
    streams = [source.stream] if isinstance(source.stream, str) else source.stream
    with Connection.open(ConnectionOptions.from_mapping(source.options())) as connection:
        for stream in streams:
            state = stream_info(connection, stream)["state"]
            first, last = state["first_seq"], state["last_seq"]
            step = max(_AT_EACH, (last - first + 1) // _PLACES)
            for start in range(first, last + 1, step):
                wanted = Range(stream, start, min(start + _AT_EACH, last + 1))
                for batch in PullReader(connection, wanted).batches():
                    yield batch.append_column("stream", pa.repeat(pa.scalar(stream), batch.num_rows))
