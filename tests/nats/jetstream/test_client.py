"""The border to nats-py: no exception of nats-py is unknown to it, and what crosses is one of ours."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import logging
import pkgutil
import random
import socket
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any

import nats.aio.client
import nats.errors
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nats.aio.transport import TcpTransport
from nats.errors import ProtocolError
from nats.protocol.parser import Parser
from tests.examples import examples
from tests.nats.jetstream.support import Errors, asynchronous, eventually

import nats
from turnout.embedded import NatsServer
from turnout.errors import ConfigError, ConnectionLostError, StreamError, TurnoutError
from turnout.nats.jetstream import _client, connect
from turnout.nats.jetstream._client import Frame, FrameParser, stop, translate, translated, within
from turnout.nats.jetstream.connection import NatsConnection
from turnout.nats.jetstream.errors import NoRespondersError, PermissionDeniedError, RequestTimeoutError

_INFO = b'INFO {"server_id":"F","version":"2.12.0","headers":true,"max_payload":1048576}\r\n'
_KINDS = ("absent", "silent", "closes", "greets and closes", "hears and closes", "answers and closes", "garbage")


@asynccontextmanager
async def false_server(kind: str) -> AsyncIterator[str]:
    """Serve connections as *kind* says, and yield the address."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if kind == "garbage":
                writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n\x00\xff" * 20)
            elif kind == "silent":
                await reader.read(-1)
            elif kind != "closes":
                writer.write(_INFO)
            if kind in ("hears and closes", "answers and closes"):
                await reader.readuntil(b"PING\r\n")
            if kind == "answers and closes":
                writer.write(b"PONG\r\n")
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    url = f"nats://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    if kind == "absent":
        server.close()
    try:
        yield url
    finally:
        server.close()


async def _attempt(url: str, limit: float) -> None:
    try:
        async with connect(url, connect_timeout=limit, reconnect_time_wait=0.002, error_callback=Errors()):
            await asyncio.sleep(limit)
    except ConnectionLostError:
        pass


@pytest.mark.parametrize("kind", _KINDS)
@asynchronous
async def test_no_attempt_outlives_its_limit(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    """Two hundred attempts with limits of milliseconds all end, print no traceback, and leave no task."""
    printed: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: printed.append(context))
    limits = random.Random(7)
    async with false_server(kind) as url:
        for _ in range(200):
            task = asyncio.create_task(_attempt(url, limits.uniform(0.002, 0.010)))
            _, late = await asyncio.wait([task], timeout=20)
            try:
                assert not late
            finally:
                await stop(task)
            task.result()

    async def quiet() -> bool:
        return len(asyncio.all_tasks()) == 1

    await eventually(quiet, 20)
    assert printed == []
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


@asynchronous
async def test_a_server_that_leaves_while_connecting_is_not_connected() -> None:
    """A server that hears the greeting and closes is an attempt that failed, and the error says so."""
    async with false_server("hears and closes") as url:
        with pytest.raises(ConnectionLostError, match="unexpected EOF"):
            async with connect(url, connect_timeout=0.2, reconnect_time_wait=0.01):
                pass


@asynchronous
async def test_no_servers() -> None:
    """An empty list of servers is refused; nats-py would look for one for ever without giving way to anything."""
    with pytest.raises(ConfigError, match="servers"):
        async with connect([]):
            pass


class _Deaf:
    """A coroutine that drops the first cancellations."""

    def __init__(self, dropped: int) -> None:
        self.left = dropped

    async def run(self) -> str:
        while True:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                if not self.left:
                    raise
                self.left -= 1


@asynchronous
async def test_dropped_cancellations() -> None:
    """Work that drops cancellations ends all the same, at its limit and when its caller is cancelled."""
    with pytest.raises(TimeoutError):
        await within(_Deaf(3).run(), 0.01)
    task = asyncio.create_task(within(_Deaf(3).run(), 60))
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert asyncio.all_tasks() == {asyncio.current_task()}


@asynchronous
async def test_results_within_the_limit() -> None:
    """A result and an exception pass through; so does a caller's `TimeoutError`."""

    async def value() -> int:
        return 7

    async def failure() -> None:
        raise KeyError("x")

    works: tuple[Coroutine[Any, Any, object], type[Exception]] = (failure(), KeyError)

    assert await within(value(), 5) == 7
    with pytest.raises(works[1]):
        await within(works[0], 5)


@asynchronous
async def test_closing_a_frozen_server() -> None:
    """A connection whose server takes no more bytes closes within its limit, and leaves no task."""
    with NatsServer() as server:
        async with connect(server.url, error_callback=Errors(), connect_timeout=20) as js:
            # What the kernel's buffers cannot hold stays in the client.
            transport: Any = js.connection._transport
            sock = transport._io_writer.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
            server.pause()
            try:
                for _ in range(64):
                    js.connection.send("flood", bytes(1 << 19))
                    await asyncio.sleep(0)
                closing = asyncio.create_task(js.close())
                _, late = await asyncio.wait([closing], timeout=30)
            finally:
                server.resume()
            await stop(closing)

        assert not late
        assert asyncio.all_tasks() == {asyncio.current_task()}


@asynchronous
async def test_a_pong_that_comes_late() -> None:
    """A PONG for a round trip that was given up does no harm: the connection goes on as it was."""
    errors = Errors()
    with NatsServer() as server:
        async with connect(server.url, error_callback=errors, connect_timeout=20) as js:
            server.pause()
            try:
                with pytest.raises(RequestTimeoutError, match="no PONG"):
                    await js.connection.round_trip(0.1)
            finally:
                server.resume()
            await js.connection.round_trip(20)
            await js.stream_names()

            assert js.connection.stats["reconnects"] == 0
            assert errors == []


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


@settings(max_examples=examples(200))
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
    assert len(sources) > 10
    assert not [source for source in sources if "import nats.js" in source]
    assert not [source for source in sources if "from nats.js" in source or ".jetstream(" in source]


def library_errors() -> list[type[Exception]]:
    """Every exception class of nats-py's core and of its JetStream, which it imports itself.

    Not of its services: `nats.micro` raises those only in a service's own handlers.
    """
    kinds: set[type[Exception]] = set()
    for module in pkgutil.walk_packages(nats.__path__, "nats."):
        if module.name.startswith("nats.micro"):
            continue
        for value in vars(importlib.import_module(module.name)).values():
            if inspect.isclass(value) and issubclass(value, Exception) and value.__module__.startswith("nats"):
                kinds.add(value)
    return sorted(kinds, key=lambda kind: (kind.__module__, kind.__name__))


LIBRARY = library_errors()
CORE = [kind for kind in LIBRARY if not kind.__module__.startswith("nats.js")]


def make(kind: type[Exception]) -> Exception:
    """An instance, whatever its constructor asks for."""
    error = kind.__new__(kind)
    for name in ("subject", "reply", "sid", "sub", "key", "message", "_msg", "description"):
        setattr(error, name, "x")
    for name in ("code", "err_code", "consumer_sequence", "last_consumer_sequence", "stream_resume_sequence"):
        setattr(error, name, 1)
    return error


def test_the_walk_finds_them() -> None:
    """The walk sees the library: a rename would make it prove nothing."""
    assert len(CORE) > 40
    assert nats.errors.TimeoutError in CORE


@pytest.mark.parametrize("kind", LIBRARY, ids=lambda kind: f"{kind.__module__}.{kind.__name__}")
def test_every_exception_is_translated(kind: type[Exception]) -> None:
    """Each becomes an error of turnout's tree, with the original as its cause."""
    failure = make(kind)
    with pytest.raises(TurnoutError) as caught, translated():
        raise failure

    assert caught.value.__cause__ is failure


@pytest.mark.parametrize("kind", CORE, ids=lambda kind: f"{kind.__module__}.{kind.__name__}")
def test_none_falls_through_to_the_base(kind: type[Exception]) -> None:
    """Each class of the core has a row of its own, or an ancestor's; only the base and its deprecated twin have its."""
    base_only = {"Error", "NatsError"}
    rows = [one for one in kind.__mro__ if one in _client._TABLE]

    assert rows
    assert rows[0] is not nats.errors.Error or kind.__name__ in base_only


@pytest.mark.parametrize(
    ("failure", "kind", "builtin"),
    [
        (nats.errors.TimeoutError(), RequestTimeoutError, TimeoutError),
        (TimeoutError(), RequestTimeoutError, TimeoutError),
        (ConnectionRefusedError("no"), ConnectionLostError, ConnectionError),
        (nats.errors.NoServersError(), ConnectionLostError, ConnectionError),
        (nats.errors.NoRespondersError(), NoRespondersError, StreamError),
        (nats.errors.Error('nats: permissions violation for publish to "a.b"'), PermissionDeniedError, PermissionError),
        (nats.errors.Error("nats: maximum connections exceeded"), ConnectionLostError, ConnectionError),
    ],
)
def test_what_becomes_of_them(failure: Exception, kind: type[Exception], builtin: type[Exception]) -> None:
    """The builtin that a caller expects is there too."""
    known = translate(failure)

    assert isinstance(known, kind)
    assert isinstance(known, builtin)


@pytest.mark.parametrize("foreign", [KeyError("x"), asyncio.CancelledError()])
def test_others_pass(foreign: BaseException) -> None:
    """Exceptions that are not the connection's are passed on unchanged, above all a cancellation."""
    with pytest.raises(type(foreign)), translated():
        raise foreign
