"""Outgoing messages: a record's value and headers under a topic, its id, and the headers that do not fit."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from turnout.base.startup import pc
from turnout.nats.protocol.headers import NAME_RULE, UNFIT_NAME
from turnout.records import Failure, Headers
from turnout.records.batch import STREAM_ID, TOPIC_ID, ListedRecords
from turnout.records.headers import as_type, has_match, headers_type
from turnout.records.types import ArrowArray, ArrowBatch, Binaries, RowIds, Strings
from turnout.routes import Route
from turnout.subjects.arrays import chained

if TYPE_CHECKING:
    from turnout.engine.reading import Consumed

CONNECT_PREFIX: Final = "__connect.errors."
"""Prefix of Connect's context headers."""

TURNOUT_PREFIX: Final = "__turnout."
"""Prefix of the headers of turnout's own in dead letters."""

RESERVED: Final = ("turnout-", TURNOUT_PREFIX)
"""Prefixes of reserved names, in lower case: names are compared in any case, as clients and proxies rewrite it."""

_MAX_LISTED_HEADERS = 64
"""Number of headers up to which their distinct names are found by Python."""


def is_reserved(name: str) -> bool:
    """Return whether a header's name is reserved.

    >>> [is_reserved(name) for name in ("Turnout-Redriven", "__TURNOUT.subscription", "Turnout", "X-Turnout-Route")]
    [True, True, False, False]
    """
    return name.lower().startswith(RESERVED)


def without_reserved(batch: ArrowBatch) -> tuple[ArrowBatch, int]:
    """Return a record batch without reserved headers, and their number.

    Args:
        batch: as a source reads it; the same object is returned where nothing has to go.
    """
    index = batch.schema.get_field_index("headers")
    if index < 0 or pa.types.is_null(batch.schema.field(index).type):
        return batch, 0
    headers = batch.column(index)
    names = headers.flatten().field(0)
    # Few names are different: each of them is compared once.
    distinct = (names if len(names) <= _MAX_LISTED_HEADERS else pc.unique(names)).to_pylist()
    found = [name for name in dict.fromkeys(distinct) if name is not None and is_reserved(name)]
    if not found:
        return batch, 0
    bad = pc.is_in(names, value_set=pa.array(found, names.type)).to_numpy(zero_copy_only=False)
    headers_left = without(headers.cast(headers_type()), bad)
    return batch.set_column(index, pa.field("headers", headers_type()), headers_left), int(np.count_nonzero(bad))


_BREAK = re.compile(rb"[\r\n]")

_REMEMBERED = 10_000
_SHOWN_CHARACTERS = 80


class HeaderRules:
    """Header restrictions of a route's sinks; each name is checked once.

    Args:
        route: some of its sinks may have no such rules.
    """

    def __init__(self, route: Route) -> None:
        self._apply = any(sink.restricts_headers for sink in route.sinks.values())
        self._fit: set[str] = set()

    def unfit(self, headers: ArrowArray) -> NDArray[np.bool_] | None:
        """Return the mask of headers that cannot be written; None if all can.

        Args:
            headers: a list for each record, see `turnout.records.headers.headers_type`.
        """
        if not self._apply or not len(headers):
            return None
        pairs = headers.flatten()
        names, values = pairs.field(0), pairs.field(1)
        distinct = names if len(names) <= _MAX_LISTED_HEADERS else pc.unique(names)
        bad_names = self._bad_names(distinct.to_pylist())
        breaks = has_match(_BREAK, values)
        if not bad_names and not breaks:
            return None
        bad = pc.is_in(names, value_set=pa.array(bad_names, pa.string())).to_numpy(zero_copy_only=False)
        if breaks:
            broken = pc.fill_null(pc.match_substring_regex(values, "[\r\n]"), False)
            bad = bad | broken.to_numpy(zero_copy_only=False)
        return bad if bad.any() else None

    def fit(self, headers: Iterable[Iterable[tuple[str | None, bytes | None]]]) -> bool:
        """Return True if all headers of a few records can be written: see `unfit`."""
        if not self._apply:
            return True
        pairs = [pair for own in headers for pair in own]
        if any(value is not None and _BREAK.search(value) for _, value in pairs):
            return False
        return not pairs or not self._bad_names({name for name, _ in pairs})

    def _bad_names(self, names: Iterable[str | None]) -> list[str]:
        bad = []
        for name in names:
            if name is None or name in self._fit:
                continue
            if UNFIT_NAME.search(name):
                bad.append(name)
                continue
            if len(self._fit) >= _REMEMBERED:
                self._fit.clear()
            self._fit.add(name)
        return bad

    def failures(self, headers: ArrowArray, bad: NDArray[np.bool_]) -> dict[int, Failure]:
        """Return record index → failure of its first header that cannot be written."""
        owners = pc.list_parent_indices(headers).to_numpy()
        names = pc.struct_field(pc.list_flatten(headers), [0])
        return {int(owners[at]): _failure(names[at].as_py()) for at in reversed(np.flatnonzero(bad).tolist())}

    def left_out(self, headers: ArrowArray, bad: NDArray[np.bool_]) -> dict[int, str]:
        """Return record index → the names of its headers that cannot be written, as text."""
        owners = pc.list_parent_indices(headers).to_numpy()
        names = pc.struct_field(pc.list_flatten(headers), [0])
        texts: dict[int, str] = {}
        for at in np.flatnonzero(bad).tolist():
            owner, name = int(owners[at]), _escaped(names[at].as_py())
            texts[owner] = f"{texts[owner]}, {name}" if owner in texts else name
        return texts


def without(headers: ArrowArray, bad: NDArray[np.bool_]) -> ArrowArray:
    """Return the headers of each record without the bad ones."""
    valid = np.flatnonzero(~bad)
    owners = pc.list_parent_indices(headers).to_numpy()[valid]
    offsets = np.zeros(len(headers) + 1, np.int32)
    np.cumsum(np.bincount(owners, minlength=len(headers)), out=offsets[1:])
    pairs = pc.list_flatten(headers).take(pa.array(valid))
    return pa.ListArray.from_arrays(pa.array(offsets), pairs, type=headers_type())


def _failure(name: str) -> Failure:
    problem = NAME_RULE if UNFIT_NAME.search(name) else "a value cannot hold a line break"
    return Failure(
        "HEADER_CONVERTER",
        "turnout.sink.nats",
        "org.apache.kafka.connect.errors.DataException",
        f"header {_escaped(name)} cannot be written to NATS: {problem}",
    )


def _escaped(name: str) -> str:
    return repr(name) if len(name) <= _SHOWN_CHARACTERS else f"{name[:_SHOWN_CHARACTERS]!r}…"


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


RECORDS: Final = pa.schema(
    [
        pa.field("value", pa.binary()),
        pa.field("headers", headers_type()),
        pa.field("key", pa.binary()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", pa.timestamp("us", tz="UTC")),
    ]
)
"""The columns of the records that messages carry: the value is encoded once, however many messages there are."""


VALUE_LEFT_OUT: Final = f"{TURNOUT_PREFIX}value.left.out"
"""The header of a dead letter that is too large with its value: how many bytes that has."""

VALUE_DIGEST: Final = f"{TURNOUT_PREFIX}value.sha256"
"""The header with the digest of such a value, in hexadecimal digits: the letter's seal covers it."""


@dataclass(frozen=True, slots=True)
class Messages:
    """The messages of one batch: delivered ones in the order of their records, then the dead letters.

    Attributes:
        topics: topics of each message, as text.
        ids: ids of each message; null where the record's origin is unknown.
        sinks: index of each message's sink among the route's.
        rows: index of each message's record in *records*.
        records: the columns of `RECORDS`.
    """

    topics: Strings
    ids: Strings
    sinks: NDArray[np.int8]
    rows: NDArray[np.int64]
    records: ArrowBatch

    @classmethod
    def none(cls) -> Messages:
        """No messages."""
        nothing = pa.array([], pa.string())
        return cls(
            nothing,
            nothing,
            np.zeros(0, np.int8),
            np.zeros(0, np.int64),
            pa.RecordBatch.from_pylist([], schema=RECORDS),
        )

    def __len__(self) -> int:
        return len(self.rows)

    def of_sink(self, sink: int) -> Messages:
        """Return the messages for the sink at this index of the route's sinks."""
        chosen = np.flatnonzero(self.sinks == sink)
        if len(chosen) == len(self):
            return self
        return self.take(chosen)

    def take(self, indices: NDArray[np.int64]) -> Messages:
        """Return the messages at *indices*, in that order."""
        chosen = pa.array(indices)
        return Messages(
            self.topics.take(chosen), self.ids.take(chosen), self.sinks[indices], self.rows[indices], self.records
        )

    def joined(self, others: Messages) -> Messages:
        """These and others behind them."""
        return Messages(
            pa.concat_arrays([self.topics, others.topics]),
            pa.concat_arrays([self.ids, others.ids]),
            np.concatenate([self.sinks, others.sinks]),
            np.concatenate([self.rows, others.rows + self.records.num_rows]),
            pa.concat_batches([self.records, others.records]),
        )

    def emptied(self, indices: NDArray[np.int64], *, alone: bool = True) -> Messages:
        """Return the messages at *indices* without their values, which are too large; a header gives the size of each.

        Args:
            indices: indices of the messages.
            alone: leave out nothing but the values; if not, the keys and the records' own headers as well.
        """
        rows = pa.array(self.rows[indices])
        records = self.records.take(rows)
        headers = Headers.of_arrow(records.column("headers") if alone else _context(records.column("headers")))
        everything = np.arange(len(indices))
        sizes = pc.fill_null(pc.binary_length(records.column("value")), 0).to_pylist()
        headers.append(everything, VALUE_LEFT_OUT, None, [str(size) for size in sizes])
        digests = [hashlib.sha256(value or b"").hexdigest() for value in records.column("value").to_pylist()]
        headers.append(everything, VALUE_DIGEST, None, digests)
        records = records.set_column(0, RECORDS.field("value"), pa.nulls(len(indices), pa.binary()))
        records = records.set_column(1, RECORDS.field("headers"), headers.to_arrow(everything))
        if not alone:
            records = records.set_column(2, RECORDS.field("key"), pa.nulls(len(indices), pa.binary()))
        chosen = pa.array(indices)
        return Messages(self.topics.take(chosen), self.ids.take(chosen), self.sinks[indices], everything, records)

    def without_times(self) -> Messages:
        """Return the messages without their records' times, for a server that refuses these."""
        index = RECORDS.get_field_index("timestamp")
        times = pa.nulls(self.records.num_rows, RECORDS.field(index).type)
        return replace(self, records=self.records.set_column(index, RECORDS.field(index), times))

    def column(self, name: str) -> ArrowArray:
        """Return a column of the records, with an entry for each message."""
        column = self.records.column(name)
        if len(self.rows) == len(column) and bool((self.rows == np.arange(len(self.rows))).all()):
            return column
        return column.take(pa.array(self.rows))


@dataclass(frozen=True)
class ListedMessages:
    """Deliveries of a few records as lists, all to the first sink: their Arrow arrays take longer than sending them.

    Attributes:
        topics: by message, as the next two.
        ids: message ids; None where the record's origin is unknown.
        rows: indices of the messages' records in the lists below.
        values: bytes of each record.
        headers: names and values of its headers.
        keys: bytes of its key; empty where the sink has no keys.
        partitions: its partition as it was read.
        times: its time in microseconds since 1970; None for one without.
        make: makes the messages with arrays; None if they are never needed.
    """

    topics: Sequence[str]
    ids: Sequence[str | None]
    rows: Sequence[int]
    values: Sequence[bytes | None]
    headers: Sequence[Sequence[tuple[str | None, bytes | None]]]
    keys: Sequence[bytes | None]
    partitions: Sequence[int]
    times: Sequence[int | None]
    make: Callable[[], Messages] | None = field(default=None, repr=False, compare=False)

    def __len__(self) -> int:
        return len(self.topics)

    @cached_property
    def whole(self) -> Messages:
        """The messages with arrays."""
        assert self.make is not None
        return self.make()


def _context(headers: ArrowArray) -> ArrowArray:
    """Return only the dead letters' own headers, which give the reason, without those of their records."""
    ours = [
        None if pairs is None else [pair for pair in pairs if pair["key"].startswith((CONNECT_PREFIX, TURNOUT_PREFIX))]
        for pairs in headers.to_pylist()
    ]
    return pa.array(ours, headers_type())


def record_columns(
    batch: ArrowBatch, rows: RowIds, values: Binaries, headers: ArrowArray, keys: Binaries
) -> ArrowBatch:
    """Return the columns of `RECORDS` of some records.

    Args:
        batch: the record batch as it was read, which has their positions.
        rows: rows of the records.
        values: as they are sent, one for each of *rows*.
        headers: likewise.
        keys: likewise.
    """
    columns = {"value": values, "headers": headers, "key": keys}
    source = None if np.array_equal(rows, np.arange(batch.num_rows)) else pa.array(rows)
    for name in ("partition", "offset", "timestamp"):
        kind = RECORDS.field(name).type
        if name not in batch.schema.names:
            columns[name] = pa.nulls(len(rows), kind)
            continue
        column = batch.column(name)
        columns[name] = as_type(column if source is None else column.take(source), kind)
    return pa.RecordBatch.from_arrays([columns[name] for name in RECORDS.names], schema=RECORDS)
