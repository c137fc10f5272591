"""Choice of the cheapest way to read the messages of a range on some of its subjects.

A consumer with one filter costs nats-server little, one with several a multiple: with each message it looks through its
filters and the subjects of a block anew. So where there are several filters, there are three strategies: that consumer,
one consumer for each filter, or one for a wider filter or none, whose messages are filtered here. All three give the
same messages in the same order; only the costs differ. `BY_SEQUENCE` is no choice of costs: it reads without any
consumer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from turnout.nats.wire.connection import Connection
from turnout.nats.wire.positions import StoredSequences, count_about, state_of
from turnout.subjects.tokens import FULL, PARTIAL

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
