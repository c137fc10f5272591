"""Finding frames in a buffer, against a reader that takes one byte after the other."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from turnout.nats.wire.frames import locate, numbers_before, windows

_FAKES = [
    b"",
    b"plain",
    b"MSG a.b 1 $JS.ACK.S.C.1.2.3.4.5 3\r\nabc\r\n",
    b"\r\nMSG x 1 7\r\n",
    b"\r\nHMSG x 1 12 99999999\r\n",
    b"\r\nPING\r\n",
    b"\nMSG \nHMSG \r\n\r\n",
    b"MSG a 1 99999999999999999999\r\n",
]
_payloads = st.one_of(st.sampled_from(_FAKES), st.binary(max_size=40))
_parts = st.lists(
    st.one_of(
        st.tuples(st.just("msg"), _payloads),
        st.tuples(st.just("hmsg"), _payloads),
        st.tuples(st.just("line"), st.sampled_from([b"PING", b"PONG", b"+OK", b"-ERR 'x'", b'INFO {"a":1}'])),
    ),
    max_size=12,
)


def _encode(part: tuple[str, bytes]) -> bytes:
    kind, data = part
    if kind == "line":
        return data + b"\r\n"
    if kind == "msg":
        return b"MSG s.a 1 $JS.ACK.S.C.1.2.3.4.5 %d\r\n%b\r\n" % (len(data), data)
    head = b"NATS/1.0\r\nA: b\r\n\r\n"
    return b"HMSG s.a 1 $JS.ACK.S.C.1.2.3.4.5 %d %d\r\n%b%b\r\n" % (len(head), len(head) + len(data), head, data)


@given(_parts, st.integers(0, 60), st.sampled_from([0.0, 10_000.0]))
def test_every_complete_frame_is_found_and_no_other(parts: list[tuple[str, bytes]], cut: int, usual: float) -> None:
    """Payloads that look like protocol change nothing, and a frame that is cut off waits for its rest."""
    encoded = [_encode(part) for part in parts]
    whole = b"".join(encoded)
    filled = max(0, len(whole) - cut)
    starts, lines, at = [], [], 0
    for (kind, data), raw in zip(parts, encoded, strict=True):
        if at + len(raw) > filled:
            break
        if kind == "line":
            lines.append(data)
        else:
            starts.append(at)
        at += len(raw)
    memory = bytearray(whole[:filled]) + bytearray(b"\r\nMSG junk 1 2\r\n")

    located = locate(memory, filled, usual)

    assert (located.start.tolist(), located.lines, located.consumed) == (starts, lines, at)


@given(st.lists(st.integers(0, 2**62), min_size=1, max_size=20))
def test_numbers_are_read_from_their_end(values: list[int]) -> None:
    """Numbers of any length up to nineteen digits, behind a dot or a blank."""
    memory = bytearray(b"........")
    ends = []
    for index, value in enumerate(values):
        memory += b" ."[index % 2 : index % 2 + 1] + str(value).encode()
        ends.append(len(memory))
    memory += b"\r\n"

    read, begins = numbers_before(windows(memory, len(memory), "<u8"), np.array(ends))

    assert read.tolist() == values
    assert (np.array(ends) - begins).tolist() == [len(str(value)) for value in values]
