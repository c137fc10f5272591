"""Recorded records of a route's source: those between two positions, as one batch."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from datetime import datetime
from typing import Any, Final, Self

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from turnout.errors import ConfigError, Mistake
from turnout.nats.protocol.options import ConnectionSettings
from turnout.nats.wire.positions import Place, parse_place
from turnout.routes import Route
from turnout.routes.endpoints import Endpoint, FileSource, KafkaSource, NatsSource
from turnout.routes.values import listed
from turnout.runtime.preflight import preflight
from turnout.secrets import masked_url
from turnout.spark.endpoints import RECORD_COLUMNS, read
from turnout.spark.formats.nats.source import register

_WHERE: Final = frozenset({"servers", "api_prefix", "domain"})
_HOW: Final = {field.name for field in fields(ConnectionSettings)} - _WHERE | {
    "start", "end", "max_records_per_trigger", "max_bytes_per_trigger", "max_files_per_trigger", "partitions",
    "fail_on_data_loss", "poll_wait", "ack_consumer", "push_down",
}  # fmt: skip
"""Fields of a source that say how it is read, and not what it holds."""

_NAMES: Final = frozenset({"servers", "stream", "filter_subject", "topics"})

_STREAMING_ONLY: Final = frozenset(
    {"maxRecordsPerTrigger", "maxBytesPerTrigger", "maxOffsetsPerTrigger", "pollWait", "ackConsumer"}
)
_PLACES: Final = frozenset({"startingOffsets", "endingOffsets"})


@dataclass(frozen=True, slots=True)
class RecordSpan:
    """Range of the records to read.

    Attributes:
        start: ``earliest``, a sequence or an offset, a time, or a sequence for each stream.
        end: likewise, or ``latest``; the records before it are read, and not the one at it.
    """

    start: Place = "earliest"
    end: Place = "latest"

    @classmethod
    def parse(cls, start: object | None, end: object | None) -> Self:
        """Parse the two bounds; None means the first record and the end.

        Raises:
            ConfigError: one of them is no place.
        """
        places, mistakes = [], []
        for name, bound, usual in (("from", start, "earliest"), ("to", end, "latest")):
            place = usual if bound is None else _place(bound)
            if place is None:
                expected = "expected earliest, latest, a sequence, an ISO time or {stream: sequence}"
                mistakes.append(Mistake(name, f"{expected}, found {bound!r}"))
                continue
            places.append(place)
        if mistakes:
            raise ConfigError(mistakes, what="bad range")
        return cls(*places)

    def __str__(self) -> str:
        return f"from {_option_text(self.start)} to {_option_text(self.end)}"


def _place(value: object) -> Place | None:
    if isinstance(value, datetime | int | Mapping) and not isinstance(value, bool):
        return value
    return parse_place(value.strip()) if isinstance(value, str) else None


def _option_text(place: Place) -> str:
    if isinstance(place, Mapping):
        return json.dumps(dict(place))
    return place.isoformat() if isinstance(place, datetime) else str(place)


def same_source(old: Endpoint, new: Endpoint) -> None:
    """Check that two versions read the same records; logins and read limits may differ.

    Raises:
        ConfigError: names what is not the same.
    """
    before, after = _what(old), _what(new)
    mistakes = [
        Mistake(f"source.{name}", f"is {_shown(before.get(name))} in the old version and {_shown(value)} in the new")
        for name, value in after.items()
        if before.get(name) != value
    ]
    if mistakes:
        raise ConfigError(mistakes, what="the versions do not read the same records")


def _what(source: Endpoint) -> dict[str, Any]:
    options = source.model_dump(by_alias=False)
    if isinstance(source, FileSource):
        options.pop("stream")
    # Names may be given in a list or in one text.
    return {
        name: listed(value) if name in _NAMES and value is not None else value
        for name, value in options.items()
        if name not in _HOW
    }


def _shown(value: Any) -> str:
    # Options of a client are not ours to know: some are passwords.
    if isinstance(value, Mapping) and value:
        return "a block of its own"
    return masked_url(repr(", ".join(value) if isinstance(value, tuple) else value))


def ask(route: Route) -> None:
    """Check that a route's source is reachable and has its streams, if it is NATS.

    Raises:
        ConnectionLostError: the server cannot be reached.
        StreamError: the stream does not exist.
    """
    preflight(replace(route, sinks={}))


def recorded(spark: SparkSession, source: Endpoint, span: RecordSpan) -> DataFrame:
    """Read a span of a source; from NATS as splits, which the next stage reads.

    Raises:
        ConfigError: the source does not know such places.
    """
    if isinstance(source, NatsSource):
        register(spark)
        places = {"startingOffsets": _option_text(span.start), "endingOffsets": _option_text(span.end)}
        options = _without_streaming(source) | places
        return spark.read.format("nats").options(**options).option("splits", "true").load()
    if isinstance(source, KafkaSource):
        options = _without_streaming(source) | _kafka_place("starting", span.start) | _kafka_place("ending", span.end)
        loaded = spark.read.format("kafka").options(**options).option("includeHeaders", "true").load()
        return loaded.select(*RECORD_COLUMNS)
    assert isinstance(source, FileSource)
    rows = read(spark, source.model_copy(update={"stream": False, "max_files_per_trigger": None}))
    return _between(rows, span)


def _without_streaming(source: Endpoint) -> dict[str, str]:
    return {name: value for name, value in source.options().items() if name not in _STREAMING_ONLY | _PLACES}


def _kafka_place(side: str, place: Place) -> dict[str, str]:
    """An option of Spark's Kafka source."""
    if isinstance(place, datetime):
        return {f"{side}Timestamp": str(int(place.timestamp() * 1000))}
    if isinstance(place, int):
        problem = f"{place} is no place in Kafka, where each partition has offsets of its own: give a time"
        raise ConfigError([Mistake("from" if side == "starting" else "to", problem)], what="bad range")
    return {f"{side}Offsets": _option_text(place)}


def _between(rows: DataFrame, span: RecordSpan) -> DataFrame:
    """Return the rows of a file in a span; a bound excludes rows without its offset or timestamp."""
    for place, name in ((span.start, "from"), (span.end, "to")):
        if isinstance(place, str):
            continue
        if isinstance(place, Mapping):
            problem = "files have no streams: give an offset or a time"
            raise ConfigError([Mistake(name, problem)], what="bad range")
        column = F.col("timestamp") if isinstance(place, datetime) else F.col("offset")
        rows = rows.where(column >= F.lit(place) if name == "from" else column < F.lit(place))
    return rows
