"""Reading of answers to published messages."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnout.nats.wire._window import Answers
from turnout.nats.wire.records import locate

STORED = '{"stream":"OUT", "seq":%d}'
KNOWN = '{"stream":"OUT", "seq":%d,"duplicate": true}'


def frame(number: int, text: str) -> bytes:
    return f"MSG _INBOX.x.{number} 1 {len(text)}\r\n{text}\r\n".encode()


@given(
    st.lists(st.tuples(st.integers(0, 10**17), st.integers(1, 10**6), st.booleans()), min_size=1, max_size=30),
    st.integers(0, 30),
)
def test_answers_are_read(sent: list[tuple[int, int, bool]], cut: int) -> None:
    """Each has its number and whether the stream knew the message; of an incomplete last one nothing is taken."""
    frames = [frame(number, (KNOWN if known else STORED) % sequence) for number, sequence, known in sent]
    memory = bytearray(b"".join(frames)[: sum(map(len, frames)) - cut])
    located = locate(memory, len(memory))

    answers = Answers.read(memory, located)

    assert answers is not None
    whole = sent[: len(located)]
    assert len(whole) >= len(sent) - 1
    assert answers.numbers.tolist() == [number for number, _, _ in whole]
    assert answers.known.tolist() == [int(known) for _, _, known in whole]


OTHERS = {
    "refusal": frame(7, '{"error":{"code":503},"seq":0}'),
    "no sequence": frame(7, '{"stream":"OUT"}'),
    "several sequences": frame(7, '{"seq":1, "a":{"seq":2}}'),
    "no number": b'MSG _INBOX.x.y 1 9\r\n{"seq":1}\r\n',
    "large number": frame(10**19, STORED % 1),
    "headers": b"HMSG _INBOX.x.7 1 28 28\r\nNATS/1.0 503 No Messages\r\n\r\n\r\n",
}


@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS)
def test_other_answers_are_left_to_the_publisher(other: bytes) -> None:
    """One of another form among the usual ones, and behind a line that is no message."""
    memory = bytearray(frame(6, STORED % 1) + b"PING\r\n" + other + frame(8, STORED % 2))
    located = locate(memory, len(memory))

    assert len(located) == 3
    assert Answers.read(memory, located) is None


def test_answers_are_counted_by_their_number() -> None:
    """Several messages may have one reply subject."""
    answers = Answers(np.array([7, 8, 7, 7]), np.array([0, 0, 1, 0]))

    assert answers.counts == ({7: 3, 8: 1}, {7: 1})
