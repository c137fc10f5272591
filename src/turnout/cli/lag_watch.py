"""Lag of the route that a command runs, polled during the run."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from turnout.background import Background

if TYPE_CHECKING:
    from turnout.routes import Route
    from turnout.runtime.lag import Lag

_EVERY_SECONDS = 2.0


@contextmanager
def lag_watch(route: Route, checkpoint: Path | None) -> Iterator[Callable[[], Lag | None]]:
    """Return a function that gives the last known lag; None before it is known, and without a checkpoint here.

    A server that is away is the run's failure to report: the lag is unknown meanwhile.
    """
    if checkpoint is None or not route.source.streams:
        yield lambda: None
        return
    latest: list[Lag | None] = [None]

    def watch() -> None:
        try:
            _watch(route, checkpoint, latest, background.stopped)
        finally:
            latest[0] = None

    background = Background(f"lag of {route.name}", watch, every=_EVERY_SECONDS, delay=_EVERY_SECONDS)
    with background:
        yield lambda: latest[0]


def _watch(route: Route, checkpoint: Path, latest: list[Lag | None], ended: threading.Event) -> None:
    from turnout.errors import TurnoutError
    from turnout.runtime.endpoints import adapter_of
    from turnout.runtime.lag import lag_of

    with suppress(TurnoutError), adapter_of(route.source).session() as session:
        while not ended.wait(_EVERY_SECONDS):
            latest[0] = lag_of(route.source, checkpoint, session, time.time())
