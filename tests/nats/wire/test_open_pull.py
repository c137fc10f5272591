"""Reading a stream without an end, on a real server."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from tests.nats.wire.proxy import CuttingProxy

from turnout.embedded import NatsServer
from turnout.nats.wire import Connection, stream_info
from turnout.nats.wire.open_pull import OpenReader
from turnout.records.listed import as_batch


@pytest.fixture
def calls() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Two ends of a connection: one to call with, one for the reader."""
    one, other = socket.socketpair()
    with one, other:
        yield one, other


def publish(connection: Connection, stream: str, *numbers: int) -> None:
    for number in numbers:
        connection.request(f"{stream}.{number % 2}", b"%d" % number)


def values(batch: Any) -> list[int]:
    return [int(row["value"]) for row in as_batch(batch).to_pylist()]


def test_messages_come_one_by_one_as_they_arrive(
    connection: Connection, nats_server: NatsServer, stream: str, calls: tuple[socket.socket, socket.socket]
) -> None:
    """From the start on, also from an empty stream; a wait ends with an empty batch, and nothing is left behind."""
    with Connection.open(nats_server.url) as own:
        reader = OpenReader(own, stream, 3, (), calls=calls[1], tick=0.05)
        batches = reader.batches()
        assert next(batches).num_rows == 0
        assert reader.pending == 0
        publish(connection, stream, 1, 2)
        assert next(batches).num_rows == 0
        for number in (3, 4):
            publish(connection, stream, number)
            assert values(next(batch for batch in batches if batch.num_rows)) == [number]
            assert reader.next == number + 1
        assert stream_info(connection, stream)["state"]["consumer_count"] == 1
        reader.close()
    assert stream_info(connection, stream)["state"]["consumer_count"] == 0


def test_a_call_interrupts_the_wait(
    nats_server: NatsServer, stream: str, calls: tuple[socket.socket, socket.socket]
) -> None:
    """The driver has something to say, or is gone, while no message comes."""
    with Connection.open(nats_server.url) as own:
        reader = OpenReader(own, stream, 1, (), calls=calls[1], tick=60.0)
        batches = reader.batches()
        threading.Timer(0.1, calls[0].sendall, (b"x",)).start()
        assert next(batches).num_rows == 0
        calls[1].recv(1)
        threading.Timer(0.1, calls[0].close).start()
        assert next(batches).num_rows == 0
        reader.close()


def test_a_filter_and_a_backlog(
    connection: Connection, nats_server: NatsServer, stream: str, calls: tuple[socket.socket, socket.socket]
) -> None:
    """Stored messages are read in large batches; messages outside of the filter are not read."""
    publish(connection, stream, *range(1, 301))
    with Connection.open(nats_server.url) as own:
        reader = OpenReader(own, stream, 1, (f"{stream}.1",), calls=calls[1], tick=0.05)
        read: list[int] = []
        for batch in reader.batches():
            read += values(batch)
            if len(read) == 150:
                break
        reader.close()
    assert read == list(range(1, 301, 2))


def test_requests_that_expire_and_connections_that_break(
    connection: Connection,
    nats_server: NatsServer,
    stream: str,
    calls: tuple[socket.socket, socket.socket],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An idle stream is waited at for as long as it takes; after a cut nothing is missing and nothing comes twice."""
    monkeypatch.setattr("turnout.nats.wire.pull._EXPIRES_SECONDS", 0.2)
    with CuttingProxy(nats_server.port) as proxy, Connection.open(proxy.url) as own:
        reader = OpenReader(own, stream, 1, (), calls=calls[1], tick=0.05)
        batches = reader.batches()
        end = time.monotonic() + 1.5
        while time.monotonic() < end:
            assert next(batches).num_rows == 0
        read: list[int] = []
        for number in range(1, 7):
            publish(connection, stream, number)
            if number % 2:
                proxy.cut()
            read += values(next(batch for batch in batches if batch.num_rows))
        reader.close()
    assert read == list(range(1, 7))
