"""Progress of a consumer group in one partition whose records are finished in any order.

Kafka keeps one offset for each partition. The lowest unfinished one is committed, with a note of which offsets behind
it are unfinished too, so that a successor repeats these alone.
"""

from __future__ import annotations

import zlib
from base64 import b64decode, b64encode
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, pairwise
from typing import Final

from turnout.base.varint import varint

_FORM: Final = "1:"
_MAX_CHARACTERS: Final = 3_900
"""Longest note: brokers take 4,096 bytes, unless ``offset.metadata.max.bytes`` says else."""

_MAX_NOTED: Final = 20_000
_MAX_BYTES: Final = 10 * (_MAX_NOTED + 1)


class PartitionProgress:
    """Unfinished offsets of one partition; not safe for several threads.

    Args:
        offset: the committed one, or the first to read.
        note: that was committed with it; one that cannot be read is no note.

    Attributes:
        next: the offset behind the last that was read.

    >>> progress = PartitionProgress(10)
    >>> [progress.begin(offset) for offset in (10, 11, 12)]
    [True, True, True]
    >>> progress.end(10), progress.end(12), progress.commit()[0]
    (None, None, 11)
    >>> successor = PartitionProgress(*progress.commit())
    >>> [successor.begin(offset) for offset in (11, 12, 13)]
    [True, False, True]
    """

    def __init__(self, offset: int, note: str = "") -> None:
        until, waiting = _decoded(offset, note)
        self.next = offset
        self._until = until
        self._expected = deque(waiting)
        # In ascending order, as offsets are read.
        self._unfinished = dict.fromkeys(waiting)

    @property
    def unfinished(self) -> int:
        """Number of offsets that are known and not finished."""
        return len(self._unfinished)

    def begin(self, offset: int) -> bool:
        """Note that a record is read; return False if an earlier member of the group has finished it."""
        self.skip(offset)
        self.next = offset + 1
        if offset < self._until:
            if self._expected and self._expected[0] == offset:
                self._expected.popleft()
            return offset in self._unfinished
        self._unfinished[offset] = None
        return True

    def skip(self, offset: int) -> None:
        """Note that no record below an offset is still to come: those that the note names are gone."""
        self.next = max(self.next, offset)
        while self._expected and self._expected[0] < offset:
            self._unfinished.pop(self._expected.popleft(), None)

    def end(self, offset: int) -> None:
        """Note that a record is finished."""
        self._unfinished.pop(offset, None)

    def commit(self) -> tuple[int, str]:
        """Return the offset to commit, and its note; with too many unfinished ones the last are not noted."""
        waiting = list(islice(self._unfinished, _MAX_NOTED + 1))
        until = max(self._until, self.next)
        if not waiting:
            return until, ""
        count = len(waiting)
        while True:
            if count <= _MAX_NOTED:
                note = _encoded(waiting[:count], until if count == len(waiting) else waiting[count])
                if len(note) <= _MAX_CHARACTERS:
                    return waiting[0], note
            count = min(_MAX_NOTED, count * 3 // 4)


def _encoded(waiting: Sequence[int], until: int) -> str:
    """Return the note of unfinished offsets, the first of which is committed, below a bound."""
    steps = [right - left for left, right in pairwise(waiting)]
    numbers = b"".join(varint(number) for number in (until - waiting[0], *steps))
    return _FORM + b64encode(zlib.compress(numbers, 6)).decode()


def _decoded(offset: int, note: str) -> tuple[int, list[int]]:
    """Return the bound and the unfinished offsets below it; no bound beyond the offset for a foreign note."""
    if not note.startswith(_FORM) or len(note) > _MAX_CHARACTERS:
        return offset, []
    try:
        packed = b64decode(note.removeprefix(_FORM), validate=True)
        stream = zlib.decompressobj()
        numbers = list(_numbers(stream.decompress(packed, _MAX_BYTES)))
    except (ValueError, zlib.error):
        return offset, []
    # What is cut off has no end, and would name too few offsets.
    if not stream.eof or not numbers or 0 in numbers[1:]:
        return offset, []
    waiting = [offset]
    for step in numbers[1:]:
        waiting.append(waiting[-1] + step)
    until = offset + numbers[0]
    return (until, waiting) if waiting[-1] < until else (offset, [])


def _numbers(text: Iterable[int]) -> Iterator[int]:
    number = shift = 0
    for byte in text:
        number |= (byte & 0x7F) << shift
        shift += 7
        if shift > 70:
            raise ValueError("no number of 64 bits")
        if byte < 0x80:
            yield number
            number = shift = 0
