"""Offsets of NATS sources in a checkpoint: ``{"STREAM": sequence}``, with optional keys beside it.

A stream's name has no dot, so keys with a dot are free for other facts:

- ``STREAM.from``: first sequence of the micro-batch, where no earlier offset in the checkpoint has it.
- ``STREAM.open``: number of an open split. Spark's offsets are ends of micro-batches, and an open split has none when
  it is planned: its sequence is its beginning, and the number, one higher for each open split, makes the offset differ
  from the last one. Its position is recorded under the number (`turnout.runtime.open_splits`) and is where the next
  micro-batch begins.
- ``STREAM.created``: creation time of the stream that the sequence is a position in. A checkpoint of an earlier release
  has none; it adopts the present stream.
- ``STREAM.id``: identity of the stream in message ids, where it does not follow from the creation time: "" for a
  checkpoint that has adopted its stream, and keeps ids without one.
- ``STREAM.time``: when the message before the sequence was stored, in microseconds since 1970, if that is known.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from turnout.base.untrusted import is_whole
from turnout.nats.protocol.identity import Position, StreamIdentity

Offsets: TypeAlias = "dict[str, Any]"
"""Next sequence of each stream, and the keys above; the content of a checkpoint."""

_OPEN_SUFFIX: Final = ".open"
_BEGIN_SUFFIX: Final = ".from"
_CREATED_SUFFIX: Final = ".created"
_ID_SUFFIX: Final = ".id"
_TIME_SUFFIX: Final = ".time"

WARNING: Final = ".warning"
"""End of a key in the latest offset of a query's progress, after the name of a stream: a loss was stepped over."""

LARGE_BACKLOG: Final = 50_000
"""With more records than this to catch up with, micro-batches have an end: they cost less by record."""

_SMALL_BACKLOG: Final = 10_000


def identity_in(offset: Mapping[str, Any], stream: str) -> StreamIdentity | None:
    """Return the identity of a stream that an offset has; None in one of an earlier release."""
    created = offset.get(f"{stream}{_CREATED_SUFFIX}")
    if not isinstance(created, str):
        return None
    token = offset.get(f"{stream}{_ID_SUFFIX}")
    return StreamIdentity(created, token) if isinstance(token, str) else StreamIdentity.of(created)


def identities_in(offset: Mapping[str, Any]) -> dict[str, StreamIdentity]:
    """Return the identities of streams that an offset has, by stream."""
    streams = [name.removesuffix(_CREATED_SUFFIX) for name in offset if name.endswith(_CREATED_SUFFIX)]
    found = {stream: identity_in(offset, stream) for stream in streams}
    return {stream: identity for stream, identity in found.items() if identity is not None}


def time_in(offset: Mapping[str, Any], stream: str) -> int | None:
    """Return when the message before the sequence of an offset was stored; None if it does not say so."""
    time = offset.get(f"{stream}{_TIME_SUFFIX}")
    return time if is_whole(time) else None


def position_keys(positions: Mapping[str, Position]) -> Offsets:
    """Return the keys of an offset with positions in streams, given by stream."""
    offset: Offsets = {}
    for stream, position in positions.items():
        identity = position.identity
        offset |= {stream: position.next, f"{stream}{_CREATED_SUFFIX}": identity.created}
        if identity != StreamIdentity.of(identity.created):
            offset[f"{stream}{_ID_SUFFIX}"] = identity.token
        if position.time is not None:
            offset[f"{stream}{_TIME_SUFFIX}"] = position.time
    return offset


def number_in(offset: Mapping[str, Any], stream: str | None = None) -> int | None:
    """Return the number of the open split in an offset, of any stream or of one; None if there is none."""
    numbers = open_numbers(offset)
    return next(iter(numbers.values()), None) if stream is None else numbers.get(stream)


def open_numbers(offset: Mapping[str, Any]) -> dict[str, int]:
    """Return the numbers of the open splits in an offset, by stream."""
    return _with_suffix(offset, _OPEN_SUFFIX)


def begins(offset: Mapping[str, Any]) -> dict[str, int]:
    """Return the first sequences of a micro-batch that its offset records, by stream."""
    return _with_suffix(offset, _BEGIN_SUFFIX)


def begin_keys(starts: Mapping[str, Position]) -> Offsets:
    """Return the keys of an offset that record where its micro-batch begins, given by stream."""
    return {f"{stream}{_BEGIN_SUFFIX}": position.next for stream, position in starts.items()}


def _with_suffix(offset: Mapping[str, Any], suffix: str) -> dict[str, int]:
    return {name.removesuffix(suffix): number for name, number in offset.items() if name.endswith(suffix)}


def opened(starts: Mapping[str, Position], number: int) -> Offsets:
    """Return the offset of an open split that begins at *starts*."""
    return position_keys(starts) | {f"{stream}{_OPEN_SUFFIX}": number for stream in starts}


def closed(offset: Offsets, starts: Mapping[str, Position]) -> Offsets:
    """Return the offset with which a bounded micro-batch follows; *offset* unchanged if it has no open split.

    Args:
        offset: the last one.
        starts: where the next micro-batch begins, by stream.
    """
    if number_in(offset) is None:
        return offset
    return position_keys(starts) | begin_keys(starts)


class Backlog:
    """Choice between open splits and micro-batches with an end, with hysteresis."""

    def __init__(self) -> None:
        self._large = False

    def is_large(self, records: int) -> bool:
        """Return True from the moment that more than 50,000 records wait until there are no more than 10,000."""
        self._large = records > (_SMALL_BACKLOG if self._large else LARGE_BACKLOG)
        return self._large
