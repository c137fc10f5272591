"""Answers to flow control of a push consumer, each request once (ADR-15, "Flow Control")."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from turnout.errors import StreamError
from turnout.nats.jetstream.connection import NatsConnection

_STALLS_UNTIL_LOST = 3
"""Heartbeats that repeat an answered request until its answers count as lost."""


class FlowControl:
    """Requests for flow control of one subscription.

    Args:
        connection: the connection that answers are sent on.
        lost: called with the subject of a request whose answers do not reach the consumer.
    """

    def __init__(self, connection: NatsConnection, lost: Callable[[bytes], None]) -> None:
        self._connection = connection
        self._lost = lost
        self._answered = b""
        self._stalls = 0

    def answer(self, subject: bytes) -> None:
        """Answer a request, unless it is the one that was answered last."""
        if subject == self._answered:
            return
        self._answered = subject
        with contextlib.suppress(StreamError, ConnectionError):
            self._connection.send_to(subject)

    def stalled(self, subject: bytes, *, waiting: bool) -> None:
        """Handle a heartbeat that says that the consumer waits for the answer to a request.

        Args:
            subject: the subject of the request.
            waiting: whether messages are buffered, behind which the request may be.
        """
        if subject != self._answered:
            self._stalls = 0
            # The request itself was lost, or is still behind messages: it must not be answered early.
            if not waiting:
                self.answer(subject)
            return
        self._stalls += 1
        if self._stalls == _STALLS_UNTIL_LOST:
            self._lost(subject)
