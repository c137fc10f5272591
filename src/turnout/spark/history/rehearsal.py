"""A replay that delivers nothing: the messages that it would send, as rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from turnout.engine.counts import Counts
from turnout.engine.deliveries import NO_SUBSCRIPTION
from turnout.engine.result import Result, Sent
from turnout.records.header_column import ARROW
from turnout.runtime.publishing import TALLY, TALLY_SCHEMA, TaskTally, sum_of
from turnout.spark.stage import SparkStage

_COLUMNS: Final = (
    ("subscription", "string", pa.string()),
    ("destination", "string", pa.string()),
    ("topic", "string", pa.string()),
    ("message_id", "string", pa.string()),
    ("stream", "string", pa.string()),
    ("partition", "int", pa.int32()),
    ("offset", "bigint", pa.int64()),
    ("timestamp", "timestamp", pa.timestamp("us", tz="UTC")),
    ("key", "binary", pa.binary()),
    ("value", "binary", pa.binary()),
    ("headers", "array<struct<key:string,value:binary>>", ARROW),
)
_NAMES: Final = [name for name, _, _ in _COLUMNS]

DELIVERIES: Final = f"{', '.join(f'`{name}` {kind}' for name, kind, _ in _COLUMNS)}, {TALLY}"
"""The columns of `Rehearsal`: messages, with null counts; and rows of counts that are no messages."""

_SCHEMA: Final = pa.schema([*(pa.field(name, kind) for name, _, kind in _COLUMNS), *TALLY_SCHEMA])


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """A stage for ``mapInArrow`` that gives what another one would send.

    Attributes:
        stage: the other one.
    """

    stage: SparkStage

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Give the deliveries of each batch, and behind them the task's counts."""
        tally = TaskTally()
        for result in self.stage.results(batches):
            tally.add(result)
            if len(result.messages):
                yield _rows(result)
        counts = tally.rows()
        yield _batch(dict(zip(counts.schema.names, counts.columns, strict=True)), counts.num_rows)


def _rows(result: Result) -> pa.RecordBatch:
    sent, messages = result.sent, result.messages
    assert sent is not None, "a replay sends no dead letters"
    rows = pa.array(sent.deliveries.rows)
    read = sent.consumed.batch
    columns = {"topic": messages.topics, "message_id": messages.ids}
    columns |= {name: messages.column(name) for name in ("partition", "offset", "timestamp", "key", "value", "headers")}
    columns["subscription"], columns["destination"] = _addressed(sent, messages.topics)
    if "stream" in read.schema.names:
        columns["stream"] = read.column("stream").take(rows)
    return _batch(columns, len(messages))


def _addressed(sent: Sent, topics: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Return the subscription and the destination of each delivery; null, and the topic, for a record under its own."""
    deliveries, index = sent.deliveries, sent.index
    of_index = np.flatnonzero(deliveries.subscriptions != NO_SUBSCRIPTION)
    if index is None or len(of_index) < len(deliveries):
        return pa.nulls(len(deliveries), pa.string()), topics
    return index.subscription_ids(deliveries.subscriptions), index.destinations(deliveries.destinations)


def _batch(columns: dict[str, pa.Array], count: int) -> pa.RecordBatch:
    arrays = [columns[item.name] if item.name in columns else pa.nulls(count, item.type) for item in _SCHEMA]
    arrays = [
        array if array.type.equals(item.type) else array.cast(item.type)
        for array, item in zip(arrays, _SCHEMA, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA)


def deliveries_of(rows: DataFrame) -> DataFrame:
    """Return the deliveries of a rehearsal."""
    return rows.where(F.col("counts").isNull()).select(*_NAMES)


def counted(rows: DataFrame) -> tuple[Counts, dict[str | None, int]]:
    """Return the counts of a rehearsal, and the number of messages for each subscription."""
    (total,) = rows.agg(F.collect_list("counts")).collect()
    groups = deliveries_of(rows).groupBy("subscription").count().collect()
    by_subscription = {row["subscription"]: int(row["count"]) for row in groups}
    ordered = sorted(by_subscription.items(), key=lambda counted: (-counted[1], counted[0] or ""))
    return sum_of(total[0]), dict(ordered)
