"""Unacknowledged messages of a publisher."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from turnout.nats.wire._window import Answers, TrackedChunk, Window
from turnout.nats.wire.packing import PublishedColumns, id_lines


def test_an_answer_that_comes_twice_counts_once() -> None:
    """Messages with numbers of their own: what is done is not sent again, nor counted again."""
    messages = PublishedColumns(pa.array(["a", "b", "c"]), pa.array([b"1", b"2", b"3"], type=pa.binary()), None)
    chunk = TrackedChunk(messages, b"_INBOX.x.", 10)
    known = np.array([1, 1, 0, 0])

    assert chunk.acknowledge(Answers(np.array([11, 11, 9, 13]), known)) == 1
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
    window.acknowledge(Answers(np.array([1, 1]), np.array([0, 1])))
    window.track(first) if again == "apart" else window.renew()
    window.late(1, known=False)
    numbers = [2, 3, 4] if again == "apart" else [2, 2, 2]
    window.acknowledge(Answers(np.array(numbers), np.array([1, 1, 1])))

    (chunk,) = window.let_go()
    assert (chunk.duplicates, chunk.stored_before) == (3, 2)
    assert window.holder(2) is None
