"""Sample records given as JSON or YAML, converted to record batches like those of a source."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Final, Self

import pyarrow as pa

from turnout.base.clocks import microseconds_since_epoch, parse_time
from turnout.base.terminal import guesses
from turnout.base.untrusted import is_whole
from turnout.codecs import Notation, TextNotation, notation_of
from turnout.errors import ConfigError, Mistake
from turnout.records.headers import headers_type
from turnout.records.types import ArrowBatch, Fields, Value
from turnout.routes import Route

PARTS = (
    "topic", "partition", "offset", "key", "keyBase64", "value", "valueBase64", "headers", "timestamp", "stream",
)  # fmt: skip
"""Parts of a record."""

Header = tuple[str, bytes | None]


@dataclass(frozen=True, slots=True)
class SampleRecord:
    """One record in the form that a source would deliver.

    Attributes:
        timestamp: microseconds since 1970.
        stream: the JetStream stream that it is from, if it is from one.
        identity: identity of the stream, or id of the Kafka topic, in message ids; "" if it is unknown.
    """

    topic: str
    value: bytes | None = None
    key: bytes | None = None
    headers: tuple[Header, ...] = ()
    partition: int = 0
    offset: int | None = 0
    timestamp: int | None = None
    stream: str | None = None
    identity: str = ""

    @classmethod
    def of(cls, document: Fields, *, stream: str | None = None, route: Route | None = None) -> Self:
        """Read a record.

        Args:
            document: the parts of `PARTS`. A key or a value that is text stands for its bytes, anything else for its
                JSON; ``keyBase64`` and ``valueBase64``, or YAML's ``!!binary``, are for bytes as they are, as another
                program's encoder writes them. Headers are a block of name → text, or → a list of texts, or a list of
                [name, text]. A timestamp is ISO 8601 or milliseconds since 1970.
            stream: its stream, unless it names one itself.
            route: whose formats say how a key and a value that are no text become bytes; JSON if not given.

        Raises:
            ConfigError: lists every mistake, by part.
        """
        reader = _RecordReader(document)
        key, value = (_TEXT, _TEXT) if route is None else (notation_of(route.key), notation_of(route.value))
        record = cls(
            topic=reader.text("topic"),
            value=reader.content("value", value),
            key=reader.content("key", key),
            headers=reader.headers(),
            partition=reader.number("partition", 32),
            offset=reader.number("offset", 64),
            timestamp=reader.timestamp(),
            stream=reader.text("stream") if document.get("stream") is not None else stream,
        )
        if reader.mistakes:
            raise ConfigError(reader.mistakes, what="bad record")
        return record


class _RecordReader:
    """Reads the parts of one record and collects their mistakes."""

    def __init__(self, document: Fields) -> None:
        self._document = document
        self.mistakes = [
            Mistake(name, f"is no part of a record{guess} (there are {', '.join(PARTS)})")
            for name, guess in guesses((str(name) for name in document if name not in PARTS), PARTS)
        ]

    def _wrong(self, part: str, expected: str) -> None:
        self.mistakes.append(Mistake(part, f"expected {expected}, found {self._document.get(part)!r}"))

    def text(self, part: str) -> str:
        text = self._document.get(part)
        if isinstance(text, str):
            return text
        self._wrong(part, "a text")
        return ""

    def number(self, part: str, bits: int) -> int:
        number = self._document.get(part, 0)
        if is_whole(number, -(1 << bits - 1), (1 << bits - 1) - 1):
            return number
        self._wrong(part, f"a whole number of {bits} bits")
        return 0

    def content(self, part: str, notation: Notation) -> bytes | None:
        encoded = self._document.get(f"{part}Base64")
        if encoded is None:
            given = self._document.get(part)
            if isinstance(given, bytes):
                return given
            try:
                return notation.encode(given)
            except ValueError as problem:
                self.mistakes.append(Mistake(part, str(problem)))
                return None
        if part in self._document:
            self._wrong(part, f"either {part} or {part}Base64")
        try:
            return base64.b64decode(encoded, validate=True)
        except (TypeError, ValueError, binascii.Error):
            self._wrong(f"{part}Base64", "base64")
            return None

    def headers(self) -> tuple[Header, ...]:
        headers = self._document.get("headers") or ()
        if isinstance(headers, Mapping):
            return tuple(_pairs(headers))
        if isinstance(headers, Sequence) and all(isinstance(pair, Sequence) and len(pair) == 2 for pair in headers):
            return tuple((str(name), _header_bytes(text)) for name, text in headers)
        self._wrong("headers", "a block of names and texts")
        return ()

    def timestamp(self) -> int | None:
        moment = self._document.get("timestamp")
        if moment is None:
            return None
        if isinstance(moment, int) and not isinstance(moment, bool) and abs(moment) < _MAX_MILLISECONDS:
            return moment * 1000
        try:
            return _microseconds(moment if isinstance(moment, date) else parse_time(moment))
        except (TypeError, ValueError):
            self._wrong("timestamp", "ISO 8601 or milliseconds since 1970")
            return None


_MAX_MILLISECONDS = 1 << 53
"""Far beyond the year 9999; a timestamp is kept in microseconds, in 64 bits."""


_TEXT: Final = TextNotation()


def bytes_of(content: Value) -> bytes | None:
    """Return the bytes of a header, key or value given as text or JSON; None for None."""
    return _TEXT.encode(content)


def _pairs(headers: Fields) -> Iterator[Header]:
    for name, texts in headers.items():
        for text in texts if isinstance(texts, list) else [texts]:
            yield str(name), _header_bytes(text)


def _header_bytes(text: Value) -> bytes | None:
    return None if text is None else bytes_of(text)


def _microseconds(moment: date) -> int:
    whole = moment if isinstance(moment, datetime) else datetime(moment.year, moment.month, moment.day, tzinfo=UTC)
    return microseconds_since_epoch(whole)


def record_batch(records: Sequence[SampleRecord]) -> ArrowBatch:
    """Return the records as a record batch, with the column ``stream`` where the first is from one."""
    columns = {
        "topic": pa.array([record.topic for record in records], pa.string()),
        "partition": pa.array([record.partition for record in records], pa.int32()),
        "offset": pa.array([record.offset for record in records], pa.int64()),
        "key": pa.array([record.key for record in records], pa.binary()),
        "value": pa.array([record.value for record in records], pa.binary()),
        "headers": pa.array(
            [[{"key": name, "value": value} for name, value in record.headers] for record in records], headers_type()
        ),
        "timestamp": pa.array([record.timestamp for record in records], pa.timestamp("us", tz="UTC")),
    }
    if records and records[0].stream is not None:
        columns["stream"] = pa.array([record.stream for record in records], pa.string())
    return pa.RecordBatch.from_pydict(columns)
