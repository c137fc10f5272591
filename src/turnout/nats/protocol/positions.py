"""JSAck: position of a message in its stream and its consumer, from its reply subject (ADR-15, "JSAck").

::

    $JS.ACK.<stream>.<consumer>.<delivered>.<stream seq>.<consumer seq>.<timestamp>.<pending>
    $JS.ACK.<domain>.<account hash>.<stream>.<consumer>.<delivered>.<stream seq>.<consumer seq>.<timestamp>.<pending>…

Commands write the position of a message as STREAM:SEQ.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Self

from turnout.base.untrusted import LARGEST_SEQUENCE, decimal
from turnout.nats.protocol.errors import NotJetStreamMessageError

_V1_TOKENS = 9
_V2_TOKENS = 11
_NUMBERS = ("num_delivered", "stream_seq", "consumer_seq", "timestamp", "num_pending")


def _first_token(reply: str, tokens: list[bytes]) -> int:
    """Return the index of the stream's name among the *tokens* of *reply*.

    Raises:
        NotJetStreamMessageError: another beginning, or a count of tokens that neither version has.
    """
    count = len(tokens)
    if tokens[:2] != [b"$JS", b"ACK"]:
        raise NotJetStreamMessageError(reply, "does not begin with $JS.ACK")
    if count == _V1_TOKENS:
        return 2
    if count >= _V2_TOKENS:
        return 4
    raise NotJetStreamMessageError(reply, f"has {count} tokens; 9, or 11 and more, are expected")


def _number(reply: str, name: str, token: bytes) -> int:
    number = decimal(token)
    if number is None:
        shown = token[:20].decode("utf-8", "replace")
        raise NotJetStreamMessageError(reply, f"has {shown!r} as {name}, which is not a number")
    return number


def stream_and_sequence(text: str) -> tuple[str, int] | None:
    """The message that is written STREAM:SEQ; None if the text is not.

    >>> stream_and_sequence("FLIGHTS:17"), stream_and_sequence("17"), stream_and_sequence("FLIGHTS:-1")
    (('FLIGHTS', 17), None, None)
    """
    stream, _, digits = text.strip().rpartition(":")
    sequence = decimal(digits, LARGEST_SEQUENCE)
    return (stream, sequence) if stream and sequence is not None else None


def sequences(reply: bytes) -> tuple[int, int]:
    """Parse only the stream sequence and the consumer sequence; the fast path for large numbers of messages.

    Raises:
        NotJetStreamMessageError: as `JSAck.parse`, but the other tokens are not checked.
    """
    tokens = reply.split(b".")
    try:
        first = 2 if len(tokens) == _V1_TOKENS else 4
        stream, consumer = tokens[first + 3], tokens[first + 4]
        if stream.isdigit() and consumer.isdigit() and len(tokens) != _V1_TOKENS + 1 and reply.startswith(b"$JS.ACK."):
            return int(stream), int(consumer)
    except (IndexError, ValueError):
        # Too few tokens, or thousands of digits: the full parser below reports the fault.
        pass
    ack = JSAck.parse(reply.decode("utf-8", "replace"))
    return ack.stream_seq, ack.consumer_seq


def is_redelivery(reply: bytes) -> bool:
    """Return True for a redelivered message, by one token of a checked reply.

    >>> is_redelivery(b"$JS.ACK.ORDERS.worker.1.42.7.1700000000000000000.3")
    False
    """
    tokens = reply.split(b".", 7)
    return tokens[4 if reply.count(b".") == _V1_TOKENS - 1 else 6] != b"1"


@dataclass(frozen=True, slots=True)
class JSAck:
    """The delivery facts in a reply subject.

    Attributes:
        version: 1 for 9 tokens, 2 for 11 and more.
        domain: empty where there is none; the wire says ``_``.
        account_hash: None in version 1; only for routing, in both.
        stream: the stream's name.
        consumer: the consumer's name.
        num_delivered: how often this message was delivered to this consumer, from 1.
        stream_seq: its sequence in the stream.
        consumer_seq: its sequence in the consumer's deliveries; redeliveries count too.
        timestamp_ns: when it was stored, in nanoseconds since 1970.
        num_pending: how many messages were left for the consumer when this one was sent.

    >>> ack = JSAck.parse("$JS.ACK.ORDERS.worker.1.42.7.1700000000000000000.3")
    >>> ack.stream, ack.consumer, ack.stream_seq, ack.num_pending
    ('ORDERS', 'worker', 42, 3)
    """

    version: int
    domain: str
    account_hash: str | None
    stream: str
    consumer: str
    num_delivered: int
    stream_seq: int
    consumer_seq: int
    timestamp_ns: int
    num_pending: int

    @property
    def timestamp(self) -> datetime:
        """Time at which the message was stored, in UTC, truncated to microseconds."""
        seconds, rest = divmod(self.timestamp_ns, 1_000_000_000)
        return datetime.fromtimestamp(seconds, UTC).replace(microsecond=rest // 1000)

    @classmethod
    def parse(cls, reply: str) -> Self:
        """Read a reply subject of either version; further tokens of later servers are allowed.

        Raises:
            NotJetStreamMessageError: another beginning, 10 or fewer than 9 tokens, an empty name, or something that
                is no number of 64 bits where one belongs.
        """
        tokens = reply.encode("utf-8", "replace").split(b".")
        first = _first_token(reply, tokens)
        domain, account_hash = (tokens[2].decode(), tokens[3].decode()) if first == 4 else ("", None)
        stream, consumer = tokens[first].decode(), tokens[first + 1].decode()
        for name, text in (("stream", stream), ("consumer", consumer)):
            if not text:
                raise NotJetStreamMessageError(reply, f"has an empty {name} name")
        numbers = zip(_NUMBERS, tokens[first + 2 : first + 7], strict=True)
        return cls(
            first // 2,
            "" if domain == "_" else domain,
            account_hash,
            stream,
            consumer,
            *(_number(reply, name, token) for name, token in numbers),
        )

    def __str__(self) -> str:
        """The reply subject again, without the further tokens."""
        parts = [self.stream, self.consumer, self.num_delivered, self.stream_seq, self.consumer_seq]
        parts += [self.timestamp_ns, self.num_pending]
        if self.version == 2:
            parts = [self.domain or "_", self.account_hash or "", *parts]
        return ".".join(["$JS.ACK", *map(str, parts)])
