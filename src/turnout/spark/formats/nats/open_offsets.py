"""Offsets of open splits: ``{"STREAM": sequence, "STREAM.open": number}``.

An offset of Spark's is the end of a micro-batch, which an open split does not have when it is planned. Here the
sequence is where it begins, and the number, one higher for each open split, makes the offset another one than the last.
Its position is recorded under its number (`turnout.runtime.open_splits`), and is where the next micro-batch
begins.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_OPEN_SUFFIX: Final = ".open"

LARGE_BACKLOG: Final = 50_000
"""With more records than this to catch up with, micro-batches have an end: they cost less by record."""

_SMALL_BACKLOG: Final = 10_000


def number_in(offset: Mapping[str, int], stream: str | None = None) -> int | None:
    """Return the number of the open split in an offset, of any stream or of one; None if there is none."""
    if stream is not None:
        return offset.get(f"{stream}{_OPEN_SUFFIX}")
    return next((number for name, number in offset.items() if name.endswith(_OPEN_SUFFIX)), None)


def opened(starts: Mapping[str, int], number: int) -> dict[str, int]:
    """Return the offset of an open split that begins at *starts*."""
    return {**starts, **{f"{stream}{_OPEN_SUFFIX}": number for stream in starts}}


def closed(offset: dict[str, int], starts: Mapping[str, int]) -> dict[str, int]:
    """Return an offset with the beginning of the next micro-batch; one that has it is unchanged.

    Args:
        offset: the last one.
        starts: start of the next micro-batch, by stream.
    """
    if number_in(offset) is None:
        return offset
    return {**starts, **{f"{stream}.from": sequence for stream, sequence in starts.items()}}


class Backlog:
    """Choice between open splits and micro-batches with an end, with hysteresis."""

    def __init__(self) -> None:
        self._large = False

    def is_large(self, records: int) -> bool:
        """Return True from the moment that more than 50,000 records wait until there are no more than 10,000."""
        self._large = records > (_SMALL_BACKLOG if self._large else LARGE_BACKLOG)
        return self._large
