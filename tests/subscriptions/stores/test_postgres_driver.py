"""PostgreSQL's driver: options that it refuses, and servers that cannot be reached."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator

import pytest

from turnout.errors import ConfigError, StoreUnavailableError
from turnout.subscriptions import open_store
from turnout.subscriptions.store import within

pytestmark = pytest.mark.postgres


@pytest.mark.parametrize("options", ["retention=long", "schema=", "sslmode=perhaps", "unknown=1"])
def test_bad_urls(options):
    """An option that means nothing is a wrong request, with its name."""
    with pytest.raises((ConfigError, StoreUnavailableError), match=options.partition("=")[0]):
        open_store(f"postgresql://127.0.0.1:1/db?{options}")


def test_nobody_there():
    """A server that cannot be reached is an error that a retry may cure; the password is not shown."""
    with pytest.raises(StoreUnavailableError, match="PostgreSQL is away") as refused:
        open_store("postgresql://ann:secret@127.0.0.1:1/db")
    assert "secret" not in str(refused.value)


@pytest.fixture
def silent_server() -> Iterator[int]:
    """Port of a server that accepts connections as PostgreSQL does, and then answers no statement."""
    greeting = b"R" + struct.pack("!ii", 8, 0)
    for name, value in ((b"server_encoding", b"UTF8"), (b"client_encoding", b"UTF8"), (b"server_version", b"15.0")):
        text = name + b"\0" + value + b"\0"
        greeting += b"S" + struct.pack("!i", 4 + len(text)) + text
    greeting += b"K" + struct.pack("!iii", 12, 1, 1) + b"Z" + struct.pack("!i", 5) + b"I"
    kept = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def accept() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                kept.append(connection)
                connection.recv(1 << 10)
                connection.sendall(greeting)

        thread = threading.Thread(target=accept)
        thread.start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
        thread.join()
    for connection in kept:
        connection.close()


def test_a_server_that_accepts_and_does_not_answer(silent_server) -> None:
    """A call ends at its limit, and names the time; the server's own limit would never be reached."""
    url = f"postgresql://ann@127.0.0.1:{silent_server}/db?sslmode=disable&gssencmode=disable"
    with within(0.2), pytest.raises(StoreUnavailableError, match=r"it has not answered for 0\.\d+ s"):
        open_store(url)
