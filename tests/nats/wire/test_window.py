"""Unacknowledged messages of a publisher."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from turnout.nats.wire._window import PublishedMessages, TrackedChunk


def test_an_answer_that_comes_twice_counts_once() -> None:
    """Messages with numbers of their own: what is done is not sent again, nor counted again."""
    messages = PublishedMessages(pa.array(["a", "b", "c"]), pa.array([b"1", b"2", b"3"], type=pa.binary()), None)
    chunk = TrackedChunk(messages, b"_INBOX.x.", 10)
    known = np.array([True, True, False, False])

    assert chunk.acknowledge(np.array([11, 11, 9, 13]), known) == 1
    assert (chunk.left, chunk.duplicates) == (2, 1)
    assert chunk.waiting() == b"PUB a _INBOX.x.10 1\r\n1\r\nPUB c _INBOX.x.12 1\r\n3\r\n"
    assert (chunk.holds(11), chunk.holds(12), chunk.holds(13)) == (False, True, False)
