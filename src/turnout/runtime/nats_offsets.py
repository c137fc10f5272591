"""Offsets of NATS sources in a checkpoint: ``{"STREAM": sequence}``, with optional keys beside it.

A stream's name has no dot, so keys with a dot are free for other facts:

- ``STREAM.from``: first sequence of the micro-batch, where no earlier offset in the checkpoint has it.
- ``STREAM.open``: number of an open split. Spark's offsets are ends of micro-batches, and an open split has none when
  it is planned: its sequence is its beginning, and the number, one higher for each open split, makes the offset differ
  from the last one. Its position is recorded under the number (`turnout.runtime.open_splits`) and is where the next
  micro-batch begins.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_OPEN_SUFFIX: Final = ".open"
_BEGIN_SUFFIX: Final = ".from"

LARGE_BACKLOG: Final = 50_000
"""With more records than this to catch up with, micro-batches have an end: they cost less by record."""

_SMALL_BACKLOG: Final = 10_000


def number_in(offset: Mapping[str, int], stream: str | None = None) -> int | None:
    """Return the number of the open split in an offset, of any stream or of one; None if there is none."""
    numbers = open_numbers(offset)
    return next(iter(numbers.values()), None) if stream is None else numbers.get(stream)


def open_numbers(offset: Mapping[str, int]) -> dict[str, int]:
    """Return the numbers of the open splits in an offset, by stream."""
    return _with_suffix(offset, _OPEN_SUFFIX)


def begins(offset: Mapping[str, int]) -> dict[str, int]:
    """Return the first sequences of a micro-batch that its offset records, by stream."""
    return _with_suffix(offset, _BEGIN_SUFFIX)


def begin_keys(starts: Mapping[str, int]) -> dict[str, int]:
    """Return the keys of an offset that record the first sequences of its micro-batch, given by stream."""
    return {f"{stream}{_BEGIN_SUFFIX}": sequence for stream, sequence in starts.items()}


def _with_suffix(offset: Mapping[str, int], suffix: str) -> dict[str, int]:
    return {name.removesuffix(suffix): number for name, number in offset.items() if name.endswith(suffix)}


def opened(starts: Mapping[str, int], number: int) -> dict[str, int]:
    """Return the offset of an open split that begins at *starts*."""
    return {**starts, **{f"{stream}{_OPEN_SUFFIX}": number for stream in starts}}


def closed(offset: dict[str, int], starts: Mapping[str, int]) -> dict[str, int]:
    """Return the offset with which a bounded micro-batch follows; *offset* unchanged if it has no open split.

    Args:
        offset: the last one.
        starts: first sequences of the next micro-batch, by stream.
    """
    if number_in(offset) is None:
        return offset
    return {**starts, **begin_keys(starts)}


class Backlog:
    """Choice between open splits and micro-batches with an end, with hysteresis."""

    def __init__(self) -> None:
        self._large = False

    def is_large(self, records: int) -> bool:
        """Return True from the moment that more than 50,000 records wait until there are no more than 10,000."""
        self._large = records > (_SMALL_BACKLOG if self._large else LARGE_BACKLOG)
        return self._large
