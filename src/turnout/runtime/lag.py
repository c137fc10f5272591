"""Lag of a route: what its source has that its checkpoint has not reached."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from turnout.routes.endpoints import Source
from turnout.runtime.committed_offsets import committed
from turnout.runtime.endpoints import SourceSession

_MOST_AGES: Final = 16
"""Maximum number of ages to request: those of the streams or partitions with the largest lags."""


@dataclass(frozen=True, slots=True)
class Lag:
    """Lag of a route.

    Attributes:
        records: by stream, the sequences that are not read yet, or by ``topic:partition``, the offsets. With a filter
            not all of them are for this route; of offsets some may hold no record.
        seconds: the age of the oldest of them; 0 where there is none, None where the server does not say.
    """

    records: dict[str, int] = field(default_factory=dict)
    seconds: float | None = 0.0


def lag_of(source: Source, checkpoint: Path | None, session: SourceSession, now: float) -> Lag | None:
    """Return the lag of a route with a source of streams; None without a checkpoint on this machine.

    Args:
        source: the route's.
        checkpoint: its folder.
        session: at the source's server.
        now: seconds since the epoch.

    Raises:
        StreamError: a stream does not exist.
        ConnectionLostError: the connection is lost.
    """
    ends = session.ends(source)
    if checkpoint is None:
        return None
    done = committed(checkpoint)
    # Of a stream that was made anew nothing is read yet.
    created = {name: identity.created for name, identity in done.identities.items()}
    known = {name for name, end in ends.items() if created.get(name, end.created) == end.created}
    positions = {name: max(end.first, done.sequence(name) if name in known else 0) for name, end in ends.items()}
    records = {stream: max(0, end.next - positions[stream]) for stream, end in ends.items()}
    ages: list[float] = []
    for stream in sorted((name for name, count in records.items() if count), key=records.__getitem__)[-_MOST_AGES:]:
        age = session.age(stream, positions[stream], now)
        if age is None:
            return Lag(records, None)
        ages.append(age)
    return Lag(records, max(ages, default=0.0))
