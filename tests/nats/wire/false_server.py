"""A server that speaks NATS until it says what a test wants it to say."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Self

Answer = Callable[["Asked"], bytes]
GREETING = b'INFO {"server_id":"F","version":"2.12.0","headers":true,"max_payload":1048576,"nonce":"abc"}\r\n'


@dataclass(frozen=True)
class Asked:
    """A message that a client published, and the number of the subscription that its answer goes to."""

    subject: str
    reply: str
    sid: int
    payload: bytes

    def message(self, payload: bytes, reply: str = "", subject: str = "", headers: bytes = b"") -> bytes:
        """A frame with what answers it."""
        sizes = f"{len(headers)} {len(headers) + len(payload)}" if headers else f"{len(payload)}"
        words = ["HMSG" if headers else "MSG", subject or self.reply, str(self.sid), *([reply] if reply else []), sizes]
        return b"%b\r\n%b%b\r\n" % (" ".join(words).encode(), headers, payload)

    def status(self, text: str) -> bytes:
        """A frame with a status line."""
        return self.message(b"", headers=f"NATS/1.0 {text}\r\n\r\n".encode())


class FalseServer:
    """Greets, answers the messages of the first connection in their order, and then closes whatever comes.

    Args:
        answers: what to send for each message that asks for an answer.
        greeting: the first bytes of every connection.
        pong: what answers a PING.
    """

    def __init__(self, answers: Sequence[Answer] = (), greeting: bytes = GREETING, pong: bytes = b"PONG\r\n") -> None:
        self._answers = list(answers)
        self._greeting = greeting
        self._pong = pong
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(30)

    def _accept(self) -> None:
        first = True
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                with client, contextlib.suppress(OSError):
                    client.settimeout(30)
                    client.sendall(self._greeting)
                    if first or not self._answers:
                        self._serve(client)
                first = False

    def _serve(self, client: socket.socket) -> None:
        sids: dict[str, int] = {}
        answers = iter(self._answers)
        with client.makefile("rb") as stream:
            for words in _words(stream.readline):
                if words[0] == "PING":
                    client.sendall(self._pong)
                elif words[0] == "SUB":
                    sids[words[1].removesuffix("*")] = int(words[-1])
                elif words[0] in ("PUB", "HPUB"):
                    payload = stream.read(int(words[-1]) + 2)[:-2]
                    reply = words[2] if len(words) == (4 if words[0] == "PUB" else 5) else ""
                    sid = next((sid for lead, sid in sids.items() if reply.startswith(lead)), 1)
                    answer = next(answers, None) if reply else None
                    if answer is not None:
                        client.sendall(answer(Asked(words[1], reply, sid, payload)))
                    elif reply:
                        return


def _words(readline: Callable[[], bytes]) -> Iterator[list[str]]:
    while line := readline():
        yield line.decode("utf-8", "replace").split()
