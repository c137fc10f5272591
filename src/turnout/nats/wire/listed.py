"""Reading of a few frames one by one, as lists: the vectorised way takes a millisecond whatever their number."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple, Self

import numpy as np
import pyarrow as pa

from turnout.nats.protocol.frames import MAX_SIZE_DIGITS
from turnout.nats.protocol.headers import MESSAGE_ID, parse
from turnout.records.header_column import ARROW
from turnout.records.listed import Pairs
from turnout.records.types import ArrowArray
from turnout.untrusted import LARGEST_SEQUENCE

FEW_BYTES: Final = 1 << 17
"""Of larger buffers the vectorised way makes fewer copies."""

LONGEST_NUMBER: Final = 19
"""Digits of the largest number in a reply subject."""

_NUMBER = rb"([0-9]{1,%d})" % LONGEST_NUMBER
_SIZE = rb"[0-9]{1,%d}" % MAX_SIZE_DIGITS
# The reply subject has two tokens more with a domain; only a line with headers has two sizes.
_USUAL_REPLY = rb"\$JS\.ACK\.(?:(?:[^\s.]*\.){2}){1,2}[0-9]{1,%d}\.%b" % (LONGEST_NUMBER, rb"\.".join([_NUMBER] * 4))
_USUAL_LINE = re.compile(rb"(?:MSG|(HMSG)) (\S+) \S+ (%b)(?(1) (%b)) (?P<size>%b)" % (_USUAL_REPLY, _SIZE, _SIZE))

_Message = tuple[str, int, int, int, int, bytes, bytes | None, Pairs, int]
"""Topic, sequence, time in nanoseconds, consumer's sequence, pending messages, payload, id, headers, size."""


class Listed(NamedTuple):
    """Messages that were read one by one, as lists.

    Attributes:
        topics: by message, as all lists here.
        sequences: their sequences in the stream.
        times: nanoseconds since 1970.
        consumer_sequences: their sequences in the consumer.
        pending: how many messages of the stream the consumer had left behind each.
        payloads: bytes behind the headers.
        keys: message ids; None where there is none.
        headers: names and values.
        sizes: see `turnout.nats.wire.records.Received`.
    """

    topics: Sequence[str]
    sequences: Sequence[int]
    times: Sequence[int]
    consumer_sequences: Sequence[int]
    pending: Sequence[int]
    payloads: Sequence[bytes]
    keys: Sequence[bytes | None]
    headers: Sequence[Pairs]
    sizes: Sequence[int]

    @classmethod
    def read(cls, memory: bytearray, filled: int, largest: int) -> tuple[Self, int] | None:
        """Read the complete frames at the beginning of a buffer, in one pass.

        Args:
            memory: the buffer.
            filled: how many bytes of it count.
            largest: the most bytes that a message may have, headers included.

        Returns:
            The messages, and how many bytes they take; None without a complete one, and where there is anything but
            messages of the usual form. The vectorised way reads those, and raises the errors.
        """
        messages = []
        at = 0
        while (line_end := memory.find(b"\r\n", at, filled)) >= 0:
            line = _USUAL_LINE.fullmatch(memory, at, line_end)
            if line is None or (size := int(line["size"])) > largest:
                return None
            begin = line_end + 2
            end = begin + size
            if end + 2 > filled:
                break
            message = _message(line, bytes(memory[begin:end]))
            if message is None or not memory.startswith(b"\r\n", end):
                return None
            messages.append(message)
            at = end + 2
        return (cls._make(zip(*messages, strict=True)), at) if messages else None

    def columns(self, partition: int) -> list[ArrowArray]:
        """Return the messages as Arrow arrays in the order of `turnout.nats.wire.records.SCHEMA`."""
        return [
            pa.array(self.topics, pa.string()),
            pa.array(np.full(len(self.topics), partition, np.int32)),
            pa.array(np.array(self.sequences, np.int64)),
            pa.array(self.keys, pa.binary()),
            pa.array(self.payloads, pa.binary()),
            _header_lists(self.headers),
            pa.array(np.array(self.times, np.int64) // 1000).cast(pa.timestamp("us", tz="UTC")),
        ]


def _header_lists(headers: Sequence[Pairs]) -> ArrowArray:
    """All headers as one list a message, null where it has none; Arrow takes five times as long for dictionaries."""
    lengths = np.array([len(pairs) for pairs in headers])
    names = pa.array([name for pairs in headers for name, _ in pairs], pa.string())
    values = pa.array([value for pairs in headers for _, value in pairs], pa.binary())
    pairs = pa.StructArray.from_arrays([names, values], fields=list(ARROW.value_type))
    offsets = np.zeros(len(headers) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    return pa.ListArray.from_arrays(pa.array(offsets), pairs, type=ARROW, mask=pa.array(lengths == 0))


def _message(line: re.Match[bytes], body: bytes) -> _Message | None:
    """Return the message of a line of the usual form: ``MSG subject sid reply size``, or ``HMSG`` with two sizes."""
    head, topic, reply, *numbers, head_size, _ = line.groups()
    sequence, consumer_sequence, time, pending = map(int, numbers)
    if max(sequence, consumer_sequence, time, pending) > LARGEST_SEQUENCE:
        return None
    try:
        text = topic.decode()
    except UnicodeDecodeError:
        return None
    size = len(topic) + len(reply) + len(body)
    if not head:
        return text, sequence, time, consumer_sequence, pending, body, None, (), size
    length = int(head_size)
    # A status has a code in its version line, and nothing behind its headers.
    if length >= len(body) or not is_whole_block(body[:length]):
        return None
    pairs = parse(body[:length])
    key = next((value for name, value in pairs if name == MESSAGE_ID), None)
    return text, sequence, time, consumer_sequence, pending, body[length:], key, pairs, size


def is_whole_block(block: bytes) -> bool:
    """Return True if a header block begins and ends as one."""
    return block.startswith(b"NATS/1.0\r\n") and block.endswith(b"\r\n\r\n")
