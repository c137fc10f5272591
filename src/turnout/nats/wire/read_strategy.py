"""Choice of the cheapest way to read the messages of a range on some of its subjects.

A consumer with one filter costs nats-server little, one with several a multiple: with each message it looks through its
filters and the subjects of a block anew. So where there are several, there are three ways: that consumer, one consumer
for each filter, or one for a wider filter, or none, with what is not wanted left out here. All three give the same
messages in the same order; only the costs differ. `BESIDE` is no choice of costs: it reads without any consumer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from turnout.nats.wire.connection import Connection
from turnout.nats.wire.positions import StoredSequences, count_about, state_of
from turnout.subjects.tokens import FULL, PARTIAL

Kind = Literal["together", "apart", "sieved", "beside"]


@dataclass(frozen=True, slots=True)
class ReadStrategy:
    """Strategy for reading the messages of a range that match some filters.

    Attributes:
        kind: ``together``, one consumer with all filters; ``apart``, one for each; ``sieved``, one for *cover*, of
            whose messages the others are left out here; ``beside``, none at all, but by sequence.
        cover: a filter that every subject in question matches; none for the whole stream.
        piece: into how many sequences the range is cut, for ``apart``: so much is held before it is put in order.
        stream_end: the sequence behind the stream's last when this was planned; 0 for unknown.
    """

    kind: Kind = "together"
    cover: tuple[str, ...] = ()
    piece: int = 0
    stream_end: int = 0


TOGETHER: Final = ReadStrategy()
WHOLE: Final = ReadStrategy("sieved")
BESIDE: Final = ReadStrategy("beside")
"""For streams whose messages go when their consumers acknowledge them, read by one that is none of these: a consumer
would be refused by a work queue, and would have a say in what an interest stream keeps."""


def observer_strategy(state: StoredSequences) -> ReadStrategy:
    """Return the strategy for observers: by sequence on work-queue and interest streams, without a consumer."""
    return BESIDE if state.consumed else TOGETHER


# In microseconds. The first three are for a message that a consumer delivers, the next for one that a filter passes by.
_WHOLE: Final = 6.0
_FILTERED: Final = 17.0
_TOGETHER: Final = 500.0
_PASSED_BY: Final = 0.2
_CONSUMER: Final = 2500.0
_BYTE: Final = 0.002


@dataclass(frozen=True, slots=True)
class ReadCost:
    """Estimates of the processor time, in microseconds, that a range takes of server and reader together.

    The factors were measured with nats-server 2.15.1, a file store, 100,000 messages of 300 bytes, 1 to 30 filters on
    streams of 361 to 100,000 subjects. They are rough; the ways differ by more. Each byte that moves is set at 2 ns, so
    that large messages are less readily read for nothing.

    Attributes:
        length: how many sequences the range has.
        mean_bytes: the mean size of the stream's messages.
    """

    length: int
    mean_bytes: float

    def _moved(self, messages: int) -> float:
        return messages * self.mean_bytes * _BYTE

    def whole(self) -> float:
        """Return the cost of one consumer without a filter."""
        return self.length * _WHOLE + self._moved(self.length) + _CONSUMER

    def apart(self, messages: int, filters: int, pieces: int = 1) -> float:
        """*filters* consumers with one filter each, *messages* in all; each also scans the others' messages."""
        each = self.length * _PASSED_BY + pieces * _CONSUMER
        return messages * _FILTERED + self._moved(messages) + filters * each

    def together(self, messages: int) -> float:
        """Return the cost of one consumer with several filters; their number does not matter."""
        return messages * _TOGETHER + self._moved(messages) + _CONSUMER


_QUESTIONS: Final = 20_000.0
"""Where the whole range costs less than this, it is not worth asking what else would."""

_HELD: Final = 32 << 20
"""This many bytes of messages are put in order at once: Spark's workers hold several times that anyway. A piece costs a
consumer for each filter, so it should not be small either."""

_SHORTEST_PIECE: Final = 1000


def choose_strategy(connection: Connection, stream: str, start: int, end: int, filters: Sequence[str]) -> ReadStrategy:
    """The cheapest way to read what a range holds on *filters*.

    It asks for the stream's state, and, where the range is not small, counts with consumers that deliver nothing. The
    counts are of this moment and near enough: nothing but the costs depends on them.

    Raises:
        StreamError: when there is no such stream, or it may not be asked.
    """
    if len(filters) < 2 or end <= start:
        return TOGETHER
    state = state_of(connection, stream)
    cost = ReadCost(end - start, state.mean_bytes)
    if cost.whole() <= _QUESTIONS:
        return WHOLE
    messages = count_about(connection, stream, start, end, filters)
    piece = _piece(cost, messages)
    ways = [
        (cost.whole(), WHOLE),
        (cost.together(messages), TOGETHER),
        (cost.apart(messages, len(filters), -(-cost.length // piece)), ReadStrategy("apart", (), piece, state.next)),
    ]
    wider = cover(filters)
    if wider != FULL and cost.apart(messages, 1) < min(ways, key=_first)[0]:
        covered = count_about(connection, stream, start, end, (wider,))
        ways.append((cost.apart(covered, 1), ReadStrategy("sieved", (wider,), 0, state.next)))
    return min(ways, key=_first)[1]


def _first(way: tuple[float, ReadStrategy]) -> float:
    return way[0]


def _piece(cost: ReadCost, messages: int) -> int:
    size = messages * cost.mean_bytes
    return cost.length if size <= _HELD else max(_SHORTEST_PIECE, int(cost.length * _HELD / size))


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
    # What is shorter than one of the filters is matched by none that ends in ``>`` there.
    if any(len(parts) == shortest for parts in split):
        tokens = tokens[:-1]
    return ".".join([*tokens, FULL])
