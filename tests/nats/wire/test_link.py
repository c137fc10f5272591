"""A server that is frozen for a while (SIGSTOP) is waited for as one that is absent."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

import pytest

from turnout.embedded import NatsServer
from turnout.errors import ConnectionLostError
from turnout.nats.wire import Connection, Publisher, PullReader, Range, create_stream, stream_info
from turnout.nats.wire.direct import DirectReader

# Requests of half a second, and freezes that are over at any point of a request and of the PING behind it.
_TIMES = {"timeout": 0.5, "connect_timeout": 0.5, "reconnect_timeout": 60.0}
_FREEZES = (0.55, 1.3, *(pytest.param(seconds, marks=pytest.mark.heavy) for seconds in (0.3, 0.8, 2.6)))
_COUNT = 20_000


@pytest.fixture
def server() -> Iterator[NatsServer]:
    with NatsServer() as running:
        with Connection.open(running.url) as connection:
            create_stream(connection, {"name": "F", "subjects": ["f.>"], "storage": "file", "allow_direct": True})
        yield running


@contextlib.contextmanager
def frozen(server: NatsServer, seconds: float) -> Iterator[None]:
    """Freeze the server now, and let it go on after *seconds*."""
    server.pause()
    timer = threading.Timer(seconds, server.resume)
    timer.start()
    try:
        yield
    finally:
        timer.join()


def fill(server: NatsServer) -> None:
    """Put messages into the stream."""
    with Connection.open(server.url) as connection:
        publisher = Publisher(connection)
        for number in range(_COUNT):
            publisher.publish("f.a", b"%d" % number)
        publisher.flush()


@pytest.mark.parametrize("seconds", _FREEZES)
def test_a_request_waits(server: NatsServer, seconds: float) -> None:
    """A request is answered when the server goes on, however long that is after its limit."""
    with Connection.open(server.url, **_TIMES) as connection, frozen(server, seconds):
        assert stream_info(connection, "F")["config"]["name"] == "F"


@pytest.mark.parametrize("seconds", [1.3, 2.6])
def test_connecting_waits(server: NatsServer, seconds: float) -> None:
    """A connection that is opened again waits for a greeting that a frozen server does not send."""
    with Connection.open(server.url, **_TIMES) as connection:
        connection.close()
        with frozen(server, seconds):
            assert stream_info(connection, "F")["config"]["name"] == "F"


def test_longer_than_the_limit(server: NatsServer) -> None:
    """A server that stays frozen is one that is away, by the same limit and the same error."""
    options = {**_TIMES, "timeout": 0.2, "connect_timeout": 0.2, "reconnect_timeout": 1.0}
    with Connection.open(server.url, **options) as connection:
        server.pause()
        try:
            with pytest.raises(ConnectionLostError):
                stream_info(connection, "F")
        finally:
            server.resume()


@pytest.mark.parametrize("direct", [False, True], ids=["consumer", "direct"])
@pytest.mark.parametrize("seconds", _FREEZES)
def test_a_reader_waits(server: NatsServer, seconds: float, direct: bool) -> None:
    """A reader whose server freezes at its beginning and in the middle brings each message once."""
    fill(server)
    part = Range("F", 1, _COUNT + 1)
    with Connection.open(server.url, **_TIMES) as connection:
        reader = DirectReader(connection, part) if direct else PullReader(connection, part)
        offsets: list[int] = []
        with frozen(server, seconds):
            batches = reader.batches()
            offsets += next(batches).column("offset").to_pylist()
        with frozen(server, seconds):
            for batch in batches:
                offsets += batch.column("offset").to_pylist()

    assert offsets == list(range(1, _COUNT + 1))


def counted_reconnects(monkeypatch: pytest.MonkeyPatch, connection: Connection) -> list[float]:
    """Return the list that each call of the connection's `reconnect` extends."""
    calls: list[float] = []
    reconnect = connection.reconnect
    monkeypatch.setattr(connection, "reconnect", lambda deadline: (calls.append(deadline), reconnect(deadline)))
    return calls


@pytest.mark.parametrize("seconds", [0.8, 5.0])
def test_a_publisher_waits(server: NatsServer, seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """A publisher whose server freezes stores each message, once where messages have ids."""
    monkeypatch.setattr("turnout.nats.wire.publisher._SILENCE_SECONDS", 2.0)
    with Connection.open(server.url, **{**_TIMES, "reconnect_timeout": 180.0}) as connection:
        publisher = Publisher(connection)
        reconnected = counted_reconnects(monkeypatch, connection)
        with frozen(server, seconds):
            for number in range(2_000):
                publisher.publish("f.a", b"x", message_id=str(number))
            publisher.flush()

        assert stream_info(connection, "F")["state"]["messages"] == 2_000
    # Not once for each line that is no acknowledgement.
    assert len(reconnected) <= 3
