"""Connection to an endpoint: one request at a time, with a time limit, and kept for the next."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol, cast

from turnout.delivery.response import Response, ResponseReader
from turnout.delivery.target import Target

_IDLE_SECONDS: Final = 30.0
_BUFFER_BYTES: Final = 4_096
"""Bytes of one read: most responses are shorter."""

_CLOSED: Final = "the endpoint closed the connection before its response"


@dataclass(slots=True, eq=False)
class Exchange:
    """One request with the callback for its response.

    Attributes:
        target: target of the request.
        request: its bytes.
        timeout: seconds for everything, from the connection to the last byte that is read.
        deadline: when they are over, by the loop's clock.
        max_response: bytes that are read of the body.
        done: called once with the outcome, and never before the call that sent the request has returned.
        owner: tenant of the request; "" for none.
    """

    target: Target
    request: bytes
    timeout: float
    deadline: float
    max_response: int
    done: Callable[[Response], None]
    owner: str = ""

    @property
    def late(self) -> Response:
        """The outcome if the time is over."""
        return Response.failure(f"no response within {self.timeout:g} s")


class Pool(Protocol):
    """Keeper of connections."""

    def keep(self, connection: Connection) -> None:
        """Take a connection that may have another request."""

    def forget(self, connection: Connection) -> None:
        """Drop a connection that is closed."""

    def send_anew(self, exchange: Exchange) -> None:
        """Send a request over a new connection, as its endpoint has closed a kept one before it had the request."""


class Connection(asyncio.BufferedProtocol):
    """HTTP/1.1 connection to one origin.

    It has its own small buffer: without one, asyncio allocates 256 KiB for each read, which takes longer than a
    request. One timer serves all its requests and the time without any: it is set anew only when it runs out, or for an
    earlier moment.

    Args:
        target: its origin.
        pool: keeps it between requests.
    """

    def __init__(self, target: Target, pool: Pool) -> None:
        self.target = target
        self._pool = pool
        self._loop = asyncio.get_running_loop()
        self._reader = ResponseReader()
        self._buffer = memoryview(bytearray(_BUFFER_BYTES))
        self._transport: asyncio.Transport | None = None
        self._exchange: Exchange | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._deadline = 0.0
        self._was_kept = False

    def begin(self, exchange: Exchange) -> None:
        """Send a request."""
        if self._transport is None:
            # Closed by its endpoint as soon as it was open, and before this was called.
            exchange.done(Response.failure(_CLOSED))
            return
        self._exchange = exchange
        self._reader.begin(exchange.max_response)
        self._set_deadline(exchange.deadline)
        self._transport.write(exchange.request)

    def close(self) -> None:
        """Close it at once; a request that is under way gets no outcome."""
        self._exchange = None
        self._drop()

    # -- called by the loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the transport."""
        self._transport = cast("asyncio.Transport", transport)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - a part of the protocol
        """Return the buffer of the next read."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Read the endpoint's bytes; without a request close, as the next response could be another's."""
        if self._exchange is None:
            self._drop()
            return
        response = self._reader.feed(self._buffer[:nbytes])
        if response is not None:
            self._finish(response, keep=self._reader.is_reusable)

    def connection_lost(self, failure: Exception | None) -> None:
        """End the request that is under way."""
        self._transport = None
        if self._timer is not None:
            self._timer.cancel()
        self._pool.forget(self)
        exchange, self._exchange = self._exchange, None
        if exchange is None:
            return
        response = self._reader.end()
        if response is not None:
            exchange.done(response)
        elif self._was_kept and self._reader.is_empty:
            self._pool.send_anew(exchange)
        else:
            exchange.done(Response.failure(failure or _CLOSED))

    def _finish(self, response: Response, *, keep: bool) -> None:
        exchange, self._exchange = self._exchange, None
        if keep:
            self._was_kept = True
            self._set_deadline(self._loop.time() + _IDLE_SECONDS)
            self._pool.keep(self)
        else:
            self._drop()
        if exchange is not None:
            exchange.done(response)

    def _drop(self) -> None:
        self._pool.forget(self)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._transport is not None:
            # Not closed in order, which would wait for an endpoint that takes nothing.
            self._transport.abort()

    def _set_deadline(self, deadline: float) -> None:
        self._deadline = deadline
        if self._timer is not None:
            if self._timer.when() <= deadline:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(deadline, self._time_over)

    def _time_over(self) -> None:
        self._timer = None
        if self._loop.time() < self._deadline:
            self._set_deadline(self._deadline)
        elif self._exchange is not None:
            self._finish(self._exchange.late, keep=False)
        else:
            self._drop()
