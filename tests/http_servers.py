"""HTTP servers that answer as no server should: byte by byte, without an end, or with anything at all."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%b"


@dataclass
class BadServer:
    """A server at *url*.

    Attributes:
        asked: set when it has a request.
        requests: heads of the requests.
    """

    url: str = ""
    asked: threading.Event = field(default_factory=threading.Event)
    ended: threading.Event = field(default_factory=threading.Event)
    requests: list[bytes] = field(default_factory=list)
    sent: int = 0

    def serve(self, connection: socket.socket, behaviour: Callable[[], bytes | str]) -> None:
        with connection, suppress(OSError):
            head = b""
            while b"\r\n\r\n" not in head:
                part = connection.recv(65536)
                if not part:
                    return
                head += part
            self.requests.append(head)
            what = behaviour()
            # The events are those of the odd answers.
            if isinstance(what, bytes):
                connection.sendall(what if what.startswith(b"HTTP/") else OK % (len(what), what))
                return
            self.asked.set()
            self._odd(connection, what)

    def _odd(self, connection: socket.socket, what: str) -> None:
        first, part, pause = {
            "silent": (b"", b"", 0.1),
            "drip": (b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n", b" ", 0.1),
            "drip-head": (b"HTTP/1.1 200 OK\r\nX: ", b"x", 0.1),
            "drip-heads": (b"HTTP/1.1 200 OK\r\n", b"X: y\r\n", 0.1),
            "endless": (b"HTTP/1.1 200 OK\r\n\r\n", b" " * 65536, 0.0),
            "endless-chunks": (
                b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"10000\r\n" + b" " * 65536 + b"\r\n", 0.0
            ),
            "endless-head": (b"HTTP/1.1 200 OK\r\nX: ", b"x" * 65536, 0.0),
            "endless-100": (b"", b"HTTP/1.1 100 Continue\r\n\r\n", 0.0),
            "long": (b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n", b" " * 65536, 0.0),
        }[what]  # fmt: skip
        connection.sendall(first)
        while not self.ended.wait(pause):
            connection.sendall(part)
            self.sent += len(part)


@contextmanager
def server_of(behaviour: Callable[[], bytes | str]) -> Iterator[BadServer]:
    """Run a server; *behaviour* gives the body or the whole answer of a request, or the name of an odd one."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = BadServer(f"http://127.0.0.1:{listening.getsockname()[1]}/")

        def accept() -> None:
            with suppress(OSError):
                while True:
                    connection, _ = listening.accept()
                    threading.Thread(target=server.serve, args=(connection, behaviour), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        try:
            yield server
        finally:
            server.ended.set()
            listening.shutdown(socket.SHUT_RDWR)
