"""What typical records of a route look like to its subscriptions: a sample, to index by what is rare in it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql import Observation, SparkSession
from pyspark.sql import functions as F

from turnout.errors import StreamError
from turnout.routes import Route
from turnout.routes.endpoints import NatsSource
from turnout.spark import pipeline
from turnout.spark.matching import Matching
from turnout.wire import Connection, ConnectionOptions, sample

__all__ = ["learn_from_stream"]

_ENOUGH = 2000
_FORBIDDEN = 403

_log = logging.getLogger(__name__)


def learn_from_stream(route: Route, spark: SparkSession, matching: Matching) -> None:
    """Have *matching* index its subscriptions by what is rare among messages that the route's stream holds.

    Each is taken at a place of its own, since neighbours are alike: a day's records say nothing of another day's, and
    what never occurs in the sample passes for rare. Only speed depends on them. Nothing is learnt from an empty stream,
    or from a source that is not NATS, or one whose messages this user may read by a consumer only.
    """
    if not isinstance(route.source, NatsSource):
        return
    try:
        batches = list(_messages(route.source))
    except StreamError as failure:
        if failure.code != _FORBIDDEN:
            raise
        _log.info("route %s: subscriptions are indexed without a sample: %s", route.name, failure)
        return
    if not batches:
        return
    tolerant = replace(route, chain=replace(route.chain, errors=replace(route.chain.errors, tolerance="all")))
    records = spark.createDataFrame(pa.Table.from_batches(batches))
    prepared = pipeline.prepare(tolerant, records, Observation())
    matching.learn(prepared.where(F.col("_error").isNull()))


def _messages(source: NatsSource) -> Iterator[Any]:
    """A record batch from each stream, with the stream's name as a column."""
    streams = [source.stream] if isinstance(source.stream, str) else source.stream
    # Of several subjects any may be typical, and one question to the server names one.
    subject = source.filter_subject if isinstance(source.filter_subject, str) else ">"
    with Connection.open(ConnectionOptions.from_mapping(source.options())) as connection:
        for stream in streams:
            batch = sample(connection, stream, _ENOUGH // len(streams), subject)
            if batch.num_rows:
                yield batch.append_column("stream", pa.repeat(pa.scalar(stream), batch.num_rows))
