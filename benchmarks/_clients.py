"""Clients that hold connections and never finish a request, as an attacker's."""

from __future__ import annotations

import heapq
import itertools
import selectors
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from urllib.parse import urlsplit

_SOURCE = "127.0.0.2"
"""Not the address of the benchmark's own requests, which have a limit of their own."""
_REQUEST = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: "
_AGAIN_SECONDS = 5.0
_CONNECTS_AT_ONCE = 50


@dataclass
class Attempts:
    """What the clients have done.

    Attributes:
        connected: connections that were opened.
        ended: those of them that the server has closed.
    """

    connected: int = 0
    ended: int = 0
    open: set[socket.socket] = field(default_factory=set)


@contextmanager
def half_open(url: str, clients: int) -> Iterator[Attempts]:
    """Keep this many clients busy until the block ends: each sends half of its headers, waits, and reconnects."""
    attempts, ending = Attempts(), threading.Event()
    address = urlsplit(url)
    thread = threading.Thread(target=_keep, args=((address.hostname, address.port), clients, attempts, ending))
    thread.start()
    try:
        yield attempts
    finally:
        ending.set()
        thread.join()


def _keep(address: tuple[str | None, int | None], clients: int, attempts: Attempts, ending: threading.Event) -> None:
    due = [(0.0, number) for number in range(clients)]
    numbers = itertools.count(clients)
    with selectors.DefaultSelector() as selector:
        while not ending.is_set():
            now = time.monotonic()
            for _ in range(_CONNECTS_AT_ONCE):
                if not due or due[0][0] > now:
                    break
                heapq.heappop(due)
                if not _connect(address, selector, attempts):
                    heapq.heappush(due, (now + _AGAIN_SECONDS, next(numbers)))
            for key, events in selector.select(0.02):
                if not _is_going_on(key.fileobj, events, selector, attempts):
                    heapq.heappush(due, (now + _AGAIN_SECONDS, next(numbers)))
        for client in attempts.open:
            client.close()


def _connect(address: object, selector: selectors.BaseSelector, attempts: Attempts) -> bool:
    client = socket.socket()
    client.setblocking(False)
    try:
        client.bind((_SOURCE, 0))
        with suppress(BlockingIOError):
            client.connect(address)  # type: ignore[arg-type]  # host and port
    except OSError:
        client.close()
        return False
    attempts.open.add(client)
    selector.register(client, selectors.EVENT_WRITE)
    return True


def _is_going_on(client: object, events: int, selector: selectors.BaseSelector, attempts: Attempts) -> bool:
    assert isinstance(client, socket.socket)
    try:
        if events & selectors.EVENT_WRITE:
            client.send(_REQUEST)
            attempts.connected += 1
            selector.modify(client, selectors.EVENT_READ)
            return True
        if client.recv(4_096):
            return True
    except OSError:
        pass
    attempts.ended += 1
    selector.unregister(client)
    attempts.open.discard(client)
    client.close()
    return False
