"""The least NATS client there is: bytes in, bytes out, so that subjects need not be UTF-8."""

from __future__ import annotations

import json
import socket
from typing import Any, Self


class NatsSocket:
    """One connection; every call waits for its answer. For tests that compare what a server does."""

    def __init__(self, port: int, user: str = "", password: str = "") -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=20)
        self.file = self.socket.makefile("rb")
        self.file.readline()
        options: dict[str, Any] = {"verbose": False, "pedantic": False, "headers": True}
        if user:
            options |= {"user": user, "pass": password}
        self.send(b"CONNECT " + json.dumps(options).encode() + b"\r\nSUB _I.* 1\r\n")
        self.waiting: list[tuple[bytes, bytes, bytes]] = []
        self.flush()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def publish(self, subject: bytes, data: bytes = b"", reply: bytes = b"") -> None:
        to = subject + (b" " + reply if reply else b"")
        self.send(b"PUB " + to + b" " + str(len(data)).encode() + b"\r\n" + data + b"\r\n")

    def subscribe(self, subject: bytes) -> None:
        self.send(b"SUB " + subject + b" 2\r\n")

    def read(self) -> bytes:
        """The next thing that the server says: b"PONG", or b"MSG" with the message at the end of *waiting*."""
        while True:
            line = self.file.readline()
            if not line:
                raise ConnectionError("the server closed the connection")
            words = line.strip().split(b" ")
            if words[0] == b"PING":
                self.send(b"PONG\r\n")
            elif words[0] == b"PONG":
                return b"PONG"
            elif words[0] == b"-ERR":
                raise ConnectionError(line.decode())
            elif words[0] in (b"MSG", b"HMSG"):
                size = int(words[-1])
                head = int(words[-2]) if words[0] == b"HMSG" else 0
                body = self.file.read(size + 2)[:size]
                self.waiting.append((words[1], body[:head], body[head:]))
                return b"MSG"

    def flush(self) -> list[tuple[bytes, bytes, bytes]]:
        """All messages (subject, headers, data) that the server sent before it had seen everything of ours."""
        self.send(b"PING\r\n")
        while self.read() != b"PONG":
            pass
        waiting, self.waiting = self.waiting, []
        return waiting

    def request(self, subject: bytes, data: bytes = b"") -> tuple[bytes, bytes]:
        """Headers and data of the answer."""
        self.publish(subject, data, b"_I.r")
        while not self.waiting:
            self.read()
        _, headers, answer = self.waiting.pop(0)
        return headers, answer

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()
        self.socket.close()
