"""The subscriptions of one replay, indexed where Spark's tasks find them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from turnout.spark.index.place import IndexPlace
from turnout.spark.index.server import IndexServer
from turnout.subscriptions import Subscription
from turnout.subscriptions.index import IndexFolder
from turnout.subscriptions.model import Changes
from turnout.subscriptions.snapshot import Snapshot

__all__ = ["REVISION", "index_of"]

REVISION = 1
"""The only revision that there is of them."""


@dataclass(frozen=True, slots=True)
class _Chosen:
    """Subscriptions that do not change."""

    subscriptions: tuple[Subscription, ...]

    def snapshot(self) -> Snapshot:
        return Snapshot(self.subscriptions, REVISION)

    def changes(self, since: int) -> Changes:
        return Changes(max(since, REVISION))


class _Kept:
    """What an index server asks, answered with the only revision."""

    def __init__(self, index: IndexFolder) -> None:
        self._index = index
        self.folder = index.folder

    def newest(self) -> int:
        return REVISION

    def usable(self, revision: int) -> int:  # noqa: ARG002 - as of all that are kept
        return REVISION

    def filters(self, revision: int) -> None:
        """History is read by the filters of its own plan."""

    def files(self, revision: int) -> Sequence[Path]:
        return self._index.files(revision)


@contextmanager
def index_of(subscriptions: Sequence[Subscription], folder: Path, host: str) -> Iterator[IndexPlace]:
    """The place of an index of some subscriptions, which is there as long as the block lasts.

    Args:
        subscriptions: what to index.
        folder: for it alone.
        host: where processes on other machines reach this one.
    """
    with IndexFolder(folder, _Chosen(tuple(subscriptions))) as index, IndexServer(_Kept(index), host) as server:
        yield IndexPlace.at(index.folder, server.url)
