"""Positions in a source from which on a revision of the subscriptions is in use, read from a checkpoint.

Each micro-batch has one revision, which its offset names; inside an open split the task records where it changes. So
every record below a seam was matched with an earlier revision, and every other one with this or a later one, also if
the micro-batch is done again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from turnout.base.untrusted import is_whole
from turnout.runtime.committed_offsets import REVISION, committed, numbers_in, planned_end
from turnout.runtime.kafka_source import KafkaOffsets
from turnout.runtime.nats_offsets import begins, open_numbers

Positions = dict[str, int]
"""Next sequence by stream, or next offset by ``topic:partition``."""


@dataclass(frozen=True, slots=True)
class _Planned:
    """Offset of a micro-batch: its end, its recorded beginning, and the revision.

    The end of an open split is its beginning.
    """

    end: Positions
    begin: Positions
    revision: int | None


def seam_of(checkpoint: Path, revision: int, turns: Mapping[int, int]) -> Positions | None:
    """Return the position from which on a revision, or a later one, is in use; None if it is not yet.

    The checkpoint has the last hundred micro-batches. For a revision in use before them, it is the end of
    the first of these: later than the actual one, so that records up to it may be delivered twice, and none is lost.

    Args:
        checkpoint: its folder.
        revision: revision of the subscriptions.
        turns: the position at which an open split took a revision.
    """
    before: Positions = {}
    found: Positions | None = None
    for batch in _planned(checkpoint):
        if batch.revision is not None and batch.revision >= revision:
            found = before | batch.begin or batch.end
            break
        before = batch.end
    turned = min((position for later, position in turns.items() if later >= revision), default=None)
    streams = found or before
    if turned is None or len(streams) != 1:
        return found
    (stream,) = streams
    return {stream: turned if found is None else min(turned, found[stream])}


def matched_before(checkpoint: Path) -> Positions:
    """Return the positions up to which every record is done; empty before the first micro-batch."""
    return _flat(committed(checkpoint).next)


def _planned(checkpoint: Path) -> Iterator[_Planned]:
    for number in numbers_in(checkpoint / "offsets"):
        offset = planned_end(checkpoint, number)
        if offset is None:
            continue
        revision = offset.get(REVISION)
        revision_or_none = revision if is_whole(revision) else None
        if any(isinstance(value, dict) for value in offset.values()):
            kafka = KafkaOffsets.of_json(offset)
            yield _Planned(_flat(kafka.next), _flat(kafka.begins), revision_or_none)
            continue
        numbers = {name: value for name, value in offset.items() if is_whole(value)}
        streams = {name: value for name, value in numbers.items() if "." not in name}
        yield _Planned(streams, streams if open_numbers(numbers) else begins(numbers), revision_or_none)


def _flat(offsets: Mapping[Any, Any]) -> Positions:
    flat: Positions = {}
    for name, value in offsets.items():
        if isinstance(value, Mapping):
            flat |= {f"{name}:{number}": offset for number, offset in value.items()}
        else:
            flat[name] = value
    return flat
