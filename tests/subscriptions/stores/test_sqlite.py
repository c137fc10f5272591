"""The SQLite store: what every store promises, and what a file adds to that."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import threading
import time
import warnings
from contextlib import closing, contextmanager
from functools import partial

import pytest
from tests.contracts.store import StoreContract, TenantHistoryContract, every_page, subscription
from tests.subscriptions.stores.sqlite_files import ids_of, opened

from turnout.errors import StoreUnavailableError, SubscriptionError, SubscriptionExistsError, SubscriptionInvalidError
from turnout.subscriptions import open_store
from turnout.subscriptions.store import within
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


def test_read_only(path):
    """A store opened to read is read, also while another one writes, and refuses to change."""
    with opened(path) as store, opened(path, mode="ro") as reader:
        store.create(subscription(id="x"))

        assert reader.read("x").id == "x"
        with pytest.raises(SubscriptionError, match="may not be written"):
            reader.create(subscription())
        with pytest.raises(SubscriptionError, match="may not be written"):
            reader.delete("x")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write to files that are read-only")
def test_file_that_may_not_be_written(path):
    """A file without write permission can be read; changing it is an error that says so."""
    opened(path).close()
    path.chmod(0o444)
    with opened(path, mode="ro") as store:
        assert len(store.snapshot()) == 0


def test_locked(path):
    """A file that another program keeps locked is an error that a retry may cure, after the time given."""
    with opened(path, timeout=0.2) as store:
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnavailableError, match=r"locked by another writer; waited 0\.2 s"):
            store.create(subscription())
        assert store.revision() == 0
        other.execute("ROLLBACK")
        other.close()

        store.create(subscription())


def test_not_an_sqlite_file(path):
    """A file of something else is refused, and not touched."""
    path.write_text("these are my notes " * 200)

    with pytest.raises(SubscriptionError, match="not an SQLite file"):
        opened(path)
    assert path.read_text().startswith("these are my notes")


def test_damaged(path):
    """A file with damaged pages is reported as damaged."""
    with opened(path) as store:
        store.create_many(subscription(f"p{n}") for n in range(2_000))
    for beside in (path.with_name("s.db-wal"), path.with_name("s.db-shm")):
        beside.unlink(missing_ok=True)
    data = bytearray(path.read_bytes())
    data[8_192:] = b"\x55" * (len(data) - 8_192)
    path.write_bytes(data)

    with opened(path) as store, pytest.raises(SubscriptionError, match="is damaged"):
        store.snapshot()


def test_disk_full(path):
    """A full disk is an error that a retry may cure, and what was stored before stays."""
    with opened(path) as store:
        store.create(subscription(id="x"))
        with store._file.writing() as connection:
            connection.execute("SELECT 1")
        pages = store._file._idle[-1].execute("PRAGMA page_count").fetchone()[0]
        store._file._idle[-1].execute(f"PRAGMA max_page_count = {pages + 2}")
        with pytest.raises(StoreUnavailableError, match="no space left"):
            store.create_many(subscription() for _ in range(1_000))

        assert [subscription.id for subscription in store.snapshot()] == ["x"]


def test_closed(path):
    """Calls on a closed store fail with that reason."""
    store = opened(path)
    store.close()

    with pytest.raises(SubscriptionError, match="is closed"):
        store.revision()


def test_after_a_fork(path):
    """A child process does not touch its parent's connections, and has its own."""
    with opened(path) as store:
        store.create(subscription(id="parent"))
        with warnings.catch_warnings():
            # Forking is what is tested; the process has no other thread that holds a lock.
            warnings.simplefilter("ignore", DeprecationWarning)
            child = os.fork()
        if not child:
            try:
                store.create(subscription(id="child"))
            finally:
                os._exit(0)
        os.waitpid(child, 0)

        assert [subscription.id for subscription in store.snapshot()] == ["child", "parent"]


def test_the_file_is_its_owners(path):
    """Only the owner can read the store and the files beside it; an existing file keeps its mode."""
    before = os.umask(0o022)
    try:
        with opened(path) as store:
            store.create(subscription())
            modes = {file.name: oct(file.stat().st_mode & 0o777) for file in path.parent.iterdir()}
        shared = path.with_name("shared.db")
        shared.touch(0o640)
        opened(shared).close()
    finally:
        os.umask(before)

    assert modes == dict.fromkeys(("s.db", "s.db-wal", "s.db-shm"), "0o600")
    assert shared.stat().st_mode & 0o777 == 0o640


def test_a_callers_deadline_is_for_all_waits_together(path):
    """Threads that wait for each other and then for the file's lock all stop at the caller's deadline."""
    with opened(path, timeout=60) as store:
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN EXCLUSIVE")
        failures = []

        def create():
            with within(1.0):
                try:
                    store.create(subscription())
                except StoreUnavailableError as failure:
                    failures.append(failure)

        threads = [threading.Thread(target=create) for _ in range(40)]
        begun = time.monotonic()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        took = time.monotonic() - begun
        other.execute("ROLLBACK")
        other.close()

        assert len(failures) == 40
        # One after another, each with a second of its own, takes forty.
        assert took < 30
        assert ids_of(store) == []
