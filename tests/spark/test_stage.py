"""The engine as a stage: what is published, what is counted, and what becomes rows."""

from __future__ import annotations

import gc
import json
import pickle
import secrets
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql.types import StructType
from tests.streams import own_stream

from turnout.base.caches import LruCache
from turnout.conditions import exists
from turnout.embedded import NatsServer
from turnout.engine import Counts, Messages
from turnout.engine.counts import Flow
from turnout.engine.messages import RECORDS
from turnout.errors import RunError, StreamError
from turnout.nats.wire import Connection, Publisher, PullReader, Range, stream_info
from turnout.nats.wire.records import SCHEMA
from turnout.routes import Route
from turnout.runtime.nats.source import SourceOptions
from turnout.runtime.publishing import TALLY, sum_of
from turnout.spark import stage as module
from turnout.spark.formats.nats.reading import Rows, Split
from turnout.spark.stage import MESSAGE_ID, MESSAGES, SINK, SparkStage
from turnout.subscriptions import Subscription
from turnout.subscriptions.index import Index

pytestmark = pytest.mark.jetstream


class FakeProgram:
    """Sends each record to two topics, under ids of its offset; every third record fails."""

    def __init__(self, out: str, sinks: int = 1) -> None:
        self.out = out
        self.sinks = sinks
        self.indexes: list[Any] = []
        self.collecting: list[bool] = []
        self.streams: list[str] = []

    def results(self, batch: Any, index: Any = None) -> Iterator[Any]:
        yield self.run(batch, index)

    def run(self, batch: Any, index: Any = None) -> Any:
        self.indexes.append(index)
        self.collecting.append(gc.isenabled())
        if "stream" in batch.schema.names:
            self.streams += batch.column("stream").unique().to_pylist()
        offsets = batch.column("offset").to_pylist()
        good = [row for row, offset in enumerate(offsets) if offset % 3]
        bad = [offset for offset in offsets if not offset % 3]
        rows = np.repeat(np.arange(len(good)), 2)
        records = batch.take(pa.array(good, pa.int64()))
        carried = pa.RecordBatch.from_arrays(
            [records.column(item.name).cast(item.type) for item in RECORDS], schema=RECORDS
        )
        offset_of = [offsets[good[row]] for row in rows]
        topics = [f"{self.out}.{place % 2}" for place in range(len(rows))]
        ids = [f"S:{offset}:{place % 2}" for place, offset in enumerate(offset_of)]
        messages = Messages(
            pa.array(topics, pa.string()),
            pa.array(ids, pa.string()),
            (np.arange(len(rows)) % self.sinks).astype(np.int8),
            rows,
            carried,
        )
        counts = Counts(read=len(offsets), delivered=len(good), discarded=len(bad), messages=len(rows))
        failure = {"topic": "t", "stage": "S", "class_name": "C", "exception": "E", "message": "M"}
        failures = [{**failure, "offset": str(offset)} for offset in bad]
        return SimpleNamespace(
            counts=counts, messages=messages, outgoing=messages, failures=failures[:20] + [{}] * len(failures[20:])
        )


def batch_of(first: int, count: int, headers: Any = None) -> Any:
    rows = [
        {"topic": "in.a", "partition": 0, "offset": n, "value": b"%d" % n, "headers": headers, "timestamp": n}
        for n in range(first, first + count)
    ]
    return pa.RecordBatch.from_pylist(rows, schema=SCHEMA)


@pytest.fixture
def out(connection: Connection) -> Iterator[str]:
    with own_stream(connection) as name:
        yield name


def a_stage(url: str, monkeypatch: Any, program: FakeProgram, *, splits: bool = False, sink: str = "") -> SparkStage:
    """The stage of a route to one NATS sink, a fake in the place of its program."""
    text = f"""
name: stage
source: {{format: nats, servers: "{url}", stream: S}}
sink: {{format: nats, servers: "{url}"{sink}}}
"""
    stage = SparkStage.of(Route.parse(text, {}), splits=splits)
    programs = LruCache[str, Any](1)
    programs.add(stage.key, program)
    monkeypatch.setattr(module, "_programs", programs)
    return stage


def stored(url: str, stream: str) -> list[dict[str, Any]]:
    with Connection.open(url) as connection:
        last = stream_info(connection, stream)["state"]["last_seq"]
        batches = PullReader(connection, Range(stream, 1, last + 1)).batches() if last else []
        return [row for batch in batches for row in batch.to_pylist()]


def test_what_is_published_is_acknowledged_and_counted(nats_server: NatsServer, out: str, monkeypatch: Any) -> None:
    """One row of counts for a task, whatever it was fed; ids and headers are those of the messages."""
    headers = [{"key": "Kind", "value": b"x"}, {"key": "Nats-Msg-Id", "value": b"the source's"}]
    stage = a_stage(nats_server.url, monkeypatch, FakeProgram(out))

    (counted,) = list(stage.publish([batch_of(1, 2, headers), batch_of(4, 2)]))

    assert counts_of([counted]) == {"read": 4, "delivered": 4, "messages": 8}
    assert counted.column("failures").to_pylist() == [0]
    assert counted.schema.names == [part.split(" ")[0] for part in TALLY.split(", ")]
    rows = stored(nats_server.url, out)
    assert sorted((row["topic"], row["value"], row["key"]) for row in rows) == sorted(
        (f"{out}.{place}", b"%d" % n, b"S:%d:%d" % (n, place)) for n in (1, 2, 4, 5) for place in (0, 1)
    )
    assert {header["value"] for header in rows[0]["headers"] if header["key"] == "Kind"} == {b"x"}
    assert [header["key"] for header in rows[0]["headers"]].count("Nats-Msg-Id") == 1
    assert [header["key"] for header in rows[-1]["headers"]] == ["Nats-Msg-Id"]


def test_a_task_done_again_stores_nothing_twice(nats_server: NatsServer, out: str, monkeypatch: Any) -> None:
    """By its ids; with messageId none every message is stored."""
    rows = [batch_of(1, 2)]
    stage = a_stage(nats_server.url, monkeypatch, FakeProgram(out))
    for _ in range(2):
        list(stage.publish(rows))
    assert len(stored(nats_server.url, out)) == 4

    without = a_stage(nats_server.url, monkeypatch, FakeProgram(out), sink=", messageId: none")
    list(without.publish(rows))

    assert len(stored(nats_server.url, out)) == 8


def test_a_task_without_records(nats_server: NatsServer, out: str, monkeypatch: Any) -> None:
    """Its counts are zero, and it opens no connection."""
    stage = replace(a_stage(nats_server.url, monkeypatch, FakeProgram(out)), sinks=(None,))

    (counted,) = list(stage.publish([]))

    assert counted.num_rows == 1
    assert counts_of([counted]) == {}


def test_failures_are_rows_beside_the_counts(nats_server: NatsServer, out: str, monkeypatch: Any) -> None:
    """The first twenty of a task; the others are counted."""
    stage = a_stage(nats_server.url, monkeypatch, FakeProgram(out))

    (counted,) = list(stage.publish([batch_of(1, 90), batch_of(91, 9)]))

    assert counted.num_rows == 20
    assert sum(counted.column("failures").to_pylist()) == 33
    assert counts_of([counted])["read"] == 99
    failures = map(json.loads, counted.column("failure").to_pylist())
    assert [failure["offset"] for failure in failures] == [str(n) for n in range(3, 61, 3)]


def test_messages_as_rows(nats_server: NatsServer, out: str, monkeypatch: Any) -> None:
    """For other sinks: messages with null counts, and the counts in a row that is no message."""
    stage = a_stage(nats_server.url, monkeypatch, FakeProgram(out, sinks=2))

    rows = pa.Table.from_batches(list(stage.rows([batch_of(1, 2), batch_of(1, 0)]))).to_pylist()

    names = [part.split(" ")[0] for part in MESSAGES.replace("struct<key:string,value:binary>", "").split(", ")]
    assert list(rows[0])[:8] == names[:8]
    assert [(row["topic"], row[MESSAGE_ID], row["value"], row["offset"], row[SINK]) for row in rows] == [
        (f"{out}.0", "S:1:0", b"1", 1, 0),
        (f"{out}.1", "S:1:1", b"1", 1, 1),
        (f"{out}.0", "S:2:0", b"2", 2, 0),
        (f"{out}.1", "S:2:1", b"2", 2, 1),
        (None, None, None, None, None),
    ]
    assert [row["counts"] for row in rows[:-1]] == [None] * 4
    assert json.loads(rows[-1]["counts"])["read"] == 2


def test_records_are_matched_with_their_own_revision(nats_server: NatsServer, out: str, monkeypatch: Any) -> None:
    """That of their split; records without one are matched with the stage's."""
    program = FakeProgram(out)
    place: Any = SimpleNamespace(open=lambda revision: f"index {revision}")
    stage = a_stage(nats_server.url, monkeypatch, program, splits=True).with_index(place)
    publish_some(nats_server.url, out, 3)
    splits = [Split(out, 1, 2, revision=7), Split(out, 2, 3, revision=8), Split(out, 3, 4)]

    list(stage.at(5).publish(split_rows(nats_server.url, *splits)))

    assert program.indexes == ["index 7", "index 8", "index 5"]
    with pytest.raises(StreamError, match="without the revision"):
        list(stage.publish(split_rows(nats_server.url, splits[2])))
    with pytest.raises(StreamError, match="without the revision"):
        list(replace(stage, splits=False).publish([batch_of(4, 1)]))


def test_splits_are_read_by_the_stage(nats_server: NatsServer, out: str, monkeypatch: Any) -> None:
    """Their records go through the program with their stream; what is not read of them is counted beside."""
    program = FakeProgram(f"{out}.to")
    stage = a_stage(nats_server.url, monkeypatch, program, splits=True)
    publish_some(nats_server.url, out, 12)
    narrowed = Split(out, 1, 9, filters=(f"{out}.0",), counted=8)
    nothing = Split(out, 9, 13, filters=(), counted=4)

    (row,) = list(stage.publish(split_rows(nats_server.url, narrowed, nothing)))

    assert [counts_of([row])[name] for name in ("read", "not_read")] == [3, 9]
    assert program.streams == [out]


def publish_some(url: str, stream: str, count: int) -> None:
    with Connection.open(url) as connection, Publisher(connection) as publisher:
        for n in range(count):
            publisher.publish(f"{stream}.{n % 3}", b"%d" % n)


def split_rows(url: str, *splits: Split) -> list[Any]:
    """Splits as Spark brings them to a stage."""
    options = SourceOptions.from_mapping({"servers": url, "stream": "S", "splits": "true"}, streaming=False)
    rows = Rows.of(options, StructType())
    return [row for split in splits for row in rows.read(split)]


def test_no_garbage_is_looked_for_while_a_task_runs(nats_server: NatsServer, out: str, monkeypatch: Any) -> None:
    """Afterwards the collector is in its previous state."""
    program = FakeProgram(out)
    stage = a_stage(nats_server.url, monkeypatch, program)

    list(stage.publish([batch_of(1, 1)]))

    assert program.collecting == [False]
    assert gc.isenabled()


# What a server refuses


def real_stage(url: str, out: str, *destinations: str, more: str = "") -> SparkStage:
    """The stage of a route with its own program, for records that one subscription wants."""
    text = f"""
name: refused
source: {{format: nats, servers: "{url}", stream: S}}
subscriptions: {{store: "memory://"}}
sink: {{format: nats, servers: "{url}"}}
{more or f"deadLetter: {{topic: {out}.dead}}"}
errors: {{tolerance: all, log: true}}
"""
    index = Index.of([Subscription(destinations, exists("subject"), id="mine")])
    place: Any = SimpleNamespace(open=lambda revision: index)
    return SparkStage.of(Route.parse(text, {}), splits=False).with_index(place).at(1)


def counts_of(rows: Any) -> dict[str, int]:
    """Return the counts of a task that are not zero."""
    (batch,) = rows
    return {name: number for name, number in total(batch).as_dict().items() if number}


def total(rows: Any) -> Counts:
    """Return the counts of a task."""
    return sum_of(text for text in rows.column("counts").to_pylist() if text is not None)


def test_a_task_tells_how_its_records_went(nats_server: NatsServer, out: str) -> None:
    """Its counts include, once for all batches, the input of each stage and the waiting time of messages."""
    stage = real_stage(nats_server.url, out, f"{out}.good", "a b")

    (published,) = list(stage.publish([batch_of(1, 3), batch_of(4, 2)]))
    *_, rows = list(stage.rows([batch_of(1, 3), batch_of(4, 2)]))

    counted = total(published).flow
    stages = {"source": 5, "key": 5, "value": 5, "match": 5, "sink": 5, "deadLetter": 0}
    assert (dict(counted.taken), dict(counted.failed), counted.delivery.count) == (stages, {}, 10)
    assert counted.delivery.seconds > 0
    # Rows are published by nobody yet.
    assert total(rows).flow == Flow(stages)


def test_refused_messages_become_dead_letters(nats_server: NatsServer, out: str) -> None:
    """The good ones are stored; a task that is done again stores nothing twice, dead letters included."""
    nowhere = f"nowhere-{secrets.token_hex(4)}.x"
    stage = real_stage(nats_server.url, out, f"{out}.good", nowhere, "a b")

    for stored_before in ({}, {"duplicates": 15}):
        (numbers,) = [counts_of(stage.publish([batch_of(1, 3), batch_of(4, 2)]))]
        assert numbers == {"read": 5, "delivered": 5, "messages": 5, "undeliverable": 10, **stored_before}

    rows = stored(nats_server.url, out)
    dead = [
        {header["key"]: header["value"].decode() for header in row["headers"]}
        for row in rows
        if row["topic"] == f"{out}.dead"
    ]
    assert Counter(row["topic"] for row in rows) == {f"{out}.good": 5, f"{out}.dead": 10}
    assert Counter((one["__turnout.subscription"], one["__turnout.destination"]) for one in dead) == {
        ("mine", nowhere): 5,
        ("mine", "a b"): 5,
    }
    assert {one["__connect.errors.offset"] for one in dead} == {"1", "2", "3", "4", "5"}
    assert any("no stream listens" in one["__connect.errors.exception.message"] for one in dead)


def test_refused_messages_without_a_dead_letter_topic(nats_server: NatsServer, out: str) -> None:
    """They are discarded, counted and logged; a record without any accepted delivery is discarded itself."""
    stage = real_stage(nats_server.url, out, f"nowhere-{secrets.token_hex(4)}.x", more="unmatched: drop")

    (rows,) = list(stage.publish([batch_of(1, 2)]))

    assert counts_of([rows]) == {"read": 2, "discarded": 2, "undeliverable": 2}
    (failure, *_) = map(json.loads, rows.column("failure").to_pylist())
    assert "subscription 'mine': destination 'nowhere-" in failure["message"]


def test_dead_letters_are_not_all_kept_in_memory(nats_server: NatsServer, out: str, monkeypatch: Any) -> None:
    """After some batches with refused messages their dead letters are published."""
    monkeypatch.setattr("turnout.runtime.publishing._KEPT_BACK", 2)
    stage = real_stage(nats_server.url, out, f"nowhere-{secrets.token_hex(4)}.x")

    numbers = counts_of(stage.publish([batch_of(n, 1) for n in range(1, 8)]))

    assert numbers == {"read": 7, "dead_lettered": 7, "undeliverable": 7}
    assert len(stored(nats_server.url, out)) == 7


def test_a_dead_letter_that_cannot_be_written_stops_the_run(nats_server: NatsServer, out: str) -> None:
    """It has nowhere else to go, and nothing is lost in silence."""
    stage = real_stage(nats_server.url, out, "a b", more=f"deadLetter: {{topic: nowhere-{secrets.token_hex(4)}.dead}}")

    with pytest.raises(RunError, match=r"a dead letter cannot be written to 'nowhere-.*no stream listens"):
        list(stage.publish([batch_of(1, 1)]))


def test_a_message_that_is_too_large(nats_server: NatsServer, out: str) -> None:
    """A dead letter like others; one that is too large itself says where the record is, and how large."""
    limit = 1 << 20
    records = batch_of(1, 3)
    values = pa.array([b"x", b"x" * (limit - 20), b"x" * (limit + 1)], pa.binary())
    records = records.set_column(records.schema.get_field_index("value"), "value", values)
    stage = real_stage(nats_server.url, out, f"{out}.good")

    numbers = counts_of(stage.publish([records]))

    assert numbers == {"read": 3, "delivered": 1, "dead_lettered": 2, "messages": 1, "undeliverable": 2}
    good, *dead = stored(nats_server.url, out)
    headers = [{header["key"]: header["value"].decode() for header in row["headers"]} for row in dead]
    assert good["value"] == b"x"
    assert [row["value"] for row in dead] == [b"", b""]
    assert sorted(header["__turnout.value.left.out"] for header in headers) == sorted([str(limit - 20), str(limit + 1)])
    assert {header["__connect.errors.offset"] for header in headers} == {"2", "3"}


def test_headers_for_the_server_are_not_forwarded(nats_server: NatsServer, out: str) -> None:
    """They would change the processing of the message; a sink may allow some by name."""
    reports = [
        "Nats-Rollup", "Nats-TTL", "Nats-Schedule", "Nats-Schedule-Target", "Nats-Scheduler", "Nats-Batch-Id",
        "Nats-Required-Api-Level", "Nats-Incr", "Nats-Counter-Sources", "Nats-Marker-Reason", "Nats-Trace-Dest",
        "Nats-Expected-Last-Sequence", "nats-ttl", "NATS-EXPECTED-STREAM", "Nats-Trace-Only",
    ]  # fmt: skip
    headers = [{"key": name, "value": b"1"} for name in [*reports, "Nats-Stream", "traceparent", "X-Nats-TTL"]]

    numbers = counts_of(real_stage(nats_server.url, out, f"{out}.good").publish([batch_of(1, 1, headers)]))

    (row,) = stored(nats_server.url, out)
    assert numbers["delivered"] == 1
    assert [header["key"] for header in row["headers"]] == ["Nats-Msg-Id", "Nats-Stream", "traceparent", "X-Nats-TTL"]


def test_a_worker_keeps_one_program_of_a_route(nats_server: NatsServer, monkeypatch: Any) -> None:
    """However often a stage arrives; it shows no secret."""
    text = (
        'name: x\nsource: {format: nats, servers: "nats://u:hunter2@h", stream: S}\nsink: {format: nats, servers: "n"}'
    )
    monkeypatch.setattr(module, "_programs", LruCache(1))
    first, second = (pickle.loads(pickle.dumps(SparkStage.of(Route.parse(text, {}), splits=True))) for _ in range(2))

    assert first._program() is second._program()
    assert "hunter2" not in repr(first)
