"""Committed offsets of a route, and resets: exact, by a new checkpoint.

What a checkpoint says is Spark's: ``commits/N`` is there when micro-batch N is done, and ``offsets/N`` holds the end
that it was planned to, a line of JSON for each source.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeAlias

from turnout.errors import ConfigError, Mistake
from turnout.routes import Route
from turnout.routes.endpoints import FileSource, KafkaSource, NatsSource
from turnout.server.errors import ConflictError
from turnout.untrusted import decimal, is_whole

_LARGEST_PARTITION = (1 << 31) - 1

Start: TypeAlias = str | int | Mapping[str, object]
"""Where to begin: ``earliest``, ``latest``, a sequence, an ISO time, or places by stream or topic."""


@dataclass(frozen=True, slots=True)
class Offsets:
    """Committed offsets of a route.

    Attributes:
        batch: the last micro-batch that is done; None where none is.
        next: by stream the sequence, by topic and partition the offset, that comes next.
    """

    batch: int | None
    next: dict[str, object]

    def sequence(self, stream: str) -> int:
        """Return the next sequence of a stream; 0 if none is committed."""
        following = self.next.get(stream, 0)
        return following if isinstance(following, int) else 0


def committed(checkpoint: Path) -> Offsets:
    """Return the offsets committed in the checkpoint; none if it does not exist."""
    batches = _numbers(checkpoint / "commits")
    while batches:
        batch = batches.pop()
        try:
            lines = (checkpoint / "offsets" / str(batch)).read_text(encoding="utf-8").splitlines()
            place = json.loads(lines[2])
        except (OSError, IndexError, ValueError):
            continue
        if isinstance(place, dict):
            # NATS: beside the streams stand names with a dot, which no stream's name has.
            return Offsets(batch, {name: value for name, value in place.items() if "." not in name or _nested(value)})
    return Offsets(None, {})


def _nested(value: object) -> bool:
    """Return True for the offsets of a Kafka topic, by partition; topics may contain dots."""
    return isinstance(value, dict)


def _numbers(folder: Path) -> list[int]:
    try:
        return sorted(int(file.name) for file in folder.iterdir() if file.name.isdigit())
    except OSError:
        return []


def checked_start(route: Route, start: Start) -> Start:
    """Return the start position if the route's source can begin there.

    Raises:
        ConfigError: it is no place of this source.
        ConflictError: this source cannot be told where to begin.
    """
    source = route.source
    if isinstance(source, NatsSource):
        if source.ack_consumer is not None:
            raise ConflictError(f"route {route.name}: the consumer {source.ack_consumer} knows where to go on")
        return _nats_start(source, start)
    if isinstance(source, KafkaSource):
        return _kafka_start(start)
    assert isinstance(source, FileSource)
    if not source.stream:
        raise ConflictError(f"route {route.name}: its source is read once, as a whole")
    if start != "earliest":
        raise ConfigError([Mistake("to", f"files begin at earliest, found {start!r}")], what="bad offsets")
    return start


def _nats_start(source: NatsSource, start: Start) -> Start:
    streams = source.streams
    if isinstance(start, dict):
        wrong = [name for name in start if name not in streams]
        missing = [name for name in streams if name not in start]
        mistakes = [Mistake(f"to.{name}", f"the route reads {', '.join(streams)}") for name in wrong]
        mistakes += [Mistake(f"to.{name}", "a sequence is missing") for name in missing]
        mistakes += [
            Mistake(f"to.{name}", f"expected a sequence above 0, found {value!r}")
            for name, value in start.items()
            if not _is_sequence(value)
        ]
        if mistakes:
            raise ConfigError(mistakes, what="bad offsets")
        return start
    if start in ("earliest", "latest") or _is_sequence(start):
        return start
    return _time(start).isoformat()


def _kafka_start(start: Start) -> Start:
    if isinstance(start, dict):
        mistakes = list(_wrong_offsets(start))
        if mistakes:
            raise ConfigError(mistakes, what="bad offsets")
        return start
    if start in ("earliest", "latest"):
        return start
    return _time(start).isoformat()


def _wrong_offsets(start: Mapping[str, object]) -> Iterator[Mistake]:
    """Yield a mistake for each topic without offsets by partition; -2 is the earliest offset, -1 the latest one."""
    for topic, offsets in start.items():
        if not isinstance(offsets, dict):
            yield Mistake(f"to.{topic}", f"expected offsets by partition, found {offsets!r}")
            continue
        for partition, offset in offsets.items():
            if decimal(partition, _LARGEST_PARTITION) is None or not is_whole(offset, -2):
                yield Mistake(f"to.{topic}.{partition}", f"expected a partition and its offset, found {offset!r}")


def _is_sequence(value: object) -> bool:
    return is_whole(value, 1)


def _time(start: object) -> datetime:
    try:
        moment = datetime.fromisoformat(str(start))
    except ValueError:
        problem = f"expected earliest, latest, a sequence, an ISO time or places by name, found {start!r}"
        raise ConfigError([Mistake("to", problem)], what="bad offsets") from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def begun_at(route: Route, start: Start | None) -> Route:
    """Return the route with another start; it has an effect only without a checkpoint."""
    source = route.source
    if start is None or isinstance(source, FileSource):
        return route
    if isinstance(source, KafkaSource) and isinstance(start, str) and start not in ("earliest", "latest"):
        milliseconds = int(_time(start).timestamp() * 1000)
        options = {**source.options_, "startingTimestamp": milliseconds}
        return replace(route, source=source.model_copy(update={"options_": options}))
    return replace(route, source=source.model_copy(update={"start": start}))


def set_aside(checkpoint: Path) -> Path | None:
    """Rename a checkpoint, so that the next run begins a new one; return its new path, None if it is missing."""
    if not checkpoint.exists():
        return None
    taken = _numbers_after(checkpoint)
    aside = checkpoint.with_name(f"{checkpoint.name}.{max(taken, default=0) + 1}")
    return checkpoint.rename(aside)


def _numbers_after(checkpoint: Path) -> list[int]:
    beside = checkpoint.parent.glob(f"{checkpoint.name}.*")
    return [int(path.suffix[1:]) for path in beside if path.suffix[1:].isdigit()]
