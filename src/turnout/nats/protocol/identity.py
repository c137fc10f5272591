"""Identity of a stream, and positions in it (decision 36).

A sequence says nothing without the stream that counted it: one that is deleted and created again, or restored from a
backup, begins again under the same name. The server gives each stream a creation time, which it keeps over restarts; a
store that is replaced by an older copy keeps it too, and is known by its end, or by the time of the message before the
position.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Self

from turnout.base.untrusted import LARGEST_SEQUENCE, decimal
from turnout.nats.protocol.errors import StreamReplacedError


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
