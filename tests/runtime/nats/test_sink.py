"""Options of the NATS sink: of a route, and of Spark."""

from __future__ import annotations

import base64
import json
import pickle
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnout.embedded import NatsServer
from turnout.engine import Messages, Program, Result
from turnout.engine.messages import RECORDS, ListedMessages
from turnout.nats.jetstream.kv import Operation, operation_of
from turnout.nats.protocol.headers import parse
from turnout.nats.wire import Connection, ConnectionOptions, PullReader, Range, create_stream, stream_info
from turnout.nats.wire.records import with_stream
from turnout.routes import Route
from turnout.routes.endpoints import NatsSink
from turnout.runtime.endpoints import NewLetter
from turnout.runtime.nats.history import NatsLetters
from turnout.runtime.nats.sink import IdSample, SinkOptions, TaskIds, lines_of, lines_of_listed
from turnout.runtime.publishing import Publishers

_ALL: dict[str, Any] = {
    "user": "u",
    "password": "p",
    "stream": "S",
    "window": 7,
    "forwardHeaders": ["Nats-TTL"],
    "timeout": 2.5,
}
_ALL["allow"] = ["deliver.>", "$KV.b.*"]


@pytest.mark.parametrize("options", [{}, _ALL])
def test_a_routes_sink_has_the_options_that_spark_would_read(options: dict[str, Any]) -> None:
    """Both ways to say the same give equal options, secrets and defaults included."""
    sink = NatsSink.model_validate({"format": "nats", "servers": "nats://a,nats://b:5000", **options})

    assert SinkOptions.from_mapping(sink.options()) == SinkOptions.of(sink)


@pytest.mark.parametrize(("message_id", "expected"), [(None, "auto"), ("origin", "auto"), ("none", "none")])
def test_a_sink_without_ids(message_id: str | None, expected: str) -> None:
    """Only a sink with `messageId: none` publishes without ids."""
    sink = NatsSink.model_validate({"format": "nats", "servers": "nats://a", "messageId": message_id})

    assert expected == SinkOptions.of(sink).message_id


@pytest.mark.parametrize("message_id", ["auto", "none"])
@pytest.mark.parametrize("keys", [[b"a", None, b"\x00"], [None, None, None]])
def test_keys_of_listed_messages(keys: list[bytes | None], message_id: str) -> None:
    """Listed messages have the header with their keys that messages in arrays have, behind their other headers."""
    topics, ids = ["out.a", "out.b", "out.c"], ["1", None, "3"]
    headers: list[list[tuple[str | None, bytes | None]]] = [[("Trace", b"t"), ("Key", b"forged")], [], []]
    listed = ListedMessages(topics, ids, [0, 1, 2], [b"v"] * 3, headers, keys, [-1] * 3, [None] * 3)
    rows = [
        {"value": b"v", "headers": [{"key": name, "value": value} for name, value in own], "key": key}
        for own, key in zip(headers, keys, strict=True)
    ]
    records = pa.RecordBatch.from_pylist(rows, schema=RECORDS)
    whole = Messages(pa.array(topics), pa.array(ids, pa.string()), np.zeros(3, np.int8), np.arange(3), records)
    options = SinkOptions(
        ConnectionOptions.from_mapping({"servers": "nats://a"}), None, 10, message_id, key_header="Key"
    )
    lines = lines_of(whole, options)

    assert lines is not None
    assert lines_of_listed(listed, options) == lines.to_pylist()
    assert (b"Key: a\r\n" in lines.to_pylist()[0]) == (keys[0] is not None)


ROUTE = """
name: copy
source: {{format: nats, servers: "{url}", stream: KV_a}}
value: {{format: json}}
mappings: {{"$KV.a.*": "$KV.b.{{{{wildcard(1)}}}}"}}
sink: {{format: nats, servers: "{url}", allow: ["$KV.b.>", "b.>", "moved.>", "dead"]}}
deadLetter: {{topic: dead}}
errors: {{tolerance: all}}
"""


def copy(url: str, stream: str, route: str = ROUTE) -> tuple[int, int]:
    """Copy a stream by a route; return how many records were delivered, and dead-lettered."""
    program = Program.of(Route.parse(route.format(url=url), {}))
    (sink,) = program.route.sinks.values()
    corrections: list[Result] = []
    with Connection.open(url) as connection, Publishers((SinkOptions.of(sink),)) as publishers:  # type: ignore[arg-type]
        end = stream_info(connection, stream)["state"]["last_seq"] + 1
        for batch in PullReader(connection, Range(stream, 1, end)).batches():
            result = program.run(with_stream(batch, stream))
            corrections += [result, *publishers.publish(result)]
        corrections += publishers.flush()
    counts = corrections[0].counts
    for correction in corrections[1:]:
        counts += correction.counts
    return counts.delivered, counts.dead_lettered


def last_of(connection: Connection, stream: str, subject: str) -> tuple[bytes, Operation]:
    """Return the last message of a subject: its payload, and its operation as clients of buckets read it."""
    last = connection.api(f"STREAM.MSG.GET.{stream}", {"last_by_subj": subject})["message"]
    headers = dict(parse(base64.b64decode(last.get("hdrs", ""))))
    found = operation_of(headers.get("KV-Operation", b"").decode(), headers.get("Nats-Marker-Reason", b"").decode())
    return base64.b64decode(last.get("data", "")), found


@pytest.mark.parametrize(
    ("headers", "operation"),
    [
        ({"KV-Operation": "DEL"}, Operation.DELETE),
        ({"KV-Operation": "PURGE", "Nats-Rollup": "sub"}, Operation.PURGE),
        (None, Operation.PURGE),
    ],
)
def test_a_deletion_in_a_bucket_is_copied(headers: dict[str, str] | None, operation: Operation) -> None:
    """A key that was deleted, purged or has expired is gone in the copy as well."""
    with NatsServer() as server, Connection.open(server.url) as connection:
        for name in "ab":
            limits = {"allow_msg_ttl": True, "subject_delete_marker_ttl": 10**11, "allow_rollup_hdrs": True}
            create_stream(
                connection, {"name": f"KV_{name}", "subjects": [f"$KV.{name}.>"], "max_msgs_per_subject": 1, **limits}
            )
        connection.request("$KV.a.other", b'{"n":1}')
        connection.request("$KV.a.k", b'{"n":2}', {"Nats-TTL": "1s"} if headers is None else None)
        if headers is not None:
            connection.request("$KV.a.k", b"", headers)
        give_up = time.monotonic() + 30
        while last_of(connection, "KV_a", "$KV.a.k")[1] is Operation.PUT and time.monotonic() < give_up:
            time.sleep(0.1)

        copy(server.url, "KV_a")

        assert last_of(connection, "KV_a", "$KV.a.k") == (b"", operation)
        assert last_of(connection, "KV_b", "$KV.b.k") == (b"", operation)
        assert last_of(connection, "KV_b", "$KV.b.other") == (b'{"n":1}', Operation.PUT)


@pytest.mark.parametrize("context", [True, False])
def test_letters_do_not_instruct_the_server(context: bool) -> None:
    """A forwarded instruction is about the messages: with it a letter would remove earlier letters, or expire."""
    with NatsServer() as server, Connection.open(server.url) as connection:
        allowed = {"allow_rollup_hdrs": True, "allow_msg_ttl": True}
        for name, subject in (("IN", "in.>"), ("OUT", "b.>"), ("DEAD", "dead")):
            create_stream(connection, {"name": name, "subjects": [subject], **allowed})
        instructing = {"nats-rollup": "all", "Nats-TTL": "1h", "Kept": "yes"}
        for payload in (b"{", b"{}", b"["):
            connection.request("in.x", payload, instructing)
        route = ROUTE.replace('"$KV.a.*": "$KV.b.', '"in.*": "b.').replace("KV_a", "IN")
        route = route.replace("allow:", "forwardHeaders: [Nats-Rollup, Nats-TTL], allow:")
        route = route.replace("topic: dead", f"topic: dead, contextHeaders: {str(context).lower()}")

        assert copy(server.url, "IN", route) == (1, 2)

        (letters,) = PullReader(connection, Range("DEAD", 1, 3)).batches()
        (messages,) = PullReader(connection, Range("OUT", 1, 2)).batches()
    names = [{pair["key"].lower() for pair in headers} for headers in letters.column("headers").to_pylist()]
    assert len(names) == 2
    assert all("kept" in own and not own & {"nats-rollup", "nats-ttl"} for own in names)
    delivered = {pair["key"].lower() for pair in messages.column("headers")[0].as_py()}
    assert {"nats-rollup", "nats-ttl", "kept"} <= delivered


def test_letters_are_written_again_without_instructions(nats_server: NatsServer) -> None:
    """As by a redrive that has failed: earlier releases stored letters with them."""
    with Connection.open(nats_server.url) as connection:
        create_stream(
            connection, {"name": "AGAIN", "subjects": ["again"], "allow_rollup_hdrs": True, "allow_msg_ttl": True}
        )
        letters = NatsLetters(ConnectionOptions.of(nats_server.url), "AGAIN", "again")
        for number in range(2):
            headers = [("Nats-Rollup", b"all"), ("nats-ttl", b"1h"), ("Kept", b"%d" % number)]
            letters.add(NewLetter(headers, b"x", None), "AGAIN")

        (stored,) = PullReader(connection, Range("AGAIN", 1, 3)).batches()
    assert [[pair["key"] for pair in own] for own in stored.column("headers").to_pylist()] == [["Kept"], ["Kept"]]


MAPPED = """
jetstream: enabled
accounts { A { jetstream: enabled, users: [{user: a, password: pw}], mappings { "moved.b": "nostream.b" } } }
"""


def test_a_message_that_a_mapping_moves_is_a_dead_letter(monkeypatch: pytest.MonkeyPatch) -> None:
    """It names subject and cause; the others are stored once, and the counts are right."""
    monkeypatch.setattr("turnout.nats.wire.publisher._SILENCE_SECONDS", 2.0)
    with NatsServer(config=MAPPED) as server:
        url = server.url.replace("//", "//a:pw@")
        with Connection.open(url) as connection:
            create_stream(connection, {"name": "IN", "subjects": ["in.>"]})
            create_stream(connection, {"name": "M", "subjects": ["moved.>"]})
            create_stream(connection, {"name": "DEAD", "subjects": ["dead"]})
            for name in "abc":
                connection.request(f"in.{name}", json.dumps({"n": name}).encode())
            route = ROUTE.replace('"$KV.a.*": "$KV.b.', '"in.*": "moved.').replace("KV_a", "IN")

            assert copy(url, "IN", route) == (2, 1)

            assert stream_info(connection, "M")["state"]["messages"] == 2
            (letters,) = PullReader(connection, Range("DEAD", 1, 2)).batches()
    headers = {pair["key"]: pair["value"] for pair in letters.column("headers")[0].as_py()}
    reason = headers["__connect.errors.exception.message"].decode()
    assert "moved.b" in reason
    assert "a mapping of the account may move or drop it" in reason


batches = st.lists(st.lists(st.none() | st.sampled_from([b"", b"a", b"b", b"c", b"a:1"]), max_size=12), max_size=6)


def task(parts: Sequence[Sequence[bytes | None]], *, distinct: bool) -> tuple[list[bytes | None], IdSample]:
    ids = TaskIds(distinct=distinct)
    written = [id_ for part in parts for id_ in ids.add(pa.array(part, pa.binary())).to_pylist()]
    return written, pickle.loads(pickle.dumps(ids.sample()))


@given(batches)
def test_the_first_row_keeps_an_id(parts: list[list[bytes | None]]) -> None:
    """Each further row has its number in the task added; rows without an id have none."""
    given_ids = [id_ for part in parts for id_ in part]
    seen: set[bytes] = set()
    expected = []
    for number, id_ in enumerate(given_ids):
        expected.append(b"%b:%d" % (id_, number) if id_ and id_ in seen else id_)
        seen.add(id_ or b"")

    assert task(parts, distinct=True)[0] == expected
    kept, sample = task(parts, distinct=False)
    assert kept == given_ids
    present = [id_ for id_ in given_ids if id_]
    assert sample.repeats == (len(present) > len(set(present)))


@pytest.mark.parametrize("count", [400, 3_000, 100_000])
def test_tasks_with_equal_ids(count: int) -> None:
    """Samples of tasks of very different sizes have equal ids where many are equal, and none where none are."""
    one, two, three = ([b"%d:%d" % (part, n) for n in range(size)] for part, size in enumerate((count, 10, 50_000)))
    samples = [task([ids], distinct=True)[1] for ids in (one, two, three)]

    assert not IdSample.have_equal(samples)
    assert IdSample.have_equal([*samples, task([one], distinct=True)[1]])
    assert not IdSample.have_equal([])


def test_small_tasks_with_one_equal_id() -> None:
    """Up to a few hundred rows in each task, the comparison is exact."""
    samples = [task([[b"%d:%d" % (part, n) for n in range(300)]], distinct=True)[1] for part in range(20)]

    assert not IdSample.have_equal(samples)
    assert IdSample.have_equal([*samples, task([[b"7:299"]], distinct=True)[1]])
