"""Unacknowledged messages of a publisher."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnout.nats.wire._published import PublishedColumns, PublishedLists, PublishedMessages, small_enough
from turnout.nats.wire._window import TrackedChunk, Window
from turnout.nats.wire.packing import id_lines


def test_an_answer_that_comes_twice_counts_once() -> None:
    """Messages with numbers of their own: what is done is not sent again, nor counted again."""
    messages = PublishedColumns(pa.array(["a", "b", "c"]), pa.array([b"1", b"2", b"3"], type=pa.binary()), None)
    chunk = TrackedChunk(messages, b"_INBOX.x.", 10)
    known = np.array([True, True, False, False])

    assert chunk.acknowledge(np.array([11, 11, 9, 13]), known) == 1
    assert (chunk.left, chunk.duplicates) == (2, 1)
    assert chunk.waiting() == b"PUB a _INBOX.x.10 1\r\n1\r\nPUB c _INBOX.x.12 1\r\n3\r\n"
    assert (chunk.holds(11), chunk.holds(12), chunk.holds(13)) == (False, True, False)


@pytest.mark.parametrize("again", ["apart", "renew"])
def test_messages_that_are_sent_again(again: str) -> None:
    """Answers to the first sending, early and late, tell how many of its messages were new to the stream."""
    lines = id_lines(pa.array(["1", "2", "3"]))
    window = Window(b"_INBOX.x.")
    window.add(PublishedColumns(pa.array(["a"] * 3), pa.array([b""] * 3, type=pa.binary()), lines))
    first = window.holder(1)
    assert first is not None
    window.acknowledge(np.array([1, 1]), np.array([False, True]))
    window.track(first) if again == "apart" else window.renew()
    window.late(1, known=False)
    numbers = [2, 3, 4] if again == "apart" else [2, 2, 2]
    window.acknowledge(np.array(numbers), np.array([True, True, True]))

    (chunk,) = window.let_go()
    assert (chunk.duplicates, chunk.stored_before) == (3, 2)
    assert window.holder(2) is None


_LINES = st.sampled_from([b"", b"Nats-Msg-Id: 1\r\n", b"A: b\r\n"])
_MESSAGES = st.lists(
    st.tuples(st.sampled_from(["a", "b.c", "Ä"]), st.binary(max_size=4), _LINES), min_size=1, max_size=4
)


@given(_MESSAGES, st.booleans(), st.integers(10, 60))
def test_messages_as_lists(messages: list[tuple[str, bytes, bytes]], headed: bool, limit: int) -> None:
    """Messages as lists are sent, refused and found as those with arrays are."""
    subjects, payloads, lines = map(list, zip(*messages, strict=True))

    def of(few: bool) -> tuple[PublishedMessages, list[int]]:
        refused: list[int] = []
        heads = lines if headed else None
        if few:
            return PublishedLists(subjects, payloads, heads, lambda row, _: refused.append(row)), refused
        columns = pa.array(subjects), pa.array(payloads, pa.binary()), pa.array(heads, pa.binary()) if headed else None
        rows = np.arange(len(messages))
        return PublishedColumns(*columns, lambda row, _: refused.append(row), rows), refused

    (few, few_refused), (many, many_refused) = of(True), of(False)
    assert few.have_ids() == many.have_ids()
    assert set(few.distinct_subjects()) == set(many.distinct_subjects())
    for replies in (b"r", pa.array([b"%d" % number for number in range(len(messages))])):
        (one, edges), (other, other_edges) = few.frames(replies), many.frames(replies)
        assert (bytes(memoryview(one)), edges.tolist()) == (bytes(memoryview(other)), other_edges.tolist())
    rest, other_rest = small_enough(few, limit), small_enough(many, limit)
    assert few_refused == many_refused
    assert rest.subjects.to_pylist() == other_rest.subjects.to_pylist()
    chunk, other_chunk = (TrackedChunk(own, b"i.", 1) for own in (few, many))
    assert chunk.waiting_on("a") == other_chunk.waiting_on("a")
    assert chunk.waiting() == other_chunk.waiting()
