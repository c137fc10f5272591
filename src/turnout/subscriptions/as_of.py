"""A store's subscriptions at one moment, all of them or some."""

from __future__ import annotations

from collections.abc import Iterable

from turnout.errors import HistoryForgottenError
from turnout.subscriptions.past import Moment, PastStore
from turnout.subscriptions.snapshot import Snapshot
from turnout.subscriptions.store import Store, open_store, view_as_of
from turnout.subscriptions.store_url import existing


def snapshot_of(url: str, moment: Moment | None = None, ids: Iterable[str] | None = None) -> Snapshot:
    """Return a snapshot of a store, now or at a past moment.

    Args:
        url: the store.
        moment: a revision or a time; None for the present.
        ids: ids of the subscriptions that are meant, in this order; all of them if not given.

    Raises:
        SubscriptionNotFoundError: there is, or was, none of an id.
        HistoryForgottenError: the store does not remember so far back.
    """
    store = open_store(existing(url))
    try:
        if moment is None or moment == store.revision():
            return _present(store, ids)
        return _snapshot_of(view_as_of(store, moment), ids)
    finally:
        store.close()


def _present(store: Store, ids: Iterable[str] | None) -> Snapshot:
    if ids is None:
        return store.snapshot()
    try:
        # All of one revision, also during concurrent changes.
        return _snapshot_of(view_as_of(store, store.revision()), ids)
    except HistoryForgottenError:
        revision = store.revision()
        return Snapshot(tuple(store.read(id_) for id_ in dict.fromkeys(ids)), revision)


def _snapshot_of(past: PastStore, ids: Iterable[str] | None) -> Snapshot:
    if ids is None:
        return past.snapshot()
    return Snapshot(tuple(past.read(id_) for id_ in dict.fromkeys(ids)), past.revision)
