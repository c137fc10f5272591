"""The writers of the format nats as Spark calls them, without Spark."""

from __future__ import annotations

import base64
import pickle
import secrets
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import BinaryType, IntegerType, LongType, StringType, StructType, VariantType

from turnout.embedded import NatsServer
from turnout.errors import ConfigError, StreamError
from turnout.nats.wire import Connection, create_stream, delete_stream, subject_counts
from turnout.spark.columns import HEADERS
from turnout.spark.formats.nats.source import NatsStreamWriter, NatsWriter

pytestmark = pytest.mark.jetstream


def write(kind: type[NatsWriter], options: dict[str, str], schema: StructType, *batches: list[dict[str, Any]]) -> Any:
    writer = pickle.loads(pickle.dumps(kind.of(options, schema, overwrite=False)))
    arrow = to_arrow_schema(schema)
    return writer.write(iter([pa.RecordBatch.from_pylist(rows, schema=arrow) for rows in batches]))


@pytest.mark.parametrize("kind", [NatsWriter, NatsStreamWriter])
def test_a_task_counts_what_it_stored(
    nats_server: NatsServer, connection: Connection, stream: str, kind: type[NatsWriter]
) -> None:
    """Several batches, ids in one of them twice, by request; a task without rows is well too."""
    schema = StructType().add("topic", StringType()).add("value", StringType()).add("key", BinaryType())
    options = {"servers": nats_server.url, "window": "10", "messageId": "key"}
    batches = [
        [{"topic": f"{stream}.{n}", "value": "x", "key": b"%d" % n} for n in range(start, start + 30)]
        for start in (0, 20)
    ]

    written = write(kind, options, schema, *batches)

    assert (written.stored, written.duplicates) == (50, 10)
    assert sum(subject_counts(connection, stream).values()) == 50
    assert write(kind, options, schema).stored == 0


def test_which_id_a_row_gets(nats_server: NatsServer, connection: Connection, stream: str) -> None:
    """The key where there is one, else where the row came from, for one row of a task; by option only one, or none."""
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
    expected = {"auto": (7, 0), "key": (6, 1), "offset": (5, 2), "none": (7, 0)}
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


UNSAFE = [
    "$JS.API.STREAM.PURGE.{}",
    "$JS.API.STREAM.DELETE.{}",
    "$JS.hub.API.STREAM.DELETE.{}",
    "$SYS.REQ.SERVER.PING",
    "$KV.config.a",
    "$O.files.C.a",
    "$SRV.PING",
    "_INBOX.a.b",
    "_R_.a.b",
    "replies.a.b",
    "hub.STREAM.PURGE.{}",
    "{}.*",
    "{}.>",
    "*",
    ">",
    "{}..a",
    "{}.a\r\nPUB $JS.API.STREAM.DELETE.{} 0",
    "",
]


@pytest.mark.parametrize("kind", [NatsWriter, NatsStreamWriter])
@pytest.mark.parametrize("subject", UNSAFE)
def test_rows_make_no_requests(
    nats_server: NatsServer, connection: Connection, stream: str, kind: type[NatsWriter], subject: str
) -> None:
    """A subject of the server's own is refused by name, and no row of the batch is sent."""
    schema = StructType().add("topic", StringType()).add("value", StringType())
    write(kind, {"servers": nats_server.url}, schema, [{"topic": f"{stream}.kept", "value": "x"}] * 3)
    unsafe = subject.format(stream, stream)
    options = {"servers": nats_server.url, "inboxPrefix": "replies"}
    if subject.startswith("hub."):
        # An import of another account's API as the server has it: the prefix is that of its requests.
        options["apiPrefix"] = "hub"
    rows = [{"topic": f"{stream}.new", "value": "x"}] * 1500 + [{"topic": unsafe, "value": ""}]

    with pytest.raises(StreamError) as refusal:
        write(kind, options, schema, rows)

    assert repr(unsafe) in str(refusal.value)
    assert subject_counts(connection, stream) == {f"{stream}.kept": 3}


def test_protected_subjects_by_option(nats_server: NatsServer) -> None:
    """Patterns of *allow* open a bucket, and what they leave out is refused."""
    schema = StructType().add("topic", StringType()).add("value", StringType())
    bucket = f"b{secrets.token_hex(4)}"
    options = {"servers": nats_server.url, "allow": f"deliver.>, $KV.{bucket}.*"}
    with Connection.open(nats_server.url) as connection:
        create_stream(connection, {"name": f"KV_{bucket}", "subjects": [f"$KV.{bucket}.>"], "storage": "memory"})

        assert write(NatsWriter, options, schema, [{"topic": f"$KV.{bucket}.a", "value": "x"}]).stored == 1
        for refused in (f"$KV.{bucket}.a.b", "orders.a", "$JS.API.INFO"):
            with pytest.raises(StreamError, match="is not allowed: "):
                write(NatsWriter, options, schema, [{"topic": refused, "value": "x"}])
        delete_stream(connection, f"KV_{bucket}")


def test_a_subject_that_is_too_long(nats_server: NatsServer) -> None:
    """A server closes the connection at such a line, which would be sent again until the time is over."""
    schema = StructType().add("topic", StringType()).add("value", StringType())
    with pytest.raises(StreamError, match="5,000 bytes"):
        write(NatsWriter, {"servers": nats_server.url}, schema, [{"topic": "x" * 5000, "value": "x"}])


@pytest.mark.parametrize("allow", ["", " ,", "a b", "a..b", "a.>.b"])
def test_patterns_that_cannot_be(allow: str) -> None:
    """A pattern that is no subject is refused while the query is planned."""
    schema = StructType().add("topic", StringType()).add("value", StringType())
    with pytest.raises(ConfigError, match="allow"):
        NatsWriter.of({"servers": "a", "allow": allow}, schema, overwrite=False)


def rows_of(stream: str, *ids: str | None) -> list[dict[str, Any]]:
    return [{"topic": f"{stream}.a", "value": "x", "key": id_} for id_ in ids]


@pytest.mark.parametrize("kind", [NatsWriter, NatsStreamWriter])
def test_rows_of_one_record(nats_server: NatsServer, connection: Connection, stream: str, kind: Any) -> None:
    """Rows with the id of an earlier row of their task are stored too, once when the task is repeated."""
    schema = StructType().add("topic", StringType()).add("value", StringType()).add("key", StringType())
    options = {"servers": nats_server.url}
    batches = [rows_of(stream, "a", "a", "b", None, ""), rows_of(stream, "c", "a", "b", "d", None)]

    first = write(kind, options, schema, *batches)
    again = write(kind, options, schema, *batches)

    assert (first.stored, first.duplicates) == (10, 0)
    assert (again.stored, again.duplicates) == (3, 7)


def test_rows_of_one_record_in_many_batches(nats_server: NatsServer, stream: str) -> None:
    """Each id is found again however many others lie between."""
    schema = StructType().add("topic", StringType()).add("value", StringType()).add("key", StringType())
    batches = [rows_of(stream, *(f"{n}" for n in range(start, start + 100))) for start in range(0, 4000, 100)]

    written = write(NatsWriter, {"servers": nats_server.url}, schema, *batches, *batches)

    assert (written.stored, written.duplicates) == (8000, 0)


@pytest.mark.parametrize("kind", [NatsWriter, NatsStreamWriter])
@pytest.mark.parametrize("count", [3, 3000])
def test_rows_of_one_record_in_two_tasks(nats_server: NatsServer, stream: str, kind: Any, count: int) -> None:
    """No task knows the ids of another: what the stream did not store is an error with its number."""
    schema = StructType().add("topic", StringType()).add("value", StringType()).add("key", StringType())
    options = {"servers": nats_server.url}
    rows = rows_of(stream, *(f"{n}" for n in range(count)))
    tasks = [write(kind, options, schema, rows) for _ in range(2)]
    writer = kind.of(options, schema, overwrite=False)

    with pytest.raises(StreamError, match=f"{count:,} of {2 * count:,} rows were not stored") as loss:
        commit(writer, tasks)

    assert "messageId=none" in str(loss.value)


@pytest.mark.parametrize("kind", [NatsWriter, NatsStreamWriter])
def test_a_job_that_is_done_again(
    nats_server: NatsServer, stream: str, kind: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Ids that the stream knows from an earlier attempt are what ids are for."""
    schema = StructType().add("topic", StringType()).add("value", StringType()).add("key", StringType())
    options = {"servers": nats_server.url}
    for _ in range(2):
        tasks = [write(kind, options, schema, rows_of(stream, f"a{n}", f"b{n}")) for n in range(3)]
        commit(kind.of(options, schema, overwrite=False), tasks)

    assert "0 messages stored, 6 were known to the stream already" in caplog.text


@pytest.mark.parametrize("way", ["key", "offset"])
def test_equal_ids_by_request(nats_server: NatsServer, stream: str, way: str, caplog: pytest.LogCaptureFixture) -> None:
    """Who asks for ids of a column gets one message for each; the others are counted in a warning."""
    schema = StructType().add("topic", StringType()).add("value", StringType()).add("key", StringType())
    schema = schema.add("stream", StringType()).add("offset", LongType())
    options = {"servers": nats_server.url, "messageId": way}
    rows = [{**row, "stream": "S", "offset": 1} for row in rows_of(stream, "a", "a", "a")]
    tasks = [write(NatsWriter, options, schema, rows), write(NatsWriter, options, schema, rows)]

    commit(NatsWriter.of(options, schema, overwrite=False), tasks)

    assert tasks[0].stored == 1
    assert "5 of 6 rows were not stored" in caplog.text
    assert f"messageId={way}" in caplog.text


def commit(writer: Any, tasks: list[Any]) -> None:
    tasks = [pickle.loads(pickle.dumps(task)) for task in tasks]
    if isinstance(writer, NatsStreamWriter):
        writer.commit(tasks, 0)
    else:
        writer.commit(tasks)


def test_names_of_columns_in_any_case(nats_server: NatsServer, connection: Connection, stream: str) -> None:
    """The key is an id and headers are written, as Spark finds these columns under such names."""
    schema = StructType().add("Topic", StringType()).add("VALUE", StringType()).add("Key", StringType())
    schema = schema.add("HEADERS", HEADERS)
    row = {"Topic": f"{stream}.a", "VALUE": "x", "Key": "k", "HEADERS": [{"key": "h", "value": b"1"}]}

    written = write(NatsWriter, {"servers": nats_server.url, "messageId": "key"}, schema, [row])

    assert written.stored == 1
    message = connection.api(f"STREAM.MSG.GET.{stream}", {"seq": 1})["message"]
    assert base64.b64decode(message["data"]) == b"x"
    assert b"Nats-Msg-Id: k\r\nh: 1\r\n" in base64.b64decode(message["hdrs"])


@pytest.mark.parametrize("name", ["topic", "value", "key", "headers", "stream", "offset"])
def test_names_that_differ_by_case(name: str) -> None:
    """Which of two columns is meant is not guessed."""
    types = {"headers": HEADERS, "offset": LongType()}
    schema = StructType().add("topic", StringType()).add("value", StringType())
    for written in {name, name.title()} - set(schema.names):
        schema = schema.add(written, types.get(name, StringType()))
    with pytest.raises(ConfigError, match="several columns have this name") as wrong:
        NatsWriter.of({"servers": "a"}, schema, overwrite=False)

    assert name in [mistake.path for mistake in wrong.value.mistakes]


@pytest.mark.parametrize("column", ["topic", "headers"])
def test_texts_that_are_no_utf_8(nats_server: NatsServer, stream: str, column: str) -> None:
    """Spark's strings may have any bytes; the error has them, instead of the place in a decoder."""
    bad = pa.Array.from_buffers(pa.string(), 1, pa.array([b"x\xff"]).buffers())
    pair = pa.StructArray.from_arrays([bad, pa.array([b"1"])], ["key", "value"])
    columns = {"topic": pa.array([f"{stream}.a"]), "value": pa.array(["v"])}
    schema = StructType().add("topic", StringType()).add("value", StringType())
    columns |= {"topic": bad} if column == "topic" else {"headers": pa.ListArray.from_arrays([0, 1], pair)}
    schema = schema if column == "topic" else schema.add("headers", HEADERS)
    writer = NatsWriter.of({"servers": nats_server.url}, schema, overwrite=False)

    with pytest.raises(StreamError, match=r"no UTF-8: b'x\\xff'"):
        writer.write(iter([pa.RecordBatch.from_arrays([*columns.values()], [*columns])]))
