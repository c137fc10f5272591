"""A message from a stream, and its acknowledgements (ADR-15, "Ack Handling")."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from turnout.nats.jetstream._client import Frame
from turnout.nats.jetstream.connection import NatsConnection
from turnout.nats.protocol.headers import Headers, parse_table
from turnout.nats.protocol.positions import JSAck, is_redelivery, sequences

_ACK = b"+ACK"
_NAK = b"-NAK"
_TERM = b"+TERM"
_PROGRESS = b"+WPI"
ACK_PREFIX = b"$JS.ACK."
"""Prefix of the reply subject of every message from a stream."""


# Not tracked by the collector of cycles, which would visit every buffered message again and again. A cycle through a
# connection exists only while the connection has buffered messages; closing it drops them.
class Message(msgspec.Struct, eq=False, gc=False):
    """Delivered message with its acknowledgements; `turnout.nats.wire.Message` is the raw form.

    One terminal acknowledgement counts: after it, every other is ignored in silence, and all are where the consumer
    requires none (ADR-15). A message counts as acknowledged only when the frame has been given to the connection.

    Attributes:
        data: the payload.
    """

    # A struct is made in a third of the time of a class with slots. What is not always asked for is parsed when it is.
    _connection: NatsConnection
    _subject: bytes
    _reply: bytes
    _raw_headers: bytes
    data: bytes
    _acked: bool = False
    _headers: Headers | None = None
    _metadata: JSAck | None = None
    # 0 until the reply is parsed.
    _sequence: int = 0

    def __repr__(self) -> str:
        return f"<Message {self.subject!r} {len(self.data)} bytes, reply {self.reply!r}>"

    @property
    def subject(self) -> str:
        """The subject under which it is stored, without any API prefix."""
        return self._subject.decode("utf-8", "replace")

    @property
    def reply(self) -> str:
        """The JSAck, verbatim."""
        return self._reply.decode("utf-8", "replace")

    @property
    def headers(self) -> Headers:
        """All headers with their values in order; empty if the message has no headers."""
        if self._headers is None:
            self._headers = parse_table(self._raw_headers) if self._raw_headers else {}
        return self._headers

    def header(self, name: str) -> str:
        """Return the first value of a header, empty if the header is missing."""
        return self.headers.get(name, [""])[0]

    @property
    def metadata(self) -> JSAck:
        """Position of the message in its stream and consumer.

        Raises:
            NotJetStreamMessageError: the reply is no JSAck.
        """
        if self._metadata is None:
            self._metadata = JSAck.parse(self.reply)
        return self._metadata

    @property
    def sequence(self) -> int:
        """Its sequence in the stream.

        Raises:
            NotJetStreamMessageError: the reply is no JSAck.
        """
        self._check()
        return self._sequence

    @property
    def is_redelivered(self) -> bool:
        """True if the consumer has delivered it before.

        Raises:
            NotJetStreamMessageError: the reply is no JSAck.
        """
        self._check()
        return is_redelivery(self._reply)

    @property
    def timestamp(self) -> datetime:
        """Time at which the message was stored."""
        return self.metadata.timestamp

    @property
    def is_acked(self) -> bool:
        """True if a terminal acknowledgement was sent, or none is expected."""
        return self._acked

    async def ack(self) -> None:
        """Acknowledge the message as processed (+ACK)."""
        self.ack_now()
        connection = self._connection
        if connection.congested:
            await connection.relieve(5.0)

    def ack_now(self) -> None:
        """Acknowledge like `ack`, without waiting for a connection that is congested.

        Raises:
            ConnectionLostError: the connection is closed, or away with its buffer full.
        """
        if self._acked:
            return
        reply = self._reply
        if self._sequence or (reply.count(b".") == 8 and reply.startswith(ACK_PREFIX)):
            self._connection.acknowledge(reply)
            self._acked = True
        else:
            self._answer_now(_ACK, terminal=True)

    async def double_ack(self, timeout: float = 5.0) -> None:
        """Acknowledge the message as processed and wait for the server's confirmation.

        Raises:
            RequestTimeoutError: no confirmation in time; the message does not count as acknowledged.
            NoRespondersError: the ack subject of this consumer has no subscribers.
        """
        self._check()
        if not self._acked:
            await self._connection.ask_and_wait(self.reply, _ACK, timeout=timeout)
            self._acked = True

    async def nak(self, delay: float | None = None) -> None:
        """Reject the message for redelivery, immediately or after *delay* seconds (-NAK)."""
        payload = _NAK if not delay else b'%b {"delay": %d}' % (_NAK, round(delay * 1_000_000_000))
        await self._answer(payload, terminal=True)

    async def term(self, reason: str = "") -> None:
        """Prevent redelivery of the message (+TERM); the reason appears in the server's advisory."""
        await self._answer(f"+TERM {reason}".encode() if reason else _TERM, terminal=True)

    async def in_progress(self) -> None:
        """Report work in progress, which restarts the message's acknowledgement timeout (+WPI)."""
        await self._answer(_PROGRESS, terminal=False)

    async def _answer(self, payload: bytes, *, terminal: bool) -> None:
        if self._answer_now(payload, terminal=terminal) and self._connection.congested:
            await self._connection.relieve(5.0)

    def _answer_now(self, payload: bytes, *, terminal: bool) -> bool:
        """Answer unless that is done; return True if something was sent."""
        if self._acked:
            return False
        self._check()
        self._connection.send_to(self._reply, payload)
        self._acked = terminal
        return True

    def nak_now(self) -> None:
        """Give the message back without waiting: for clean-up while being cancelled."""
        if not self._acked and self._reply.startswith(ACK_PREFIX):
            self._acked = True
            self._connection.send_to(self._reply, _NAK)

    def _check(self) -> None:
        """Refuse to answer other messages than JetStream's.

        Raises:
            NotJetStreamMessageError: the reply is no JSAck.
        """
        if not self._sequence:
            self._sequence = sequences(self._reply)[0]


def make_messages(connection: NatsConnection, frames: Sequence[Frame], acks_nothing: bool) -> list[Message]:
    """Return a message for each frame."""
    return [
        Message(connection, subject, reply, headers, data, acks_nothing) for subject, reply, headers, data in frames
    ]
