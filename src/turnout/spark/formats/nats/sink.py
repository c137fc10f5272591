"""Rows into NATS streams: every message is acknowledged by its stream before a task reports success."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Self

import pyarrow as pa
import pyarrow.compute as pc
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
from turnout.protocol.options import CONNECTION_OPTIONS
from turnout.spark.formats.nats.options import check_names
from turnout.spark.workers.garbage import spare_collections
from turnout.wire import Connection, ConnectionOptions, Published, Publisher
from turnout.wire.packing import header_lines, id_lines

__all__ = ["NOT_FORWARDED", "NatsStreamWriter", "NatsWriter", "SinkOptions"]

_log = logging.getLogger(__name__)

_WRITE_OPTIONS = ("stream", "window", "messageId", "forwardHeaders")
_MESSAGE_IDS = ("auto", "key", "offset", "none")

NOT_FORWARDED = (
    # About the stream that a record was read from: in another one it would be wrong or harmful.
    "Nats-Msg-Id",
    "Nats-Expected-*",
    "Nats-Stream-Source",
    # What the server is to do with the message, with others of its stream, or with later ones.
    "Nats-Rollup",
    "Nats-TTL",
    "Nats-Marker-Reason",
    "Nats-Incr",
    "Nats-Counter-Sources",
    "Nats-Batch-*",
    "Nats-Schedule",
    "Nats-Schedule-*",
    "Nats-Scheduler",
    "Nats-Required-Api-Level",
    # Whom it tells of the message's way, and whether it delivers it at all.
    "Nats-Trace-*",
    # Who asks, as one server says it to another.
    "Nats-Request-Info",
)
"""Headers that instruct a nats-server (as of 2.15), which a sink forwards only where it asks for them by name.

``traceparent`` is not among them: it traces only where the server's configuration says so, and other programs use it.
"""

_WITHHELD = re.compile("|".join(re.escape(name).replace(r"\*", ".+") for name in NOT_FORWARDED), re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """Where and how to write.

    Attributes:
        message_id: where ids come from: ``key``, ``offset`` (stream, offset and topic), ``none``, or ``auto``:
            the key where there is one, else the offset where the columns are there, else none.
        forward_headers: names of `NOT_FORWARDED` that are forwarded all the same, in lower case.
    """

    connection: ConnectionOptions
    stream: str | None = None
    window: int = 4000
    message_id: str = "auto"
    forward_headers: frozenset[str] = frozenset()

    def withholds(self, name: str) -> bool:
        """Whether headers of this name are left out."""
        # A client or a proxy may write names in another case than the server's.
        return _WITHHELD.fullmatch(name) is not None and name.lower() not in self.forward_headers

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
        forward = frozenset(name.strip().lower() for name in options.get("forwardHeaders", "").split(",")) - {""}
        return cls(connection, options.get("stream") or None, int(window), message_id, forward)


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

    def messages(self, batch: Any, withholds: Callable[[str], bool]) -> tuple[Any, Any, Any]:
        """The subjects, the payloads and the header lines (None where there are none) of a record batch.

        Args:
            batch: as Spark hands it over.
            withholds: whether headers of a name are left out.

        Raises:
            StreamError: when a row has no topic.
        """
        topics = batch.column(self._places["topic"])
        if topics.null_count:
            raise StreamError("a row has no topic: there is no subject to publish it on", code=400)
        payloads = batch.column(self._places["value"]).cast(pa.binary()).fill_null(b"")
        ids = self._ids(batch, topics)
        parts = [] if ids is None else [id_lines(ids)]
        place = self._places.get("headers")
        if place is not None and batch.column(place).null_count < batch.num_rows:
            parts.append(header_lines(batch.column(place), withholds))
        if len(parts) == 2:
            parts = [pc.binary_join_element_wise(*parts, pa.scalar(b"", type=pa.binary()))]
        return topics, payloads, parts[0] if parts else None

    def _ids(self, batch: Any, topics: Any) -> Any:
        """The message id of each row, null where it has none; None where no row has one."""
        ids = None
        if self._by_offset:
            stream = batch.column(self._places["stream"])
            offset = batch.column(self._places["offset"]).cast(pa.string())
            ids = pc.binary_join_element_wise(stream, offset, topics, ":").cast(pa.binary())
        if self._by_key and "key" in self._places:
            keys = batch.column(self._places["key"]).cast(pa.binary())
            ids = keys if ids is None else pc.coalesce(keys, ids)
        return None if ids is None or ids.null_count == len(ids) else ids


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
        spare_collections()
        made = SinkOptions.from_mapping(options)
        if overwrite:
            raise ConfigError([Mistake("mode", "a stream cannot be overwritten: use mode('append')")])
        return cls(made, _Columns(schema, made.message_id))

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Publish the rows of one task, and wait until each is stored.

        Raises:
            StreamError: when one cannot be; what was stored stays, and a retry with ids does no harm.
        """
        spare_collections()
        total = Published()
        publisher: Publisher | None = None
        connection = Connection(self._options.connection)
        with connection:
            for batch in iterator:
                if publisher is None:
                    connection.reconnect()
                    publisher = Publisher(connection, self._options.window, self._options.stream)
                publisher.publish_columns(*self._columns.messages(batch, self._options.withholds))
            if publisher is not None:
                total = publisher.flush()
        return _Written(total.stored, total.duplicates)


def _report(messages: list[WriterCommitMessage | None]) -> None:
    spare_collections()
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
