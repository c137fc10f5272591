"""Client of the driver's ledger of open splits: the source's requests, and the tasks' reports."""

from __future__ import annotations

import json
import socket
from contextlib import suppress
from types import TracebackType
from typing import Self

from turnout.base.untrusted import JsonObject
from turnout.errors import ConnectionLostError, RunError
from turnout.records.types import Fields
from turnout.runtime.open_splits.ledger import Plan
from turnout.runtime.open_splits.progress_files import OpenProgress

_TIMEOUT_SECONDS = 60.0


def ask_plan(address: str, number: int | None) -> Plan:
    """Request the plan of the next offset from the driver; see `turnout.runtime.open_splits.ledger.OpenSplits.plan`.

    Raises:
        ConnectionLostError: it does not answer.
    """
    with OpenSession(address) as session:
        answer = session.request({"plan": number})
    return Plan(answer["next"], answer["number"], answer["opens"], answer["time"])


def tell_loss(address: str, text: str) -> None:
    """Tell the driver of a loss that was stepped over: tasks and the source have no log that the run's user reads.

    Raises:
        ConnectionLostError: it does not answer.
    """
    with OpenSession(address) as session:
        session.request({"loss": text})


class OpenSession:
    """Connection of one task to the driver, for one open split.

    Args:
        address: as the server gives it.

    Attributes:
        socket: becomes readable when the driver has something to say.
        revision: the newest revision of the subscriptions that the driver has named.
        closing: whether the driver requires the split to close.
        seconds: how long it may stay open.

    Raises:
        ConnectionLostError: the driver does not answer.
    """

    def __init__(self, address: str) -> None:
        host, port, self._token = address.split(" ")
        self.revision: int | None = None
        self.closing = False
        self.seconds = 0.0
        self._buffer = bytearray()
        self._unanswered = 0
        try:
            self.socket = socket.create_connection((host, int(port)), timeout=_TIMEOUT_SECONDS)
        except OSError as failure:
            raise ConnectionLostError(f"the driver does not answer: {failure.strerror or failure}") from None
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(OSError):
            self.socket.close()

    def request(self, question: JsonObject) -> Fields:
        """Send the first line, and return the answer.

        Raises:
            ConnectionLostError: there is none.
        """
        self._send({"token": self._token, **question})
        while not (lines := self._lines()):
            self._receive()
        return lines[0]

    def begin(self, number: int, start: int, revision: int | None) -> OpenProgress:
        """Take a split, and return its first position and its earlier counts.

        Raises:
            ConnectionLostError: the driver does not answer.
        """
        answer = self.request({"begin": number, "start": start, "revision": revision})
        progress = OpenProgress.from_dict(answer["progress"])
        self.seconds, self.revision = answer["seconds"], progress.revision
        return progress

    def reads(self) -> None:
        """Say that the task is ready for the next record.

        Raises:
            ConnectionLostError: the driver has ended.
        """
        self._send({"reads": True})

    def record(self, progress: OpenProgress, *, wait: bool = False, final: bool = False) -> None:
        """Have the progress recorded.

        Args:
            progress: position and counts.
            wait: return only when it is recorded.
            final: end the split with it; implies *wait*.

        Raises:
            ConnectionLostError: the driver has ended, or another task has the split.
            RunError: the driver cannot write, as on a full disk.
        """
        self._send({"progress": progress.as_dict(), "final": final})
        self._unanswered += 1
        while (wait or final) and self._unanswered:
            self._receive()
            self._take_lines()

    def listen(self) -> None:
        """Process the driver's messages, without waiting.

        Raises:
            ConnectionLostError: the driver has ended, or another task has the split.
            RunError: as `record`.
        """
        self.socket.setblocking(False)
        try:
            self._receive()
        except BlockingIOError:
            return
        finally:
            self.socket.settimeout(_TIMEOUT_SECONDS)
        self._take_lines()

    def _take_lines(self) -> None:
        for line in self._lines():
            if "refused" in line:
                raise RunError(f"the position of an open split cannot be recorded: {line['refused']}")
            self._unanswered -= "recorded" in line
            self.closing = self.closing or "close" in line
            self.revision = line.get("revision", self.revision)

    def _send(self, line: JsonObject) -> None:
        try:
            self.socket.sendall(json.dumps(line).encode() + b"\n")
        except OSError as failure:
            raise _attempt_ended(failure) from None

    def _receive(self) -> None:
        try:
            data = self.socket.recv(1 << 16)
        except BlockingIOError:
            raise
        except OSError as failure:
            raise _attempt_ended(failure) from None
        if not data:
            raise _attempt_ended(None)
        self._buffer += data

    def _lines(self) -> list[Fields]:
        *whole, rest = self._buffer.split(b"\n")
        self._buffer = bytearray(rest)
        return [json.loads(line) for line in whole]


def _attempt_ended(failure: OSError | None) -> ConnectionLostError:
    reason = f": {failure.strerror or failure}" if failure else ""
    return ConnectionLostError(f"the driver has ended this attempt to read an open split{reason}")
