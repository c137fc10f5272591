"""Positions in a stream: of messages by their reply subjects (ADR-15, "JSAck"), and with the identity of the stream.

::

    $JS.ACK.<stream>.<consumer>.<delivered>.<stream seq>.<consumer seq>.<timestamp>.<pending>
    $JS.ACK.<domain>.<account hash>.<stream>.<consumer>.<delivered>.<stream seq>.<consumer seq>.<timestamp>.<pending>…

Commands write the position of a message as STREAM:SEQ.

A sequence says nothing without the stream that counted it (decision 36): one that is deleted and created again, or
restored from a backup, begins again under the same name. The server gives each stream a creation time, which it keeps
over restarts; a store that is replaced by an older copy keeps it too, and is known by its end, or by the time of the
message before the position.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Self

from turnout.base.untrusted import LARGEST_SEQUENCE, decimal
from turnout.nats.protocol.errors import NotJetStreamMessageError, StreamReplacedError

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


@dataclass(frozen=True, slots=True)
class StreamIdentity:
    """Identity of a stream, which distinguishes it from others of its name.

    Attributes:
        created: creation time, as the server has it.
        token: identity in message ids and origins; "" for a checkpoint of an earlier release, whose ids have none.

    >>> StreamIdentity.of("2026-11-28T15:10:45.5Z").label("ORDERS")
    'ORDERS.18ec3e1cf4bcb700'
    """

    created: str
    token: str

    @classmethod
    def of(cls, created: str) -> Self:
        """Return the identity of a stream that was created at a time."""
        at = _nanoseconds(created)
        return cls(created, f"{at:x}" if at else "")

    @classmethod
    def adopted(cls, created: str) -> Self:
        """Return the identity of a stream for a checkpoint of an earlier release, which keeps its ids."""
        return cls(created, "")

    def label(self, stream: str) -> str:
        """Return the stream with its identity, as origins begin; no name of a stream has a dot."""
        return f"{stream}.{self.token}" if self.token else stream


@dataclass(frozen=True, slots=True)
class Position:
    """Position in a stream.

    Attributes:
        identity: identity of the stream.
        next: the next sequence.
        time: when the message before it was stored, in microseconds since 1970; None if that is unknown.
    """

    identity: StreamIdentity
    next: int
    time: int | None = None


@dataclass(frozen=True, slots=True)
class Origin:
    """Message of a stream, as message ids, dead letters and lineage headers write it.

    Attributes:
        stream: name of the stream.
        sequence: its sequence there.
        token: identity of the stream; "" in texts of earlier releases, which have none.

    >>> Origin.parse("ORDERS.18ec3e1cf4bcb700:17"), Origin.parse("orders:0:17")
    (Origin(stream='ORDERS', sequence=17, token='18ec3e1cf4bcb700'), Origin(stream='orders:0', sequence=17, token=''))
    """

    stream: str
    sequence: int
    token: str = ""

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Parse ``STREAM:SEQUENCE`` or ``STREAM.IDENTITY:SEQUENCE``; None for another text."""
        label, _, digits = text.strip().rpartition(":")
        sequence = decimal(digits, LARGEST_SEQUENCE)
        return cls.of(label, sequence) if label and sequence is not None else None

    @classmethod
    def of(cls, label: str, sequence: int) -> Self:
        """Return the origin of a message; *label* is its stream, with or without its identity."""
        stream, _, token = label.partition(".")
        return cls(stream, sequence, token)

    def is_of(self, created: str) -> bool:
        """Return True if the message may be of the stream that was created at a time."""
        return not self.token or self.token == StreamIdentity.of(created).token


def microseconds(stored: str) -> int | None:
    """Return a time of the server in microseconds since 1970; None for that of an empty stream, and for no time.

    >>> microseconds("1970-01-01T00:00:01.0000015Z"), microseconds("0001-01-01T00:00:00Z")
    (1000001, None)
    """
    nanoseconds = _nanoseconds(stored)
    return nanoseconds // 1000 if nanoseconds > 0 else None


def _nanoseconds(text: str) -> int:
    """Return an RFC 3339 time in UTC, with up to nine digits behind the second, in nanoseconds since 1970.

    What is none, and what is before 1970, is 0.
    """
    whole, _, fraction = text.rstrip("Z").partition(".")
    try:
        seconds = int(datetime.fromisoformat(f"{whole}+00:00").timestamp())
        return max(0, seconds * 10**9 + int(fraction[:9].ljust(9, "0")))
    except ValueError:
        return 0


_CURE = (
    "set failOnDataLoss=false to read it from its first message, or begin with another checkpoint at the position that"
    " you want"
)


def replaced_error(stream: str, position: Position, created: str) -> StreamReplacedError:
    """Return the error for a position in a stream of which only the name is left."""
    return StreamReplacedError(
        f"the stream {stream!r} no longer has the sequences from {position.next:,} on, where reading continues: it was"
        f" created at {created}, and that is a position in an earlier stream of this name, created at"
        f" {position.identity.created}, which was deleted, or replaced by a backup, with what was not read; {_CURE}",
        code=404,
    )


def replaced_origin_error(origin: Origin, created: str) -> StreamReplacedError:
    """Return the error for a message of a stream of which only the name is left."""
    return StreamReplacedError(
        f"the stream {origin.stream!r} was created at {created}, after the one of message {origin.sequence:,}"
        f" ({origin.stream}.{origin.token}): that one was deleted and made anew, or restored from a backup",
        code=404,
    )


def older_data_error(stream: str, position: Position, end: int) -> StreamReplacedError:
    """Return the error for a position behind the end of a stream."""
    return StreamReplacedError(
        f"the stream {stream!r}, created at {position.identity.created}, ends at sequence {end - 1:,}, and reading"
        f" continues at {position.next:,}: the server has older data than before, as from a backup of its store, and"
        f" gives the sequences from {end:,} on to other messages; {_CURE}",
        code=404,
    )


def other_message_error(stream: str, position: Position, time: int) -> StreamReplacedError:
    """Return the error for a position whose previous message is another one than that which was read."""
    read, found = (datetime.fromtimestamp(at / 1e6).astimezone().isoformat() for at in (position.time or 0, time))
    return StreamReplacedError(
        f"the stream {stream!r}, created at {position.identity.created}, has another message {position.next - 1:,} than"
        f" the one that was read (stored at {found}, not at {read}), and reading continues behind it: the server was"
        f" restored to older data and has given its sequences to other messages since; {_CURE}",
        code=404,
    )
