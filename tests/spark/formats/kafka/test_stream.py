"""The streaming source over a real broker, without a JVM of Spark's."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from tests.integration.kafka_broker import KafkaBroker, started_broker
from tests.kafka.test_admin import delete
from tests.kafka.test_producer import refusing
from tests.kafka.test_reader import remove_records

from turnout.engine.messages import record_ids
from turnout.errors import StreamError
from turnout.kafka.admin import KafkaAdmin
from turnout.kafka.options import KafkaOptions
from turnout.kafka.producer import KafkaMessages, KafkaProducer
from turnout.runtime.kafka.source import KafkaSourceOptions
from turnout.spark.formats.kafka.source import KafkaSplit, KafkaStreamReader

pytestmark = pytest.mark.kafka
ALL = ReadAllAvailable()


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaOptions]:
    with started_broker(tmp_path_factory.mktemp("kafka")) as started:
        yield KafkaOptions.of(started.servers)


def fill(client: KafkaOptions, topic: str, count: int, partitions: int = 1) -> None:
    with KafkaAdmin(client) as admin:
        admin.create_topic(topic, partitions, {})
    with KafkaProducer(client) as producer:
        numbers = [n % partitions for n in range(count)]
        producer.publish(KafkaMessages([topic] * count, [b"x"] * count, [None] * count, None, None, numbers), refusing)
        producer.flush()


def spans(reader: KafkaStreamReader, start: dict, end: dict) -> list[str]:
    return [str(part.span) for part in reader.partitions(start, end) if isinstance(part, KafkaSplit)]


def message_ids(reader: KafkaStreamReader, start: dict, end: dict) -> list[str | None]:
    """Return what the message ids of a micro-batch begin with."""
    splits = [part for part in reader.partitions(start, end) if isinstance(part, KafkaSplit)]
    lenient = replace(reader._options, fail_on_data_loss=False)
    batches = [batch for part in splits for batch in part.reader(lenient).batches_with_stream()]
    return [id_ for batch in batches for id_ in record_ids(batch).to_pylist()]


def test_micro_batches(client: KafkaOptions) -> None:
    """They follow each other within the limit, and one that is planned again after a restart has the same splits."""
    fill(client, "two", 30, 2)
    options = KafkaSourceOptions(client, ("two",), max_records=20, partitions=2)
    reader = KafkaStreamReader(options)
    start = reader.initialOffset()

    first = reader.latestOffset(start, ReadMaxRows(20))
    second = reader.latestOffset(first, ReadMaxRows(20))

    assert spans(reader, start, first) == ["two:0[0, 10)", "two:1[0, 10)"]
    assert spans(reader, first, second) == ["two:0[10, 15)", "two:1[10, 15)"]
    assert reader.latestOffset(second, ReadMaxRows(20)) == second
    assert reader.reportLatestOffset() == {"two": {"0": 15, "1": 15}}
    fill(client, "two", 10, 2)
    again = KafkaStreamReader(KafkaSourceOptions(client, ("two",), start="latest", partitions=7))
    assert spans(again, again.initialOffset(), first) == ["two:0[0, 10)", "two:1[0, 10)"]


def test_a_checkpoint_of_sparks_connector(client: KafkaOptions) -> None:
    """An offset without ids is gone on with; from then on the topic's id is known, and message ids stay without it."""
    fill(client, "before", 5)
    reader = KafkaStreamReader(KafkaSourceOptions(client, ("before",)))

    end = reader.latestOffset({"before": {"0": 3}}, ALL)

    assert end["before"] == {"0": 5}
    assert end[":ids"].keys() == {"before"}
    assert ":from" not in end
    assert message_ids(reader, {"before": {"0": 3}}, end) == ["before:0:3", "before:0:4"]


def test_a_topic_that_is_made_anew(client: KafkaOptions, caplog: pytest.LogCaptureFixture) -> None:
    """Its offsets fit, and its first records would be skipped: it is detected by its id, and read completely."""
    fill(client, "anew", 5)
    reader = KafkaStreamReader(KafkaSourceOptions(client, ("anew",)))
    done = reader.latestOffset(reader.initialOffset(), ALL)
    first = message_ids(reader, reader.initialOffset(), done)
    delete(client, "anew")

    with pytest.raises(StreamError, match="there is no topic 'anew'"):
        reader.latestOffset(done, ALL)
    fill(client, "anew", 11)
    with pytest.raises(StreamError, match="the topic 'anew' was deleted and made anew"):
        reader.latestOffset(done, ALL)
    lenient = KafkaStreamReader(KafkaSourceOptions(client, ("anew",), fail_on_data_loss=False))
    with caplog.at_level(logging.WARNING):
        end = lenient.latestOffset(done, ALL)

    assert spans(lenient, done, end) == ["anew:0[0, 11)"]
    second = message_ids(lenient, done, end)
    assert (len(first), len(second), set(first) & set(second)) == (5, 11, set())
    topic_id = end[":ids"]["anew"]
    assert all((id_ or "").startswith(f"anew:0:{number}:{topic_id}:") for number, id_ in enumerate(second))
    assert "made anew" in caplog.text


def test_a_topic_that_is_made_anew_while_it_is_read(client: KafkaOptions, caplog: pytest.LogCaptureFixture) -> None:
    """A task fails after its read; without ``failOnDataLoss`` it leaves all records to the next micro-batch."""
    fill(client, "meanwhile", 5)
    options = KafkaSourceOptions(client, ("meanwhile",))
    reader = KafkaStreamReader(options)
    start = reader.initialOffset()
    [split] = reader.partitions(start, reader.latestOffset(start, ALL))
    assert isinstance(split, KafkaSplit)
    assert sum(batch.num_rows for batch in split.reader(options).batches_with_stream()) == 5
    delete(client, "meanwhile")
    fill(client, "meanwhile", 9)

    with pytest.raises(StreamError, match="made anew"):
        list(split.reader(options).batches_with_stream())
    assert list(split.reader(replace(options, fail_on_data_loss=False)).batches_with_stream()) == []
    assert "made anew" in caplog.text


def test_records_that_are_gone(client: KafkaOptions) -> None:
    """Records removed by limits before they were read are reported before the micro-batch, or skipped."""
    fill(client, "cut", 10)
    reader = KafkaStreamReader(KafkaSourceOptions(client, ("cut",)))
    start = reader.initialOffset()
    remove_records(client, "cut", 4)

    with pytest.raises(StreamError, match="no longer has the offsets 0 to 3"):
        reader.latestOffset(start, ALL)
    with pytest.raises(StreamError, match="no longer has the offsets 10 to 29"):
        reader.latestOffset({"cut": {"0": 30}}, ALL)
    lenient = KafkaStreamReader(KafkaSourceOptions(client, ("cut",), fail_on_data_loss=False))
    assert spans(lenient, start, lenient.latestOffset(start, ALL)) == ["cut:0[4, 10)"]


def test_new_partitions(client: KafkaOptions) -> None:
    """A partition that comes later is read from its first record, wherever the route began."""
    fill(client, "grown", 4)
    reader = KafkaStreamReader(KafkaSourceOptions(client, ("grown",), start="latest"))
    start = reader.initialOffset()
    admin = AdminClient({"bootstrap.servers": client.servers[0]})
    admin.create_partitions([NewPartitions("grown", 2)])["grown"].result(10)
    with KafkaProducer(client) as producer:
        while producer.partition_count("grown") < 2:
            producer._partitions.clear()
        producer.publish(KafkaMessages(["grown"], [b"x"], [None], None, None, [1]), refusing)
        producer.flush()

    assert spans(reader, start, reader.latestOffset(start, ALL)) == ["grown:1[0, 1)"]


def test_a_pause_and_an_end(client: KafkaOptions, tmp_path: Path) -> None:
    """While the file exists no records are offered; a run up to the current end does not read later ones."""
    fill(client, "paused", 4)
    pause = tmp_path / "pause"
    reader = KafkaStreamReader(KafkaSourceOptions(client, ("paused",), pause_file=str(pause)))
    start = reader.initialOffset()
    pause.touch()
    assert reader.latestOffset(start, ALL) == start
    pause.unlink()
    reader.prepareForTriggerAvailableNow()
    fill(client, "paused", 3)

    end = reader.latestOffset(start, ALL)

    assert spans(reader, start, end) == ["paused:0[0, 4)"]
    assert reader.latestOffset(end, ALL) == end


def test_topics_by_a_pattern(client: KafkaOptions) -> None:
    """Topics that match are read, those that come later too."""
    fill(client, "day.1", 2)
    reader = KafkaStreamReader(KafkaSourceOptions(client, pattern=r"day\.\d"))
    start = reader.initialOffset()
    fill(client, "day.2", 3)
    fill(client, "days", 3)

    assert spans(reader, start, reader.latestOffset(start, ALL)) == ["day.1:0[0, 2)", "day.2:0[0, 3)"]


@pytest.fixture
def restorable(tmp_path: Path) -> Iterator[KafkaBroker]:
    with started_broker(tmp_path) as broker:
        yield broker


def restore(broker: KafkaBroker, copy: Path, *, taken: bool) -> None:
    """Take a copy of the broker's data, or put it in the place of its data."""
    broker.kill()
    data = broker.work / "log"
    if taken:
        shutil.copytree(data, copy)
    else:
        shutil.rmtree(data)
        shutil.copytree(copy, data)
    broker.start()


@pytest.mark.heavy
def test_a_broker_with_older_data(restorable: KafkaBroker, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It keeps the topic's id: once new records have passed the position, those below it would be skipped."""
    client = KafkaOptions.of(restorable.servers)
    fill(client, "restored", 5)
    fill(client, "other", 5)
    restore(restorable, tmp_path / "copy", taken=True)
    fill(client, "restored", 5)
    options = KafkaSourceOptions(client, ("restored", "other"), partitions=1)
    reader = KafkaStreamReader(options)
    start = reader.initialOffset()
    done = reader.latestOffset(start, ALL)
    first = message_ids(reader, start, done)
    assert reader.latestOffset(done, ALL) == done
    reader.stop()

    restore(restorable, tmp_path / "copy", taken=False)
    fill(client, "restored", 9)
    fill(client, "other", 2)

    again = KafkaStreamReader(options)
    with pytest.raises(StreamError, match=r"'restored' has another record 9 than the one that was read .*older data"):
        again.latestOffset(done, ALL)
    lenient = KafkaStreamReader(replace(options, fail_on_data_loss=False))
    with caplog.at_level(logging.WARNING):
        end = lenient.latestOffset(done, ALL)
        assert spans(lenient, done, end) == ["other:0[5, 7)", "restored:0[0, 14)"]
        assert caplog.text.count("another record 9") == 1
        second = message_ids(lenient, done, end)
        # A micro-batch that was planned before is done again with what is there now.
        assert spans(lenient, start, done) == ["other:0[0, 5)", "restored:0[0, 10)"]
        splits = [part for part in again.partitions(start, done) if isinstance(part, KafkaSplit)]
        [split] = [split for split in splits if split.span is not None and split.span.end == 10]
        with pytest.raises(StreamError, match="another record 9"):
            list(split.reader(options).batches_with_stream())

    assert sorted(set(first) & set(second), key=str) == sorted(first[5:10], key=str)
    fill(client, "restored", 1)
    assert spans(lenient, end, lenient.latestOffset(end, ALL)) == ["restored:0[14, 15)"]
    lenient.stop()
    again.stop()
