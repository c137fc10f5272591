"""The SQLite store: what every store promises, and what a file adds to that."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import time
from contextlib import closing, contextmanager
from functools import partial

import pytest
from tests.contracts.store import StoreContract, TenantHistoryContract, every_page, subscription
from tests.subscriptions.stores.sqlite_files import opened

from turnout.errors import SubscriptionExistsError, SubscriptionInvalidError
from turnout.subscriptions import open_store
from turnout.subscriptions.stores import _sql, sqlite


class TestSqliteStore(StoreContract, TenantHistoryContract):
    @pytest.fixture
    def store(self, tmp_path):
        with open_store(f"sqlite:///{tmp_path}/subscriptions.db") as store:
            yield store

    @pytest.fixture
    def restored(self, tmp_path):
        @contextmanager
        def restored(_):
            path = tmp_path / "subscriptions.db"
            with closing(sqlite3.connect(path)) as live, closing(sqlite3.connect(":memory:")) as copy:
                live.backup(copy)
                yield
                copy.backup(live)

        return restored


def test_stays_in_the_file(path):
    """Subscriptions stored by one process are read by the next, with their revision."""
    with opened(path) as store:
        store.create(subscription(id="x"))
        store.delete(store.create(subscription()))
    with opened(path) as store:
        assert [subscription.id for subscription in store.snapshot()] == ["x"]
        assert store.revision() == 3


def test_text_that_is_not_unicode(path):
    """Half of a surrogate pair is refused, not stored as something else."""
    with opened(path) as store, pytest.raises(SubscriptionInvalidError, match="not Unicode"):
        store.create(subscription(metadata={"a": "\ud800"}))


def test_a_bulk_that_fails_stores_nothing(path):
    """An iterable that raises leaves the store as it was."""

    def some():
        yield from (subscription() for _ in range(5_000))
        raise ZeroDivisionError

    with opened(path) as store:
        with pytest.raises(ZeroDivisionError):
            store.create_many(some())
        assert (len(store.snapshot()), store.revision()) == (0, 0)


def test_twice_in_one_bulk(path):
    """One id twice in a bulk is refused with its name, near or far apart."""
    for between in (1, 5_000):
        ids = ["twice", *(f"s{n}" for n in range(between)), "twice"]
        with opened(path) as store, pytest.raises(SubscriptionExistsError, match="'twice'"):
            store.create_many(subscription(id=id_) for id_ in ids)


def test_forgets_old_deletions(path, monkeypatch):
    """A reader that missed more deletions than are kept reloads everything."""
    monkeypatch.setattr(_sql, "_REMEMBERED", 3)
    monkeypatch.setattr(_sql, "_PRUNE_EVERY", 1)
    with opened(path) as store:
        store.create(subscription(id="stays"))
        for number in range(8):
            store.create(subscription(id=f"s{number}"))
            store.delete(f"s{number}")
        now = store.revision()

        assert store.changes(1).reset
        assert [subscription.id for subscription in store.changes(1).created] == ["stays"]
        assert not store.changes(now - 2).reset


def test_rarest_pair_first(path):
    """A search by a common and a rare pair walks the rare one: it does not read thousands of rows."""
    with opened(path) as store:
        store.create_many(subscription(metadata={"all": "same", "own": str(n)}) for n in range(3_000))
        metadata = {"all": "same", "own": "2999"}
        with store._file.reading() as connection:
            assert sqlite._rarest_first(connection, metadata)[0] == ("own", "2999")
        (item,) = store.search_by_metadata(metadata).items

        assert item.metadata == metadata


def test_searches_use_the_indexes(path):
    """Both searches seek in an index and sort nothing."""
    with opened(path) as store:
        statements: list[str] = []
        store.revision()
        connection = store._file._idle[-1]
        connection.set_trace_callback(statements.append)
        store.search_by_condition("k", "v")
        store.search_by_metadata({"a": "b", "c": "d"})
        store.search_by_metadata({})
        store.changes(-1)
        connection.set_trace_callback(None)
        plans = [
            row[3]
            for statement in statements
            if statement.startswith("SELECT id, record, revision FROM") and "ORDER BY" in statement
            for row in connection.execute(f"EXPLAIN QUERY PLAN {statement}")
        ]

    assert len(plans) >= 3
    assert not [step for step in plans if step.startswith("SCAN") or "TEMP B-TREE" in step]


def test_two_processes_create_the_file_at_once(path):
    """Processes that open a new file in the same moment all find it in order."""
    program = (
        "import sys; from turnout.subscriptions import open_store;"
        "from turnout.conditions import kiwi; from turnout.subscriptions import Subscription;"
        "store = open_store(sys.argv[1]); [store.create(Subscription(['d'], kiwi('k', 'v'))) for _ in range(50)]"
    )
    runs = [subprocess.Popen([sys.executable, "-c", program, f"sqlite:///{path}"]) for _ in range(4)]

    assert [run.wait(60) for run in runs] == [0, 0, 0, 0]
    with opened(path) as store:
        assert (len(store.snapshot()), store.revision()) == (200, 200)


KILLED_IMPORT = """
import sys
from turnout.conditions import kiwi
from turnout.subscriptions import Subscription, open_store
from turnout.subscriptions.lines import import_lines

def lines():
    number = 0
    while True:
        yield '{"id": "%09d", "route": {"destinations": ["d"], "condition": {"kiwiCondition": ' \\
              '{"key": "k", "pattern": "v%d"}}}}' % (number, number)
        number += 1

def acknowledge(done):
    print(done.created, flush=True)

import_lines(open_store(sys.argv[1]), lines(), batch=500, progress=acknowledge)
"""


@pytest.mark.parametrize("moment", [0.05, 0.2, 0.37])
def test_kill_during_import(path, moment):
    """kill -9 in the middle of an import loses nothing that was acknowledged, and leaves no half of a batch."""
    importing = subprocess.Popen(
        [sys.executable, "-c", KILLED_IMPORT, f"sqlite:///{path}"], stdout=subprocess.PIPE, text=True
    )
    assert importing.stdout is not None
    with importing:
        acknowledged = [int(importing.stdout.readline())]
        time.sleep(moment)
        importing.kill()
        acknowledged += [int(line) for line in importing.stdout if line.endswith("\n")]
    with opened(path) as store:
        ids = [subscription.id for subscription in store.snapshot()]

        assert len(ids) in (acknowledged[-1], acknowledged[-1] + 500)
        assert ids == [f"{number:09}" for number in range(len(ids))]
        assert len(every_page(lambda **page: store.search_by_metadata({}, **page), 1_000)) == len(ids)
        assert store.search_by_condition("k", f"v{len(ids) - 1}").items
        assert not store.search_by_condition("k", f"v{len(ids)}").items
        store.create(subscription())


def test_kill_between_threads(path):
    """kill -9 while threads create and delete leaves the searches and the bodies in agreement."""
    program = """
import sys, threading
from turnout.conditions import all_of, kiwi
from turnout.subscriptions import Subscription, open_store

store = open_store(sys.argv[1])
def work(name):
    while True:
        wanted = Subscription(["d"], all_of(kiwi("k", "v"), kiwi("by", name)), {"by": name})
        ids = [store.create(wanted) for _ in range(3)]
        store.delete(ids[1])
        print(ids[0], ids[2], flush=True)
for name in "abc":
    threading.Thread(target=work, args=(name,)).start()
"""
    working = subprocess.Popen([sys.executable, "-c", program, f"sqlite:///{path}"], stdout=subprocess.PIPE, text=True)
    assert working.stdout is not None
    with working:
        lines = [working.stdout.readline()]
        time.sleep(0.4)
        working.kill()
        lines += [line for line in working.stdout if line.endswith("\n") and len(line.split()) == 2]
    kept = {id_ for line in lines for id_ in line.split() if len(id_) == 36}
    with opened(path) as store:
        snapshot = {subscription.id for subscription in store.snapshot()}
        by_leaf = {m.subscription_id for m in every_page(lambda **p: store.search_by_condition("k", "v", **p), 500)}
        pages = [every_page(partial(store.search_by_metadata, {"by": name}), 500) for name in "abc"]
        by_name = {item.id for page in pages for item in page}

    assert kept
    assert kept <= snapshot
    assert snapshot == by_leaf == by_name


def test_tenants_are_a_range_of_an_index(path):
    """A tenant's query uses an index on ids, and does not filter all subscriptions."""
    with opened(path) as store:
        acme = store.for_tenant("acme")
        statements: list[str] = []
        with store._file.reading() as connection:
            connection.set_trace_callback(statements.append)
        acme.search_by_condition("subject", "orders*")
        acme.search_by_metadata({"a": "b"})
        acme.search_by_metadata({})
        acme.snapshot()
        with store._file.reading() as connection:
            connection.set_trace_callback(None)
            queries = [query for query in statements if "id >" in query]
            plans = [connection.execute(f"EXPLAIN QUERY PLAN {query}").fetchall() for query in queries]

    assert len(plans) == 4
    for plan in plans:
        assert any("id>? AND id<?" in row[3] for row in plan), plan
