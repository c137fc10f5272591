"""Records that a Kafka sink would refuse for their size, taken out before Spark's connector sees them."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.engine.batches import batch, program, sent

from turnout.engine import Result
from turnout.engine.messages import VALUE_LEFT_OUT, ListedMessages, record_ids
from turnout.errors import ConfigError, RunError
from turnout.kafka.options import KafkaOptions
from turnout.records.batch import ListedRecords
from turnout.records.headers import headers_type
from turnout.routes import Route
from turnout.runtime.kafka.publisher import KafkaLimits, KafkaSinkOptions, Slot, _columns, fitting, record_sizes
from turnout.runtime.leases import LeaseLostError
from turnout.runtime.publishing import Publishers

ROUTE = 'name: r\nsource: {format: nats, servers: "nats://a", stream: S}\nvalue: {format: raw}\n'
OF_KAFKA = """
name: r
source: {format: kafka, servers: "a:1", topics: [t, u]}
key: {format: raw}
value: {format: raw}
mappings: {"t": "a", "u": "b"}
"""
SINK = 'sink: {format: kafka, servers: "a:1"}\n'
DEAD = "deadLetter: {topic: dead}\nerrors: {tolerance: all}\n"
LIMITS = (KafkaLimits(2000),)


def run(*parts: str, **record: object) -> Result:
    rows: list[dict[str, Any]] = [{"topic": "t", **record}, {"topic": "t", "value": b"small"}]
    return program(*(parts or (SINK, DEAD)), text=ROUTE).run(batch(rows))


def test_sizes_are_the_producers() -> None:
    """Each is what DefaultRecordBatch.estimateBatchSizeUpperBound of Kafka 4.3 says of the record."""
    rows: list[dict[str, Any]] = [
        {"key": None, "value": None, "headers": []},
        {"key": b"", "value": b"x" * 63, "headers": None},
        {"key": b"k" * 64, "value": b"x" * 8191, "headers": [{"key": "a", "value": b"1"}]},
        {"key": b"k", "value": b"x" * 8192, "headers": [{"key": "é", "value": None}, {"key": "b", "value": b""}]},
        {"key": b"k", "value": b"x" * (1 << 20), "headers": []},
    ]
    columns = {"key": pa.binary(), "value": pa.binary(), "headers": headers_type()}
    arrays = [pa.array([row[name] for row in rows], kind) for name, kind in columns.items()]

    sizes = record_sizes(pa.RecordBatch.from_arrays(arrays, names=list(columns)))

    assert sizes.tolist() == [85, 148, 8346, 8287, 1048665]


def test_a_record_that_is_too_large_becomes_a_dead_letter() -> None:
    """Its neighbour is delivered; the dead letter, too large itself, says how large the value was."""
    result = run(value=b"a" * 5000)
    parts = fitting(result, LIMITS)

    assert [message[0] for part in parts for message in sent(part.messages)] == ["t", "dead"]
    counts = sum((part.counts for part in parts[1:]), parts[0].counts)
    assert (counts.read, counts.delivered, counts.dead_lettered, counts.undeliverable) == (2, 1, 1, 1)
    (_, _, value, headers) = sent(parts[-1].messages)[0]
    reason = dict(headers)["__connect.errors.exception.message"].decode()
    assert (value, dict(headers)[VALUE_LEFT_OUT]) == (None, b"5000")
    setting = "max.request.size of the producer"
    assert f"'t' takes 2,000 bytes a record ({setting}), found up to 5,086 with its key and headers" in reason


def test_a_dead_letter_that_is_too_large_by_its_key_keeps_only_the_reason() -> None:
    """Neither the key nor the record's own headers can go with it."""
    result = run(value=b"v", key="k" * 5000, headers=[("Own", "h" * 3000)])

    letter = fitting(result, LIMITS)[-1].messages
    (_, _, value, headers) = sent(letter)[0]

    assert value is None
    assert letter.column("key").to_pylist() == [None]
    assert all(name.startswith(("__connect.errors.", "__turnout.")) for name, _ in headers)


def test_without_tolerance_the_run_stops_and_names_the_record() -> None:
    """The message has topic, partition and offset."""
    with pytest.raises(RunError, match=r"topic t, partition 0, offset 1: TASK_PUT: .*found up to 5,086"):
        fitting(run(SINK, value=b"a" * 5000), LIMITS)


def test_a_batch_that_fits_is_left_alone() -> None:
    """The largest record that the limit allows goes out."""
    result = run(value=b"a" * (2000 - 82 - 1 - 2 - 1))

    assert fitting(result, LIMITS) == [result]
    assert len(fitting(result, (KafkaLimits(1999),))) > 1
    assert fitting(result, (None,)) == [result]


def test_a_topics_own_limit_counts_where_it_is_lower() -> None:
    """Topics without a limit have the broker's; the message names the setting."""
    limits = KafkaLimits(1000, {"low": 100, "high": 5000}, 500)

    assert limits.of_topic("low") == (100, "max.message.bytes of the topic")
    assert limits.of_topic("high") == (1000, "max.request.size of the producer")
    assert limits.of_topic("other") == (500, "message.max.bytes of the broker")


def test_limits_come_from_the_sinks_options() -> None:
    """Kafka's defaults without any; what is no number is a mistake with its place."""

    def of(options: str) -> KafkaLimits:
        sink = Route.parse(ROUTE + f'sink: {{format: kafka, servers: "a:1", options: {options}}}\n').sinks
        (only,) = sink.values()
        return KafkaLimits.of(only)  # type: ignore[arg-type]

    assert of("{}").producer == 1 << 20
    assert of("{kafka.max.request.size: 5000000}").producer == 5_000_000
    assert of("{kafka.max.request.size: 90000000}").producer == 32 << 20
    with pytest.raises(ConfigError, match=r"kafka.max.request.size: expected a number of bytes, found 'much'"):
        of("{kafka.max.request.size: much}")


def test_no_message_has_no_size() -> None:
    """An empty batch is one with nothing to refuse."""
    empty = program(SINK, DEAD, text=ROUTE).run(batch([]))

    assert fitting(empty, LIMITS) == [empty]
    assert np.array_equal(record_sizes(empty.messages.records), [])


@pytest.mark.parametrize("more", ["", ", partitionBy: record", ', partitionBy: "header:h"'])
def test_a_few_messages_as_lists(more: str) -> None:
    """What is handed to the producer is the same as for record batches: keys, nulls, headers and times too."""
    of_batch = pa.RecordBatch.from_pydict(
        {
            "topic": ["t", "t", "u"],
            "partition": pa.array([2, 0, 1], pa.int32()),
            "offset": pa.array([7, 8, 9], pa.int64()),
            "key": pa.array([b"k", None, b""]),
            "value": pa.array([b"1", None, b""]),
            "headers": pa.array([[("h", b"v"), ("i", None)], [], [("h", b"")]], headers_type()),
            "timestamp": pa.array([1_700_000_000_123_000, -5, None], pa.timestamp("us", tz="UTC")),
        }
    )
    few = ListedRecords(
        record_ids(of_batch).to_pylist(),
        of_batch.column("topic").to_pylist(),
        of_batch.column("partition").to_pylist(),
        of_batch.column("offset").to_pylist(),
        of_batch.column("timestamp").cast(pa.int64()).to_pylist(),
        of_batch.column("key").to_pylist(),
        of_batch.column("value").to_pylist(),
        [[("h", b"v"), ("i", None)], [], [("h", b"")]],
        lambda: of_batch,
    )
    made = program(SINK.replace("}", f"{more}}}"), DEAD, text=OF_KAFKA)

    results = [made.run(source).outgoing for source in (few, of_batch)]

    assert isinstance(results[0], ListedMessages)
    listed, whole = map(_columns, results)
    assert listed == whole
    assert results[0].ids == results[0].whole.ids.to_pylist()


def test_a_transaction_begins_only_while_the_server_leads(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that was paused and wakes up would end the transaction of the next leader, which has the same id."""
    begun: list[bool] = []
    monkeypatch.setattr("turnout.kafka.producer.KafkaProducer.begin", lambda _: begun.append(True))
    options = KafkaSinkOptions(KafkaOptions.of("127.0.0.1:9"), control_topic="control")

    def refuse() -> None:
        raise LeaseLostError("nothing more is written")

    publisher = options.publisher(Slot("checkpoint", 1, 0))
    publisher.guard(refuse)
    with pytest.raises(LeaseLostError):
        publisher.begin("split")

    publisher.close()
    assert not begun


def test_publishers_are_outdated_once_for_each_renewal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the files of all Kafka sinks, wherever a worker has them."""
    monkeypatch.setattr("turnout.base.files._LOOK_SECONDS", 0.0)
    authority = tmp_path / "ca.pem"
    authority.write_text("first")
    client = KafkaOptions.of("k:1", {"security.protocol": "SSL", "ssl.ca.location": str(authority)})
    publishers = Publishers((None, pickle.loads(pickle.dumps(KafkaSinkOptions(client)))))

    before = publishers.is_outdated
    authority.write_text("the second")

    assert [before, publishers.is_outdated, publishers.is_outdated] == [False, True, False]
