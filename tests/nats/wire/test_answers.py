"""Reading of a few answers one by one, against the vectorised way."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnout.nats.wire._answers import Answers
from turnout.nats.wire.frames import locate

STORED = '{"stream":"OUT", "seq":%d}'
KNOWN = '{"stream":"OUT", "seq":%d,"duplicate": true}'


def frame(number: int, text: str) -> bytes:
    return f"MSG _INBOX.x.{number} 1 {len(text)}\r\n{text}\r\n".encode()


@given(
    st.lists(st.tuples(st.integers(0, 10**17), st.integers(1, 10**6), st.booleans()), min_size=1, max_size=30),
    st.integers(0, 30),
)
def test_few_answers_are_read_as_many_are(answers: list[tuple[int, int, bool]], cut: int) -> None:
    """Of an incomplete last one nothing is taken."""
    whole = b"".join(frame(number, (KNOWN if known else STORED) % sequence) for number, sequence, known in answers)
    memory = bytearray(whole[: len(whole) - cut])

    few = Answers.read_few(memory, len(memory))

    located = locate(memory, len(memory))
    if few is None:
        # A whole line is behind the last whole frame.
        assert cut
        return
    many = Answers.read_many(memory, len(memory), located)
    assert many is not None
    assert few[1] == located.consumed
    assert np.array_equal(few[0].numbers, many.numbers)
    assert np.array_equal(few[0].known, many.known)


OTHERS = {
    "refusal": frame(7, '{"error":{"code":503},"seq":0}'),
    "no sequence": frame(7, '{"stream":"OUT"}'),
    "several sequences": frame(7, '{"seq":1, "a":{"seq":2}}'),
    "wrong size": b'MSG _INBOX.x.7 1 9\r\n{"seq":1}x\r\n',
    "no number": b'MSG _INBOX.x.y 1 9\r\n{"seq":1}\r\n',
    "headers": b"HMSG _INBOX.x.7 1 28 28\r\nNATS/1.0 503 No Messages\r\n\r\n\r\n",
    "other line": b"PING\r\n",
}


@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS)
def test_other_answers_are_left_to_the_publisher(other: bytes) -> None:
    memory = bytearray(frame(6, STORED % 1) + other + frame(8, STORED % 2))

    assert Answers.read_few(memory, len(memory)) is None


def test_answers_are_counted_by_their_number() -> None:
    answers = Answers(np.array([7, 8, 7, 7]), np.array([False, False, True, False]))

    assert answers.counts == ({7: 3, 8: 1}, {7: 1})
