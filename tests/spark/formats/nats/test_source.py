"""The format nats as a batch and a streaming source."""

from __future__ import annotations

import json
import secrets
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from tests.settings import low_latency
from tests.streams import sequences_in

from turnout.embedded import NatsServer
from turnout.nats.wire import Connection, Publisher, create_stream, delete_stream, purge_stream, stream_info
from turnout.spark.formats.nats.source import register
from turnout.spark.session.build import low_latency_source

pytestmark = pytest.mark.jetstream

COLUMNS = ["topic", "partition", "offset", "key", "value", "headers", "timestamp"]


@pytest.fixture(scope="module")
def nats(spark: SparkSession) -> SparkSession:
    register(spark)
    return spark


Fill = Callable[..., str]


@pytest.fixture
def fill(connection: Connection, nats_server: NatsServer) -> Iterator[Fill]:
    """Makes a stream of numbered messages; called again with its name it adds more."""
    streams: list[str] = []

    def make(count: int, name: str = "", size: int = 1, **config: Any) -> str:
        if not name:
            name = f"SRC{secrets.token_hex(4)}"
            create_stream(connection, {"name": name, "subjects": [f"{name}.>"], "storage": "memory", **config})
            streams.append(name)
        begun = stream_info(connection, name)["state"]["last_seq"]
        with Connection.open(nats_server.url) as opened:
            publisher = Publisher(opened)
            for n in range(begun, begun + count):
                publisher.publish(f"{name}.{n % 3}", str(n).encode() * size)
            publisher.flush()
        return name

    yield make
    for name in streams:
        delete_stream(connection, name)


@pytest.fixture
def load(nats: SparkSession, nats_server: NatsServer) -> Callable[..., DataFrame]:
    def make(stream: str, **options: str) -> DataFrame:
        return nats.read.format("nats").options(servers=nats_server.url, stream=stream, **options).load()

    return make


@pytest.fixture
def run(nats: SparkSession, nats_server: NatsServer, tmp_path: Path) -> Callable[..., tuple[list[int], StreamingQuery]]:
    """Runs a stream to its present end; the offsets that came, and the finished query."""

    def make(stream: str, checkpoint: str = "c", **options: str) -> tuple[list[int], StreamingQuery]:
        offsets: list[int] = []

        def take(batch: DataFrame, _: int) -> None:
            offsets.extend(row.offset for row in batch.select("offset").collect())

        loaded = nats.readStream.format("nats").options(servers=nats_server.url, stream=stream, **options).load()
        query = (
            loaded.writeStream.foreachBatch(take)
            .option("checkpointLocation", str(tmp_path / checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination(60)
        return offsets, query

    return make


def offsets(frame: DataFrame) -> list[int]:
    return sorted(row.offset for row in frame.select("offset").collect())


def test_a_batch_is_the_stream(load: Callable[..., DataFrame], fill: Fill) -> None:
    """Seven columns, every message once, in as many partitions as were asked for and make sense."""
    stream = fill(25_000)

    loaded = load(stream, partitions="2")
    rows = loaded.orderBy("offset").limit(2).collect()

    assert loaded.columns == COLUMNS
    assert loaded.rdd.getNumPartitions() == 2
    assert load(stream, partitions="8", endingOffsets="500").rdd.getNumPartitions() == 1
    assert loaded.count() == 25_000
    assert rows[1].topic == f"{stream}.1"
    assert (rows[1].value, rows[1].offset, rows[1].partition, rows[1].key, rows[1].headers) == (b"1", 2, 0, None, None)
    assert abs(rows[1].timestamp.timestamp() - time.time()) < 600


def test_tasks_by_slots_and_backlog(load: Callable[..., DataFrame], fill: Fill, nats: SparkSession) -> None:
    """Without `partitions` there are as many tasks as slots, shared by what each stream has to read."""
    large, small = fill(40_000), fill(5)
    slots = nats.sparkContext.defaultParallelism

    assert load(large).rdd.getNumPartitions() == slots == 2
    several = load(f"{large},{small}", includeStream="true", partitions="4")
    assert several.rdd.getNumPartitions() == 4
    assert several.count() == 40_005


def test_a_batch_between_two_places(load: Callable[..., DataFrame], fill: Fill, connection: Connection) -> None:
    """By sequence, by time, by name; the end is not part of it, as with Kafka."""
    stream = fill(10)
    time.sleep(0.05)
    moment = datetime.now(UTC).isoformat()
    fill(10, stream)
    connection.api(f"STREAM.MSG.DELETE.{stream}", {"seq": 11})

    assert offsets(load(stream, startingOffsets="5", endingOffsets="8")) == [5, 6, 7]
    assert offsets(load(stream, start=moment)) == list(range(12, 21))
    assert offsets(load(stream, endingOffsets=moment)) == list(range(1, 11))
    assert offsets(load(stream, start=datetime(2099, 1, 1, tzinfo=UTC).isoformat())) == []
    assert offsets(load(stream, start="latest")) == []
    assert offsets(load(stream, start=json.dumps({stream: 19}))) == [19, 20]


def test_filters_and_several_streams(load: Callable[..., DataFrame], fill: Fill) -> None:
    """An offset of several streams names a record together with the column stream."""
    one, two = fill(9), fill(6)

    filtered = load(f"{one},{two}", filterSubjects=f"{one}.0,{two}.1", includeStream="true")
    rows = {(row.stream, row.offset, row.topic) for row in filtered.collect()}

    assert rows == {(one, n, f"{one}.0") for n in (1, 4, 7)} | {(two, n, f"{two}.1") for n in (2, 5)}


def test_a_schema_of_ones_own(nats: SparkSession, nats_server: NatsServer, fill: Fill) -> None:
    """Fewer columns, and text instead of bytes."""
    stream = fill(3)
    reader = nats.read.format("nats").options(servers=nats_server.url, stream=stream)

    assert sorted(reader.schema("value string, offset bigint").load().collect()) == [("0", 1), ("1", 2), ("2", 3)]
    with pytest.raises(PySparkException, match=r"schema.valeu: is no column of a NATS record"):
        reader.schema("valeu string").load().collect()


def test_an_empty_stream(load: Callable[..., DataFrame], run: Callable[..., Any], fill: Fill) -> None:
    """No message ever, or none any more: no rows and no error."""
    stream = fill(0)

    assert load(stream).count() == 0
    assert run(stream)[0] == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"stream": "NO_SUCH"}, "there is no stream 'NO_SUCH'"),
        ({"stream": ""}, "stream: is missing"),
        ({"stream": "A", "startingOffset": "1"}, 'did you mean "startingOffsets"'),
        ({"stream": "A", "start": "soon"}, "start: is earliest, latest, a sequence"),
        ({"stream": "A,B"}, "includeStream: must be true for several streams"),
        (
            {"stream": "A", "servers": "nats://u:hunter2@127.0.0.1:1"},
            "no NATS server can be reached: nats://127.0.0.1:1",
        ),
    ],
)
def test_mistakes_are_told(nats: SparkSession, nats_server: NatsServer, options: dict[str, str], message: str) -> None:
    """The last line says what to do, and no password is in it."""
    with pytest.raises(PySparkException) as failure:
        nats.read.format("nats").options(**{"servers": nats_server.url, **options}).load().collect()

    assert message in str(failure.value)
    assert "hunter2" not in str(failure.value)


def test_no_secret_in_a_plan(nats: SparkSession, nats_server: NatsServer, fill: Fill, capfd: Any) -> None:
    """Neither explain() nor the logical plan shows an option."""
    options = {"servers": nats_server.url, "user": "u", "password": "hunter2", "stream": fill(1)}
    loaded = nats.read.format("nats").options(**options).load()
    loaded.explain(True)

    assert "hunter2" not in capfd.readouterr().out + loaded._jdf.queryExecution().toString()


def test_micro_batches_and_a_restart(run: Callable[..., Any], fill: Fill) -> None:
    """No batch holds more than was admitted; a restart goes on at the checkpoint; the lag is in the progress."""
    stream = fill(25)
    offsets, query = run(stream, maxRecordsPerTrigger="10")
    progress = [json.loads(progress.json) for progress in query.recentProgress if progress.numInputRows]

    assert sorted(offsets) == list(range(1, 26))
    assert [one["numInputRows"] for one in progress] == [10, 10, 5]
    ends = [sequences_in(one["sources"][0]["endOffset"]) for one in progress[:2]]
    assert ends == [{stream: 11, f"{stream}.from": 1}, {stream: 21}]
    assert progress[0]["sources"][0]["latestOffset"] == {stream: 26}

    fill(5, stream)
    assert sorted(run(stream, maxRecordsPerTrigger="10")[0]) == list(range(26, 31))


def test_messages_that_are_gone(
    run: Callable[..., Any], load: Callable[..., DataFrame], fill: Fill, connection: Connection
) -> None:
    """They fail the query, or are skipped if that is allowed, with a log line."""
    stream = fill(10)
    run(stream)
    run(stream, checkpoint="lax")
    fill(10, stream)
    purge_stream(connection, stream, seq=15)

    with pytest.raises(PySparkException, match=f"stream '{stream}' no longer has the sequences 11 to 14"):
        run(stream)
    assert sorted(run(stream, checkpoint="lax", failOnDataLoss="false")[0]) == list(range(15, 21))
    with pytest.raises(PySparkException, match="no longer has the sequences 5 to 14"):
        load(stream, start="5").collect()
    assert offsets(load(stream, start="5", failOnDataLoss="false")) == list(range(15, 21))


def test_a_stream_that_was_made_anew(run: Callable[..., Any], fill: Fill, connection: Connection) -> None:
    """Its sequences begin again below the checkpoint: that is another stream, and is told."""
    stream = fill(10)
    run(stream)
    delete_stream(connection, stream)
    create_stream(connection, {"name": stream, "subjects": [f"{stream}.>"], "storage": "memory"})
    fill(3, stream)

    with pytest.raises(PySparkException, match="no longer has the sequences"):
        run(stream)


def test_a_stream_that_is_consumed(run: Callable[..., Any], fill: Fill, connection: Connection) -> None:
    """Messages that Spark has committed are acknowledged and removed; no others are."""
    stream = fill(0, retention="interest", allow_direct=True)
    assert run(stream, ackConsumer="spark")[0] == []
    fill(25, stream)

    offsets, _ = run(stream, ackConsumer="spark", maxRecordsPerTrigger="10")

    assert sorted(offsets) == list(range(1, 26))
    assert stream_info(connection, stream)["state"]["messages"] == 0
    fill(5, stream)
    assert sorted(run(stream, ackConsumer="spark")[0]) == list(range(26, 31))


def test_what_a_failed_batch_read_stays(
    nats: SparkSession,
    nats_server: NatsServer,
    run: Callable[..., Any],
    fill: Fill,
    connection: Connection,
    tmp_path: Path,
) -> None:
    """A work queue keeps the messages of a batch that was not committed, and the next run reads them again."""
    stream = fill(20, retention="workqueue", allow_direct=True)

    def fail(batch: DataFrame, number: int) -> None:
        batch.collect()
        if number == 1:
            raise RuntimeError("the sink is away")

    options = {"servers": nats_server.url, "stream": stream, "ackConsumer": "spark", "maxRecordsPerTrigger": "8"}
    query = (
        nats.readStream.format("nats")
        .options(**options)
        .load()
        .writeStream.foreachBatch(fail)
        .option("checkpointLocation", str(tmp_path / "c"))
        .trigger(availableNow=True)
        .start()
    )
    with pytest.raises(PySparkException, match="the sink is away"):
        query.awaitTermination(60)

    assert stream_info(connection, stream)["state"]["messages"] == 12
    assert sorted(run(stream, ackConsumer="spark")[0]) == list(range(9, 21))
    assert stream_info(connection, stream)["state"]["messages"] == 0


def test_short_micro_batches(nats: SparkSession, nats_server: NatsServer, fill: Fill, tmp_path: Path) -> None:
    """With the low-latency settings a query waits at the server and still sees each message soon."""
    stream = fill(0)
    seen: dict[int, float] = {}

    def take(batch: DataFrame, _: int) -> None:
        seen.update({row.offset: time.time() for row in batch.select("offset").collect()})

    with low_latency(nats):
        query = (
            nats.readStream.format("nats")
            .options(servers=nats_server.url, stream=stream, **low_latency_source())
            .load()
            .writeStream.foreachBatch(take)
            .option("checkpointLocation", str(tmp_path / "c"))
            .start()
        )
        try:
            for n in range(1, 6):
                fill(1, stream)
                published = time.time()
                while n not in seen:
                    assert time.time() - published < 120
                    time.sleep(0.01)
        finally:
            query.stop()
    assert sorted(seen) == [1, 2, 3, 4, 5]


def test_a_paused_query(nats: SparkSession, nats_server: NatsServer, fill: Fill, tmp_path: Path) -> None:
    """While the file is there a query finds nothing new, and an availableNow run ends; then it goes on."""
    stream = fill(3)
    pause = tmp_path / "pause"
    offsets: list[int] = []
    numbers: list[int] = []

    def take(batch: DataFrame, number: int) -> None:
        offsets.extend(row.offset for row in batch.select("offset").collect())
        numbers.append(number)

    def run() -> None:
        (
            nats.readStream.format("nats")
            .options(servers=nats_server.url, stream=stream, pauseFile=str(pause))
            .load()
            .writeStream.foreachBatch(take)
            .option("checkpointLocation", str(tmp_path / "c"))
            .trigger(availableNow=True)
            .start()
            .awaitTermination(60)
        )

    run()
    pause.touch()
    fill(2, stream)
    run()
    assert sorted(offsets) == [1, 2, 3]
    assert numbers == [0]
    pause.unlink()
    run()
    assert sorted(offsets) == [1, 2, 3, 4, 5]
    assert numbers == [0, 1]


@pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning")
def test_workers_do_not_look_for_garbage_among_what_was_imported(
    nats: SparkSession, nats_server: NatsServer, fill: Fill
) -> None:
    """A worker that has read from NATS has its modules out of the collector's sight, and works on."""
    stream = fill(1)

    def frozen(batches: Any) -> Any:
        import gc

        for _ in batches:
            yield pa.RecordBatch.from_pydict({"frozen": [gc.get_freeze_count()]})

    for _ in range(2):
        nats.read.format("nats").options(servers=nats_server.url, stream=stream).load().collect()

    counts = nats.range(8, numPartitions=8).mapInArrow(frozen, "frozen bigint").collect()

    assert max(row.frozen for row in counts) > 10_000


def test_planning_processes_load_no_engine() -> None:
    """Spark starts four Python processes before the first micro-batch, and each loads the source."""
    program = "import sys; import turnout.spark.formats.nats.source; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()

    heavy = {"pydantic", "yaml", "turnout.engine.program", "turnout.routes", "turnout.subscriptions", "turnout.codecs"}
    assert heavy.isdisjoint(loaded)
