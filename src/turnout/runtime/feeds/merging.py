"""Background maintenance of a run's matches: merges small files, and removes those of deleted records."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Final, Self

from turnout.base.background import Background
from turnout.base.untrusted import LARGEST_SEQUENCE
from turnout.nats.protocol.identity import Origin
from turnout.routes import Route
from turnout.runtime.committed_offsets import committed
from turnout.runtime.endpoints import adapter_of
from turnout.runtime.feeds.match_folder import MatchFolder

_PAUSE_SECONDS: Final = 5.0
"""Seconds between two looks while micro-batches are committed all the time, or an open split reports progress."""


class FeedMerging:
    """Thread of the driver that maintains the matches of one run.

    Args:
        route: the route.
        checkpoint: the folder, on this machine.
    """

    def __init__(self, route: Route, checkpoint: Path) -> None:
        self._route = route
        self._checkpoint = checkpoint
        self._matches = MatchFolder.beside(checkpoint)
        self._background = Background(
            f"matches of {route.name}", self.maintain, every=_PAUSE_SECONDS, delay=_PAUSE_SECONDS
        )

    def __enter__(self) -> Self:
        self._background.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._background.close()

    def maintain(self) -> None:
        """Remove the files of deleted records, and merge until nothing is left to merge.

        Raises:
            TurnoutError: the server cannot be queried, or a file is damaged.
            OSError: files cannot be written.
        """
        streams = self._matches.streams()
        if not streams:
            return
        with adapter_of(self._route.source).history() as history:
            for label in streams:
                bounds = history.bounds(self._name(label))
                # A stream that was made anew has none of the records of the former one.
                is_there = not bounds.created or Origin.of(label, 0).is_of(bounds.created)
                self._matches.trim(label, bounds.first if is_there else LARGEST_SEQUENCE)
        done = committed(self._checkpoint)
        for label in streams:
            name = self._name(label)
            until = done.sequence(name) if done.label(name) == label else 0
            while not self._background.stopped.is_set() and self._matches.merge(label, until):
                pass

    def _name(self, label: str) -> str:
        """Return the stream, or partition, whose matches are kept under a label."""
        stream = Origin.of(label, 0).stream
        return stream if stream in self._route.source.streams else label
