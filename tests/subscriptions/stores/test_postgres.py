"""The PostgreSQL store, against a real server."""

from __future__ import annotations

import itertools
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest
from tests.contracts.store import StoreContract, TenantHistoryContract, subscription
from tests.postgres import NotAvailable, Postgres

from turnout.conditions import all_of, kiwi
from turnout.errors import (
    ConfigError,
    StoreUnavailableError,
    SubscriptionError,
    SubscriptionExistsError,
    SubscriptionInvalidError,
)
from turnout.subscriptions import Subscription, open_store
from turnout.subscriptions.store import within
from turnout.subscriptions.stores import _sql
from turnout.subscriptions.stores.postgres import PostgresStore

pytestmark = pytest.mark.postgres

_numbers = itertools.count()


@pytest.fixture(scope="module")
def server():
    try:
        with Postgres() as server:
            yield server
    except NotAvailable as reason:
        pytest.skip(str(reason))


@pytest.fixture
def url(server):
    """A schema of the test's own."""
    return f"{server.url}?schema=Own%20{next(_numbers)}"


@pytest.fixture
def store(url):
    with open_store(url) as store:
        yield store


class TestPostgresStore(StoreContract, TenantHistoryContract):
    @pytest.fixture
    def store(self, url):
        with open_store(url) as store:
            yield store

    @pytest.fixture
    def restored(self, url):
        @contextmanager
        def restored(_):
            address, _, query = url.partition("?schema=")
            schema = query.replace("%20", " ")
            with psycopg.connect(address, autocommit=True) as connection:
                names = "SELECT tablename FROM pg_tables WHERE schemaname = %s"
                tables = [name for (name,) in connection.execute(names, (schema,)).fetchall()]
                for name in tables:
                    connection.execute(f'CREATE TEMP TABLE "copy_{name}" AS TABLE "{schema}"."{name}"')
                yield
                with connection.transaction():
                    for name in tables:
                        connection.execute(f'DELETE FROM "{schema}"."{name}"')
                        connection.execute(f'INSERT INTO "{schema}"."{name}" TABLE "copy_{name}"')

        return restored


def test_bulk_is_one_revision(store):
    """A bulk of many parts is one revision, and an id that comes twice in different parts refuses all of it."""
    store.create_many(subscription() for _ in range(4_500))

    assert (store.revision(), len(store.snapshot())) == (1, 4_500)
    with pytest.raises(SubscriptionExistsError, match="'n0'"):
        store.create_many(subscription(id=f"n{number % 4_000}") for number in range(4_002))
    assert (store.revision(), len(store.snapshot())) == (1, 4_500)


def test_writers_leave_no_gap(url):
    """Stores of several clients that write at once, and fail in between, take each revision once."""
    stores = [open_store(url) for _ in range(3)]
    seen: list[int] = []
    failures: list[BaseException] = []

    def work(name: int) -> None:
        try:
            for number in range(15):
                created = stores[name].create(subscription(id=f"{name}-{number}"))
                seen.append(stores[name].read(created).revision)
                with pytest.raises(SubscriptionExistsError):
                    stores[name].create(subscription(id=f"{name}-{number}"))
                if number % 5 == 4:
                    seen.append(stores[name].update(created, subscription("new*")))
        except BaseException as failure:  # noqa: BLE001 - a thread's failure has to reach the test
            failures.append(failure)

    threads = [threading.Thread(target=work, args=(name,)) for name in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert failures == []
    assert sorted(seen) == list(range(1, 3 * 18 + 1))
    assert stores[0].revision() == 3 * 18
    assert len(stores[1].snapshot()) == 3 * 15
    for store in stores:
        store.close()


def test_a_follower_of_concurrent_writers_misses_nothing(url):
    """Whoever applies the changes that it is given, while others write, holds what the store holds in the end."""
    stop = threading.Event()
    held: dict[str, Subscription] = {}

    def follow() -> None:
        revision = 0
        with open_store(url) as reader:
            while True:
                last = stop.is_set()
                changes = reader.changes(revision)
                for gone in changes.deleted_ids:
                    held.pop(gone)
                held.update((one.id, one) for one in changes.created)
                revision = changes.revision
                if last:
                    return

    def write(name: int) -> None:
        with open_store(url) as writer:
            for number in range(20):
                writer.create(subscription(id=f"{name}-{number}"))
                writer.update(f"{name}-{number}", subscription("new*"))
                if number % 3 == 0:
                    writer.delete(f"{name}-{number}")

    with open_store(url) as store:
        follower = threading.Thread(target=follow)
        writers = [threading.Thread(target=write, args=(name,)) for name in range(2)]
        for thread in (follower, *writers):
            thread.start()
        for thread in writers:
            thread.join()
        stop.set()
        follower.join()

        assert held == {one.id: one for one in store.snapshot()}


def test_readers_see_no_half_of_a_bulk(url, store):
    """While a bulk is written, readers see none of it."""
    seen = []

    def many():
        for number in range(4_500):
            if number in (2_100, 4_400):
                with open_store(url) as other:
                    seen.append((other.revision(), len(other.snapshot()), len(other.search_by_metadata({}).items)))
            yield subscription()

    store.create_many(many())

    assert seen == [(0, 0, 0), (0, 0, 0)]


def test_survives_a_restart(server, url, store):
    """A server that goes away is an error a retry cures; what was stored is there when it is back."""
    store.create(subscription(id="x"))
    with server.stopped(), pytest.raises(StoreUnavailableError, match="PostgreSQL is away"):
        store.read("x")

    assert store.read("x").id == "x"
    assert store.create(subscription(id="y")) == "y"


def test_a_writer_is_waited_for_until_the_deadline(url, store):
    """A caller behind another writer gets an answer at its deadline, and nothing is stored for it."""
    with PostgresStore.open(url) as other, other._database.writing() as connection:
        other._next_revision(connection)
        with within(0.3), pytest.raises(StoreUnavailableError, match="took too long"):
            store.create(subscription(id="late"))

    assert store.search_by_metadata({}).items == ()


def test_keys_and_patterns_of_any_length_and_letter(store):
    """Keys of maximal length, NUL and every plane of Unicode are read back and found."""
    condition = all_of(kiwi("k" * 60_000, "v" * 1_000), kiwi("nul\0", "\0\U0001f682"))
    store.create(Subscription(["d"], condition, {"\0": "née", "long": "x" * 3_000}, id="a"))

    assert store.read("a").condition == condition
    assert [one.subscription_id for one in store.search_by_condition("nul\0", "\0\U0001f682").items] == ["a"]
    assert [one.id for one in store.search_by_metadata({"\0": "née", "long": "x" * 3_000}).items] == ["a"]
    with pytest.raises(SubscriptionInvalidError):
        store.create(Subscription(["d"], condition, id="nul\0"))


def test_forgets_old_deletions(store, monkeypatch):
    """A reader that missed more deletions than are kept reloads everything."""
    monkeypatch.setattr(_sql, "_REMEMBERED", 3)
    monkeypatch.setattr(_sql, "_PRUNE_EVERY", 1)
    store.create(subscription(id="stays"))
    for number in range(8):
        store.create(subscription(id=f"s{number}"))
        store.delete(f"s{number}")

    assert store.changes(1).reset
    assert not store.changes(store.revision() - 2).reset


def test_retention(url):
    """Without a retention nothing is remembered of what is gone."""
    with PostgresStore.open(f"{url}&retention=0") as store:
        store.create(subscription(id="a"))
        store.delete("a")

        assert len(store.as_of(store.revision()).snapshot()) == 0
        with store._database.reading() as connection:
            assert store._execute(connection, "SELECT FROM {schema}.past").fetchall() == []


def test_made_by_a_newer_version(url, store):
    """Tables of a version that this one does not know are refused."""
    with store._database.writing() as connection:
        store._execute(connection, "UPDATE {schema}.state SET version = 99")

    with pytest.raises(SubscriptionError, match="newer turnout"):
        open_store(url)


def test_a_database_of_another_encoding(server):
    """A database that cannot hold all of Unicode is refused before anything is stored."""
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute("CREATE DATABASE latin ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0")
    with pytest.raises(ConfigError, match="encoding is LATIN1, expected UTF8"):
        open_store(server.url.replace("/postgres", "/latin"))


def test_a_frozen_server(server, store):
    """A call ends at its limit, with a connection that was open before and with a new one."""
    store.create(subscription())
    with server.frozen():
        for _ in range(2):
            with within(1.0), pytest.raises(StoreUnavailableError, match="PostgreSQL is away"):
                store.changes(0)
    assert store.revision() == 1


@pytest.mark.parametrize("options", ["retention=long", "schema=", "sslmode=perhaps", "unknown=1"])
def test_bad_urls(options):
    """An option that means nothing is a wrong request, with its name."""
    with pytest.raises((ConfigError, StoreUnavailableError), match=options.partition("=")[0]):
        open_store(f"postgresql://127.0.0.1:1/db?{options}")


def test_nobody_there():
    """A server that cannot be reached is an error that a retry may cure; the password is not shown."""
    with pytest.raises(StoreUnavailableError, match="PostgreSQL is away") as refused:
        open_store("postgresql://ann:secret@127.0.0.1:1/db")
    assert "secret" not in str(refused.value)


@pytest.fixture
def silent_server() -> Iterator[int]:
    """Port of a server that accepts connections as PostgreSQL does, and then answers no statement."""
    greeting = b"R" + struct.pack("!ii", 8, 0)
    for name, value in ((b"server_encoding", b"UTF8"), (b"client_encoding", b"UTF8"), (b"server_version", b"15.0")):
        text = name + b"\0" + value + b"\0"
        greeting += b"S" + struct.pack("!i", 4 + len(text)) + text
    greeting += b"K" + struct.pack("!iii", 12, 1, 1) + b"Z" + struct.pack("!i", 5) + b"I"
    kept = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def accept() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                kept.append(connection)
                connection.recv(1 << 10)
                connection.sendall(greeting)

        thread = threading.Thread(target=accept)
        thread.start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
        thread.join()
    for connection in kept:
        connection.close()


def test_a_server_that_accepts_and_does_not_answer(silent_server) -> None:
    """A call ends at its limit, and names the time; the server's own limit would never be reached."""
    url = f"postgresql://ann@127.0.0.1:{silent_server}/db?sslmode=disable&gssencmode=disable"
    with within(0.2), pytest.raises(StoreUnavailableError, match=r"it has not answered for 0\.\d+ s"):
        open_store(url)
