"""Clients of Kafka with options that they do not know."""

from __future__ import annotations

import random
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnout.errors import ConfigError
from turnout.kafka.clients import ErrorWatch, PartitionProgress, consumer_of, polled, producer_of
from turnout.kafka.options import KafkaOptions

if TYPE_CHECKING:
    from confluent_kafka import Consumer


class Arriving:
    """Consumer whose messages arrive at times."""

    def __init__(self, *messages: tuple[float, str | None]) -> None:
        begun = time.monotonic()
        self._messages = [(begun + at, SimpleNamespace(error=lambda error=error: error)) for at, error in messages]

    def consume(self, most: int, seconds: float) -> list[SimpleNamespace]:
        until = time.monotonic() + seconds
        while self._messages and self._messages[0][0] > time.monotonic() and time.monotonic() < until:
            time.sleep(0.01)
        taken = [message for at, message in self._messages[:most] if at <= time.monotonic()]
        del self._messages[: len(taken)]
        return taken


def test_records_are_gathered_behind_the_first() -> None:
    """Those that come shortly after the first one are polled with it; behind the end of a partition none is awaited."""
    record, end = None, "_PARTITION_EOF"

    def sizes(*messages: tuple[float, str | None], gather: float) -> list[int]:
        consumer = cast("Consumer", Arriving(*messages))
        return [len(polled(consumer, 5, 10, gather)) for _ in range(2)]

    assert sizes((0, record), (0.2, record), gather=1.0) == [2, 0]
    assert sizes((0, record), (0.2, record), gather=0.0) == [1, 1]
    assert sizes((0, end), (0.2, record), gather=1.0) == [1, 1]


def test_a_property_that_the_client_does_not_know() -> None:
    """An unknown property is a mistake of the options; values are not repeated."""
    for make in (consumer_of, producer_of):
        with pytest.raises(ConfigError, match=r'No such configuration property: "no\.such"') as refused:
            make(KafkaOptions.of("a:1", client={"no.such": "hidden"}), ErrorWatch())

        assert "hidden" not in str(refused.value)


OFFSETS = 60


@given(
    kept=st.sets(st.integers(0, OFFSETS - 1)),
    rounds=st.lists(st.tuples(st.integers(0, OFFSETS), st.randoms(use_true_random=False)), max_size=5),
    removed=st.sets(st.integers(0, OFFSETS - 1), max_size=5),
)
def test_kills(kept: set[int], rounds: list[tuple[int, random.Random]], removed: set[int]) -> None:
    """After a kill a successor reads from the commit, and gets each record that is not finished and no other."""
    finished: set[int] = set()
    place: tuple[int, str] = (0, "")
    log = sorted(kept)
    for count, draw in rounds:
        progress = PartitionProgress(*place)
        assert progress.next == place[0]
        seen = [offset for offset in log if offset >= place[0]][:count]
        given_out = [offset for offset in seen if progress.begin(offset)]
        assert given_out == [offset for offset in seen if offset not in finished]
        done = [offset for offset in given_out if draw.random() < 0.5]
        draw.shuffle(done)
        for offset in done:
            progress.end(offset)
        finished |= set(done)
        place = progress.commit()
        assert not [offset for offset in log if offset < place[0] and offset not in finished]
        # Compaction and limits take records away, also those that wait.
        log = [offset for offset in log if offset not in removed]

    progress = PartitionProgress(*place)
    rest = [offset for offset in log if offset >= place[0] and progress.begin(offset)]
    progress.skip(OFFSETS)
    assert set(rest) == {offset for offset in log if offset not in finished}
    for offset in rest:
        progress.end(offset)
    assert progress.commit() == (OFFSETS, "")
    assert progress.unfinished == 0


def test_more_than_a_note_holds() -> None:
    """With more unfinished offsets than a note holds none is taken for finished, and most finished ones are known."""
    draw = random.Random(7)
    progress = PartitionProgress(0)
    for offset in range(100_000):
        progress.begin(offset)
    unfinished = set(draw.sample(range(100_000), 30_000))
    for offset in range(100_000):
        if offset not in unfinished:
            progress.end(offset)
    offset, note = progress.commit()

    assert len(note) <= 4_096
    successor = PartitionProgress(offset, note)
    again = {offset for offset in range(offset, 100_000) if successor.begin(offset)}
    assert unfinished <= again
    assert len(again) < 100_000 - offset


def test_foreign_notes() -> None:
    """A foreign or damaged entry makes all work after the offset unfinished."""
    progress = PartitionProgress(5)
    for offset in (5, 6, 7):
        progress.begin(offset)
    progress.end(6)
    _, note = progress.commit()
    for foreign in ("", "checkpoint 7", "1:", "1:!!", note[:-4], "1:AAAA", "1:" + "A" * 5_000):
        successor = PartitionProgress(5, foreign)
        assert [successor.begin(offset) for offset in (5, 6, 7)] == [True, True, True]
