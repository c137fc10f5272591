"""Messages for Kafka in frames."""

from __future__ import annotations

import pyarrow as pa

from turnout.engine.messages import RECORDS
from turnout.spark.formats.kafka.source import _messages


def test_messages_keep_their_ids() -> None:
    """A delivery to a webhook is stored with its id, also for a route whose other sinks receive rows."""
    rows = [{**dict.fromkeys(RECORDS.names), "topic": "a", "id": id_} for id_ in ("orders:7", None)]
    schema = pa.schema([pa.field("topic", pa.string()), pa.field("id", pa.string()), *RECORDS])

    messages = _messages(pa.RecordBatch.from_pylist(rows, schema=schema), "id")

    assert messages.topics.to_pylist() == ["a", "a"]
    assert messages.ids.to_pylist() == ["orders:7", None]
