"""Server in the driver for the tasks of open splits: lines of JSON over TCP.

The first line of a connection has the token and a question: ``plan`` is answered with a line, ``loss`` is noted; with
``begin`` a task takes a split, gets an `Attempt`, and keeps the connection. It sends ``reads`` when it is ready for the
next record, and a line for each progress to record, each of which is answered; it gets a line for each new revision of
the subscriptions and for the end of the split.
The end of a connection means, on either side, that the other one has ended.
"""

from __future__ import annotations

import json
import select
import socket
import socketserver
from collections.abc import Iterator
from contextlib import suppress
from hmac import compare_digest
from secrets import token_urlsafe
from types import TracebackType
from typing import Final, Self

from turnout.base.background import Background
from turnout.base.untrusted import JsonObject, is_whole
from turnout.records.types import Fields
from turnout.runtime.open_splits.ledger import Attempt, OpenSplits
from turnout.runtime.open_splits.progress_files import OpenProgress

_LONGEST_LINE: Final = 1 << 20
_PAUSE_SECONDS: Final = 0.05
"""Seconds between two checks of the subscriptions, and of a request to stop."""


class OpenSplitServer:
    """Serves a run's ledger to its source and its tasks, which have the token.

    Args:
        splits: the ledger.
        host: the address to listen on, and the one that others know it by.
    """

    def __init__(self, splits: OpenSplits, host: str = "127.0.0.1") -> None:
        self._splits = splits
        self._token = token_urlsafe(24)
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        server = type("_Server", (socketserver.ThreadingTCPServer,), {"address_family": family, "daemon_threads": True})
        self._server: socketserver.ThreadingTCPServer = server((host, 0), self._handler())
        self._host = host
        self._background = Background("server of open splits", self._server.serve_forever)

    @property
    def address(self) -> str:
        """``HOST PORT TOKEN`` of the server, for `turnout.runtime.open_splits.client`; it must not be logged."""
        return f"{self._host} {self._server.server_address[1]} {self._token}"

    def __enter__(self) -> Self:
        self._background.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._splits.end()
        self._background.stop()
        self._server.shutdown()
        self._server.server_close()
        self._background.join()

    def _handler(self) -> type[socketserver.BaseRequestHandler]:
        answer = self._answer

        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                # A task that violates the protocol, or disconnects, is one that Spark has given up.
                with suppress(OSError, ValueError, KeyError, TypeError):
                    answer(_Lines(self.request))

        return Handler

    def _answer(self, lines: _Lines) -> None:
        hello = lines.next()
        if not compare_digest(str(hello["token"]).encode(), self._token.encode()):
            return
        if "plan" in hello:
            plan = self._splits.plan(_number(hello["plan"]))
            lines.send({"next": plan.next, "number": plan.number, "opens": plan.opens, "time": plan.time})
            return
        if "loss" in hello:
            self._splits.lost(str(hello["loss"]))
            lines.send({"noted": True})
            return
        number, start = _number(hello["begin"]), _number(hello["start"])
        if number is None or start is None:
            return
        attempt = self._splits.begin(number, start, _number(hello["revision"]))
        lines.send({"progress": attempt.progress.as_dict(), "seconds": attempt.seconds})
        self._follow(attempt, lines)

    def _follow(self, attempt: Attempt, lines: _Lines) -> None:
        """Record a task's reports, and send it its updates, until one of the two ends."""
        revision, notified = attempt.progress.revision, False
        while self._splits.holds(attempt):
            for line in lines.received(_PAUSE_SECONDS):
                if "reads" in line:
                    self._splits.reads(attempt)
                    continue
                progress, final = OpenProgress.from_dict(line["progress"]), bool(line["final"])
                try:
                    recorded = self._splits.record(attempt, progress, final=final)
                except OSError as failure:
                    lines.send({"refused": failure.strerror or str(failure)})
                    return
                if not recorded:
                    return
                lines.send({"recorded": progress.next})
                if final:
                    return
            if self._splits.closing and not notified:
                notified = True
                lines.send({"close": True})
            newest = self._splits.newest_revision()
            if newest != revision:
                revision = newest
                lines.send({"revision": newest})


def _number(value: object) -> int | None:
    return value if is_whole(value) else None


class _Lines:
    """Lines of JSON objects over a socket."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.settimeout(30)
        self._socket = connection
        self._buffer = bytearray()

    def send(self, line: JsonObject) -> None:
        self._socket.sendall(json.dumps(line).encode() + b"\n")

    def next(self) -> Fields:
        """Return the next line, within half a minute."""
        while True:
            for line in self._whole():
                return line
            self._more()

    def received(self, seconds: float) -> Iterator[Fields]:
        """Yield the received lines, after a wait for the first of at most *seconds*."""
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        if poll.poll(seconds * 1000):
            self._more()
        yield from self._whole()

    def _more(self) -> None:
        data = self._socket.recv(1 << 16)
        if not data or len(self._buffer) > _LONGEST_LINE:
            raise ConnectionError("the peer has disconnected, or violates the protocol")
        self._buffer += data

    def _whole(self) -> Iterator[Fields]:
        while (end := self._buffer.find(b"\n")) >= 0:
            line = json.loads(self._buffer[:end])
            del self._buffer[: end + 1]
            yield line
