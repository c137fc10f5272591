"""Rows into NATS streams: every message is acknowledged by its stream before a task reports success."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Self

from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegralType,
    StringType,
    StructType,
    VariantType,
)

from turnout.errors import ConfigError, Mistake, StreamError
from turnout.spark.sources._nats_options import check_names
from turnout.wire import Connection, ConnectionOptions, Published, Publisher
from turnout.wire.options import CONNECTION_OPTIONS

__all__ = ["NatsStreamWriter", "NatsWriter", "SinkOptions"]

_log = logging.getLogger(__name__)

_WRITE_OPTIONS = ("stream", "window", "messageId")
_MESSAGE_IDS = ("auto", "key", "offset", "none")

# What these say is about the stream that a record was read from; in another stream it would be wrong or harmful.
_NOT_FORWARDED = frozenset(
    {
        "Nats-Msg-Id",
        "Nats-Expected-Stream",
        "Nats-Expected-Last-Msg-Id",
        "Nats-Expected-Last-Sequence",
        "Nats-Expected-Last-Subject-Sequence",
        "Nats-Expected-Last-Subject-Sequence-Subject",
        "Nats-Rollup",
    }
)


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """Where and how to write.

    Attributes:
        message_id: where ids come from: ``key``, ``offset`` (stream, offset and topic), ``none``, or ``auto``:
            the key where there is one, else the offset where the columns are there, else none.
    """

    connection: ConnectionOptions
    stream: str | None = None
    window: int = 4000
    message_id: str = "auto"

    @classmethod
    def from_mapping(cls, options: Mapping[str, str]) -> SinkOptions:
        """Read and check Spark's options.

        Raises:
            ConfigError: lists every mistake, with the option's name.
        """
        mistakes = check_names(options, (*CONNECTION_OPTIONS, *_WRITE_OPTIONS))
        try:
            connection = ConnectionOptions.from_mapping(options)
        except ConfigError as wrong:
            mistakes += wrong.mistakes
        window = options.get("window", "4000")
        if not window.isdigit() or not 1 <= int(window) <= 10_000:
            mistakes.append(Mistake("window", f"is a number from 1 to 10000, not {window!r}"))
        message_id = options.get("messageId", "auto").lower()
        if message_id not in _MESSAGE_IDS:
            mistakes.append(Mistake("messageId", f"is one of {', '.join(_MESSAGE_IDS)}, not {message_id!r}"))
        if mistakes:
            raise ConfigError(mistakes, what="NATS sink")
        return cls(connection, options.get("stream") or None, int(window), message_id)


class _Columns:
    """Which column of a batch is what; built once from the schema, sent to the tasks."""

    def __init__(self, schema: StructType, message_id: str) -> None:
        self._places = {field.name: place for place, field in enumerate(schema.fields)}
        mistakes = [
            *self._check(schema, "topic", (StringType,), required=True),
            *self._check(schema, "value", (BinaryType, StringType), required=True),
            *self._check(schema, "key", (BinaryType, StringType)),
            *self._check(schema, "headers", (ArrayType,)),
        ]
        by_offset = {"stream", "offset"} <= self._places.keys()
        if message_id == "offset" and not by_offset:
            mistakes.append(Mistake("messageId", "'offset' needs the columns 'stream' and 'offset'"))
        if message_id == "key" and "key" not in self._places:
            mistakes.append(Mistake("messageId", "'key' needs the column 'key'"))
        if by_offset and message_id in ("auto", "offset"):
            mistakes += self._check(schema, "stream", (StringType,))
            mistakes += self._check(schema, "offset", (IntegralType,))
        if mistakes:
            raise ConfigError(mistakes, what="NATS sink")
        self._by_key = message_id in ("auto", "key")
        self._by_offset = by_offset and message_id in ("auto", "offset")

    def _check(
        self, schema: StructType, name: str, types: tuple[type[DataType], ...], *, required: bool = False
    ) -> list[Mistake]:
        if name not in self._places:
            return [Mistake(name, "the column is missing")] if required else []
        found = schema[name].dataType
        if isinstance(found, types) or (name == "key" and found.typeName() == "void"):
            return []
        expected = " or ".join(kind.typeName() for kind in types)
        hint = f": use to_json({name})" if isinstance(found, (StructType, VariantType)) else ""
        return [Mistake(name, f"the column is {found.simpleString()}, not {expected}{hint}")]

    def rows(self, batch: Any) -> Iterator[tuple[str | None, Any, str | None, Any]]:
        """Topic, value, message id and headers of each row."""
        topics = self._list(batch, "topic")
        values = self._list(batch, "value")
        return zip(topics, values, self._ids(batch, topics), self._list(batch, "headers"), strict=True)

    def _list(self, batch: Any, name: str) -> list[Any]:
        place = self._places.get(name)
        return [None] * batch.num_rows if place is None else list(batch.column(place).to_pylist())

    def _ids(self, batch: Any, topics: list[str | None]) -> list[str | None]:
        ids: list[str | None] = [None] * batch.num_rows
        if self._by_offset:
            rows = zip(self._list(batch, "stream"), self._list(batch, "offset"), topics, strict=True)
            ids = [None if offset is None else f"{stream}:{offset}:{topic}" for stream, offset, topic in rows]
        if self._by_key:
            keys = self._list(batch, "key")
            ids = [other if key is None else _text(key) for key, other in zip(keys, ids, strict=True)]
        return ids


def _text(key: bytes | str) -> str:
    # An id is text; bytes that are not UTF-8 are written as hexadecimal digits, so that they stay apart.
    if isinstance(key, str):
        return key
    try:
        return key.decode()
    except UnicodeDecodeError:
        return key.hex()


@dataclass(frozen=True)
class _Written(WriterCommitMessage):
    """What one task wrote."""

    stored: int
    duplicates: int


class _Task:
    """What both writers share: the options, the columns, and the work of one task."""

    def __init__(self, options: SinkOptions, columns: _Columns) -> None:
        self._options = options
        self._columns = columns

    @classmethod
    def of(cls, options: Mapping[str, str], schema: StructType, *, overwrite: bool) -> Self:
        """A writer for *schema*.

        Raises:
            ConfigError: when an option or a column is wrong, or the stream is to be overwritten.
        """
        made = SinkOptions.from_mapping(options)
        if overwrite:
            raise ConfigError([Mistake("mode", "a stream cannot be overwritten: use mode('append')")])
        return cls(made, _Columns(schema, made.message_id))

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Publish the rows of one task, and wait until each is stored.

        Raises:
            StreamError: when one cannot be; what was stored stays, and a retry with ids does no harm.
        """
        total = Published()
        publisher: Publisher | None = None
        connection = Connection(self._options.connection)
        with connection:
            for batch in iterator:
                if publisher is None:
                    connection.reconnect()
                    publisher = Publisher(connection, self._options.window, self._options.stream)
                self._publish(publisher, batch)
            if publisher is not None:
                total = publisher.flush()
        return _Written(total.stored, total.duplicates)

    def _publish(self, publisher: Publisher, batch: Any) -> None:
        publish = publisher.publish
        for topic, value, message_id, headers in self._columns.rows(batch):
            if topic is None:
                raise StreamError("a row has no topic: there is no subject to publish it on")
            payload = value if isinstance(value, bytes) else b"" if value is None else value.encode()
            publish(topic, payload, _forwarded(headers) if headers else (), message_id)


def _forwarded(headers: list[dict[str, Any]]) -> list[tuple[str, bytes]]:
    return [
        (header["key"], header["value"] or b"")
        for header in headers
        if header is not None and header["key"] not in _NOT_FORWARDED
    ]


def _report(messages: list[WriterCommitMessage | None]) -> None:
    written = [message for message in messages if isinstance(message, _Written)]
    stored, duplicates = sum(one.stored for one in written), sum(one.duplicates for one in written)
    if duplicates:
        _log.info("%d messages stored, %d were known to the stream already", stored, duplicates)


class NatsWriter(_Task, DataSourceArrowWriter):
    """Writes a batch."""

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Say what was written; it is stored already."""
        _report(messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Leave what was stored: a stream takes nothing back."""


class NatsStreamWriter(_Task, DataSourceStreamArrowWriter):
    """Writes micro-batches."""

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803, ARG002 - Spark's signature
        """Say what was written; it is stored already."""
        _report(messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's signature
        """Leave what was stored: the batch is written again, under the same ids."""
