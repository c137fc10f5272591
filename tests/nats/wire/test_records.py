"""Messages of frames as columns and as lists, against the strict parsers of one message."""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate
from typing import TypeVar

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnout.errors import TurnoutError
from turnout.loops.frames import CONSUMER_SEQUENCE, SIZE, START
from turnout.nats.protocol.errors import BrokenFrameError, NotJetStreamMessageError
from turnout.nats.protocol.frames import MessageLine
from turnout.nats.protocol.headers import MESSAGE_ID, parse
from turnout.nats.protocol.positions import JSAck
from turnout.nats.wire.records import SCHEMA, Received, decode, locate

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


Result = TypeVar("Result")
Message = tuple[str, int, int, int, bytes | None, bytes, list[tuple[str, bytes]]]
"""Topic, sequence, consumer's sequence, time in microseconds, id, payload, headers."""


def read_singly(frame: bytes) -> tuple[Message, int] | bytes:
    """Read a frame as the specifications say; return its message and how much of a request it uses, or the status."""
    line, _, body = frame.partition(b"\r\n")
    parsed = MessageLine.parse(line)
    block, payload = body[: parsed.head], body[parsed.head : parsed.total]
    if not payload and len(block) > 9 and block[8:9] == b" ":
        return block
    ack = JSAck.parse(parsed.reply)
    if max(ack.stream_seq, ack.consumer_seq, ack.timestamp_ns, ack.num_pending) >= 1 << 63:
        raise NotJetStreamMessageError(parsed.reply, "has a number that does not fit")
    pairs = parse(block)
    key = next((value for name, value in pairs if name == MESSAGE_ID), None)
    size = len(parsed.subject.encode()) + len(parsed.reply) + parsed.total
    time = ack.timestamp_ns // 1000
    return (parsed.subject, ack.stream_seq, ack.consumer_seq, time, key, payload, pairs), size


def messages_of(received: Received) -> list[Message]:
    batch = received.batch(len(received))
    batch.validate(full=True)
    assert batch.schema.equals(SCHEMA)
    columns = {name: batch.column(name).to_pylist() for name in ("topic", "offset", "key", "value", "headers")}
    times = batch.column("timestamp").cast(pa.int64()).to_pylist()
    lists = columns["headers"]
    assert [] not in lists
    pairs = [[(pair["key"], pair["value"]) for pair in own or ()] for own in lists]
    numbers = received.positions[CONSUMER_SEQUENCE, : len(received)].tolist()
    texts = zip(
        columns["topic"], columns["offset"], numbers, times, columns["key"], columns["value"], pairs, strict=True
    )
    return list(texts)


def outcome(work: Callable[[], Result]) -> Result | type[TurnoutError]:
    """Return the result, or the class of the error."""
    try:
        return work()
    except TurnoutError as failure:
        return type(failure)


@given(st.booleans().flatmap(lambda usual: st.lists(frames(usual), min_size=1, max_size=6)), st.integers(0, 40))
def test_messages_are_what_each_frame_says(sent: list[bytes], cut: int) -> None:
    """Columns, positions, sizes and statuses of any contents; an error of one frame is an error of the buffer."""
    whole = b"".join(sent)
    filled = len(whole) - cut
    memory = bytearray(whole[:filled])
    ends = list(accumulate(map(len, sent)))
    complete = sent[: sum(end <= filled for end in ends)]
    expected = outcome(lambda: [read_singly(one) for one in complete])
    received = outcome(lambda: decode(memory, locate(memory, filled)))

    if isinstance(expected, type) or isinstance(received, type):
        # A frame that is cut off may be refused for its line as well.
        assert received is (expected if isinstance(expected, type) else BrokenFrameError)
        return
    messages = [one for one in expected if not isinstance(one, bytes)]
    assert messages_of(received) == [message for message, _ in messages]
    assert received.positions[SIZE, : len(received)].tolist() == [size for _, size in messages]
    assert [block for _, _, block in received.statuses] == [one for one in expected if isinstance(one, bytes)]
    assert len(received.data) == sum(map(len, complete))
    if messages:
        listed = received.listed("S", lambda: received.batch(len(received)))
        singly = [(topic, at, time, key, value, own) for (topic, at, _, time, key, value, own), _ in messages]
        lists = (listed.topics, listed.offsets, listed.times, listed.keys, listed.values, map(list, listed.headers))
        assert list(zip(*lists, strict=True)) == singly


def test_a_status_is_no_message() -> None:
    """Its subject, its block, and how many messages are before it."""
    status = b"HMSG i.1 1 28 28\r\nNATS/1.0 404 No Messages\r\n\r\n\r\n"
    plain = b"MSG a.b 1 $JS.ACK.S.C.1.%d.8.1700000000000000000.2 1\r\nx\r\n"
    memory = bytearray(plain % 7 + status + plain % 9)

    received = decode(memory, locate(memory, len(memory)))

    assert [received.sequence(index) for index in range(len(received))] == [7, 9]
    assert received.statuses == [(1, "i.1", b"NATS/1.0 404 No Messages\r\n\r\n")]
    assert received.batch(2).column("offset").to_pylist() == [7, 9]


REFUSED = {
    "no position": b"MSG a.b 1 other 1\r\nx\r\n",
    "no reply": b"MSG a.b 1 1\r\nx\r\n",
    "blank in the subject": b"MSG a\tb 1 $JS.ACK.S.C.1.7.8.1700000000000000000.2 1\r\nx\r\n",
    "wrong size": b"MSG a.b 1 $JS.ACK.S.C.1.7.8.1700000000000000000.2 1\r\nxyz\r\n",
    "too large": b"MSG a.b 1 $JS.ACK.S.C.1.7.8.1700000000000000000.2 9999999999\r\nx\r\n",
    "large sequence": b"MSG a.b 1 $JS.ACK.S.C.1.9999999999999999999.8.1700000000000000000.2 1\r\nx\r\n",
    "long line": b"MSG " + b"a" * 70_000 + b" 1 $JS.ACK.S.C.1.7.8.1700000000000000000.2 1\r\nx\r\n",
}


@pytest.mark.parametrize("frame", REFUSED.values(), ids=REFUSED)
def test_frames_that_are_no_messages_of_a_stream(frame: bytes) -> None:
    """They are an error behind any other."""
    memory = bytearray(b"MSG a.b 1 $JS.ACK.S.C.1.7.8.1700000000000000000.2 1\r\nx\r\n" + frame)

    with pytest.raises(TurnoutError):
        decode(memory, locate(memory, len(memory)))


def test_an_incomplete_frame_stays_in_the_buffer() -> None:
    """At whatever byte it ends."""
    plain = b"MSG a.b 1 $JS.ACK.S.C.1.7.8.1700000000000000000.2 1\r\nx\r\n"
    memory = bytearray(plain + plain)

    assert [locate(memory, filled).consumed for filled in (0, len(plain) - 1)] == [0, 0]
    for filled in range(len(plain), 2 * len(plain)):
        assert locate(memory, filled).consumed == len(plain)
