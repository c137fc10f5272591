"""Time limits of connecting, reconnecting and closing: they hold, print nothing and leave no task."""

from __future__ import annotations

import asyncio
import logging
import random
import socket
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.nats.jetstream.support import Errors, asynchronous, eventually

from turnout.embedded import NatsServer
from turnout.errors import ConfigError, ConnectionLostError
from turnout.nats.jetstream import connect
from turnout.nats.jetstream._time_limits import stop, within
from turnout.nats.jetstream.errors import RequestTimeoutError

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
