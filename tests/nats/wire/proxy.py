"""A small TCP proxy that can cut its connections, also in the middle of a frame."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import Self


class CuttingProxy:
    """Passes bytes to *port* and back; cuts both sides once a budget of bytes towards the client is used up.

    Each connection takes the next of *budgets*; when they are used up, connections last.
    """

    def __init__(self, port: int, *budgets: int) -> None:
        self._target = port
        self._budgets = list(budgets)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._open: list[socket.socket] = []
        self._closed = False
        self.cuts = 0
        self.sent = bytearray()
        """Bytes sent by clients, of all connections together."""
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    def _accept(self) -> None:
        while not self._closed:
            try:
                client, _ = self._listener.accept()
            except OSError:
                continue
            self._open.append(client)
            try:
                server = socket.create_connection(("127.0.0.1", self._target))
            except OSError:
                client.close()
                continue
            self._open.append(server)
            budget = self._budgets.pop(0) if self._budgets else -1
            threading.Thread(target=self._pass, args=(client, server, -1, self.sent), daemon=True).start()
            threading.Thread(target=self._pass, args=(server, client, budget), daemon=True).start()

    def _pass(self, source: socket.socket, target: socket.socket, budget: int, seen: bytearray | None = None) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                if seen is not None:
                    seen += data
                if 0 <= budget <= len(data):
                    target.sendall(data[:budget])
                    self.cuts += 1
                    break
                target.sendall(data)
                budget -= len(data) if budget > 0 else 0
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def cut(self) -> int:
        """Cut everything that is open now; return the number of connections."""
        self.cuts += 1
        cut = 0
        for end in self._open:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
                cut += 1
        return (cut + 1) // 2

    def refuse(self) -> None:
        """Take no further connection."""
        self._closed = True
        with contextlib.suppress(OSError):
            # Closing alone would leave the waiting accept() with one more connection to take.
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.refuse()
        self.cut()
        for end in self._open:
            end.close()
