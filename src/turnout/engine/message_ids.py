"""Message ids and lineage: a record's origin as one text, from which its messages' ids and draws are derived."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa

from turnout.base.deferred import pc
from turnout.engine.messages import RECORDS, Messages
from turnout.engine.reading import Consumed
from turnout.records import Headers
from turnout.records.listed import STREAM_ID, TOPIC_ID, ListedRecords
from turnout.records.types import ArrowArray, ArrowBatch, RowIds, Strings
from turnout.routes import Route
from turnout.subjects.arrays import chained

_MAX_JOINED_RECORDS = 32
"""Number of records up to which texts are joined one by one."""


def origins(batch: ArrowBatch) -> Strings:
    """``stream.identity:sequence`` for NATS, ``topic:partition:offset`` otherwise; null where a part is unknown.

    A stream without a known identity, as of a checkpoint that an earlier release began, is its name alone.

    Args:
        batch: a record batch as it was read.
    """
    names = batch.schema.names
    if STREAM_ID in names and batch.column(STREAM_ID).null_count:
        labels = pc.coalesce(batch.column(STREAM_ID), batch.column("stream"))
        batch = batch.set_column(names.index(STREAM_ID), STREAM_ID, labels)
    stream = STREAM_ID if STREAM_ID in names else "stream"
    if batch.num_rows <= _MAX_JOINED_RECORDS:
        parts = (stream, "offset") if stream in names else ("topic", "partition", "offset")
        return pa.array(list(map(_joined, *(batch.column(part).to_pylist() for part in parts))), pa.string())
    offsets = batch.column("offset").cast(pa.string())
    if stream in names:
        return pc.binary_join_element_wise(batch.column(stream), offsets, ":")
    partitions = batch.column("partition").cast(pa.string())
    return pc.binary_join_element_wise(batch.column("topic").cast(pa.string()), partitions, offsets, ":")


def record_ids(batch: ArrowBatch) -> Strings:
    """Return the origins, with the times of the records, where the identity of stream or topic is known.

    A server that is restored to older data gives its sequences and offsets to other messages, which need other ids.
    """
    if TOPIC_ID in batch.schema.names:
        identified = origins_of_topics(batch)
        texts = batch.column("timestamp").cast(pa.int64()).cast(pa.string())
        # Where the topic's id is null, or the record's time, the joined text is null too.
        texts = pc.if_else(batch.column(TOPIC_ID).is_valid(), texts, None)
        return pc.coalesce(pc.binary_join_element_wise(identified, texts, ":"), identified)
    if STREAM_ID not in batch.schema.names:
        return origins(batch)
    labels, offsets, times = batch.column(STREAM_ID), batch.column("offset"), batch.column("timestamp")
    if batch.num_rows <= _MAX_JOINED_RECORDS:
        rows = zip(origins(batch).to_pylist(), labels.to_pylist(), (time.value for time in times), strict=True)
        return pa.array([id_ if None in (id_, label, at) else f"{id_}:{at}" for id_, label, at in rows], pa.string())
    texts = offsets.cast(pa.string()), times.cast(pa.int64()).cast(pa.string())
    timed = pc.binary_join_element_wise(labels, *texts, ":")
    return timed if not labels.null_count else pc.coalesce(timed, origins(batch))


def origins_of_topics(batch: ArrowBatch) -> Strings:
    """Return the origins of Kafka's records, with the ids of topics where they are known, as dead letters have them."""
    plain = origins(batch)
    return pc.coalesce(pc.binary_join_element_wise(plain, batch.column(TOPIC_ID), ":"), plain)


def ids_of_listed(listed: ListedRecords, rows: Sequence[int], suffixes: Sequence[str | None]) -> list[str | None]:
    """Return the ids of messages as `message_ids` does."""
    pairs = zip(rows, suffixes, strict=True)
    return [None if suffix is None else f"{listed.ids[row]}{suffix}" for row, suffix in pairs]


def message_ids(batch: ArrowBatch, rows: RowIds, suffixes: Strings) -> Strings:
    """Return the ids of messages: the id of each one's record (`record_ids`) and its suffix; null where either is.

    Args:
        batch: the records as they were read.
        rows: rows of the messages' records.
        suffixes: suffixes of the messages.
    """
    if len(rows) > _MAX_JOINED_RECORDS:
        return pc.binary_join_element_wise(record_ids(batch).take(pa.array(rows)), suffixes, "")
    record_origins = record_ids(batch).to_pylist()
    pairs = zip(rows.tolist(), suffixes.to_pylist(), strict=True)
    ids = [
        None if record_origins[row] is None or suffix is None else record_origins[row] + suffix for row, suffix in pairs
    ]
    return pa.array(ids, pa.string())


def _joined(*parts: object) -> str | None:
    texts = [part.decode() if isinstance(part, bytes) else str(part) for part in parts]
    return None if None in parts else ":".join(texts)


def suffix(*parts: str) -> str:
    """Return a message id's suffix after the origin: a hash of route, subscription and destination.

    The parts are hashed: ids stay short, because the server keeps every one of them for its duplicate window. Two
    routes, subscriptions or destinations never take each other's messages for their own.
    """
    return f":{chained(*parts):X}"


def dead_suffix(route: str, *delivery: str) -> str:
    """Return the suffix of a dead letter's id; of one delivery's, it has the subscription and the destination in it."""
    return suffix(route, "dead", *delivery)


ROUTE: Final = "Turnout-Route"
"""``name@digest``: the route's name, and the digest of its file."""

REVISION: Final = "Turnout-Revision"
"""The revision of the subscriptions; missing where the route has none."""

TABLES: Final = "Turnout-Tables"
"""``name=revision`` of each table that expressions look up, with commas between; missing where the route has none."""

SOURCE: Final = "Turnout-Source"
"""``stream:sequence``, or ``topic:partition:offset``."""


class LineageHeaders:
    """Adds the headers to the messages for sinks with ``lineage: true``; dead letters have their own.

    Args:
        route: route with the sinks.
    """

    def __init__(self, route: Route) -> None:
        self._route = f"{route.name}@{route.digest}"
        self._tables = ",".join(f"{name}={table.revision}" for name, table in route.tables.items())
        self._sinks = np.array([bool(getattr(sink, "lineage", None)) for sink in route.sinks.values()], np.bool_)
        self.enabled = bool(self._sinks.any())

    def added(self, messages: Messages, rows: RowIds, consumed: Consumed, revision: int | None) -> Messages:
        """Return the messages with their lineage headers.

        Args:
            messages: that are delivered; the records that they carry are those of *rows*.
            rows: rows of the records that are delivered.
            consumed: the batch as it was read.
            revision: revision of the subscriptions that it was matched with.
        """
        records = messages.records
        headers = RECORDS.get_field_index("headers")
        marked = self._with_lineage(records.column(headers), rows, consumed, revision)
        copies = records.set_column(headers, RECORDS.field(headers), marked)
        if self._sinks.all():
            return replace(messages, records=copies)
        # Other sinks get the same records as they are.
        indices = np.where(self._sinks[messages.sinks], messages.rows + records.num_rows, messages.rows)
        return replace(messages, rows=indices, records=pa.concat_batches([records, copies]))

    def _with_lineage(self, headers: ArrowArray, rows: RowIds, consumed: Consumed, revision: int | None) -> ArrowArray:
        marked = Headers.of_arrow(headers)
        all_rows = np.arange(len(rows))
        marked.append(all_rows, ROUTE, None, [self._route] * len(rows))
        if revision is not None:
            marked.append(all_rows, REVISION, None, [f"{revision}"] * len(rows))
        if self._tables:
            marked.append(all_rows, TABLES, None, [self._tables] * len(rows))
        sources = pc.replace_substring_regex(origins(consumed.batch).take(pa.array(rows)), "[\r\n]", "?").to_pylist()
        with_source = [number for number, source in enumerate(sources) if source is not None]
        marked.append(all_rows[with_source], SOURCE, None, [sources[number] for number in with_source])
        return marked.to_arrow(all_rows)
