"""Messages in a frame into Kafka, for routes whose other sinks receive rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame

from turnout.engine import Messages
from turnout.engine.messages import RECORDS
from turnout.errors import RunError, StreamError
from turnout.records.casts import as_type
from turnout.runtime.kafka.publisher import KafkaSinkOptions
from turnout.spark.workers.map_in_arrow import map_in_arrow


def write_rows(messages: DataFrame, message_id: str, options: KafkaSinkOptions) -> None:
    """Write the messages of a frame; after the return brokers have acknowledged all of them.

    Args:
        messages: with the columns ``topic``, ``value``, ``headers``, ``key``, ``partition``, ``offset``, ``timestamp``.
        message_id: name of the column of message ids, which deliveries to webhooks carry as a header.
        options: options of the sink.
    """
    rows = messages.select("topic", message_id, *RECORDS.names)

    def publish(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with closing(options.publisher()) as publisher:
            for batch in batches:
                publisher.send(_messages(batch, message_id), _refuse)
            stored = publisher.flush().stored
        yield pa.RecordBatch.from_pydict({"stored": [stored]})

    map_in_arrow(rows, publish, "stored bigint").write.format("noop").mode("append").save()


def _messages(batch: pa.RecordBatch, message_id: str) -> Messages:
    records = [as_type(batch.column(field.name), field.type) for field in RECORDS]
    count = batch.num_rows
    return Messages(
        batch.column("topic"),
        batch.column(message_id),
        np.zeros(count, np.int8),
        np.arange(count),
        pa.RecordBatch.from_arrays(records, schema=RECORDS),
    )


def _refuse(_index: int, reason: StreamError) -> None:
    raise RunError(f"a message is refused by Kafka: {reason}")
