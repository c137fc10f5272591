"""Fence of a server that leads only as long as it has a lease: what its tasks ask before they write.

A server that was paused may wake up when another one leads. Its tasks, which can be on other machines and continue
while the server is paused, therefore write only within the time that the server has confirmed to them.
"""

from __future__ import annotations

import logging
import socket
import socketserver
import struct
import time
from collections.abc import Callable
from contextlib import suppress
from hmac import compare_digest
from secrets import token_bytes
from typing import Final

from turnout.errors import RunError
from turnout.runtime.driver import TaskServer

PERMIT_SECONDS: Final = 1.0
"""Longest permission: so long after the end of a leadership something of it may be written."""

_log = logging.getLogger("turnout.runtime")

Permit = tuple[float, int]
"""Seconds for which a server may write, 0 or less for none, and the term of its leadership."""

_ANSWER: Final = struct.Struct(">dq")
_TOKEN_BYTES: Final = 24
_TIMEOUT_SECONDS: Final = 2.0


class LeaseLostError(RunError):
    """Raised where a server that no longer leads would have written."""


def leased_seconds() -> float:
    """Return seconds that only grow, also while the machine sleeps.

    >>> leased_seconds() <= leased_seconds()
    True
    """
    return time.clock_gettime(time.CLOCK_BOOTTIME)


_of_process: list[str] = []


def guard_process(address: str) -> None:
    """Have all stages that this process makes from now on ask the fence before they write."""
    _of_process[:] = [address]


def fence_of_process() -> str | None:
    """Return the address of the fence that stages of this process ask; None if no other server may lead."""
    return _of_process[0] if _of_process else None


class Fence:
    """Permission of a task to write, which is asked for again at least every second.

    Args:
        address: as `FenceServer` gives it.
        clock: seconds that only grow.
    """

    def __init__(self, address: str, clock: Callable[[], float] = leased_seconds) -> None:
        host, port, token = address.split(" ")
        self._at = host, int(port)
        self._token = bytes.fromhex(token)
        self._clock = clock
        self._valid_until = clock()
        self._term = 0

    def check(self) -> None:
        """Return if the task may write now.

        Raises:
            LeaseLostError: the server does not lead any more, or does not answer.
        """
        if self._clock() < self._valid_until:
            return
        begun = self._clock()
        try:
            with socket.create_connection(self._at, timeout=_TIMEOUT_SECONDS) as connection:
                connection.sendall(self._token)
                seconds, self._term = _ANSWER.unpack(_received(connection, _ANSWER.size))
        except (OSError, struct.error) as failure:
            raise self._refusal(f"does not answer ({failure})") from None
        self._valid_until = begun + min(seconds, PERMIT_SECONDS)
        if self._clock() >= self._valid_until:
            raise self._refusal("no longer has the lease of the leader")

    def _refusal(self, reason: str) -> LeaseLostError:
        term = f" in term {self._term}" if self._term else ""
        refusal = LeaseLostError(f"nothing more is written{term}: the server of this run {reason}")
        # The process that catches it may be ended before it reports it.
        _log.warning("%s", refusal)
        return refusal


class FenceServer(TaskServer):
    """Answers the tasks of a run with the seconds that are left of the server's lease.

    Args:
        permit: returns what is left.
        host: the address to listen on, and the one that others know it by.
    """

    def __init__(self, permit: Callable[[], Permit], host: str = "127.0.0.1") -> None:
        token = token_bytes(_TOKEN_BYTES)

        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                with suppress(OSError):
                    self.request.settimeout(_TIMEOUT_SECONDS)
                    if compare_digest(_received(self.request, _TOKEN_BYTES), token):
                        self.request.sendall(_ANSWER.pack(*permit()))

        super().__init__("fence of the run", Handler, token.hex(), host)


def _received(connection: socket.socket, size: int) -> bytes:
    """Return so many bytes, or fewer if the other side ends before."""
    data = b""
    while len(data) < size and (more := connection.recv(size - len(data))):
        data += more
    return data
