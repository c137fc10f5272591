"""Recorded records of a route's source: those between two positions, as one batch."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from datetime import datetime
from typing import Final, Self

from pyspark.sql import DataFrame, SparkSession

from turnout.errors import ConfigError, Mistake
from turnout.nats.protocol.options import ConnectionSettings
from turnout.nats.wire.positions import StreamPosition, parse_position
from turnout.routes import Route
from turnout.routes.endpoints import Endpoint, Source
from turnout.routes.values import listed
from turnout.runtime.preflight import preflight
from turnout.secrets import masked_url
from turnout.spark.endpoints import endpoint_of

_WHERE: Final = frozenset({"servers", "api_prefix", "domain"})
_HOW: Final = {field.name for field in fields(ConnectionSettings)} - _WHERE | {
    "start", "end", "max_records_per_trigger", "max_bytes_per_trigger", "max_files_per_trigger", "partitions",
    "fail_on_data_loss", "poll_wait", "ack_consumer", "push_down",
    "security",
}  # fmt: skip
"""Fields of a source that affect how it is read, not its records."""

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

    start: StreamPosition = "earliest"
    end: StreamPosition = "latest"

    @classmethod
    def parse(cls, start: object | None, end: object | None) -> Self:
        """Parse the two bounds; None means the first record and the end.

        Raises:
            ConfigError: one of them is no place.
        """
        positions, mistakes = [], []
        for name, bound, usual in (("from", start, "earliest"), ("to", end, "latest")):
            position = usual if bound is None else _position(bound)
            if position is None:
                expected = "expected earliest, latest, a sequence, an ISO time or {stream: sequence}"
                mistakes.append(Mistake(name, f"{expected}, found {bound!r}"))
                continue
            positions.append(position)
        if mistakes:
            raise ConfigError(mistakes, what="bad range")
        return cls(*positions)

    def __str__(self) -> str:
        return f"from {self.begin} to {self.limit}"

    @property
    def begin(self) -> str:
        """The start as an option of Spark's sources."""
        return _option_text(self.start)

    @property
    def limit(self) -> str:
        """The end as an option of Spark's sources."""
        return _option_text(self.end)

    def options_of(self, source: Endpoint) -> dict[str, str]:
        """Return a source's options for a bounded read, without places and without those of streaming reads."""
        return {name: text for name, text in source.options().items() if name not in _STREAMING_ONLY | _PLACES}


def _position(value: object) -> StreamPosition | None:
    if isinstance(value, datetime | int | Mapping) and not isinstance(value, bool):
        return value
    return parse_position(value.strip()) if isinstance(value, str) else None


def _option_text(position: StreamPosition) -> str:
    if isinstance(position, Mapping):
        return json.dumps(dict(position))
    return position.isoformat() if isinstance(position, datetime) else str(position)


def same_source(old: Source, new: Source) -> None:
    """Check that two versions read the same records; logins and read limits may differ.

    Raises:
        ConfigError: names the differences.
    """
    before, after = _what(old), _what(new)
    mistakes = [
        Mistake(f"source.{name}", f"is {_quoted(before.get(name))} in the old version and {_quoted(value)} in the new")
        for name, value in after.items()
        if before.get(name) != value
    ]
    if mistakes:
        raise ConfigError(mistakes, what="the versions do not read the same records")


def _what(source: Source) -> dict[str, object]:
    options = source.model_dump(by_alias=False)
    if not source.streams:
        # Of files it says how they are read.
        options.pop("stream", None)
    # Names may be given in a list or in one text.
    return {
        name: listed(value) if name in _NAMES and value is not None else value
        for name, value in options.items()
        if name not in _HOW
    }


def _quoted(value: object) -> str:
    # Options of a client are not ours to know: some are passwords.
    if isinstance(value, Mapping) and value:
        return "a block of its own"
    return masked_url(repr(", ".join(value) if isinstance(value, tuple) else value))


def check_source(route: Route) -> None:
    """Check that a route's source is reachable and has its streams, if it is NATS.

    Raises:
        ConnectionLostError: the server cannot be reached.
        StreamError: the stream does not exist.
    """
    preflight(replace(route, sinks={}))


def recorded(spark: SparkSession, source: Source, span: RecordSpan) -> DataFrame:
    """Read a span of a source; from NATS as splits, which the next stage reads.

    Raises:
        ConfigError: the source does not know such places.
    """
    return endpoint_of(source).recorded(spark, span)
