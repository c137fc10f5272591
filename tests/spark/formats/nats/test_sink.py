"""The writers of the format nats as Spark calls them, without Spark."""

from __future__ import annotations

import pickle
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import BinaryType, IntegerType, LongType, StringType, StructType, VariantType

from turnout.embedded import NatsServer
from turnout.errors import ConfigError, StreamError
from turnout.nats.wire import Connection, subject_counts
from turnout.spark.formats.nats.sink import NatsStreamWriter, NatsWriter

pytestmark = pytest.mark.jetstream


def write(kind: type[NatsWriter], options: dict[str, str], schema: StructType, *batches: list[dict[str, Any]]) -> Any:
    writer = pickle.loads(pickle.dumps(kind.of(options, schema, overwrite=False)))
    arrow = to_arrow_schema(schema)
    return writer.write(iter([pa.RecordBatch.from_pylist(rows, schema=arrow) for rows in batches]))


@pytest.mark.parametrize("kind", [NatsWriter, NatsStreamWriter])
def test_a_task_counts_what_it_stored(
    nats_server: NatsServer, connection: Connection, stream: str, kind: type[NatsWriter]
) -> None:
    """Several batches, ids in one of them twice; a task without rows is well too."""
    schema = StructType().add("topic", StringType()).add("value", StringType()).add("key", BinaryType())
    options = {"servers": nats_server.url, "window": "10"}
    batches = [
        [{"topic": f"{stream}.{n}", "value": "x", "key": b"%d" % n} for n in range(start, start + 30)]
        for start in (0, 20)
    ]

    written = write(kind, options, schema, *batches)

    assert (written.stored, written.duplicates) == (50, 10)
    assert sum(subject_counts(connection, stream).values()) == 50
    assert write(kind, options, schema).stored == 0


def test_which_id_a_row_gets(nats_server: NatsServer, connection: Connection, stream: str) -> None:
    """The key where there is one, else where the row came from; by option only one of them, or none."""
    schema = StructType().add("topic", StringType()).add("value", StringType()).add("key", StringType())
    schema = schema.add("stream", StringType()).add("offset", LongType())
    rows: list[dict[str, Any]] = [
        {"topic": f"{stream}.a", "value": "x", "key": "k1", "stream": "S", "offset": 1},
        {"topic": f"{stream}.a", "value": "x", "key": "k1", "stream": "S", "offset": 2},
        {"topic": f"{stream}.a", "value": "x", "key": None, "stream": "S", "offset": 2},
        {"topic": f"{stream}.a", "value": "x", "key": None, "stream": "S", "offset": 2},
        {"topic": f"{stream}.b", "value": "x", "key": None, "stream": "S", "offset": 2},
        {"topic": f"{stream}.b", "value": "x", "key": None, "stream": "S", "offset": None},
        {"topic": f"{stream}.b", "value": "x", "key": None, "stream": "S", "offset": None},
    ]
    expected = {"auto": (5, 2), "key": (6, 1), "offset": (5, 2), "none": (7, 0)}
    for order, (way, counts) in enumerate(expected.items()):
        # Ids of an earlier round would be known: each round has subjects and keys of its own.
        mine = [
            {**row, "topic": f"{row['topic']}.{order}", "key": row["key"] and f"{row['key']}-{order}"} for row in rows
        ]
        written = write(NatsWriter, {"servers": nats_server.url, "messageId": way}, schema, mine)
        assert (way, written.stored, written.duplicates) == (way, *counts)


@pytest.mark.parametrize(
    ("name", "kind", "hint"),
    [("value", VariantType(), "to_json"), ("value", IntegerType(), "binary or string"), ("key", LongType(), "key")],
)
def test_types_that_cannot_be_sent(name: str, kind: Any, hint: str) -> None:
    """A variant or a number is not guessed at; the message names the column and the cure."""
    schema = StructType().add("topic", StringType())
    schema = schema.add(name, kind) if name == "value" else schema.add("value", StringType()).add(name, kind)
    with pytest.raises(ConfigError, match=hint) as wrong:
        NatsWriter.of({"servers": "a"}, schema, overwrite=False)

    assert wrong.value.mistakes[0].path == name


def test_a_row_that_cannot_be_sent_fails_the_task(nats_server: NatsServer, stream: str) -> None:
    """No topic, or a topic that is no subject."""
    schema = StructType().add("topic", StringType()).add("value", StringType())
    for topic in (None, f"{stream}.a b", f"{stream}.*"):
        with pytest.raises(StreamError, match=r"no topic|no subject"):
            write(NatsWriter, {"servers": nats_server.url}, schema, [{"topic": topic, "value": "x"}])
