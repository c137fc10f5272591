"""Which records are read: the places that a span can name, and the sources that are the same."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.spark.reads import RecordedReads

from turnout.errors import ConfigError
from turnout.routes.endpoints import FileSource, KafkaSource, NatsSource
from turnout.runtime.kafka.source import KafkaSourceOptions
from turnout.runtime.splits import decoded
from turnout.spark.formats.kafka.source import OPTIONS
from turnout.spark.history.recorded import RecordSpan, recorded, same_source

MOMENT = datetime(2026, 1, 2, 3, 4, tzinfo=UTC)


def options_of(source: Any, start: Any, end: Any) -> dict[str, str]:
    reads = RecordedReads()
    recorded(reads.session, source, RecordSpan.parse(start, end))
    return {"format": reads.format_name, **reads.given}


def nats(**more: Any) -> NatsSource:
    return NatsSource.model_validate({"format": "nats", "servers": "nats://a", "stream": "S", **more})


def kafka(**more: Any) -> KafkaSource:
    return KafkaSource.model_validate({"format": "kafka", "servers": "a:9092", "topics": "t", **more})


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        (None, None, ("earliest", "latest")),
        ("17", 18, ("17", "18")),
        ({"S": 1}, "2026-01-02T03:04Z", ('{"S": 1}', "2026-01-02T03:04:00+00:00")),
    ],
)
def test_places_in_streams(start: Any, end: Any, expected: tuple[str, str]) -> None:
    """They go to the batch source, without what only streaming reads know."""
    source = nats(start="latest", maxRecordsPerTrigger=7, ackConsumer=None, pollWait=1, filterSubject="a.>")

    options = options_of(source, start, end)

    assert (options["startingOffsets"], options["endingOffsets"]) == expected
    assert {name: options[name] for name in ("format", "splits", "stream", "filterSubject")} == {
        "format": "nats", "splits": "true", "stream": "S", "filterSubject": "a.>"
    }  # fmt: skip
    assert not {"maxRecordsPerTrigger", "pollWait"} & set(options)


def test_places_in_topics() -> None:
    """A time for all partitions, or offsets for each; one number for all is refused."""
    given: KafkaSourceOptions = decoded(options_of(kafka(maxRecordsPerTrigger=7), MOMENT, {"t": {"0": 5}})[OPTIONS])

    assert (given.start, given.end) == (MOMENT, {"t": {"0": 5}})
    with pytest.raises(ConfigError, match="17 is no place in Kafka"):
        options_of(kafka(), 17, None)


def test_places_in_files(spark: SparkSession, tmp_path: Path) -> None:
    """By offset or by timestamp; a streaming source is read as what is there now."""
    rows = [(f"t{n}", n, datetime(2026, 1, n, tzinfo=UTC)) for n in range(1, 6)]
    frame = spark.createDataFrame(rows, "topic string, offset bigint, timestamp timestamp")
    frame.write.parquet(str(tmp_path / "in"))
    source = FileSource.model_validate({"format": "parquet", "path": str(tmp_path / "in"), "stream": True})

    def offsets(start: Any, end: Any) -> list[int]:
        return sorted(row.offset for row in recorded(spark, source, RecordSpan.parse(start, end)).collect())

    assert offsets(None, None) == [1, 2, 3, 4, 5]
    assert offsets(2, 4) == [2, 3]
    assert offsets("2026-01-04T00:00:00Z", None) == [4, 5]


@pytest.mark.parametrize("place", ["yesterday", "1.5", True, "{"])
def test_what_is_no_place(place: Any) -> None:
    """It is named, with what was expected."""
    with pytest.raises(ConfigError, match=r"from: expected earliest, latest, a sequence, an ISO time"):
        RecordSpan.parse(place, None)


def test_the_same_records() -> None:
    """The reading of a source may differ, its contents may not; passwords and options are not shown."""
    same_source(nats(user="ann", password="x"), nats(start=17, partitions=2, tlsCa="ca.pem"))
    same_source(nats(stream="S, T"), nats(stream=["S", "T"]))
    with pytest.raises(ConfigError, match=r"source.stream: is 'S' in the old version and 'T' in the new"):
        same_source(nats(), nats(stream="T"))
    with pytest.raises(ConfigError) as refused:
        same_source(nats(servers="nats://ann:secret@a"), kafka(options={"kafka.ssl.key.password": "secret"}))

    assert "source.format: is 'nats' in the old version and 'kafka' in the new" in str(refused.value)
    assert "secret" not in str(refused.value)
