"""The ways to read some subjects of a range: all give the same in the stream's order, and the cheapest is taken."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.nats.wire.samples import PATTERNS, sparse_stream

from turnout.errors import StreamError
from turnout.nats.wire import Connection
from turnout.nats.wire.read_strategy import ONE_CONSUMER, WHOLE_STREAM, ReadCost, choose_strategy, cover
from turnout.subjects.pattern import is_subset


@pytest.fixture
def stream(connection: Connection) -> Iterator[str]:
    with sparse_stream(connection) as name:
        yield name


@pytest.mark.jetstream
def test_a_way_for_a_real_range(connection: Connection, stream: str) -> None:
    """Little of much is read by filters, most of it whole, a small range whole; a filter within another is refused."""
    rare = tuple(f"{stream}.a.{n}" for n in range(2))

    assert choose_strategy(connection, stream, 1, 6002, (f"{stream}.a.*",)) == ONE_CONSUMER
    assert choose_strategy(connection, stream, 1, 6002, (f"{stream}.none", f"{stream}.no.*")) == ONE_CONSUMER
    letters = tuple(f"{stream}.{letter}.*" for letter in "abc")
    assert choose_strategy(connection, stream, 1, 6002, letters) == WHOLE_STREAM
    assert choose_strategy(connection, stream, 1, 1000, rare) == WHOLE_STREAM
    assert choose_strategy(connection, stream, 1, 1, rare) == ONE_CONSUMER
    with pytest.raises(StreamError, match="overlap"):
        choose_strategy(connection, stream, 1, 6002, (f"{stream}.a.*", f"{stream}.a.1"))


def test_what_costs_least() -> None:
    """The order of the ways that was measured, at 100,000 messages of 300 bytes."""
    cost = ReadCost(100_000, 300)

    # 30 filters, 112 messages: 0.02 s against 0.15 s and 0.6 s.
    assert cost.one_consumer(112) < min(cost.per_filter(112, 30), cost.whole())
    # 10 filters, 10,055 messages: 3.0 s against 0.47 s and 0.6 s.
    assert cost.per_filter(10_055, 10) < cost.whole() < cost.one_consumer(10_055)
    # 30 filters, 30,022 messages: 11 s against 1.5 s and 0.6 s.
    assert cost.whole() < cost.per_filter(30_022, 30) < cost.one_consumer(30_022)


@given(st.lists(PATTERNS, min_size=1, max_size=5))
def test_a_cover_is_wide_enough(filters: list[str]) -> None:
    """It is a superset of each filter, and one filter is its own."""
    wider = cover(filters)

    assert all(is_subset(filter_, wider) for filter_ in filters)
    assert cover(filters[:1]) == filters[0]


def test_covers() -> None:
    """Tokens that are the same stay, also before what differs in length."""
    assert cover(["a.JFK.*.UA", "a.JFK.*.B6"]) == "a.JFK.*.*"
    assert cover(["a.b.c", "a.b.>"]) == cover(["a.b.c", "a.b.d.e"]) == "a.b.>"
    assert cover(["a.b", "a.b.c"]) == "a.>"
    assert cover(["a", "b.c"]) == ">"
