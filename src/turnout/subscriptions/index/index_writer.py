"""Incremental updates of an index: one process keeps a folder in step with a store, and many read from it.

Changes become a small segment; segments are merged in the background.
"""

from __future__ import annotations

import re
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Generic, Protocol, Self, TypeVar

from turnout.base.files import FileLock
from turnout.subscriptions.index.arrays import IndexFileError, checked_segment
from turnout.subscriptions.index.build import build, enabled
from turnout.subscriptions.index.index import Manifest, SegmentFiles, manifest_path, read_gone, write_gone
from turnout.subscriptions.index.layers import SegmentView, UseCounts
from turnout.subscriptions.index.literal_choice import Costs
from turnout.subscriptions.index.segment import Segment
from turnout.subscriptions.model import Changes, Subscription
from turnout.subscriptions.past import Snapshot

T = TypeVar("T")


class BackgroundTask(Generic[T]):
    """Computation in a thread of its own.

    Args:
        work: gives the outcome.
    """

    def __init__(self, work: Callable[[], T]) -> None:
        self._outcome: list[T] = []
        self._problem: BaseException | None = None

        def run() -> None:
            try:
                self._outcome.append(work())
            except BaseException as problem:  # noqa: BLE001 - raised to the caller that reads the outcome
                self._problem = problem

        self._thread = threading.Thread(target=run, name="turnout-index", daemon=True)
        self._thread.start()

    @property
    def done(self) -> bool:
        """Return True if the task has ended."""
        return bool(self._outcome) or self._problem is not None

    def wait(self) -> None:
        """Wait until it has."""
        self._thread.join()

    def outcome(self) -> T:
        """Wait for the task and return its result, or raise its exception."""
        self.wait()
        if self._problem is not None:
            raise self._problem
        return self._outcome[0]


KEPT = 32
"""Number of latest revisions that can still be opened."""

LAYERS = 6
"""With more layers than this, those beside the base are merged."""

_MANY_LAYERS = 24
"""With more than this, changes wait for the merge."""

_MIN_MERGE = 10_000
_MERGE_SHARE = 10
"""The base is rebuilt when more than a tenth of it has changed, and more than `_MIN_MERGE`."""

_MAX_FOREGROUND_REBUILD = 20_000
"""A base of at most this many subscriptions is rebuilt while the caller waits."""

_REVISION = re.compile(r"revision-(\d+)\.json")
_OURS = re.compile(r"(segment-\d+\.index|gone-\d+\.bits|revision-\d+\.json)(\.\d+\.tmp)?")


class FollowedStore(Protocol):
    """Part of a `turnout.subscriptions.store.Store` that an index follows."""

    def snapshot(self) -> Snapshot:
        """Return all subscriptions, with the revision they belong to."""
        ...

    def changes(self, since: int) -> Changes:
        """Return the changes after a revision."""
        ...


class IndexFolder:
    """Writer of an index folder: an index of all subscriptions of a store, and its later changes.

    Each refresh writes new subscriptions as a small segment and deletions as a bitmap; when these add up, they are
    merged in the background. A reader that has an older revision open is not disturbed.

    Args:
        folder: for this writer alone; it is made, readable by its owner only. Leftovers of a killed writer are removed.
        store: store to follow.
        sample: metadata of typical messages.
        keep: this many of the latest revisions outlive this writer, and are still there for the next one.

    Raises:
        IndexFileError: another living process writes this folder.
    """

    def __init__(
        self, folder: Path, store: FollowedStore, *, sample: Collection[Mapping[str, str]] = (), keep: int = 0
    ) -> None:
        self.folder = Path(folder).absolute()
        self.keep = keep
        self._store = store
        self._costs = Costs(sample)
        self._lock = threading.RLock()
        self._history: deque[Manifest] = deque()
        self._numbers = 0
        self._merging: BackgroundTask[tuple[_WrittenLayer, int]] | None = None
        self._merged: tuple[_WrittenLayer, ...] = ()
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.folder.chmod(0o700)
        self._closed = False
        self._writer_lock = self._locked()
        try:
            self._remove_leftovers()
            self._start()
        except BaseException:
            self.close()
            raise

    def _locked(self) -> FileLock:
        lock = FileLock(self.folder / "writer.lock")
        try:
            return lock.acquire()
        except OSError as problem:
            lock.release()
            cure = "give each writer its folder"
            raise IndexFileError(lock.path, "another process writes this index", cure) from problem

    def _remove_leftovers(self) -> None:
        """Remove all files except the latest revisions to keep; new files do not reuse their names."""
        ours = [path for path in self.folder.iterdir() if _OURS.fullmatch(path.name)]
        kept = self._outliving(path.name for path in ours)
        for path in ours:
            if path.name in kept:
                self._numbers = max(self._numbers, *map(int, re.findall(r"\d+", path.name)))
            else:
                path.unlink()

    def _outliving(self, names: Iterable[str]) -> set[str]:
        """The files of the latest revisions that can be opened; after a power cut some are empty, cut off or zeros."""
        present = set(names)
        revisions = sorted((int(match[1]) for name in present if (match := _REVISION.fullmatch(name))), reverse=True)
        retained: set[str] = set()
        for revision in revisions[: self.keep]:
            with suppress(IndexFileError):
                manifest = Manifest.read(self.folder, revision)
                for part in manifest.parts:
                    _, arrays = checked_segment(self.folder / part.segment)
                    if part.gone:
                        read_gone(self.folder / part.gone, len(arrays.ids))
                retained |= {manifest_path(self.folder, revision).name, *manifest.names()}
        return retained

    def _start(self) -> None:
        snapshot = self._store.snapshot()
        self.revision = snapshot.revision
        self._written = [self._base(snapshot.subscriptions)]
        self._publish()

    def __len__(self) -> int:
        return sum(written.view.left for written in self._written)

    def refresh(self) -> int:
        """Catch up with the store; the revision that can be opened from now on. Cheap where nothing has changed."""
        with self._lock:
            merged = self._adopt()
            changes = self._store.changes(self.revision)
            if changes:
                self._apply(changes)
            if merged or changes.revision != self.revision or changes:
                self.revision = changes.revision
                self._publish()
                self._tidy()
            return self.revision

    def files(self, revision: int) -> list[Path]:
        """Return the files to copy into one folder of another machine to open this revision there.

        Raises:
            IndexFileError: the revision is none of the latest ones.
        """
        names = Manifest.read(self.folder, revision).names()
        return [manifest_path(self.folder, revision), *(self.folder / name for name in names)]

    def learn(self, sample: Collection[Mapping[str, str]]) -> None:
        """Index by texts that are rare in these typical messages, from the next refresh or soon after it."""
        with self._lock:
            self._costs = Costs(sample)
            self._wait()
            self._merging, self._merged = BackgroundTask(self._rebuilt), ()
            if len(self) <= _MAX_FOREGROUND_REBUILD:
                self.settle()

    def settle(self) -> None:
        """Wait for the background task and use its result."""
        with self._lock:
            if self._merging is not None:
                self._wait()
                self.refresh()

    def close(self) -> None:
        """Remove all files except the ones to keep. Readers keep their open files."""
        with self._lock:
            self._wait()
            if self._closed:
                return
            self._remove_leftovers()
            (self.folder / "writer.lock").unlink(missing_ok=True)
            self._writer_lock.release()
            self._closed = True
            if not any(self.folder.iterdir()):
                self.folder.rmdir()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _apply(self, changes: Changes) -> None:
        if changes.reset:
            self._wait()
            self._adopt()
            self._written = [self._base(changes.created)]
            return
        gone = [*changes.deleted_ids, *(subscription.id for subscription in changes.created)]
        for written in self._written:
            written.drop(gone)
        created = [*enabled(changes.created)]
        if created:
            self._written.append(self._small(created))

    def _tidy(self) -> None:
        """Start a merge if it is due."""
        if self._merging is not None:
            if len(self._written) <= _MANY_LAYERS:
                return
            self.settle()
        base, *others = self._written
        size = len(base.view.segment)
        changed = sum(len(written.view.segment) for written in others) + size - base.view.left
        if changed > max(_MIN_MERGE, size // _MERGE_SHARE):
            self._merging, self._merged = BackgroundTask(self._rebuilt), ()
        elif len(self._written) > LAYERS:
            self._merging, self._merged = BackgroundTask(lambda: self._merger(others)), tuple(others)

    def _rebuilt(self) -> tuple[_WrittenLayer, int]:
        snapshot = self._store.snapshot()
        return self._base(snapshot.subscriptions), snapshot.revision

    def _merger(self, parts: Sequence[_WrittenLayer]) -> tuple[_WrittenLayer, int]:
        return self._small([subscription for written in parts for subscription in written.view.living()]), 0

    def _adopt(self) -> bool:
        """Replace the merged parts by the result of the merge; return False if none has ended."""
        if self._merging is None or not self._merging.done:
            return False
        merging, parts = self._merging, self._merged
        self._merging, self._merged = None, ()
        written, revision = merging.outcome()
        if not parts:
            # The store's changes repeat everything since then.
            self._written, self.revision = [written], revision
            return True
        still = {subscription.id for part in parts for subscription in part.view.living()}
        written.drop({subscription.id for subscription in written.view.living()} - still)
        self._written = [layer for layer in self._written if layer not in parts]
        self._written.insert(1, written)
        return True

    def _wait(self) -> None:
        if self._merging is not None:
            self._merging.wait()

    def _base(self, subscriptions: Sequence[Subscription]) -> _WrittenLayer:
        built = build(subscriptions, self._costs)
        name = self._write(built)
        # Mapped, its arrays need no memory of this process.
        return _WrittenLayer(SegmentView(Segment.open(self.folder / name, built.uses)), name)

    def _small(self, subscriptions: Sequence[Subscription]) -> _WrittenLayer:
        view = SegmentView.of(subscriptions, self._costs.with_background(UseCounts(self._written[0].view.segment)))
        return _WrittenLayer(view, self._write(view.segment))

    def _write(self, segment: Segment) -> str:
        name = f"segment-{self._next()}.index"
        segment.write(self.folder / name)
        return name

    def _next(self) -> int:
        self._numbers += 1
        return self._numbers

    def _publish(self) -> None:
        for written in self._written:
            if written.view.gone is not None and not written.gone_name:
                written.gone_name = f"gone-{self._next()}.bits"
                write_gone(self.folder / written.gone_name, written.view.gone)
        base = self._written[0]
        present = (layer for layer in self._written if layer is base or layer.view.left)
        manifest = Manifest(self.revision, tuple(SegmentFiles(layer.name, layer.gone_name) for layer in present))
        manifest.write(self.folder)
        self._history.append(manifest)
        while len(self._history) > KEPT:
            self._forget(self._history.popleft())

    def _forget(self, old: Manifest) -> None:
        used = {name for manifest in self._history for name in manifest.names()}
        used |= {name for written in self._written for name in (written.name, written.gone_name)}
        for name in set(old.names()) - used:
            (self.folder / name).unlink(missing_ok=True)
        if all(manifest.revision != old.revision for manifest in self._history):
            manifest_path(self.folder, old.revision).unlink(missing_ok=True)


class _WrittenLayer:
    """A layer and the files that it is in.

    Attributes:
        view: replaced when a part of it is deleted.
        name: name of the segment's file.
        gone_name: name of the bitmap's file; "" if it has none yet.
    """

    def __init__(self, view: SegmentView, name: str) -> None:
        self.view = view
        self.name = name
        self.gone_name = ""

    def drop(self, ids: Iterable[str]) -> None:
        """Take the subscriptions of these ids out."""
        before = self.view
        self.view = before.without(ids)
        if self.view is not before:
            self.gone_name = ""
