"""JSAck: what a JetStream message's reply subject tells (ADR-15, "JSAck")."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from turnout.jetstream.errors import NotJetStreamMessageError

__all__ = ["JSAck"]

_V1_TOKENS = 9
_V2_TOKENS = 11
_NUMBERS = ("num_delivered", "stream_seq", "consumer_seq", "timestamp", "num_pending")


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
        """When the message was stored, in UTC, cut to microseconds."""
        seconds, rest = divmod(self.timestamp_ns, 1_000_000_000)
        return datetime.fromtimestamp(seconds, UTC).replace(microsecond=rest // 1000)

    @classmethod
    def parse(cls, reply: str) -> JSAck:
        """Read a reply subject of either version; further tokens of later servers are allowed.

        Raises:
            NotJetStreamMessageError: another beginning, 10 or fewer than 9 tokens, an empty name, or something that
                is no number where a number belongs.
        """
        tokens = reply.split(".")
        count = len(tokens)
        if tokens[0] != "$JS" or count < 2 or tokens[1] != "ACK":
            raise NotJetStreamMessageError(reply, "does not begin with $JS.ACK")
        if count == _V1_TOKENS:
            version, domain, account_hash, first = 1, "", None, 2
        elif count >= _V2_TOKENS:
            version, domain, account_hash, first = 2, tokens[2], tokens[3], 4
        else:
            raise NotJetStreamMessageError(reply, f"has {count} tokens; 9, or 11 and more, are expected")
        for name, text in (("stream", tokens[first]), ("consumer", tokens[first + 1])):
            if not text:
                raise NotJetStreamMessageError(reply, f"has an empty {name} name")
        numbers = tokens[first + 2 : first + 7]
        for name, text in zip(_NUMBERS, numbers, strict=True):
            # isdecimal alone also accepts the digits of other scripts; int() alone accepts "-1", " 1" and "1_0".
            if not (text.isascii() and text.isdecimal()):
                raise NotJetStreamMessageError(reply, f"has {text!r} as {name}, which is not a number")
        return cls(
            version,
            "" if domain == "_" else domain,
            account_hash,
            tokens[first],
            tokens[first + 1],
            *(int(text) for text in numbers),
        )

    def __str__(self) -> str:
        """The reply subject again, without the further tokens."""
        parts = [self.stream, self.consumer, self.num_delivered, self.stream_seq, self.consumer_seq]
        parts += [self.timestamp_ns, self.num_pending]
        if self.version == 2:
            parts = [self.domain or "_", self.account_hash or "", *parts]
        return ".".join(["$JS.ACK", *map(str, parts)])
