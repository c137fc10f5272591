"""Position of a push subscription in its consumer, by the replies of messages."""

from __future__ import annotations

from collections.abc import Sequence

_MAX_DIGITS = 19
"""Digits of a stream sequence that is read without further checks."""

_NONE = b" "
"""Prefix that no reply has: none contains a blank."""


class ConsumerPosition:
    """Sequences of the last message of a consumer.

    Attributes:
        consumer_seq: of the message in the consumer; 0 before the first.
        stream_seq: of the message in the stream.
    """

    __slots__ = ("_prefix", "consumer_seq", "stream_seq")

    def __init__(self) -> None:
        self.consumer_seq = 0
        self.stream_seq = 0
        self._prefix = _NONE

    def set(self, reply: bytes, stream_seq: int, consumer_seq: int) -> None:
        """Set the position to a message, whose reply has these sequences."""
        self.consumer_seq = consumer_seq
        self.stream_seq = stream_seq
        # Everything before the last five tokens, if these are the numbers.
        self._prefix = reply.rsplit(b".", 5)[0] if reply.count(b".") in (8, 10) else _NONE

    def advance(self, reply: bytes) -> bool:
        """Advance to a message if it is the next one of the same consumer; False if not."""
        tokens = reply.rsplit(b".", 5)
        if (
            tokens[0] != self._prefix
            or tokens[3] != b"%d" % (self.consumer_seq + 1)
            or not tokens[2].isdigit()
            or len(tokens[2]) > _MAX_DIGITS
        ):
            return False
        self.consumer_seq += 1
        self.stream_seq = int(tokens[2])
        return True

    def advance_all(self, replies: Sequence[bytes]) -> bool:
        """Advance to the last of these messages if each is the next one, as `advance` does for each; else False.

        Of one message it takes five times as long as `advance`, of many less than half.
        """
        count, next_seq = len(replies), self.consumer_seq + 1
        # Blanks are in no reply, and so mark where each begins; its prefix is cut off with the blank.
        tokens = (b" " + b" ".join(replies)).replace(b" %b." % self._prefix, b". .").split(b".")
        # Of each: the mark, deliveries, both sequences, time, and pending.
        if len(tokens) != 6 * count + 1 or tokens[1::6].count(b" ") != count:
            return False
        stream_seqs = tokens[3::6]
        expected = str(list(range(next_seq, next_seq + count)))[1:-1].encode()
        if (
            b", ".join(tokens[4::6]) != expected
            or not all(map(bytes.isdigit, stream_seqs))
            or max(map(len, stream_seqs)) > _MAX_DIGITS
        ):
            return False
        self.consumer_seq += count
        self.stream_seq = int(stream_seqs[-1])
        return True
