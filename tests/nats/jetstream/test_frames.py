"""The frame parser against nats-py's own, on any stream of frames cut anywhere."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Sequence
from typing import Any

import nats.aio.client
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nats.aio.transport import TcpTransport
from nats.errors import ProtocolError
from nats.protocol.parser import Parser

from turnout.nats.jetstream._frames import Frame, FrameParser
from turnout.nats.jetstream.connection import NatsConnection

TOKEN = st.text("abcXYZ$_-.0123", min_size=1, max_size=20).map(str.encode)
PAYLOAD = st.one_of(
    st.binary(max_size=60), st.sampled_from([b"\r\n", b"PING\r\n", b"MSG a 1 3\r\nabc\r\n", b"x" * 5000])
)


@st.composite
def frames(draw: Any) -> bytes:
    kind = draw(st.sampled_from(["MSG", "MSG", "MSG", "HMSG", "PING", "PONG", "+OK", "INFO", "-ERR"]))
    if kind in ("PING", "PONG", "+OK"):
        return kind.encode() + b"\r\n"
    if kind == "INFO":
        return b'INFO {"server_id":"x"}\r\n'
    if kind == "-ERR":
        return b"-ERR 'Permissions Violation for Publish to \"a\"'\r\n"
    subject, sid, payload = draw(TOKEN), draw(st.sampled_from([b"1", b"2", b"33"])), draw(PAYLOAD)
    reply = draw(st.one_of(st.just(b""), TOKEN.map(lambda token: token + b" ")))
    if kind == "MSG":
        return b"MSG %b %b %b%d\r\n%b\r\n" % (subject, sid, reply, len(payload), payload)
    block = draw(st.sampled_from([b"NATS/1.0 100 Idle Heartbeat\r\n\r\n", b"NATS/1.0\r\nA: b\r\n\r\n"]))
    sizes = (len(block), len(block) + len(payload))
    return b"HMSG %b %b %b%d %d\r\n%b%b\r\n" % (subject, sid, reply, *sizes, block, payload)


@st.composite
def runs(draw: Any) -> bytes:
    """Many messages of one subscription, which are read together, and now and then one of another form among them."""
    sid, reply = draw(st.sampled_from([b"1", b"2", b"33"])), draw(st.sampled_from([b"", b"$JS.ACK.a.b.1.2.3.4.5 "]))
    payloads = draw(st.lists(st.binary(max_size=12), min_size=4, max_size=30))
    run = [b"MSG a.%d %b %b%d\r\n%b\r\n" % (i, sid, reply, len(data), data) for i, data in enumerate(payloads)]
    if draw(st.booleans()):
        run.insert(draw(st.integers(0, len(run))), draw(frames()))
    return b"".join(run)


class Recorder:
    """A client that only notes what the parser calls."""

    max_payload = 1 << 20

    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.stats = {"in_msgs": 0, "in_bytes": 0}

    async def _process_msg(self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: bytes | None) -> None:
        self.calls.append((sid, subject, reply, data, headers or b""))

    async def _process_err(self, text: str) -> None:
        self.calls.append(("err", text))

    async def _process_ping(self) -> None:
        self.calls.append("ping")

    async def _process_pong(self) -> None:
        self.calls.append("pong")

    async def _process_info(self, info: dict[str, Any]) -> None:
        self.calls.append(("info", info))


@settings(max_examples=200)
@given(
    st.lists(frames(), max_size=20) | st.lists(runs(), max_size=4),
    st.lists(st.integers(1, 400) | st.just(65536), min_size=1, max_size=30),
)
def test_same_as_nats_py(sent: list[bytes], cuts: list[int]) -> None:
    """Frames for a handler and frames for nats-py arrive alike, in order, wherever the bytes are cut."""
    wire = b"".join(sent)
    pieces, position, turn = [], 0, 0
    while position < len(wire):
        pieces.append(wire[position : position + cuts[turn % len(cuts)]])
        position += len(pieces[-1])
        turn += 1
    theirs, ours = Recorder(), Recorder()

    def handler(sid: int) -> Any:
        return lambda frames: ours.calls.extend((sid, s, reply, data, headers) for s, reply, headers, data in frames)

    async def feed() -> None:
        reference = Parser(theirs)
        mine = FrameParser(ours, {b"1": handler(1), b"33": handler(33)})
        for piece in pieces:
            await reference.parse(piece)
            await mine.parse(piece)

    asyncio.run(feed())
    assert theirs.calls == ours.calls
    data = [call for call in theirs.calls if len(call) == 5]
    assert ours.stats["in_msgs"] == len(data)


@pytest.mark.parametrize("bad", [b"MSG a\r\n", b"MSG a 1 x\r\n", b"HMSG a 1 2 y\r\n", b"NONSENSE\r\n", b"x" * 70000])
def test_malformed(bad: bytes) -> None:
    """An invalid frame is a protocol error, as in nats-py, and ends the connection, not the program."""
    with pytest.raises(ProtocolError):
        asyncio.run(FrameParser(Recorder(), {}).parse(bad))


@pytest.mark.parametrize(
    "odd",
    [
        b"MSG a 1 x\r\nabcd\r\n",
        b"MSG a 1 3\r\nabcd\r\n",
        b"MSG a 1 5\r\nabcd\r\nPING\r\n",
        b"MSG a 1\r\nMSG a 1 2 4\r\n",
    ],
)
def test_malformed_among_others(odd: bytes) -> None:
    """The messages before an invalid frame are handed over, although many are read together."""
    payloads: list[bytes] = []

    def take(frames: Sequence[Frame]) -> None:
        payloads.extend(data for *_, data in frames)

    good = b"MSG a 1 4\r\ngood\r\n"
    with pytest.raises(ProtocolError):
        asyncio.run(FrameParser(Recorder(), {b"1": take}).parse(good * 10 + odd + good * 10))
    assert payloads == [b"good"] * 10


def test_a_handler_that_fails(caplog: pytest.LogCaptureFixture) -> None:
    """A handler that raises is logged, and the frames after those that it was given are still read."""
    payloads: list[list[bytes]] = []

    def fail(frames: Sequence[Frame]) -> None:
        payloads.append([data for *_, data in frames])
        raise RuntimeError("broken handler")

    wire = b"MSG a 1 1\r\nx\r\nMSG a 1 1\r\ny\r\nPING\r\nMSG a 1 1\r\nz\r\n"
    with caplog.at_level(logging.ERROR):
        asyncio.run(FrameParser(Recorder(), {b"1": fail}).parse(wire))

    assert payloads == [[b"x", b"y"], [b"z"]]
    assert "broken handler" in caplog.text


def test_what_is_used_of_nats_py() -> None:
    """The names inside nats-py's client that the connection relies on are there, with the form it expects."""
    client = nats.aio.client.Client()
    for name in ("_ps", "_subs", "_sid", "_pending", "_pending_data_size", "_max_pending_size", "_flush_queue",
                 "_max_payload", "_status", "_nuid", "stats", "_pongs", "_transport", "_reconnection_task",
                 "_inbox_prefix", "_reading_task", "_ping_interval_task", "_flusher_task"):  # fmt: skip
        assert hasattr(client, name), name
    assert isinstance(client._ps, Parser)
    assert isinstance(client._pending, list)
    parameters = list(inspect.signature(client._process_msg).parameters)
    assert parameters == ["sid", "subject", "reply", "data", "headers"]
    assert next(iter(inspect.signature(client._remove_sub).parameters)) == "sid"
    assert list(inspect.signature(client._process_info).parameters) == ["info", "initial_connection"]
    for method in (
        "_attempt_reconnect",
        "_connect_to_server",
        "_process_connect_init",
        "_process_pong",
        "_process_err",
    ):
        assert inspect.iscoroutinefunction(getattr(client, method)), method
    assert hasattr(TcpTransport(), "_io_writer")
    assert isinstance(NatsConnection()._ps, FrameParser)


def test_only_the_core_connection_is_used() -> None:
    """No module of the package imports nats-py's JetStream client."""
    from pathlib import Path

    import turnout.nats.jetstream

    folder = Path(turnout.nats.jetstream.__file__).parent
    sources = [path.read_text(encoding="utf-8") for path in folder.glob("*.py")]
    assert len(sources) > 20
    assert not [source for source in sources if "import nats.js" in source]
    assert not [source for source in sources if "from nats.js" in source or ".jetstream(" in source]
