"""Resets of a route's offsets: exact, by a new checkpoint."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from turnout.routes import Route
from turnout.runtime.endpoints import adapter_of
from turnout.runtime.endpoints.adapter import Start
from turnout.server.errors import ConflictError


def checked_start(route: Route, start: Start) -> Start:
    """Return the start position if the route's source can begin there.

    Raises:
        ConfigError: it is no place of this source.
        ConflictError: the position of this source cannot be set.
    """
    adapter = adapter_of(route.source)
    if adapter.fixed_start is not None:
        raise ConflictError(f"route {route.name}: {adapter.fixed_start}")
    return adapter.checked_start(start)


def resolved(route: Route, start: Start) -> Start:
    """Return the start with a lasting meaning: of NATS as sequences, as ``latest`` and times change theirs.

    Raises:
        ConnectionLostError: the server is away.
        StreamError: a stream does not exist.
    """
    return adapter_of(route.source).resolved(start)


def begun_at(route: Route, start: Start | None) -> Route:
    """Return the route with another start; it has an effect only without a checkpoint."""
    return route if start is None else replace(route, source=adapter_of(route.source).begun_at(start))


def set_aside(checkpoint: Path) -> Path | None:
    """Rename a checkpoint, so that the next run begins a new one; return its new path, None if it is missing."""
    if not checkpoint.exists():
        return None
    numbers = _numbers_after(checkpoint)
    aside = checkpoint.with_name(f"{checkpoint.name}.{max(numbers, default=0) + 1}")
    return checkpoint.rename(aside)


def _numbers_after(checkpoint: Path) -> list[int]:
    siblings = checkpoint.parent.glob(f"{checkpoint.name}.*")
    return [int(path.suffix[1:]) for path in siblings if path.suffix[1:].isdigit()]
