"""Which revisions of a run's subscriptions there are, whatever becomes of the store."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from turnout.conditions import kiwi
from turnout.errors import ConfigError, StoreUnavailableError
from turnout.runtime import revisions as module
from turnout.runtime.backfill import BackfillLedger
from turnout.runtime.revisions import Revisions
from turnout.subscriptions import Changes, Subscription
from turnout.subscriptions.index import Index
from turnout.subscriptions.model import Start
from turnout.subscriptions.store import remaining
from turnout.subscriptions.stores.memory import MemoryStore


class Shaky(MemoryStore):
    """A store that can be away."""

    away = False

    def changes(self, since: int, prefix: str = "") -> Changes:
        if self.away:
            raise StoreUnavailableError("the store is away")
        return super().changes(since, prefix)


@pytest.fixture
def store(monkeypatch: Any) -> Shaky:
    store = Shaky()
    store.create(Subscription(destinations=("a",), condition=kiwi("town", "Oulu"), id="first"))
    monkeypatch.setattr(module, "open_store", lambda _: store)
    return store


@pytest.fixture
def revisions(store: Shaky, tmp_path: Path) -> Iterator[Revisions]:
    revisions = Revisions("memory://", tmp_path / "index")
    yield revisions
    revisions.close()


def add(store: Shaky) -> None:
    store.create(Subscription(destinations=("b",), condition=kiwi("town", "Turku")))


def test_the_newest_revision_can_be_opened(revisions: Revisions, store: Shaky) -> None:
    """The previous revision can be opened too."""
    first = revisions.newest()
    add(store)
    second = revisions.newest()

    assert second > first
    assert [len(Index.open(revisions.folder, revision)) for revision in (first, second)] == [1, 2]
    assert len(revisions) == 2


def test_a_store_that_is_away(revisions: Revisions, store: Shaky, caplog: Any) -> None:
    """The last revision answers, with one warning until the store is back."""
    revision = revisions.newest()
    store.away = True

    with caplog.at_level(logging.WARNING):
        assert [revisions.newest(), revisions.newest()] == [revision, revision]
    assert caplog.messages == [f"subscriptions stay at revision {revision}: their store is away: the store is away"]
    store.away = False
    add(store)
    assert revisions.newest() == revision + 1


def test_a_store_that_does_not_answer(revisions: Revisions, store: Shaky, monkeypatch: Any, caplog: Any) -> None:
    """The run's limit applies, the revision stays with a warning, and the next micro-batches do not wait again."""
    monkeypatch.setattr(module, "_STORE_SECONDS", 0.01)
    limits = []

    def frozen(since: int, prefix: str = "") -> Changes:
        del since, prefix
        limits.append(remaining(60.0))
        threading.Event().wait(limits[-1])
        raise StoreUnavailableError("it has not answered")

    before = revisions.newest()
    monkeypatch.setattr(store, "changes", frozen)

    assert [revisions.newest() for _ in range(3)] == [before] * 3
    assert len(limits) == 1
    assert limits[0] <= 0.01
    assert [record.levelno for record in caplog.records] == [logging.WARNING]


def test_a_revision_that_is_gone(revisions: Revisions, store: Shaky, caplog: Any) -> None:
    """The nearest later one replaces it, which is logged in one line; one that is kept is used unchanged."""
    kept = revisions.newest()
    add(store)
    newest = revisions.newest()

    with caplog.at_level(logging.WARNING):
        assert revisions.usable(kept) == kept
        assert not caplog.records
        assert revisions.usable(0) == newest
    assert len(caplog.records) == 1
    assert "revision 0 are no longer kept" in caplog.text


def test_learning_changes_no_revision(revisions: Revisions) -> None:
    """Typical messages are read for the keys of conditions; the index has the same subscriptions."""
    requested: list[Any] = []

    def metadata(keys: Any) -> list[dict[str, str]]:
        requested.append(tuple(keys))
        return [{"town": "Oulu"}] * 10

    before = revisions.newest()
    revisions.learn(metadata)

    assert requested == [("town",)]
    assert revisions.newest() == before
    assert len(Index.open(revisions.folder, before)) == 1


def test_a_run_makes_no_store(tmp_path: Path) -> None:
    """A mistyped path matches nothing and would drop everything: it is an error that names it."""
    with pytest.raises(ConfigError, match=f"there is no store at '{tmp_path}/mistyped.db'"):
        Revisions(f"sqlite:///{tmp_path}/mistyped.db", tmp_path / "index")

    assert not (tmp_path / "mistyped.db").exists()


def test_a_ledger_sees_changes_between_records(store: Shaky, tmp_path: Path) -> None:
    """A starting point is noted once, without a revision that no record needs, and as soon as the store is back."""
    ledger = BackfillLedger(tmp_path)
    revisions = Revisions("memory://", tmp_path / "index", ledger=ledger)
    first = revisions.newest()
    store.create(Subscription(("b",), kiwi("town", "Turku"), id="late", start=Start("earliest")))
    files = sorted(path.name for path in revisions.folder.iterdir())
    store.away = True
    revisions.watch()
    away = [row.id for row in ledger.rows]
    store.away = False
    revisions.watch()
    revisions.watch()

    assert (away, [row.id for row in ledger.rows]) == ([], ["late"])
    assert sorted(path.name for path in revisions.folder.iterdir()) == files
    assert revisions.newest() > first
    assert [row.id for row in ledger.rows] == ["late"]
    revisions.close()
    ledger.close()


def test_without_a_ledger_nothing_is_watched(revisions: Revisions, store: Shaky) -> None:
    """The store is not asked."""
    store.away = True

    revisions.watch()

    assert revisions.newest() == 1
