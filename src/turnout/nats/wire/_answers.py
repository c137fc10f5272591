"""Reading of positive answers to published messages; answers of any other form are read by the publisher one by one."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from turnout.nats.wire._publish_batch import Numbers
from turnout.nats.wire.frames import Frames, numbers_before, windows

Flags = NDArray[np.bool_]

_FEW_BYTES: Final = 1 << 15
"""Bytes of answers up to which they are read one by one: the vectorised way takes as long as fifty of them."""

_SEQUENCE = b'"seq":'
_DUPLICATE = b'"duplicate":'
_ERROR = b'"error"'
_ANSWER = re.compile(rb"MSG \S+\.([0-9]{1,18}) \S+ ([0-9]{1,10})\r\n(\{[^\r\n]*\})\r\n")


@dataclass(frozen=True)
class Answers:
    """Answers that say that messages are stored.

    Attributes:
        numbers: the last token of each answer's subject.
        known: whether each says that the stream knew the message.
    """

    numbers: Numbers
    known: Flags

    @classmethod
    def read_few(cls, memory: bytearray, filled: int) -> tuple[Self, int] | None:
        """Read the complete frames at the beginning of a buffer, in one pass.

        Returns:
            The answers and their number of bytes; None where there are many, none, or anything of another form.
        """
        if filled > _FEW_BYTES:
            return None
        numbers, known = [], []
        at = 0
        while (answer := _ANSWER.match(memory, at, filled)) is not None:
            number, size, text = answer.groups()
            if len(text) != int(size) or _ERROR in text or text.count(_SEQUENCE) != 1:
                return None
            numbers.append(int(number))
            known.append(_DUPLICATE in text)
            at = answer.end()
        if not numbers or memory.find(b"\r\n", at, filled) >= 0:
            return None
        return cls(np.array(numbers, np.int64), np.array(known, np.bool_)), at

    @classmethod
    def read_many(cls, memory: bytearray, filled: int, frames: Frames) -> Self | None:
        """Read the frames of a buffer at once; None where one of them is of another form."""
        end = frames.consumed
        if frames.with_headers.any() or memory.find(_ERROR, 0, end) >= 0:
            return None
        if memory.count(_SEQUENCE, 0, end) != len(frames):
            return None
        words = windows(memory, filled, "<u8")
        _, sid_start = numbers_before(words, frames.size_start - 1)
        numbers, _ = numbers_before(words, sid_start - 1)
        known = np.zeros(len(frames), dtype=np.bool_)
        at = memory.find(_DUPLICATE, 0, end)
        while at >= 0:
            known[np.searchsorted(frames.start, at, side="right") - 1] = True
            at = memory.find(_DUPLICATE, at + 1, end)
        return cls(numbers, known)

    @cached_property
    def counts(self) -> tuple[dict[int, int], dict[int, int]]:
        """Number of answers by their number, and of those from streams that knew the message."""
        return _counts(self.numbers), _counts(self.numbers[self.known])


def _counts(numbers: Numbers) -> dict[int, int]:
    if not len(numbers):
        return {}
    distinct, counts = np.unique(numbers, return_counts=True)
    return dict(zip(distinct.tolist(), counts.tolist(), strict=True))
