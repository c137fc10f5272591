"""NATS sink: its options, the publisher of a task's messages, and message ids of the rows of a Spark job.

No Spark here, so that others may publish alike. A stream stores one message of each id.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from zlib import crc32

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from turnout.base.options import of_text, option, options_of, read_options
from turnout.base.startup import pc
from turnout.base.untrusted import decimal
from turnout.errors import ConfigError, Mistake
from turnout.nats.protocol.headers import instructs_server
from turnout.nats.protocol.options import DEFAULT_WINDOW, TEXT
from turnout.nats.wire import Connection, ConnectionOptions, Publisher
from turnout.nats.wire.packing import header_block, header_lines, id_line, id_lines, key_lines
from turnout.records.published import Published, Refuse
from turnout.records.types import Binaries
from turnout.runtime.nats.source import check_names, read_connection
from turnout.subjects.pattern import check_pattern

if TYPE_CHECKING:
    from turnout.engine import Messages
    from turnout.engine.messages import ListedMessages
    from turnout.routes.endpoints import NatsSink


DELIVER_AT: Final = "Turnout-Deliver-At"
DELIVER_TO: Final = "Turnout-Deliver-To"
"""Headers of waiting messages, as `turnout.engine.scheduling` writes them."""

_MESSAGE_IDS = ("auto", "key", "offset", "none")


def _window(text: str) -> int:
    window = decimal(text, 10_000)
    if not window:
        raise ValueError(f"is a number from 1 to 10000, not {text!r}")
    return window


def _message_id(text: str) -> str:
    if text.lower() not in _MESSAGE_IDS:
        raise ValueError(f"is one of {', '.join(_MESSAGE_IDS)}, not {text.lower()!r}")
    return text.lower()


def _patterns(text: str) -> tuple[str, ...]:
    patterns, mistakes = tuple(pattern.strip() for pattern in text.split(",")), []
    for pattern in patterns:
        try:
            check_pattern(pattern)
        except ValueError as problem:
            mistakes.append(Mistake("allow", str(problem)))
    if mistakes:
        raise ConfigError(mistakes)
    return patterns


def _lower_names(names: Iterable[str]) -> frozenset[str]:
    return frozenset(name.strip().lower() for name in names) - {""}


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """Options of the NATS sink.

    Attributes:
        message_id: source of the ids: ``key``, ``offset`` (stream, offset and topic), ``none``, or ``auto``:
            the key where there is one, else the offset where the columns are there, else none.
        forward_headers: names of headers that instruct a server and are forwarded all the same, in lower case.
        allow: patterns of subjects, see `turnout.nats.wire.Publisher`.
        key_header: name of the header with the record's key; None for none.
        schedules: first tokens of the subjects of schedules; None where the sink's streams have none.
    """

    connection: ConnectionOptions
    stream: str | None = option(TEXT, None)
    window: int = option(of_text(_window, blank=False), DEFAULT_WINDOW)
    message_id: str = option(of_text(_message_id, blank=False), "auto")
    forward_headers: frozenset[str] = option(of_text(lambda text: _lower_names(text.split(","))), frozenset())
    allow: tuple[str, ...] | None = option(of_text(_patterns, blank=False), None)
    key_header: str | None = None
    schedules: str | None = None

    def publisher(self, slot: object = None) -> NatsPublisher:  # noqa: ARG002 - for sinks with transactions
        """Return a publisher."""
        # It needs the engine, which the planning processes of Spark, too, would load.

        return NatsPublisher(self)

    def withholds(self, name: str) -> bool:
        """Return True if headers of this name are left out."""
        if self.key_header is not None and name.lower() == self.key_header.lower():
            return True
        if self.schedules is not None and name == DELIVER_TO:
            return True
        return instructs_server(name) and name.lower() not in self.forward_headers

    @classmethod
    def of(cls, sink: NatsSink) -> SinkOptions:
        """Return the options of a route's sink, whose messages have computed ids or none.

        Raises:
            ConfigError: lists every mistake of the connection.
        """
        message_id = "auto" if sink.with_ids else "none"
        return cls(
            sink.connection,
            sink.stream,
            sink.window or DEFAULT_WINDOW,
            message_id,
            _lower_names(sink.forward_headers or ()),
            sink.writable,
            sink.key_header,
            sink.schedules,
        )

    @classmethod
    def from_mapping(cls, options: Mapping[str, str]) -> SinkOptions:
        """Read and check Spark's options.

        Raises:
            ConfigError: lists every mistake, with the option's name.
        """
        own = options_of(cls)
        mistakes = check_names(options, own.values())
        connection = read_connection(options, mistakes)
        values = read_options(own, options, mistakes)
        if mistakes:
            raise ConfigError(mistakes, what="NATS sink")
        return cls(connection, **values)


class NatsPublisher:
    """Publishes a task's messages to one NATS sink, over a connection of its own.

    Args:
        options: options of the sink.
    """

    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        self._connection = Connection(options.connection)
        # A task may begin while the server restarts: it waits as long as a task that is under way.
        self._connection.reconnect()
        self._publisher = Publisher(self._connection, options.window, options.stream, options.allow)

    def guard(self, check: Callable[[], None]) -> None:
        """Call *check* before anything more is sent."""
        self._connection.guard = check

    def send(self, messages: Messages | ListedMessages, refuse: Refuse) -> None:
        """Send messages; wait where too many are without acknowledgement.

        Raises:
            StreamError: the server takes no messages at all.
            ConnectionLostError: no reconnection in time.
        """
        # Processes of Spark that plan read the options, and do not load the engine.
        from turnout.engine.messages import ListedMessages

        if isinstance(messages, ListedMessages):
            values = [messages.values[row] or b"" for row in messages.rows]
            self._publisher.publish_lists(messages.topics, values, lines_of_listed(messages, self._options), refuse)
            return
        values = messages.column("value").fill_null(b"")
        self._publisher.publish_columns(messages.topics, values, lines_of(messages, self._options), refuse)

    def mark(self) -> None:
        """Return nothing: `flush` takes less than a millisecond."""

    def collect(self) -> Published:
        """Process the acknowledgements that have arrived, without a wait for others; `flush` returns what they say.

        Raises:
            StreamError: as `send`.
            ConnectionLostError: as `send`.
        """
        self._publisher.collect()
        return Published()

    def flush(self) -> Published:
        """Wait until every message is stored or refused.

        Raises:
            StreamError: as `send`.
            ConnectionLostError: as `send`.
        """
        return self._publisher.flush()

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


def lines_of_listed(messages: ListedMessages, options: SinkOptions) -> list[bytes] | None:
    """Return the header lines of each message as `lines_of` does."""
    has_ids = options.message_id != "none" and any(id_ is not None for id_ in messages.ids)
    has_keys = options.key_header is not None and any(key is not None for key in messages.keys)
    if not has_ids and not has_keys and not any(messages.headers):
        return None
    blocks = [header_block(pairs, options.withholds) if pairs else b"" for pairs in messages.headers]
    if options.key_header is not None and has_keys:
        keys = key_lines(options.key_header, messages.keys).to_pylist()
        blocks = [block + line for block, line in zip(blocks, keys, strict=True)]
    ids = [id_line(id_) if id_ else b"" for id_ in messages.ids] if has_ids else [b""] * len(messages)
    return [line + blocks[row] for line, row in zip(ids, messages.rows, strict=True)]


def lines_of(messages: Messages, options: SinkOptions) -> pa.Array | None:
    """Return the header lines of each message, None if no message has any; those of a record are encoded once."""
    parts = [id_lines(messages.ids)] if options.message_id != "none" and messages.ids.null_count < len(messages) else []
    headers = messages.records.column("headers")
    if headers.null_count < len(headers):
        parts.append(header_lines(headers, options.withholds).take(pa.array(messages.rows)))
    if options.key_header is not None:
        keys = key_lines(options.key_header, messages.records.column("key").to_pylist())
        parts.append(keys.take(pa.array(messages.rows)))
    if options.schedules is not None:
        parts.append(_schedule_lines(messages, f"{options.schedules}."))
    if len(parts) > 1:
        return pc.binary_join_element_wise(*parts, pa.scalar(b"", type=pa.binary()))
    return parts[0] if parts else None


def _schedule_lines(messages: Messages, prefix: str) -> pa.Array:
    """Return the header lines by which the server publishes waiting messages; empty for others (ADR-51)."""
    lines = []
    headers = messages.records.column("headers")
    for topic, row in zip(messages.topics.to_pylist(), messages.rows.tolist(), strict=True):
        if not topic.startswith(prefix):
            lines.append(b"")
            continue
        # They are the engine's: reserved headers of records are removed.
        own = {pair["key"]: pair["value"] or b"" for pair in headers[row].as_py() or ()}
        at, target = own.get(DELIVER_AT, b""), own.get(DELIVER_TO, b"")
        lines.append(b"Nats-Schedule: @at %b\r\nNats-Schedule-Target: %b\r\n" % (at, target))
    return pa.array(lines, pa.binary())


_SLOTS: Final = 1 << 23
"""Slots of the table of hashes, of a byte each."""

_SAMPLED: Final = 512
_ALL: Final = 2**32 - 1


class TaskIds:
    """Ids of a task's rows.

    Args:
        distinct: whether a row with the id of an earlier one gets an id of its own. Its number in the task is added,
            which is the same when the task is repeated.
    """

    def __init__(self, *, distinct: bool) -> None:
        self._distinct = distinct
        self._rows = 0
        self._earlier = _Hashes()
        self._repeats = False
        self._sampled: list[tuple[int, bytes]] = []
        self._limit = _ALL

    def add(self, ids: Binaries) -> Binaries:
        """Return the ids for the next rows; null and empty ones are none."""
        listed = ids.to_pylist()
        rows, present = None, listed
        if ids.null_count or b"" in listed:
            rows = [row for row, id_ in enumerate(listed) if id_]
            present = [listed[row] for row in rows]
        repeated = self._earlier.add(np.fromiter(map(hash, present), np.int64, len(present))).tolist()
        if repeated:
            self._repeats = True
            for index in repeated if self._distinct else ():
                row = index if rows is None else rows[index]
                listed[row] = present[index] = b"%b:%d" % (present[index], self._rows + row)
        self._rows += len(listed)
        codes = np.fromiter(map(crc32, present), np.int64, len(present))
        low = np.flatnonzero(codes <= self._limit).tolist()
        self._sampled += [(int(codes[index]), present[index]) for index in low]
        if len(self._sampled) > 2 * _SAMPLED:
            self._cut()
        return pa.array(listed, pa.binary()) if repeated and self._distinct else ids

    def _cut(self) -> None:
        """Keep the ids of the lowest codes."""
        self._sampled = sorted(set(self._sampled))
        if len(self._sampled) > _SAMPLED:
            self._limit = self._sampled[_SAMPLED - 1][0]
            self._sampled = [one for one in self._sampled if one[0] <= self._limit]

    def sample(self) -> IdSample:
        """Return what a comparison with other tasks needs."""
        self._cut()
        digests = {hashlib.blake2b(id_, digest_size=8).digest(): code for code, id_ in self._sampled}
        return IdSample(digests, self._limit, repeats=self._repeats and not self._distinct)


class _Hashes:
    """Hashes of ids: a table that says which may be known, and sorted runs that are searched for those."""

    def __init__(self) -> None:
        self._table = np.zeros(_SLOTS, np.bool_)
        self._runs: list[NDArray[np.int64]] = []

    def add(self, hashes: NDArray[np.int64]) -> NDArray[np.intp]:
        """Add hashes, and return the indices of known ones, and of those that occur before in the array."""
        order = np.argsort(hashes, kind="stable")
        ascending = hashes[order]
        again = np.concatenate([[False], ascending[1:] == ascending[:-1]]) if len(order) else np.empty(0, np.bool_)
        slots = ascending & (_SLOTS - 1)
        maybe = np.flatnonzero(self._table[slots] & ~again)
        for run in self._runs if len(maybe) else ():
            found = np.minimum(np.searchsorted(run, ascending[maybe]), len(run) - 1)
            again[maybe] |= run[found] == ascending[maybe]
        self._table[slots] = True
        self._keep(ascending[~again])
        return np.sort(order[again])

    def _keep(self, run: NDArray[np.int64]) -> None:
        while self._runs and len(self._runs[-1]) < 2 * len(run):
            run = np.sort(np.concatenate([self._runs.pop(), run]))
        if len(run):
            self._runs.append(run)


@dataclass(frozen=True, slots=True)
class IdSample:
    """Sample of a task's ids, those with the lowest codes: equal ids of two tasks are in both samples, or in none.

    Attributes:
        digests: digest → code of an id.
        limit: highest code of which all ids are here.
        repeats: whether rows of the task have one id.
    """

    digests: dict[bytes, int]
    limit: int
    repeats: bool

    @staticmethod
    def have_equal(samples: Iterable[IdSample]) -> bool:
        """Return True if rows of a job have one id, as far as samples can tell: certainly if many have."""
        samples = list(samples)
        if any(sample.repeats for sample in samples):
            return True
        limit = min((sample.limit for sample in samples), default=_ALL)
        counts = Counter(digest for sample in samples for digest, code in sample.digests.items() if code <= limit)
        return any(count > 1 for count in counts.values())
