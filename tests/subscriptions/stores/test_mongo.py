"""The MongoDB store, against a real server over the wire."""

from __future__ import annotations

import itertools
import subprocess
import sys
import textwrap
import threading
import time
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pymongo
import pytest
from tests.contracts.store import StoreContract, TenantHistoryContract, subscription
from tests.ferretdb import FerretDb, NotAvailable

from turnout.conditions import Condition, all_of, kiwi
from turnout.errors import StoreUnavailableError, SubscriptionExistsError, SubscriptionInvalidError
from turnout.subscriptions import Subscription, open_store
from turnout.subscriptions.store import ChangeSet, apply, delete_many, within
from turnout.subscriptions.stores import _mongo_driver
from turnout.subscriptions.stores._mongo_driver import ServerClock
from turnout.subscriptions.stores.mongo import MongoStore

pytestmark = [pytest.mark.mongo, pytest.mark.minutes]

_numbers = itertools.count()


@pytest.fixture(scope="module")
def ferretdb():
    try:
        with FerretDb() as server:
            yield server
    except NotAvailable as reason:
        pytest.skip(str(reason))


@pytest.fixture
def url(ferretdb):
    """A database of the test's own."""
    return f"mongodb://{ferretdb.address}/test{next(_numbers)}?table=wanted"


@pytest.fixture
def store(url):
    with open_store(url) as store:
        yield store


class TestMongoStore(StoreContract, TenantHistoryContract):
    bulk_size = 1_100

    @pytest.fixture
    def store(self, url):
        with open_store(url) as store:
            yield store

    @pytest.fixture
    def restored(self, url):
        @contextmanager
        def restored(_):
            client: pymongo.MongoClient[dict[str, Any]]
            with pymongo.MongoClient(url.partition("?")[0]) as client:
                database: Any = client.get_default_database()
                copies = {name: list(database[name].find()) for name in database.list_collection_names()}
                yield
                for name in database.list_collection_names():
                    database[name].delete_many({})
                    if copies.get(name):
                        database[name].insert_many(copies[name])

        return restored


def test_document(store, url):
    """The document is the original's (5.2.1), in the table that the URL names."""
    created = store.create(subscription(metadata={"name": "n"}))
    client: pymongo.MongoClient[dict[str, Any]] = pymongo.MongoClient(url.partition("?")[0])
    (document,) = client.get_default_database()["wanted"].find()
    client.close()
    condition = document["route"]["condition"]
    first, second = condition["group"]

    assert document["_id"] == created
    assert document["metadata"] == {"name": "n"}
    assert document["route"]["destinations"] == ["dst0"]
    assert (condition["base"]["not"], condition["logic"]) == (False, "And")
    assert (first["key"], first["pattern"], first["partial"], first["base"]) == (
        "subject",
        "orders*",
        False,
        {"not": False},
    )
    assert (second["key"], second["base"], second["partial"]) == ("location", {"not": True}, True)
    assert len({condition["base"]["id"], first["id"], second["id"]}) == 3


def test_indexes_are_made(store, url):
    """Searches and changes have an index each, made when the store is opened."""
    client: pymongo.MongoClient[dict[str, Any]] = pymongo.MongoClient(url.partition("?")[0])
    indexes = {tuple(index["key"]) for index in client.get_default_database()["wanted"].list_indexes()}
    client.close()

    assert {("_id",), ("leaves", "_id"), ("pairs", "_id"), ("revision",)} <= indexes


def test_bulk_of_many_chunks(store):
    """A bulk is one revision, however many requests it takes."""
    store.create_many(subscription() for _ in range(2_500))

    assert store.revision() == 1
    assert len(store.snapshot()) == 2_500


def test_writers_take_turns(url):
    """Stores of several clients that write at once lose nothing, and no revision is given twice."""
    stores = [open_store(url) for _ in range(3)]
    failures: list[BaseException] = []

    def work(store) -> None:
        try:
            for number in range(8):
                created = store.create(subscription())
                if number % 4 == 3:
                    store.delete(created)
        except BaseException as failure:  # noqa: BLE001 - a thread's failure has to reach the test
            failures.append(failure)

    threads = [threading.Thread(target=work, args=(store,)) for store in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert failures == []
    assert stores[0].revision() == 3 * (8 + 2)
    assert len(stores[1].snapshot()) == 3 * (8 - 2)
    for store in stores:
        store.close()


def test_readers_see_no_half_of_a_bulk(url, store):
    """While a bulk is written, readers see none of it."""
    seen = []

    def many():
        for number in range(1_500):
            if number in (1_100, 1_400):
                with open_store(url) as other:
                    seen.append((other.revision(), len(other.snapshot()), len(other.search_by_metadata({}).items)))
            yield subscription()

    store.create_many(many())

    assert seen == [(0, 0, 0), (0, 0, 0)]
    assert len(store.snapshot()) == 1_500


def _advance(monkeypatch, seconds):
    """Have the server's clock be ahead by so many seconds."""
    now = ServerClock.now
    monkeypatch.setattr(ServerClock, "now", lambda clock: now(clock) + seconds)


def test_a_writer_whose_clock_is_ahead(url, store, monkeypatch):
    """A lease is by the server's clock: a writer whose own clock is a day ahead, and which dies, holds it no longer."""
    now = time.time
    with monkeypatch.context() as ahead:
        ahead.setattr(time, "time", lambda: now() + 86_400)
        with open_store(url) as dying:
            assert isinstance(dying, MongoStore)
            dying._turns.take("dying")
    until = store._states.find_one({"_id": "turn"})["until"]

    assert until < now() + 60
    _advance(monkeypatch, 31)
    assert store.create(subscription(id="next")) == "next"


def test_a_lease_that_reaches_too_far(store):
    """A lease that an earlier version took with a clock a day ahead is over at once."""
    store._states.insert_one({"_id": "turn", "writer": "dead", "until": time.time() + 86_400})

    assert store.create(subscription(id="next")) == "next"


def test_a_writer_that_died(url, monkeypatch):
    """The next writer reverts the creations of a killed writer, after its lease."""
    program = textwrap.dedent(
        """
        import os, signal, sys
        from turnout.conditions import kiwi
        from turnout.subscriptions import Subscription, open_store

        def many():
            for number in range(2_000):
                if number == 1_500:
                    os.kill(os.getpid(), signal.SIGKILL)
                yield Subscription(["d"], kiwi("k", "v"))

        store = open_store(sys.argv[1])
        store.create(Subscription(["d"], kiwi("k", "acknowledged"), id="acknowledged"))
        store.create_many(many())
        """
    )
    killed = subprocess.run([sys.executable, "-c", program, url], timeout=60, check=False)
    assert killed.returncode == -9

    with open_store(url) as store:
        assert [subscription.id for subscription in store.snapshot()] == ["acknowledged"]
        # Its lease is over when the clock says so.
        _advance(monkeypatch, 60)
        store.create(subscription(id="next"))
        assert [subscription.id for subscription in store.snapshot()] == ["acknowledged", "next"]
        assert isinstance(store, MongoStore)
        assert store._subscriptions.count_documents({}) == 2


def test_a_delete_that_was_begun(url, store, monkeypatch):
    """A delete whose writer died after its first step is ended by the next writer."""
    store.create_many([subscription(id="a"), subscription(id="b")])

    def dies(*_):
        raise SystemExit

    with monkeypatch.context() as patched:
        patched.setattr(store, "_commit", dies)
        with pytest.raises(SystemExit):
            store.delete("a")
    with open_store(url) as other:
        _advance(monkeypatch, 60)
        other.create(subscription(id="c"))
        changes = other.changes(1)

        assert changes.deleted_ids == ("a",)
        assert [subscription.id for subscription in changes.created] == ["c"]


@pytest.mark.parametrize("retention", ["", "&retention=0s"])
@pytest.mark.parametrize("step", ["insert_one", "hold", "_commit"])
def test_a_bulk_deletion_whose_writer_died(url, monkeypatch, step, retention):
    """The next writer ends it if the list of ids was complete; else nothing was deleted. Never is a part of it gone."""
    monkeypatch.setattr(_mongo_driver, "_CHUNK", 100)
    ids = [f"s{number:04}" for number in range(240)]
    with open_store(url + retention) as store:
        store.create_many(subscription(id=id_) for id_ in ids)
        store.delete("s0000")
        store.create(subscription(id="s0000"))
    killed = subprocess.run([sys.executable, "-c", _DYING, url + retention, step, *ids[:230]], timeout=60, check=False)
    assert killed.returncode == -9

    with open_store(url + retention) as store:
        _advance(monkeypatch, 60)
        store.create(subscription(id="next"))
        changes = store.changes(3)
        done = step != "insert_one"

        assert store.revision() == (5 if done else 4)
        assert sorted(changes.deleted_ids) == (ids[:230] if done else [])
        assert [one.id for one in store.snapshot()] == ["next", *(ids[230:] if done else ids)]
        assert "s0000" in store.changes(1).deleted_ids
        if not retention:
            assert len(list(store.as_of(3))) == 240
            assert [entry.action for entry in store.history(ids[1])] == ["created", "deleted"][: 1 + done]
        # The names are free again, and the list of the dead writer concerns nobody.
        delete_many(store, ["next"])
        store.create_many(subscription(id=id_) for id_ in (ids[:230] if done else ["next"]))
        assert len(store.snapshot()) == (240 if done else 241)
        assert isinstance(store, MongoStore)
        assert store._states.count_documents({}) == 2


_DYING = textwrap.dedent(
    """
    import os, signal, sys
    from turnout.subscriptions import open_store
    from turnout.subscriptions.stores import _mongo_driver

    _mongo_driver._CHUNK = 100
    url, step, *ids = sys.argv[1:]
    store = open_store(url)
    holder = {"insert_one": store._bulk._states, "hold": store._turns, "_commit": store}[step]
    work, calls = getattr(holder, step), []

    def dies(*arguments):
        calls.append(arguments)
        # "hold" is called before each chunk: one of three is done.
        if len(calls) == (2 if step == "hold" else 1):
            os.kill(os.getpid(), signal.SIGKILL)
        return work(*arguments)

    if step == "insert_one":
        class States:
            find, find_one, insert_many = work.__self__.find, work.__self__.find_one, work.__self__.insert_many
            delete_one, delete_many, insert_one = work.__self__.delete_one, work.__self__.delete_many, dies

        store._bulk._states = States
    else:
        setattr(holder, step, dies)
    store.delete_many(ids)
    """
)
"""Deletes in bulk, and is killed when it comes to a step."""


@pytest.mark.parametrize("step", ["replace_many", "begin", "remove", "_commit"])
def test_a_change_set_whose_writer_died(url, store, monkeypatch, step):
    """The next writer completes it from its list on, and else undoes it: all of it is there, or nothing."""
    store.create_many([subscription(id=id_, metadata={"n": "old"}) for id_ in "abcd"])
    created = store.revision()
    content = [(one.id, one.metadata["n"], one.revision) for one in store.snapshot()]
    versions = tuple(replace(store.read(id_), metadata={"n": "new"}) for id_ in "ab")
    changes = ChangeSet((subscription(id="e", metadata={"n": "new"}),), versions, {"c": created})
    holder = {"replace_many": store._updates, "_commit": store}.get(step, store._bulk)
    work = getattr(holder, step)

    def dies(*arguments):
        if step == "replace_many":
            work(arguments[0][:1])
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(holder, step, dies)
        # What a process that is killed does not do.
        patched.setattr(store._updates, "undo", lambda _: None)
        patched.setattr(store._subscriptions, "delete_many", lambda _: None)
        with pytest.raises(KeyboardInterrupt):
            store.apply(changes)
    with open_store(url) as other:
        assert [(one.id, one.metadata["n"], one.revision) for one in other.snapshot()] == content
        _advance(monkeypatch, 60)
        other.create(subscription(id="z", metadata={"n": "later"}))
        done = step in ("remove", "_commit")
        new = [("a", "new", 2), ("b", "new", 2), ("d", "old", 1), ("e", "new", 2), ("z", "later", 3)]

        assert [(one.id, one.metadata["n"], one.revision) for one in other.snapshot()] == (
            new if done else [*content, ("z", "later", 2)]
        )
        assert sorted(other.changes(created).deleted_ids) == (["a", "b", "c"] if done else [])
        assert [one.metadata["n"] for one in other.as_of(created)] == ["old"] * 4
        assert apply(other, ChangeSet(deleted={"d": created})) == other.revision()


def test_an_update_that_was_begun(url, store, monkeypatch):
    """Until the next writer ends it, readers see the version before an update whose writer died."""
    store.create(subscription("first*", id="a", metadata={"n": "old"}))
    created = store.revision()

    def dies(*_):
        raise SystemExit

    with monkeypatch.context() as patched:
        patched.setattr(store._tombstones, "add", dies)
        with pytest.raises(SystemExit):
            store.update("a", subscription("second*", metadata={"n": "new"}))
    with open_store(url) as other:
        assert [store.read("a"), *other.snapshot()] == [*other.changes(0).created, *other.as_of(created)]
        assert [one.id for one in other.search_by_metadata({"n": "old"}).items] == ["a"]
        assert other.search_by_metadata({"n": "new"}).items == ()
        assert other.births()["a"].revision == created
        _advance(monkeypatch, 60)
        other.create(subscription(id="b"))

        assert [one.metadata for one in other.snapshot()] == [{"n": "new"}, {}]
        assert [one.id for one in other.changes(created).created] == ["a", "b"]
        assert [entry.action for entry in other.history("a")] == ["created", "updated"]
        other.delete("a")
        assert other.changes(created).deleted_ids == ("a",)


def test_a_writer_that_was_too_slow(url, store, monkeypatch):
    """A writer whose turn was taken stores nothing, and reports this."""

    def many():
        for number in range(1_500):
            if number == 1_200:
                with monkeypatch.context() as later, open_store(url) as other:
                    _advance(later, 60)
                    other.create(subscription(id="other"))
            yield subscription()

    with pytest.raises(StoreUnavailableError, match="another one took its turn"):
        store.create_many(many())
    assert [subscription.id for subscription in store.snapshot()] == ["other"]


def test_forgets_old_deletions(url, store, monkeypatch):
    """A reader that missed more deletions than are kept reloads everything."""
    monkeypatch.setattr(_mongo_driver, "_HISTORY", 3)
    monkeypatch.setattr(_mongo_driver, "_PRUNE_EVERY", 1)
    store.create(subscription(id="stays"))
    for number in range(8):
        store.create(subscription(id=f"s{number}"))
        store.delete(f"s{number}")

    assert store.changes(1).reset
    assert not store.changes(store.revision() - 2).reset


def test_survives_a_restart(ferretdb, url, store):
    """A server that goes away is an error a retry cures, and what was stored is there when it is back."""
    store.create(subscription(id="x"))
    impatient = open_store(f"{url}&serverSelectionTimeoutMS=300&connectTimeoutMS=300")
    ferretdb.stop()
    try:
        with pytest.raises(StoreUnavailableError, match="MongoDB is away"):
            impatient.read("x")
    finally:
        ferretdb.start()
    deadline = time.monotonic() + 120
    answer = None
    while answer is None and time.monotonic() < deadline:
        try:
            answer = impatient.read("x")
        except StoreUnavailableError:
            time.sleep(0.1)
    impatient.close()

    assert answer is not None
    assert answer.id == "x"


def test_a_server_that_stops_in_the_middle(ferretdb, store):
    """Every call ends at the caller's deadline where a server takes requests and answers none, writes too."""
    store.create(subscription(id="x"))
    with ferretdb.frozen():
        for call in (store.revision, lambda: store.read("x"), lambda: store.delete("x")):
            with within(0.5), pytest.raises(StoreUnavailableError, match="MongoDB"):
                call()

    assert store.read("x").id == "x"


def test_deep_conditions_are_refused(store):
    """A condition that a document cannot hold is refused before it is sent."""
    condition: Condition = kiwi("k", "v")
    for number in range(60):
        condition = all_of(condition, kiwi("k", f"v{number}"))

    with pytest.raises(SubscriptionInvalidError, match="60 deep"):
        store.create(Subscription(["d"], condition))
    assert store.create(subscription(id="fine")) == "fine"


def test_twice_in_one_bulk(store):
    """One id twice in a bulk is refused with its name, and none is stored."""
    with pytest.raises(SubscriptionExistsError, match="'x'"):
        store.create_many([subscription(id="y"), subscription(id="x"), subscription(id="x")])
    assert len(store.snapshot()) == 0
