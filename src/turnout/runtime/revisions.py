"""Revisions of the subscriptions of a run: their index, the subjects that each can match, and access for its tasks."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from turnout.base.files import replace_file
from turnout.base.terminal import first_names
from turnout.engine import Program
from turnout.engine.subject_filters import SubjectFilters, TopicRequirement
from turnout.errors import StreamError, TurnoutError
from turnout.routes import Route
from turnout.runtime.backfill import BackfillLedger, WatchedStore
from turnout.runtime.driver import IndexServer
from turnout.runtime.endpoints import adapter_of
from turnout.runtime.task_index import IndexLocation
from turnout.subscriptions import open_store
from turnout.subscriptions.index import Index, IndexFileError, IndexFolder
from turnout.subscriptions.index.index_writer import FollowedStore
from turnout.subscriptions.model import Changes, Subscription
from turnout.subscriptions.past import Snapshot
from turnout.subscriptions.store import within
from turnout.subscriptions.store_url import existing, without_timeout

_log = logging.getLogger(__name__)

_CACHED_REVISIONS: Final = 32
"""This many revisions are kept, as of the index."""

_WORTH_LEARNING: Final = 1000
"""Minimum number of subscriptions for which sampling records before the first micro-batch pays for itself."""

_SAMPLE_RECORDS: Final = 2000
_FORBIDDEN: Final = 403


class WantedSubjects:
    """Store wrapper for an index: sees the same changes, and keeps the subjects of the same revisions.

    A file for each revision outlives the run, so that a micro-batch which the next run does again is read as it was.
    What another route, or other rules, have written is not read: that micro-batch is then read whole.

    Args:
        store: store to follow.
        filters: filters of the route.
        folder: folder of the index.
    """

    def __init__(self, store: FollowedStore, filters: SubjectFilters, folder: Path) -> None:
        self._store = store
        self._filters = filters
        self._folder = Path(folder)
        self._questions: dict[str, TopicRequirement | None] = {}
        self._counts: Counter[TopicRequirement | None] = Counter()
        self._same: dict[TopicRequirement, TopicRequirement] = {}
        self._revision: int | None = None
        self._stale = True
        self._newest: tuple[str, ...] | None = None
        self._names_by_number: dict[int, tuple[str, ...] | None] = {}

    # Interface of a store

    def snapshot(self) -> Snapshot:
        """Return all subscriptions with their revision."""
        snapshot = self._store.snapshot()
        if self._revision is None:
            self._begin(snapshot.subscriptions)
            self._revision = snapshot.revision
        # A later one belongs to an index that is rebuilt while the one in use is updated by changes.
        return snapshot

    def changes(self, since: int) -> Changes:
        """Return the changes after a revision, or after an earlier known one: applying them twice does no harm."""
        changes = self._store.changes(since if self._revision is None else min(since, self._revision))
        if changes.reset:
            self._begin(changes.created)
        else:
            for id_ in changes.deleted_ids:
                self._drop(id_)
            for subscription in changes.created:
                self._add(subscription)
        self._revision = changes.revision
        return changes

    def _begin(self, subscriptions: Iterable[Subscription]) -> None:
        self._questions.clear()
        self._counts.clear()
        self._stale = True
        for subscription in subscriptions:
            self._add(subscription)

    def _add(self, subscription: Subscription) -> None:
        self._drop(subscription.id)
        if not subscription.enabled:
            return
        questions = self._filters.asked(subscription.condition)
        if questions is not None:
            questions = self._same.setdefault(questions, questions)
        self._questions[subscription.id] = questions
        self._counts[questions] += 1
        self._stale = self._stale or self._counts[questions] == 1

    def _drop(self, id_: str) -> None:
        if id_ not in self._questions:
            return
        questions = self._questions.pop(id_)
        self._counts[questions] -= 1
        if not self._counts[questions]:
            del self._counts[questions]
            if questions is not None:
                del self._same[questions]
            self._stale = True

    # Revisions

    def note(self, revision: int) -> None:
        """Store the filters of the index's present revision."""
        if revision in self._names_by_number and not self._stale:
            return
        if self._stale:
            filters = self._filters.of(self._counts)
            if filters != self._newest or not self._names_by_number:
                _log.info("revision %d of the subscriptions: %s", revision, _in_words(filters))
            self._newest, self._stale = filters, False
        self._names_by_number[revision] = self._newest
        text = json.dumps({"route": self._filters.digest, "filters": self._newest})
        # A damaged file means all subjects of the source.
        replace_file(self._file(revision), text, fsync=False)
        for old in sorted(self._names_by_number)[:-_CACHED_REVISIONS]:
            del self._names_by_number[old]
        self._forget()

    def of(self, revision: int) -> tuple[str, ...] | None:
        """Return the filters of a revision; None for all subjects of the source, also if they are no longer known."""
        if revision in self._names_by_number:
            return self._names_by_number[revision]
        with suppress(OSError, ValueError, KeyError, TypeError):
            document = json.loads(self._file(revision).read_text(encoding="utf-8"))
            if document["route"] == self._filters.digest and document["filters"] is not None:
                return tuple(map(str, document["filters"]))
        return None

    def _file(self, revision: int) -> Path:
        return self._folder / f"filters-{revision}.json"

    def _forget(self) -> None:
        files = {int(name): file for file in self._folder.glob("filters-*.json") if (name := file.stem[8:]).isdigit()}
        for old in sorted(files)[:-_CACHED_REVISIONS]:
            files[old].unlink(missing_ok=True)


def _in_words(filters: tuple[str, ...] | None) -> str:
    if filters is None:
        return "any subject of the source can match, and all are read"
    return f"read are {first_names(filters)}" if filters else "no subject can match, and none is read"


_STORE_SECONDS = 5.0
"""Seconds that a run waits for its store at most, before it continues with the revision that it has."""

_AWAY_SECONDS = 10.0
"""Seconds before a store is queried again that did not answer in time: each query would hold up the records."""


@dataclass(frozen=True, slots=True)
class _PinnedStore:
    """Store of one revision, which never changes."""

    content: Snapshot

    def snapshot(self) -> Snapshot:
        """See `Store.snapshot`."""
        return self.content

    def changes(self, since: int) -> Changes:
        """See `Store.changes`: always empty, as it has only one revision."""
        return Changes(max(since, self.content.revision))

    def close(self) -> None:
        """Do nothing, as no resources are held."""


class Revisions:
    """Index revisions of a store's subscriptions that can be matched with. Thread-safe.

    Args:
        url: the store.
        pinned: subscriptions to match with instead of the store's, whatever its changes; the store is not opened then.
        folder: for the index of this run alone.
        lasting: whether the latest revisions stay when the run ends, however it ends: a micro-batch that the next run
            does again is then matched with the revision that it was begun with.
        filters: returns the subjects that subscriptions can match; None if not needed.
        ledger: sees each version of a subscription before it is matched with; None where nothing is backfilled.

    Raises:
        TurnoutError: the store cannot be read, or another run has the folder.
    """

    def __init__(
        self,
        url: str,
        folder: Path,
        *,
        lasting: bool = False,
        pinned: Snapshot | None = None,
        filters: SubjectFilters | None = None,
        ledger: BackfillLedger | None = None,
    ) -> None:
        self._lock = threading.Lock()
        self._store = open_store(existing(url)) if pinned is None else _PinnedStore(pinned)
        self._wanted_subjects = None if filters is None else WantedSubjects(self._store, filters, folder)
        try:
            keep = _LASTING if lasting and _same_store(folder, url) else 0
            followed: FollowedStore = self._wanted_subjects or self._store
            if ledger is not None:
                followed = WatchedStore(followed, ledger)
            self._watched = None if ledger is None else WatchedStore(self._store, ledger)
            self._index = IndexFolder(folder, followed, keep=keep)
            self._index.keep = _LASTING if lasting else 0
        except BaseException:
            self._store.close()
            raise
        self.folder = self._index.folder
        self._newest = self._watched_revision = self._index.revision
        if self._wanted_subjects is not None:
            self._wanted_subjects.note(self._newest)
        self._is_away = False
        self._silent_until = float("-inf")

    def __len__(self) -> int:
        return len(self._index)

    def close(self) -> None:
        """Remove the index and close the store."""
        self._index.close()
        self._store.close()

    def newest(self) -> int:
        """Return the store's present revision, which can be opened from now on.

        While the store is away the last one that was seen answers, with one warning until it is back.
        """
        with self._lock:
            begun = time.monotonic()
            if begun < self._silent_until:
                return self._newest
            try:
                with within(_STORE_SECONDS):
                    newest = self._index.refresh()
                if self._wanted_subjects is not None:
                    self._wanted_subjects.note(newest)
                self._newest = newest
            except (TurnoutError, OSError) as failure:
                if not self._is_away:
                    cause = "their store is away" if isinstance(failure, TurnoutError) else "their index is not written"
                    _log.warning("subscriptions stay at revision %d: %s: %s", self._newest, cause, failure)
                self._is_away = True
                if time.monotonic() - begun >= _STORE_SECONDS / 2:
                    self._silent_until = time.monotonic() + _AWAY_SECONDS
            else:
                self._is_away = False
            return self._newest

    def watch(self) -> None:
        """Show the ledger the store's changes without a new revision of the index: of a quiet stream nothing needs one.

        Does nothing while the store is away.
        """
        if self._watched is None:
            return
        with self._lock, suppress(TurnoutError, OSError), within(_STORE_SECONDS):
            if time.monotonic() < self._silent_until:
                return
            self._watched_revision = self._watched.changes(max(self._watched_revision, self._newest)).revision

    def usable(self, revision: int) -> int:
        """Return *revision* if it can be opened, else the newest one, with a logged warning.

        A checkpoint on another machine names revisions whose files this one never had.
        """
        if self._has(revision):
            return revision
        nearest = self.newest()
        _log.warning(
            "subscriptions of revision %d are no longer kept: the micro-batch that was begun with them is matched"
            " with revision %d",
            revision,
            nearest,
        )
        return nearest

    def filters(self, revision: int) -> tuple[str, ...] | None:
        """Return the subjects that the subscriptions of a revision can match; None if any, or if not known."""
        with self._lock:
            return None if self._wanted_subjects is None else self._wanted_subjects.of(revision)

    def files(self, revision: int) -> Sequence[Path]:
        """Return the files of a revision.

        Raises:
            IndexFileError: it is not kept.
        """
        return self._index.files(revision)

    def learn(self, sample: Callable[[Sequence[str]], Sequence[Mapping[str, str]]]) -> None:
        """Choose the index's anchors by their rarity in a sample of messages.

        Args:
            sample: returns the metadata of some under the keys that conditions test.
        """
        metadata = sample(Index.open(self.folder, self._newest).keys)
        if metadata:
            self._index.learn(metadata)
            self._index.settle()

    def _has(self, revision: int) -> bool:
        try:
            return all(file.exists() for file in self.files(revision))
        except IndexFileError:
            return False


_LASTING = 4
"""This many revisions outlive a run. A micro-batch that is not committed has the last one, or the one before it."""


def _same_store(folder: Path, url: str) -> bool:
    """Return True if the folder's revisions belong to this store; records the store as its owner."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    mark = folder / "store"
    digest = hashlib.sha256(without_timeout(url).encode()).hexdigest()
    same = mark.exists() and mark.read_text(encoding="ascii") == digest
    if not same:
        descriptor = os.open(mark, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(digest)
    return same


class RunMatching:
    """Subscriptions of a run; closed at its end.

    Args:
        route: a route with subscriptions.
        address: address of this process for the tasks of the run.
        folder: for the index of this run.
        lasting: whether its latest revisions stay for the next run.
        pinned: subscriptions to match with instead of the store's.
        ledger: ledger of missed ranges; None without backfill.

    Raises:
        TurnoutError: the store cannot be read, or another run has the folder.
    """

    def __init__(
        self,
        route: Route,
        address: str,
        folder: Path,
        *,
        lasting: bool = False,
        pinned: Snapshot | None = None,
        ledger: BackfillLedger | None = None,
    ) -> None:
        assert route.subscriptions is not None
        self._route = route
        self._resources = ExitStack()
        source = route.source
        self.pushes_down = source.pushes_down and route.unmatched == "drop"
        filters = SubjectFilters(route, source.filters) if self.pushes_down else None
        self.revisions = Revisions(
            route.subscriptions.store, folder, lasting=lasting, pinned=pinned, filters=filters, ledger=ledger
        )
        self._resources.callback(self.revisions.close)
        server = self._resources.enter_context(IndexServer(self.revisions, address))
        self.url = server.url
        self.index_location = IndexLocation.at(self.revisions.folder, server.url)

    @property
    def options(self) -> dict[str, str]:
        """Return the source options that matching adds."""
        return {"revisionsUrl": self.url, **({"pushDown": "true"} if self.pushes_down else {})}

    def close(self) -> None:
        """Close the store and the index."""
        self._resources.close()

    def learn(self) -> None:
        """Choose the index's anchors by their rarity in a sample of the stream's records.

        Each is taken at a place of its own, since neighbours are alike: a day's records say nothing of another day's,
        and what never occurs in the sample passes for rare. Only speed depends on them. Nothing is learnt from an empty
        stream, or from a source that is not NATS, or one whose messages this user may read by a consumer only.
        """
        if len(self.revisions) < _WORTH_LEARNING:
            return
        try:
            batches = list(adapter_of(self._route.source).sample(_SAMPLE_RECORDS))
        except StreamError as failure:
            if failure.code != _FORBIDDEN:
                raise
            _log.info("route %s: subscriptions are indexed without a sample: %s", self._route.name, failure)
            return
        chain = self._route.chain
        program = Program.of(replace(self._route, chain=replace(chain, errors=replace(chain.errors, tolerance="all"))))

        def metadata(keys: Sequence[str]) -> list[dict[str, str]]:
            return [match for batch in batches for match in program.sample(batch, keys)]

        self.revisions.learn(metadata)
