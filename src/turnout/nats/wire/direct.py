"""Reading a range without one consumer for it: by sequence, or filter by filter, and the choice of the cheapest way.

A consumer with one filter costs nats-server little, one with several a multiple: with each message it looks through its
filters and the subjects of a block anew. So where there are several filters, there are three strategies: that consumer,
one consumer for each filter, or one for a wider filter or none, whose messages are filtered here. All three give the
same messages in the same order; only the costs differ. `BY_SEQUENCE` is no choice of costs: it reads without any
consumer.

`DirectReader` is slower than a pull consumer, as the server adds some 150 bytes of headers to each message. It is for
streams whose messages go when a consumer acknowledges them: work queues allow no second consumer, and messages read
here can be read again.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, Protocol

import numpy as np
import pyarrow as pa

from turnout.base.untrusted import LARGEST_SEQUENCE, JsonObject, decimal
from turnout.errors import ConnectionLostError, StreamError
from turnout.nats.protocol.headers import ADDED_BY_DIRECT_GETS, END_OF_BATCH, NO_MESSAGES, NO_RESPONDERS, parse
from turnout.nats.wire.connection import Connection, Message
from turnout.nats.wire.pull import PullReader, Range, hole
from turnout.nats.wire.records import SCHEMA, Row, record_batch, row
from turnout.nats.wire.streams import StoredSequences, count_about, state_of
from turnout.records.types import ArrowBatch
from turnout.subjects.pattern import FULL, PARTIAL, SourceIndex, matches

Kind = Literal["one_consumer", "per_filter", "wider_filter", "by_sequence"]


@dataclass(frozen=True, slots=True)
class ReadStrategy:
    """Strategy for reading the messages of a range that match some filters.

    Attributes:
        kind: ``one_consumer`` with all filters; ``per_filter``, one consumer for each; ``wider_filter``, one for
            *cover*, whose messages are filtered here; ``by_sequence``, direct gets without any consumer.
        cover: a filter that every subject in question matches; none for the whole stream.
        step: sequences that are held and put in order at a time, for ``per_filter``.
        stream_end: the sequence behind the stream's last when this was planned; 0 for unknown.
    """

    kind: Kind = "one_consumer"
    cover: tuple[str, ...] = ()
    step: int = 0
    stream_end: int = 0


ONE_CONSUMER: Final = ReadStrategy()
WHOLE_STREAM: Final = ReadStrategy("wider_filter")
BY_SEQUENCE: Final = ReadStrategy("by_sequence")
"""For streams whose messages go when their consumers acknowledge them, read by one that is none of these: a consumer
would be refused by a work queue, and would have a say in what an interest stream keeps."""


def observer_strategy(state: StoredSequences) -> ReadStrategy:
    """Return the strategy for observers: by sequence on work-queue and interest streams, without a consumer."""
    return BY_SEQUENCE if state.consumed else ONE_CONSUMER


# The first three are for a message that a consumer delivers, the next for one that a filter passes by.
_UNFILTERED_MICROS: Final = 6.0
_FILTERED_MICROS: Final = 17.0
_SEVERAL_FILTERS_MICROS: Final = 500.0
_SKIPPED_MICROS: Final = 0.2
_CONSUMER_MICROS: Final = 2500.0
_BYTE_MICROS: Final = 0.002


@dataclass(frozen=True, slots=True)
class ReadCost:
    """Estimates of the processor time, in microseconds, that a range takes of server and reader together.

    The factors were measured with nats-server 2.15.1, a file store, 100,000 messages of 300 bytes, 1 to 30 filters on
    streams of 361 to 100,000 subjects. They are rough; the strategies differ by more. Each byte that moves is set at
    2 ns, so that large messages are less readily read for nothing.

    Attributes:
        length: how many sequences the range has.
        mean_bytes: the mean size of the stream's messages.
    """

    length: int
    mean_bytes: float

    def _moved(self, messages: int) -> float:
        return messages * self.mean_bytes * _BYTE_MICROS

    def whole(self) -> float:
        """Return the cost of one consumer without a filter."""
        return self.length * _UNFILTERED_MICROS + self._moved(self.length) + _CONSUMER_MICROS

    def per_filter(self, messages: int, filters: int, steps: int = 1) -> float:
        """*filters* consumers with one filter each, *messages* in all; each also scans the others' messages."""
        each = self.length * _SKIPPED_MICROS + steps * _CONSUMER_MICROS
        return messages * _FILTERED_MICROS + self._moved(messages) + filters * each

    def one_consumer(self, messages: int) -> float:
        """Return the cost of one consumer with several filters; their number does not matter."""
        return messages * _SEVERAL_FILTERS_MICROS + self._moved(messages) + _CONSUMER_MICROS


_CHEAP_MICROS: Final = 20_000.0
"""Cost of a whole range below which alternatives are not examined."""

_HELD_BYTES: Final = 32 << 20
"""This many bytes of messages are put in order at once: Spark's workers hold several times that anyway. A step costs a
consumer for each filter, so it should not be small either."""

_SHORTEST_STEP: Final = 1000


def choose_strategy(connection: Connection, stream: str, start: int, end: int, filters: Sequence[str]) -> ReadStrategy:
    """The cheapest way to read a range's messages on *filters*.

    It requests the stream's state, and, if the range is not small, counts with consumers that deliver nothing. The
    counts are of this moment and near enough: nothing but the costs depends on them.

    Raises:
        StreamError: the stream does not exist, or access is denied.
    """
    if len(filters) < 2 or end <= start:
        return ONE_CONSUMER
    state = state_of(connection, stream)
    cost = ReadCost(end - start, state.mean_bytes)
    if cost.whole() <= _CHEAP_MICROS:
        return WHOLE_STREAM
    messages = count_about(connection, stream, start, end, filters)
    step = _step(cost, messages)
    per_filter = ReadStrategy("per_filter", (), step, state.next)
    options = [
        (cost.whole(), WHOLE_STREAM),
        (cost.one_consumer(messages), ONE_CONSUMER),
        (cost.per_filter(messages, len(filters), -(-cost.length // step)), per_filter),
    ]
    wider = cover(filters)
    if wider != FULL and cost.per_filter(messages, 1) < min(options, key=_cost)[0]:
        covered = count_about(connection, stream, start, end, (wider,))
        options.append((cost.per_filter(covered, 1), ReadStrategy("wider_filter", (wider,), 0, state.next)))
    return min(options, key=_cost)[1]


def _cost(option: tuple[float, ReadStrategy]) -> float:
    return option[0]


def _step(cost: ReadCost, messages: int) -> int:
    size = messages * cost.mean_bytes
    return cost.length if size <= _HELD_BYTES else max(_SHORTEST_STEP, int(cost.length * _HELD_BYTES / size))


def cover(filters: Sequence[str]) -> str:
    """The narrowest single filter that matches every subject that one of *filters* matches."""
    split = [filter_.split(".") for filter_ in filters]
    shortest = min(len(tokens) - (tokens[-1] == FULL) for tokens in split)
    same_length = all(len(tokens) == shortest and tokens[-1] != FULL for tokens in split)
    tokens = [
        at[0] if len(set(at)) == 1 else PARTIAL for at in zip(*(parts[:shortest] for parts in split), strict=True)
    ]
    if same_length:
        return ".".join(tokens)
    # A subject shorter than one of the filters is matched by none that ends in ``>`` there.
    if any(len(parts) == shortest for parts in split):
        tokens = tokens[:-1]
    return ".".join([*tokens, FULL])


_BATCH_MESSAGES = 5000
_BATCH_BYTES = 8 << 20


class DirectReader:
    """Reads one `Range`, of at most one filter, once.

    Attributes:
        hole: as with `turnout.nats.wire.pull.PullReader`.
    """

    def __init__(self, connection: Connection, range_: Range) -> None:
        self._connection = connection
        self._range = range_
        self._next = max(1, range_.start)
        self._last = self._next - 1
        self.hole: int | None = None

    @property
    def next(self) -> int:
        """Sequence after the last message received; after the read, the rest of the range holds no messages."""
        return self._last + 1

    def batches(self) -> Iterator[ArrowBatch]:
        """The record batches, of `turnout.nats.wire.records.SCHEMA`, in the order of the stream.

        Raises:
            StreamError: when the stream does not allow direct access, or is not there.
            ConnectionLostError: no reconnection in time.
        """
        retries = self._connection.retry_window()
        stored = self._range.time
        while self._next < self._range.end:
            try:
                if not self._connection.is_open:
                    self._connection.reconnect(retries.until)
                before = self._next
                # No consumer ends with the stream: whose messages the last batch had, is known at the end of the range.
                self._range.check(self._connection, self.next, stored)
                rows, done = self._ask()
            except ConnectionLostError:
                if retries.is_over:
                    raise
                continue
            retries.progress()
            if self._next == before and not done:
                raise StreamError(f"stream {self._range.stream!r}: messages are pending, but none arrive")
            if rows:
                sequences = np.array([row.offset for row in rows])
                self.hole, self._last = hole(sequences, self.next), rows[-1].offset
                stored = rows[-1].timestamp
                yield record_batch(rows)
            if done:
                break
        self._range.check(self._connection, self.next, stored)

    def _ask(self) -> tuple[list[Row], bool]:
        """Read one batch: its rows within the range, and True if no messages remain after it."""
        connection, range_ = self._connection, self._range
        inbox = connection.new_inbox()
        number = connection.subscribe(inbox)
        request: JsonObject = {
            "seq": self._next,
            "batch": min(_BATCH_MESSAGES, range_.end - self._next),
            "max_bytes": _BATCH_BYTES,
        }
        if range_.filters:
            request["next_by_subj"] = range_.filters[0]
        subject = f"DIRECT.GET.{range_.stream}"
        connection.publish_api(subject, json.dumps(request).encode(), inbox)
        rows: list[Row] = []
        following = self._next
        try:
            for message in connection.messages(time.monotonic() + 4 * connection.options.timeout):
                if message.subject != inbox:
                    continue
                ended = self._ended(message)
                if ended is not None:
                    connection.unsubscribe(number)
                    # Advanced only now: a batch that a lost connection cut off is requested again as a whole.
                    self._next = following
                    return rows, ended
                row = _row(range_.stream, message)
                if row.offset < following:
                    raise StreamError(f"{subject}: message {row.offset} arrived after {following - 1}")
                following = row.offset + 1
                if row.offset < range_.end:
                    rows.append(row)
        except TimeoutError:
            connection.close()
            raise ConnectionLostError("a direct get was not answered to its end") from None
        raise AssertionError("messages() ends by raising only")

    def _ended(self, message: Message) -> bool | None:
        """Return None for a message; for a status, True if no messages remain after this batch."""
        status = message.status
        if status is None:
            return None
        if status.code == END_OF_BATCH:
            pending = dict(parse(message.headers)).get("Nats-Num-Pending", b"0")
            return not pending.strip(b"0")
        if status.code == NO_MESSAGES:
            return True
        if status.code == NO_RESPONDERS:
            raise StreamError(
                f"stream {self._range.stream!r} does not answer direct gets: it needs allow_direct for this", code=503
            )
        raise StreamError(f"stream {self._range.stream!r}: {status.text or 'refused'}", code=status.code)


def _row(stream: str, message: Message) -> Row:
    pairs = parse(message.headers)
    added = {name: value.decode("utf-8", "replace") for name, value in pairs if name in ADDED_BY_DIRECT_GETS}
    own = [(name, value) for name, value in pairs if name not in ADDED_BY_DIRECT_GETS]
    sequence = decimal(added.get("Nats-Sequence", ""), LARGEST_SEQUENCE)
    try:
        if sequence is not None:
            return row(added["Nats-Subject"], sequence, message.payload, own, added["Nats-Time-Stamp"])
    except (KeyError, ValueError):
        # Reported below, with all messages.
        pass
    raise StreamError(f"stream {stream!r}: the answer to a direct get has no position: {added!r:.200}")


class SubjectFilter:
    """Test of subjects against *filters*, with the server's rules for consumers; results are cached."""

    def __init__(self, filters: Sequence[str]) -> None:
        self._filters = tuple(filters)
        # To a mapping's source a token like *x is a wildcard, to a consumer's filter it is text.
        plain = all(
            token in (PARTIAL, FULL) or token[:1] != PARTIAL for filter_ in filters for token in filter_.split(".")
        )
        self._index = SourceIndex.build(filters) if plain else None
        self._known: dict[str, bool] = {}

    def of(self, batch: ArrowBatch) -> ArrowBatch:
        """Return the rows of a `turnout.nats.wire.records.SCHEMA` record batch whose topic matches, in order."""
        topics = batch.column("topic").dictionary_encode()
        passing = np.fromiter((self.passes(topic) for topic in topics.dictionary.to_pylist()), dtype=np.bool_)
        if passing.all():
            return batch
        return batch.filter(pa.array(passing[topics.indices.to_numpy()]))

    def passes(self, subject: str) -> bool:
        """Return True if one of the filters matches *subject*."""
        known = self._known.get(subject)
        if known is None:
            if len(self._known) >= _MAX_SUBJECTS:
                self._known.clear()
            known = self._known[subject] = self._matches(subject)
        return known

    def _matches(self, subject: str) -> bool:
        if self._index is None:
            return any(matches(filter_, subject) for filter_ in self._filters)
        tokens = subject.split(".")
        # A subject with an empty token, which only a stream's own transform makes, is matched by no filter.
        return "" not in tokens and self._index.first(subject, tokens) is not None


_MAX_SUBJECTS = 100_000
"""This many subjects are remembered; a stream where each message has its own would fill the memory."""


_BATCH_BYTES = 2 << 20


class RangeReader(Protocol):
    """Reader of one `Range`, usable once; same attributes as `turnout.nats.wire.pull.PullReader`."""

    @property
    def hole(self) -> int | None:
        """The lowest sequence that the last record batch steps over."""
        ...

    @property
    def next(self) -> int:
        """Sequence after the last message received."""
        ...

    def batches(self) -> Iterator[ArrowBatch]:
        """The record batches in the order of the stream."""
        ...


def reader_of(
    connection: Connection, range_: Range, strategy: ReadStrategy = ONE_CONSUMER, partition: int = 0
) -> RangeReader:
    """Return the reader of a range for a read strategy; all strategies read the same messages."""
    if strategy.kind == "by_sequence":
        return _sequence_reader(connection, range_)
    if strategy.kind == "wider_filter":
        wider = replace(range_, filters=strategy.cover)
        return FilteringReader(PullReader(connection, wider, partition, stream_end=strategy.stream_end), range_.filters)
    if strategy.kind == "per_filter":
        return PerFilterReader(connection, range_, strategy, partition)
    return PullReader(connection, range_, partition)


def _sequence_reader(connection: Connection, range_: Range) -> RangeReader:
    """Return a reader by sequence; several filters are read through their cover, as the server accepts only one."""
    if len(range_.filters) < 2:
        return DirectReader(connection, range_)
    return FilteringReader(DirectReader(connection, replace(range_, filters=(cover(range_.filters),))), range_.filters)


class FilteringReader:
    """Filters the output of another reader by *filters*; a batch may have no rows."""

    def __init__(self, reader: RangeReader, filters: Sequence[str]) -> None:
        self._reader = reader
        self._filter = SubjectFilter(filters)

    @property
    def hole(self) -> int | None:
        """First missing sequence, as in `PullReader`; messages filtered out here are not missing."""
        return self._reader.hole

    @property
    def next(self) -> int:
        """Sequence after the last message received, including filtered messages."""
        return self._reader.next

    def batches(self) -> Iterator[ArrowBatch]:
        """The record batches; raises as `turnout.nats.wire.pull.PullReader.batches`."""
        for batch in self._reader.batches():
            yield self._filter.of(batch)


class PerFilterReader:
    """Reads each filter with its own consumer, one after the other, for each step of the range.

    Attributes:
        hole: as with `turnout.nats.wire.pull.PullReader`.
        next: the sequence behind the last received one.
    """

    def __init__(self, connection: Connection, range_: Range, strategy: ReadStrategy, partition: int = 0) -> None:
        self._connection = connection
        self._range = range_
        self._strategy = strategy
        self._partition = partition
        self._begun = False
        self.hole: int | None = None
        self.next = max(1, range_.start)

    def batches(self) -> Iterator[ArrowBatch]:
        """The record batches; raises as `turnout.nats.wire.pull.PullReader.batches`."""
        step = self._strategy.step or self._range.end - self._range.start
        for start in range(self._range.start, self._range.end, step):
            for batch in self._read_step(start, min(self._range.end, start + step)):
                sequences = batch.column("offset").to_numpy()
                self.hole, self.next = hole(sequences, self.next), int(sequences[-1]) + 1
                yield batch

    def _read_step(self, start: int, end: int) -> Iterator[ArrowBatch]:
        batches: list[ArrowBatch] = []
        for filter_ in self._range.filters:
            part = replace(self._range, start=start, end=end, filters=(filter_,))
            reader = PullReader(
                self._connection, part, self._partition, stream_end=self._strategy.stream_end, begun=self._begun
            )
            batches += reader.batches()
            self._begun = True
        return _in_order(batches)


def _in_order(batches: list[ArrowBatch]) -> Iterator[ArrowBatch]:
    """Yield the rows of the batches in sequence order, in batches of about the usual read size."""
    if not any(batch.num_rows for batch in batches):
        return
    sequences = np.concatenate([batch.column("offset").to_numpy() for batch in batches])
    table = pa.Table.from_batches(batches, schema=SCHEMA)
    batches.clear()
    whole = table.combine_chunks().to_batches()[0]
    del table
    # The parts are ascending runs, which this sorting algorithm merges.
    order = np.argsort(sequences, kind="stable")
    # Filters may overlap without covering each other; the server does not refuse them.
    order = order[np.diff(sequences[order], prepend=-1) != 0]
    rows = max(1, int(len(order) * _BATCH_BYTES / max(1, whole.nbytes)))
    for first in range(0, len(order), rows):
        yield whole.take(pa.array(order[first : first + rows]))
