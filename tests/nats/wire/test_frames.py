"""Finding frames in a buffer, against a reader that takes one byte after the other."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from turnout.loops.frames import START
from turnout.nats.wire.frames import locate

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


@given(_parts, st.integers(0, 60))
def test_every_complete_frame_is_found_and_no_other(parts: list[tuple[str, bytes]], cut: int) -> None:
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

    located = locate(memory, filled)

    assert (located.column(START).tolist(), located.lines, located.consumed) == (starts, lines, at)


def test_more_frames_than_the_table_has_columns() -> None:
    """The table grows, and what was found stays."""
    memory = bytearray(b"MSG a 1 1\r\nx\r\nPING\r\n" * 1000)

    located = locate(memory, len(memory))

    assert located.column(START).tolist() == list(range(0, 20_000, 20))
    assert len(located.lines) == 1000
