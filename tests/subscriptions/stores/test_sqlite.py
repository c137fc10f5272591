"""The SQLite store: what every store promises, and what a file adds to that."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import threading
import time
import warnings
from datetime import timedelta
from functools import partial

import pytest
from tests.contracts.store import StoreContract, TenantHistoryContract, every_page, subscription

from turnout.errors import (
    ConfigError,
    HistoryForgottenError,
    StoreUnavailableError,
    SubscriptionError,
    SubscriptionExistsError,
    SubscriptionInvalidError,
)
from turnout.subscriptions import Matcher, open_store
from turnout.subscriptions.deadline import within
from turnout.subscriptions.stores import _sqlite_deletions, sqlite
from turnout.subscriptions.stores._sqlite_schema import APPLICATION_ID, SCHEMA


class TestSqliteStore(StoreContract, TenantHistoryContract):
    @pytest.fixture
    def store(self, tmp_path):
        with open_store(f"sqlite:///{tmp_path}/subscriptions.db") as store:
            yield store


def opened(path, **options):
    query = "&".join(f"{name}={value}" for name, value in options.items())
    return open_store(f"sqlite:///{path}{'?' if query else ''}{query}")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "s.db"


def test_stays_in_the_file(path):
    """Subscriptions stored by one process are read by the next, with their revision."""
    with opened(path) as store:
        store.create(subscription(id="x"))
        store.delete(store.create(subscription()))
    with opened(path) as store:
        assert [subscription.id for subscription in store.snapshot()] == ["x"]
        assert store.revision() == 3


def test_relative_and_absolute_paths(tmp_path, monkeypatch):
    """Three slashes begin a relative path, four an absolute one; escapes are undone."""
    monkeypatch.chdir(tmp_path)
    open_store("sqlite:///here.db").close()
    open_store(f"sqlite:///{tmp_path}/there%20it%3Fis.db").close()

    assert (tmp_path / "here.db").exists()
    assert (tmp_path / "there it?is.db").exists()


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("sqlite://here.db", "third slash"),
        ("sqlite:///", "names no file"),
        ("sqlite:///:memory:", "memory://"),
        ("sqlite:///x.db?mode=rx", "rwc, rw, ro"),
        ("sqlite:///x.db?timeout=soon", "number of seconds"),
        ("sqlite:///x.db?synchronous=maybe", "full, normal, off"),
        ("sqlite:///x.db?retention=long", "12h, 30d, 0 or forever"),
        ("sqlite:///x.db?cache=1", "unknown option 'cache'"),
        ("sqlite:////nowhere/at/all/x.db", "no folder '/nowhere/at/all'"),
        ("sqlite:////tmp", "is a folder"),
        ("sqlite:////tmp/is-not-there.db?mode=ro", "does not create one"),
    ],
)
def test_bad_addresses(url, words, tmp_path, monkeypatch):
    """An address that cannot be is a wrong request, with the reason."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=words):
        open_store(url)


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


def test_of_another_program(path):
    """An SQLite file of another program is refused, and not touched."""
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE theirs (x)")
    other.close()

    with pytest.raises(SubscriptionError, match="of another program"):
        opened(path)
    other = sqlite3.connect(path)
    assert other.execute("SELECT name FROM sqlite_schema").fetchall() == [("theirs",)]
    other.close()


def test_of_a_newer_turnout(path):
    """A schema that this version does not know is refused."""
    opened(path).close()
    newer = sqlite3.connect(path)
    newer.execute("PRAGMA user_version = 99")
    newer.close()

    with pytest.raises(SubscriptionError, match="newer turnout"):
        opened(path)


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
    monkeypatch.setattr(_sqlite_deletions, "_REMEMBERED", 3)
    monkeypatch.setattr(sqlite, "_PRUNE_EVERY", 1)
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
            if statement.startswith("SELECT id, record, subscription.revision FROM") and "ORDER BY" in statement
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


_FIRST_LAYOUT = """
    CREATE TABLE state (
        one INTEGER PRIMARY KEY CHECK (one = 1), revision INTEGER NOT NULL, horizon INTEGER NOT NULL
    );
    INSERT INTO state VALUES (1, 2, 0);
    CREATE TABLE subscription (
        row INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, revision INTEGER NOT NULL, record TEXT NOT NULL
    );
    INSERT INTO subscription VALUES
        (1, 'old', 1, '[["d"],{"kiwiCondition":{"key":"subject","pattern":"orders*","id":"leaf"}},{"n":"x"}]');
    CREATE TABLE leaf (
        key TEXT NOT NULL, pattern TEXT NOT NULL, partial INTEGER NOT NULL, id TEXT NOT NULL,
        PRIMARY KEY (key, pattern, partial, id)
    ) WITHOUT ROWID;
    INSERT INTO leaf VALUES ('subject', 'orders*', 0, 'old');
    CREATE TABLE metadata (
        name TEXT NOT NULL, value TEXT NOT NULL, id TEXT NOT NULL, PRIMARY KEY (name, value, id)
    ) WITHOUT ROWID;
    INSERT INTO metadata VALUES ('n', 'x', 'old');
    CREATE TABLE deleted (id TEXT PRIMARY KEY, born INTEGER NOT NULL, died INTEGER NOT NULL) WITHOUT ROWID;
    CREATE INDEX deleted_died ON deleted (died);
    PRAGMA application_id = 0x7475726E;
    PRAGMA user_version = 1;
"""
"""A store as turnout wrote it before there were tenants."""


def test_a_store_from_before_tenants(path):
    """A file of the first layout accepts tenants; its subscriptions belong to no tenant and are found as before."""
    before = sqlite3.connect(path)
    before.executescript(_FIRST_LAYOUT)
    before.close()
    with opened(path) as store:
        acme = store.for_tenant("acme")
        assert [subscription.id for subscription in store.snapshot()] == ["old"]
        assert [item.id for item in store.search_by_metadata({"n": "x"}).items] == ["old"]
        assert len(acme.snapshot()) == len(acme.search_by_condition("subject", "orders*").items) == 0
        acme.create(subscription(id="old"))
        acme.delete("old")
        acme.create(subscription(id="new"))
    with opened(path) as store:
        assert [subscription.id for subscription in store.for_tenant("acme").snapshot()] == ["new"]
        assert [subscription.id for subscription in store.snapshot()] == ["@acme/new", "old"]
        assert store.read("old").destinations == ("d",)


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


def test_forgets_beyond_the_retention(path, monkeypatch):
    """History before the retention is deleted from the file; the state at its beginning is kept."""
    monkeypatch.setattr(sqlite, "_PRUNE_EVERY", 1)
    with opened(path, retention="1s") as store:
        store.create(subscription(id="a"))
        store.delete("a")
        store.create(subscription(id="b"))
        time.sleep(1.1)
        store.delete("b")

        assert [subscription.id for subscription in store.as_of(3)] == ["b"]
        with pytest.raises(HistoryForgottenError, match="revision 1: it remembers revisions 3"):
            store.as_of(1)
    with sqlite3.connect(path) as connection:
        assert connection.execute("SELECT id FROM past").fetchall() == [("b",)]
    connection.close()


def test_a_file_of_the_version_before(path):
    """The file is migrated in place: its subscriptions are kept, and history begins then."""
    with opened(path) as store:
        store.create(subscription(id="a"))
        store.delete(store.create(subscription()))
    with sqlite3.connect(path) as connection:
        for statement in ("DROP TABLE moment", "DROP TABLE past", "ALTER TABLE state DROP COLUMN remembered"):
            connection.execute(statement)
        connection.execute("PRAGMA user_version = 1")
    connection.close()

    with pytest.raises(SubscriptionError, match="older schema"):
        opened(path, mode="ro").revision()
    with opened(path) as store:
        store.delete("a")

        assert [subscription.id for subscription in store.as_of(3)] == ["a"]
        assert [subscription.id for subscription in store.as_of(4)] == []
        with pytest.raises(HistoryForgottenError, match="it remembers revisions 3"):
            store.as_of(2)


def test_the_times_of_revisions(path):
    """Births say when, and a file that is opened again still knows."""
    with opened(path) as store:
        store.create(subscription(id="a"))
        born = store.births()["a"]
    with opened(path) as store:
        assert store.births()["a"] == born
        assert store.as_of(born.at).revision == 1
        assert store.as_of(born.at - timedelta(days=1)).revision == 0


def replaced(path, *names):
    """Replace the file by another store with these subscriptions, as in restoring a backup."""
    backup = path.with_name("backup.db")
    with opened(backup) as store:
        for name in names:
            store.create(subscription(id=name))
    backup.rename(path)


def ids_of(store):
    return [subscription.id for subscription in store.snapshot()]


@pytest.mark.parametrize("before", [1, 5])
def test_a_file_that_is_replaced(path, caplog, before):
    """It is followed from the next call on, whatever its revisions are, with one warning; writes go into it."""
    with opened(path) as store:
        store.create_many([subscription(id="old")])
        for number in range(before - 1):
            store.create(subscription(id=f"old{number}"))
        matcher = Matcher.from_store(store)
        replaced(path, "new1", "new2", "new3")

        assert ids_of(store) == ["new1", "new2", "new3"]
        created = store.create(subscription(id="later"))
        assert matcher.refresh(store)
        assert len(matcher) == 4
        assert store.changes(before).reset
        assert store.revision() > max(before, 3)
    with opened(path) as again:
        assert again.read(created).id == "later"
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "was replaced by another file" in caplog.text


def test_the_log_of_a_replaced_file_is_not_taken_for_that_of_the_new_one(path):
    """All that was written to the old file is in it, wherever it was moved, and nothing of it is in the new one."""
    with opened(path) as store:
        store.create_many(subscription(id=f"old{number:03}") for number in range(200))
        moved = path.with_name("moved.db")
        path.rename(moved)
        replaced(path, "new")

        assert ids_of(store) == ["new"]
        with opened(moved) as old:
            assert len(old.snapshot()) == 200
    with opened(path) as again, sqlite3.connect(path) as connection:
        assert ids_of(again) == ["new"]
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    connection.close()


def test_two_that_follow_a_replaced_file(path):
    """Each of two processes' stores notices it; followers of both begin again, and the second changes nothing."""
    with opened(path) as one, opened(path) as other:
        for number in range(4):
            one.create(subscription(id=f"old{number}"))
        revision = other.revision()
        replaced(path, "new")

        assert one.changes(revision).reset
        now = one.revision()
        assert other.changes(revision).reset
        assert other.revision() == one.revision() == now


def test_a_file_that_is_removed(path):
    """Nothing is written to the removed file: calls are refused until a file exists again, and none is created."""
    with opened(path) as store:
        store.create(subscription(id="x"))
        away = path.with_name("away.db")
        path.rename(away)
        for call in (lambda: store.create(subscription()), store.revision, lambda: store.read("x")):
            with pytest.raises(StoreUnavailableError, match="was removed while it was open"):
                call()
        assert not path.exists()

        away.rename(path)
        assert store.read("x").id == "x"


def test_a_file_that_is_replaced_in_the_middle_of_a_write(path, monkeypatch):
    """A write in progress is refused: it would be stored in a file that is no longer used."""
    monkeypatch.setattr(sqlite, "_CHUNK", 2_000)

    def many():
        for number in range(3_000):
            if number == 2_500:
                replaced(path, "new")
            yield subscription(id=f"lost{number}")

    with opened(path) as store:
        with pytest.raises(StoreUnavailableError, match="nothing was stored"):
            store.create_many(many())
        assert ids_of(store) == ["new"]


def test_a_file_that_is_replaced_for_a_reader_only(path):
    """A read-only store refuses to continue, as it cannot tell its followers to begin again."""
    opened(path).close()
    with opened(path, mode="ro") as store:
        replaced(path, "new")
        with pytest.raises(StoreUnavailableError, match="has to start again"):
            store.snapshot()


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

        threads = [threading.Thread(target=create) for _ in range(8)]
        begun = time.monotonic()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        took = time.monotonic() - begun
        other.execute("ROLLBACK")
        other.close()

        assert len(failures) == 8
        # One after another, each with a second of its own, takes eight.
        assert took < 6
        assert ids_of(store) == []


def test_a_file_of_schema_2(path):
    """A file of the version before updates opens with its subscriptions and its history, and takes updates."""
    record = '[["d"],{"kiwiCondition":{"id":"l","key":"k","pattern":"v"}},{}]'
    with sqlite3.connect(path) as connection:
        for script in SCHEMA[:2]:
            connection.executescript(script)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute("PRAGMA user_version = 2")
        connection.execute("UPDATE state SET revision = 2")
        connection.execute("INSERT INTO moment VALUES (1, 1000000), (2, 2000000)")
        connection.execute("INSERT INTO past VALUES ('gone', 2, 1, ?)", (record,))
        connection.execute("INSERT INTO subscription VALUES (1, 'a', 2, ?)", (record,))
        connection.execute("INSERT INTO leaf VALUES ('k', 'v', 0, 'a')")
    connection.close()

    with opened(path) as store:
        assert [one.id for one in store.snapshot()] == ["a"]
        assert [one.id for one in store.as_of(1)] == ["gone"]
        assert [(entry.action, entry.actor) for entry in store.history("a")] == [("created", "")]
        assert store.update("a", subscription(), expected_revision=2) == 3
        assert store.search_by_condition("k", "v").items == ()
