"""Decoding of few frames one by one, against the vectorised way."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnout.errors import TurnoutError
from turnout.nats.protocol.frames import MAX_MESSAGE_BYTES
from turnout.nats.wire.frames import locate
from turnout.nats.wire.listed import Listed
from turnout.nats.wire.records import Received, decode

TOKENS = st.sampled_from(["a", "orders", "Ä", "x" * 40])
NUMBERS = st.integers(0, 10**6) | st.integers(10**18, 2**63 - 1) | st.integers(2**63 - 1, 10**20)
USUAL_LEADS = st.sampled_from(["$JS.ACK.S.C", "$JS.ACK.hub.ACC.S.C"])
LEADS = USUAL_LEADS | st.sampled_from(["$JS.ACK.S", "$JS.ACK.hub.ACC.S.C.R", "other.S.C.D.E"])
VALUES = st.binary(max_size=4).map(lambda raw: b" \t " + raw.translate(None, b"\r\n"))
NAMED = st.builds(
    lambda name, value: name + b":" + value + b"\r\n", st.sampled_from([b"Nats-Msg-Id", b"A", b"\xff"]), VALUES
)
LINES = NAMED | st.sampled_from([b"no colon\r\n", b": no name\r\n", b"\r\n", b"lone feed: x\n"])
USUAL_BLOCKS = st.none() | st.lists(LINES, max_size=3).map(lambda lines: b"NATS/1.0\r\n" + b"".join(lines) + b"\r\n")
BLOCKS = USUAL_BLOCKS | st.sampled_from([b"NATS/1.0 408 Request Timeout\r\n\r\n", b"NATS/1.0\r\n", b"", b"x\n"])
PAYLOADS = st.sampled_from([b"", b"x", b'{"n": 1}', b"MSG a 1 0\r\n\r\n", b"\xff" * 30])


@st.composite
def frames(draw: st.DrawFn, usual: bool) -> bytes:
    """One frame of a server, or of one that is none."""
    lead = draw(USUAL_LEADS if usual else LEADS)
    numbers = [draw(st.integers(0, 2**63 - 1) if usual else NUMBERS) for _ in range(5)]
    reply = ".".join([lead, *map(str, numbers)]) if usual or draw(st.integers(0, 9)) else ""
    subject = ".".join(draw(st.lists(TOKENS, min_size=1, max_size=3)))
    block, payload = draw(USUAL_BLOCKS if usual else BLOCKS), draw(PAYLOADS)
    words = [subject, draw(st.sampled_from(["1", "17"])), *([reply] if reply else [])]
    if block is None:
        head = " ".join(["MSG", *words, str(len(payload))])
        return head.encode() + b"\r\n" + payload + b"\r\n"
    head = " ".join(["HMSG", *words, str(len(block)), str(len(block) + len(payload))])
    return head.encode() + b"\r\n" + block + payload + b"\r\n"


def read_many(memory: bytearray) -> tuple[Received, int] | str:
    try:
        located = locate(memory, len(memory))
        return decode(memory, len(memory), located, 3), located.consumed
    except TurnoutError as failure:
        return f"{type(failure).__name__}: {failure}"


@given(st.booleans().flatmap(lambda usual: st.lists(frames(usual), min_size=1, max_size=6)), st.integers(0, 40))
def test_few_frames_are_decoded_as_many_are(sent: list[bytes], cut: int) -> None:
    """For any contents, columns, sequences and sizes are the same; what is not usual is left to the other way."""
    whole = b"".join(sent)
    memory = bytearray(whole[: len(whole) - cut])

    expected, read = read_many(memory), Listed.read(memory, len(memory), MAX_MESSAGE_BYTES)

    if read is None:
        return
    assert not isinstance(expected, str), expected
    many, few = expected[0], Received.of_listed(read[0], 3)
    assert read[1] == expected[1]
    assert [column.to_pylist() for column in few.columns] == [column.to_pylist() for column in many.columns]
    assert [column.type for column in few.columns] == [column.type for column in many.columns]
    for name in ("sequences", "consumer_sequences", "sizes"):
        assert np.array_equal(getattr(few, name), getattr(many, name))
    assert (few.pending, few.statuses) == (many.pending, many.statuses)


def test_usual_frames_are_decoded_one_by_one() -> None:
    """With and without headers; a status is left to the vectorised way."""
    plain = b"MSG a.b 1 $JS.ACK.S.C.1.7.8.1700000000000000000.2 1\r\nx\r\n"
    headed = b"HMSG a.b 1 $JS.ACK.S.C.1.9.10.1700000000000000000.1 18 19\r\nNATS/1.0\r\nA: b\r\n\r\ny\r\n"
    memory = bytearray(plain + headed)
    read = Listed.read(memory, len(memory), MAX_MESSAGE_BYTES)

    assert read is not None
    few = Received.of_listed(read[0])
    assert few.sequences == (7, 9)
    assert few.columns[4].to_pylist() == [b"x", b"y"]
    assert few.columns[5].to_pylist() == [None, [{"key": "A", "value": b"b"}]]
    assert read[1] == len(memory)


UNUSUAL = {
    "status": b"HMSG i 1 28 28\r\nNATS/1.0 404 No Messages\r\n\r\n\r\n",
    "other line": b"PING\r\n",
    "no position": b"MSG a.b 1 other 1\r\nx\r\n",
    "blank in the subject": b"MSG a\tb 1 $JS.ACK.S.C.1.7.8.1700000000000000000.2 1\r\nx\r\n",
    "wrong size": b"MSG a.b 1 $JS.ACK.S.C.1.7.8.1700000000000000000.2 1\r\nxyz\r\n",
    "too large": b"MSG a.b 1 $JS.ACK.S.C.1.7.8.1700000000000000000.2 9999999999\r\nx\r\n",
    "large sequence": b"MSG a.b 1 $JS.ACK.S.C.1.9999999999999999999.8.1700000000000000000.2 1\r\nx\r\n",
    "headers as large as the message": b"HMSG a.b 1 $JS.ACK.S.C.1.7.8.1.2 12 12\r\nNATS/1.0\r\n\r\n\r\n",
}


@pytest.mark.parametrize("frame", UNUSUAL.values(), ids=UNUSUAL)
def test_unusual_frames_are_left_to_the_vectorised_way(frame: bytes) -> None:
    plain = b"MSG a.b 1 $JS.ACK.S.C.1.7.8.1700000000000000000.2 1\r\nx\r\n"
    memory = bytearray(plain + frame)

    assert Listed.read(memory, len(memory), MAX_MESSAGE_BYTES) is None
    assert Listed.read(memory, len(plain), MAX_MESSAGE_BYTES) is not None


def test_an_incomplete_frame_stays_in_the_buffer() -> None:
    plain = b"MSG a.b 1 $JS.ACK.S.C.1.7.8.1700000000000000000.2 1\r\nx\r\n"
    memory = bytearray(plain + plain)

    for filled in range(len(plain), 2 * len(plain)):
        read = Listed.read(memory, filled, MAX_MESSAGE_BYTES)
        assert read is not None
        assert read[1] == len(plain)
    assert Listed.read(memory, len(plain) - 1, MAX_MESSAGE_BYTES) is None
