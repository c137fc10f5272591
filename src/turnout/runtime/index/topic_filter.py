"""Subjects that each revision of the subscriptions can match, kept beside the index of the same revisions."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

from turnout.base.files import replace_file
from turnout.base.plural import first_names
from turnout.engine.subject_bounds import TopicRequirement
from turnout.engine.subject_filters import SubjectFilters
from turnout.subscriptions.index.index_writer import FollowedStore
from turnout.subscriptions.model import Changes, Subscription
from turnout.subscriptions.snapshot import Snapshot

_log = logging.getLogger(__name__)

_CACHED_REVISIONS: Final = 32
"""This many revisions are kept, as of the index."""


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
