"""Committed offsets of a route, read from its checkpoint.

Spark writes the checkpoint: ``commits/N`` exists when micro-batch N is done, and ``offsets/N`` holds the end
that it was planned to, a line of JSON for each source.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from turnout.base.untrusted import is_whole
from turnout.nats.protocol.identity import StreamIdentity
from turnout.runtime.nats_offsets import identities_in, open_numbers
from turnout.runtime.open_splits.progress_files import position_after

REVISION: Final = "subscriptions.revision"
"""Key of an offset with the revision of the subscriptions that its micro-batch is matched with."""


TOPIC_IDS: Final = ":ids"
"""Key of an offset with the ids of Kafka's topics."""


@dataclass(frozen=True, slots=True)
class Offsets:
    """Committed offsets of a route.

    Attributes:
        batch: the last micro-batch that is done; None where none is.
        next: next sequence by stream, next offset by topic and partition.
        identities: identity of each stream, as far as the offset has it.
        topic_ids: likewise the id of each topic.
    """

    batch: int | None
    next: dict[str, object]
    identities: dict[str, StreamIdentity] = field(default_factory=dict, compare=False)
    topic_ids: dict[str, str] = field(default_factory=dict, compare=False)

    @property
    def by_stream(self) -> dict[str, object]:
        """Next sequence by stream, next offset by ``topic:partition``."""
        positions: dict[str, object] = {}
        for name, value in self.next.items():
            if isinstance(value, dict):
                positions |= {f"{name}:{number}": offset for number, offset in value.items()}
            else:
                positions[name] = value
        return positions

    @property
    def identity_texts(self) -> dict[str, str]:
        """Text that distinguishes each stream or topic from others of its name, as far as that is known."""
        return {name: identity.created for name, identity in self.identities.items()} | self.topic_ids

    def label(self, stream: str) -> str:
        """Return a stream with its identity if it is known, as origins and the matches of feeds have it."""
        identity = self.identities.get(stream)
        return stream if identity is None else identity.label(stream)

    def sequence(self, stream: str) -> int:
        """Return the next sequence of a stream, or the offset of a ``topic:partition``; 0 if none is committed."""
        topic, colon, partition = stream.rpartition(":")
        offsets = self.next.get(topic) if colon else None
        following = offsets.get(partition, 0) if isinstance(offsets, dict) else self.next.get(stream, 0)
        return following if isinstance(following, int) else 0


def committed(checkpoint: Path) -> Offsets:
    """Return the offsets committed in the checkpoint, and recorded of an open split; none without a checkpoint."""
    batches = numbers_in(checkpoint / "commits")
    while batches:
        batch = batches.pop()
        position = planned_end(checkpoint, batch)
        if position is None:
            continue
        # Names beside the streams have a dot, which no NATS stream's name has; those beside Kafka's topics a colon.
        following = {
            name: value for name, value in position.items() if ":" not in name and ("." not in name or _nested(value))
        }
        reached = following | _recorded(checkpoint, position) | _under_way(checkpoint, batch + 1)
        topic_ids = position.get(TOPIC_IDS)
        ids = {name: str(id_) for name, id_ in topic_ids.items()} if isinstance(topic_ids, dict) else {}
        return Offsets(batch, reached, identities_in(position), ids)
    return Offsets(None, _under_way(checkpoint, 0), identities_in(planned_end(checkpoint, 0) or {}))


def planned_end(checkpoint: Path, batch: int) -> dict[str, object] | None:
    """Return the offset that a micro-batch was planned to; None if it cannot be read."""
    try:
        lines = (checkpoint / "offsets" / str(batch)).read_text(encoding="utf-8").splitlines()
        position = json.loads(lines[2])
    except (OSError, IndexError, ValueError):
        return None
    return position if isinstance(position, dict) else None


def _under_way(checkpoint: Path, batch: int) -> dict[str, object]:
    """Return the records of an uncommitted micro-batch; only open splits have them."""
    return _recorded(checkpoint, planned_end(checkpoint, batch) or {})


def _recorded(checkpoint: Path, position: Mapping[str, object]) -> dict[str, object]:
    """Return the position that the open splits in an offset have reached, by stream."""
    numbers = {name: number for name, number in position.items() if is_whole(number)}
    reached = {stream: position_after(checkpoint, number) for stream, number in open_numbers(numbers).items()}
    return {stream: sequence for stream, sequence in reached.items() if sequence is not None}


def _nested(value: object) -> bool:
    """Return True for the offsets of a Kafka topic, by partition; topics may contain dots."""
    return isinstance(value, dict)


def numbers_in(folder: Path) -> list[int]:
    """Return the numbers that files of a folder are named by, ascending; none without the folder."""
    try:
        return sorted(int(file.name) for file in folder.iterdir() if file.name.isdigit())
    except OSError:
        return []
