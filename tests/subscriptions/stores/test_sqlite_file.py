"""Files that are locked, damaged, full, read-only, shared with a child process or closed."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
import warnings

import pytest
from tests.contracts.store import subscription
from tests.subscriptions.stores.sqlite_files import ids_of, opened

from turnout.errors import StoreUnavailableError, SubscriptionError
from turnout.subscriptions.store import within


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
