"""Contract of every store. A store's own tests inherit this and supply the fixture ``store``."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from tests.contracts.linearizable import check_linearizable
from turnout.conditions import (
    Kiwi,
    all_of,
    any_of,
    cidr,
    compare,
    decode,
    encode,
    exists,
    kiwi,
    leaves,
    nodes,
    not_,
    regex,
)
from turnout.errors import (
    HistoryForgottenError,
    SubscriptionConflictError,
    SubscriptionExistsError,
    SubscriptionInvalidError,
    SubscriptionNotFoundError,
)
from turnout.subscriptions import MAX_LIMIT, Matcher, Page, Store, Subscription
from turnout.subscriptions.credentials import HiddenSecret, new_secret
from turnout.subscriptions.delivery_settings import DeliverySettings
from turnout.subscriptions.import_set import SET_NAME, ImportSet, import_set
from turnout.subscriptions.lines import Imported, import_lines, subscription_from_json, subscription_to_json
from turnout.subscriptions.matcher import LiveMatcher
from turnout.subscriptions.model import Expiry, Start
from turnout.subscriptions.past import acting_as
from turnout.subscriptions.sealing import SECRET_KEY, needed_keys, new_key
from turnout.subscriptions.search import Edit, Search, edit_all, find
from turnout.subscriptions.store import (
    BulkStore,
    ChangeSet,
    MultiTenantStore,
    VersionedStore,
    apply,
    create_many,
    delete_many,
    edit,
)
from turnout.subscriptions.tenants import tenant_of


def subscription(pattern: str = "orders*", **fields) -> Subscription:
    """A subscription like the seed's example: about orders, and not in Helsinki."""
    condition = all_of(kiwi("subject", pattern), not_(kiwi("location", "Helsinki", partial=True)))
    return Subscription(**{"destinations": ["dst0"], "condition": condition, **fields})


def first_pattern(subscription_: Subscription) -> str:
    """The pattern of a subscription's first leaf."""
    leaf = next(leaves(subscription_.condition))
    assert isinstance(leaf, Kiwi)
    return leaf.pattern


def every_page(search: Callable[..., Page], limit: int) -> list:
    """All results of a search, page by page."""
    items: list[Any] = []
    cursor = ""
    while True:
        page = search(limit=limit, cursor=cursor)
        assert len(page.items) <= limit

        items.extend(page.items)
        if not page.cursor:
            return items
        cursor = page.cursor


class OwnerContract:
    """Contract of a store for each owner of subscriptions: a single owner, and each tenant."""

    bulk_size = 5_000
    """Subscriptions of a bulk, more than a store prepares at a time."""

    @pytest.fixture
    def store(self) -> Store:
        raise NotImplementedError("a store's test class gives the store")

    @pytest.fixture
    def restored(self):
        """Context manager that restores the state that a store has at its beginning; where a store can be."""
        pytest.skip("this store cannot be restored to an older state")

    def test_is_a_store(self, store):
        """It offers the whole protocol, and the optional abilities."""
        assert isinstance(store, Store)
        assert isinstance(store, VersionedStore)
        assert isinstance(store, MultiTenantStore)

    def test_reads_what_was_created(self, store):
        """A subscription is read back equal, with every kind of leaf, in its order."""
        condition = any_of(
            all_of(kiwi("a", "x\\*?*", ignore_case=True), not_(kiwi("ключ", "знач*", partial=True))),
            compare("price", ">=", 12.5),
            exists("trace"),
            cidr("ip", "10.0.0.0/8"),
            regex("cmd", "^(a|b)"),
        )
        subscription_ = Subscription(["b", "a"], condition, {"name": "née", "empty": ""})
        created = store.create(subscription_)
        stored = store.read(created)

        assert created == stored.id
        assert (subscription_.destinations, subscription_.condition) == (stored.destinations, stored.condition)
        assert dict(subscription_.metadata) == dict(stored.metadata)

    def test_gives_ids(self, store):
        """A subscription and each node of its condition get ids, all different."""
        stored = store.read(store.create(subscription()))
        ids = [stored.id, *(node.id for node in nodes(stored.condition))]

        assert all(ids)
        assert len(set(ids)) == 4

    def test_ids_stay_the_same(self, store):
        """Reading twice gives the same ids."""
        created = store.create(subscription())

        assert encode(store.read(created).condition) == encode(store.read(created).condition)

    def test_keeps_given_ids(self, store):
        """Ids that the caller chose are kept, so that an export can be imported."""
        condition = {"kiwiTreeCondition": {"id": "leaf-1", "key": "k", "pattern": "v*"}}
        store.create(Subscription(["d"], decode(condition), id="sub-1"))

        assert condition == encode(store.read("sub-1").condition)

    @pytest.mark.parametrize("destination", ["a b", "out.>", "out..x", "out\r\nPUB x 1", "o\0ut", "x" * 5000, "", "s:"])
    def test_refuses_what_cannot_be_published_to(self, store, destination):
        """The error names the destination and what is wrong with it, and nothing of the bulk is stored."""
        bad = subscription(destinations=["dst0", destination])
        with pytest.raises(SubscriptionInvalidError, match=r"route\.destinations\[1\]: .* cannot be published to: "):
            store.create_many([subscription(), bad])

        assert store.search_by_metadata({}).items == ()

    def test_refuses_a_taken_id(self, store):
        """A second subscription under one id is refused, and the first one stays."""
        store.create(subscription("first", id="x"))
        revision = store.revision()

        with pytest.raises(SubscriptionExistsError, match="'x'"):
            store.create(subscription("second", id="x"))
        assert subscription("first").condition == store.read("x").condition
        assert revision == store.revision()

    def test_create_many_in_order(self, store):
        """The ids are returned in the order of the input."""
        ids = store.create_many(subscription(f"p{n}") for n in range(300))
        patterns = {subscription.id: first_pattern(subscription) for subscription in store.snapshot()}

        assert [f"p{n}" for n in range(300)] == [patterns[id_] for id_ in ids]
        assert first_pattern(store.read(ids[299])) == "p299"

    def test_create_many_is_all_or_nothing(self, store):
        """One taken id, and none of the others is stored."""
        store.create(subscription(id="taken"))

        with pytest.raises(SubscriptionExistsError):
            store.create_many([subscription(id="new"), subscription(id="taken")])
        with pytest.raises(SubscriptionNotFoundError):
            store.read("new")

    def test_lines(self, store):
        """Lines of an import, usual and unusual ones, are stored and found as their subscriptions are."""
        leaf = {"id": "n", "key": "a", "pattern": "b*", "partial": True}
        conditions = ({"kiwiCondition": leaf}, {"compareCondition": {"id": "n", "key": "n", "op": ">", "number": 5}})
        bodies = [
            {"id": f"s{n}", "metadata": {"n": f"{n}"}, "route": {"destinations": ["d"], "condition": conditions[n % 2]}}
            for n in range(4)
        ]
        lines = [json.dumps(body) for body in bodies]

        assert import_lines(store, lines, batch=3) == Imported(4)
        assert import_lines(store, [*lines, json.dumps({**bodies[0], "id": ""})], existing="skip") == Imported(1, 4)
        assert [store.read(body["id"]) for body in bodies] == [subscription_from_json(body) for body in bodies]
        found = store.search_by_condition("a", "b*", partial=True)
        assert sorted(match.subscription.metadata["n"] for match in found.items) == ["0", "0", "2"]
        assert [one.id for one in store.search_by_metadata({"n": "2"}).items] == ["s2"]
        with pytest.raises(SubscriptionInvalidError, match=r"route\.destinations"):
            import_lines(store, [lines[0].replace('"d"', '"a b"').replace("s0", "t0")])
        with pytest.raises(SubscriptionExistsError):
            import_lines(store, [lines[0].replace("s0", "t0"), lines[1]])
        assert len(store.snapshot()) == 5

    def test_create_many_of_nothing(self, store):
        """Nothing to create is no change."""
        revision = store.revision()

        assert store.create_many([]) == []
        assert revision == store.revision()

    def test_unknown_id(self, store):
        """Reading and deleting what is not there say so, with the id."""
        with pytest.raises(SubscriptionNotFoundError, match="'nobody'"):
            store.read("nobody")
        with pytest.raises(SubscriptionNotFoundError, match="'nobody'"):
            store.delete("nobody")

    def test_delete_many(self, store):
        """All are deleted, in one revision where the store can; a repeated id counts once."""
        count = self.bulk_size if isinstance(store, BulkStore) else 20
        created = store.create_many([subscription(f"p{number}*", metadata={"n": "1"}) for number in range(count)])
        before = store.revision()

        delete_many(store, [*created[:-1], created[0]])

        changes = store.changes(before)
        assert sorted(changes.deleted_ids) == sorted(created[:-1])
        assert [kept.id for kept in store.snapshot()] == created[-1:]
        assert store.search_by_condition("subject", "p0*").items == ()
        assert len(store.search_by_metadata({"n": "1"}).items) == 1
        if isinstance(store, BulkStore):
            assert changes.revision == before + 1

    def test_delete_many_with_an_unknown_id(self, store: Store) -> None:
        """A store that deletes many at once then deletes none, and its revision stays."""
        create_many(store, [subscription(id="a"), subscription(id="b")])
        before = store.revision()

        with pytest.raises(SubscriptionNotFoundError, match="nobody"):
            delete_many(store, ["a", "nobody", "b"])
        delete_many(store, [])

        unchanged = store.revision() == before
        assert store.read("b").id == "b"
        assert unchanged == isinstance(store, BulkStore)

    def test_update(self, store):
        """A new version has the id, a higher revision, and all that it says; what the old one said is not found."""
        store.create(subscription(id="a", metadata={"n": "old"}))
        before = store.read("a")
        revision = store.update("a", Subscription(["dst1", "dst2"], kiwi("k", "v*"), {"n": "new"}))
        stored = store.read("a")

        assert stored.revision == revision == store.revision() > before.revision
        assert (stored.id, stored.destinations, stored.condition) == ("a", ("dst1", "dst2"), kiwi("k", "v*"))
        assert all(node.id for node in nodes(stored.condition))
        assert [item.id for item in store.search_by_metadata({"n": "new"}).items] == ["a"]
        assert [item.subscription for item in store.search_by_condition("k", "v*").items] == [stored]
        assert store.search_by_metadata({"n": "old"}).items == ()
        assert store.search_by_condition("subject", "orders*").items == ()
        assert [item.revision for item in store.snapshot()] == [revision]

    def test_keeps_settings(self, store):
        """The state, the expiry and the delivery settings are returned by every query."""
        expires = Expiry(datetime(2030, 1, 2, 3, 4, 5, 678901, UTC), "wall")
        delivery = DeliverySettings(retry=(1.5, 60.0), ordered=True, concurrency=3, headers={"X-Desk": "7"})
        start = Start.from_plain("2030-01-02T03:04:05.678901+00:00")
        project = "{'city': value.city}"
        others: dict[str, Any] = {
            "expires": expires,
            "delivery": delivery,
            "start": start,
            "keep": True,
            "project": project,
        }
        store.create(subscription(id="a", enabled=False, **others))
        store.create(subscription(id="b"))
        (found,) = store.search_by_metadata({}, limit=1).items
        first, second = store.snapshot()

        assert (found.enabled, found.expires, found.delivery) == (False, expires, delivery)
        assert (found.start, found.keep) == (start, True)
        assert (found.project, second.project) == (project, "")
        assert store.read("a") == found == first == store.changes(0).created[0]
        assert store.search_by_condition("subject", "orders*").items[0].subscription == found
        assert (second.enabled, second.expires, second.delivery) == (True, None, None)
        assert (second.start, second.keep) == (None, False)
        store.update("a", replace(found, enabled=True, expires=None, delivery=None, start=None, keep=False, project=""))
        assert store.read("a") == replace(second, id="a", condition=found.condition)
        assert store.as_of(first.revision).read("a") == found

    def test_secrets_are_encrypted(self, store, monkeypatch):
        """No query and no record of the past has a secret, and a version that was read keeps it when it is stored."""
        monkeypatch.setenv(SECRET_KEY, new_key())
        secrets = [new_secret() for _ in range(3)]
        store.create(subscription(id="a", delivery=DeliverySettings.from_mapping({"secrets": secrets[:1]})))
        line = json.dumps({**subscription_to_json(subscription(id="b")), "delivery": {"secrets": secrets[1:2]}})
        import_lines(store, [line])
        found = store.read("a")
        store.update("a", replace(found, metadata={"n": "2"}))
        kept = store.read("a")
        added = DeliverySettings.from_mapping({"secrets": [secrets[2], *(one.text for one in kept.delivery.secrets)]})
        store.update("a", replace(kept, delivery=added))
        newest = store.read("a").delivery.secrets
        views = [
            *store.snapshot(),
            *store.changes(0).created,
            *store.search_by_metadata({}).items,
            *(match.subscription for match in store.search_by_condition("subject", "orders*").items),
            *store.as_of(store.revision()).snapshot(),
            *(version for entry in store.history("a") for version in (entry.before, entry.after) if version),
        ]
        texts = [secret.text for view in views for secret in view.delivery.secrets]

        assert kept.delivery == found.delivery
        assert (len(newest), newest[1:]) == (2, found.delivery.secrets)
        assert len(texts) >= 2 * 5 + 3
        assert {text.partition(":")[0] for text in texts} <= {"sealed", "hidden"}
        assert not any(secret in repr(views) + json.dumps(texts) for secret in secrets)

    def test_stored_secrets_need_no_key(self, store, monkeypatch):
        """Another part of a subscription may be changed where there is no key; a new secret is refused there."""
        monkeypatch.setenv(SECRET_KEY, new_key())
        settings = DeliverySettings.from_mapping({"secrets": [new_secret()]})
        store.create(subscription(id="a", delivery=settings))
        monkeypatch.delenv(SECRET_KEY)
        found = store.read("a")
        store.update("a", replace(found, enabled=False))

        assert store.read("a").delivery == found.delivery
        missing = r"delivery\.secrets\[0\]: TURNOUT_SECRET_KEY: it is not set"
        with pytest.raises(SubscriptionInvalidError, match=missing):
            store.update("a", subscription(delivery=settings))
        with pytest.raises(SubscriptionInvalidError, match=missing):
            store.create(subscription(id="b", delivery=settings))
        assert [one.id for one in store.snapshot()] == ["a"]

    def test_markers_of_no_stored_secret(self, store, monkeypatch):
        """A marker is refused in a new subscription, and in a version of one that has no such secret."""
        monkeypatch.setenv(SECRET_KEY, new_key())
        marker = DeliverySettings.from_mapping({"secrets": ["hidden:0123abcd"]})
        refused = (
            r"delivery\.secrets\[0\]: hidden:0123abcd stands for no stored secret of this subscription; it has none"
        )
        with pytest.raises(SubscriptionInvalidError, match=refused):
            store.create(subscription(id="a", delivery=marker))
        store.create(subscription(id="a"))
        with pytest.raises(SubscriptionInvalidError, match=refused):
            store.update("a", subscription(delivery=marker))

        assert store.read("a").delivery is None

    def test_update_keeps_given_node_ids(self, store):
        """A condition that was read and is stored again keeps the ids of its nodes."""
        store.create(subscription(id="a"))
        found = store.read("a")
        store.update("a", Subscription(["other"], found.condition, id="a"))

        assert encode(store.read("a").condition) == encode(found.condition)

    def test_update_with_a_conflict(self, store):
        """An update that expects another version is refused with both revisions, and changes nothing."""
        store.create(subscription("first*", id="a"))
        read = store.read("a").revision
        second = store.update("a", subscription("second*"), expected_revision=read)

        with pytest.raises(SubscriptionConflictError, match=rf"'a' is at revision {second}, expected revision {read}"):
            store.update("a", subscription("third*"), expected_revision=read)
        assert first_pattern(store.read("a")) == "second*"
        assert store.read("a").revision == store.revision() == second

    def test_update_that_is_refused(self, store):
        """An unknown id, another id and a bad destination are refused, and nothing changes."""
        store.create(subscription(id="a"))
        revision = store.revision()

        with pytest.raises(SubscriptionNotFoundError, match="'nobody'"):
            store.update("nobody", subscription())
        with pytest.raises(SubscriptionInvalidError, match="expected 'a', found 'b'"):
            store.update("a", subscription(id="b"))
        with pytest.raises(SubscriptionInvalidError, match=r"route\.destinations\[0\]"):
            store.update("a", subscription(destinations=["a b"]))
        assert store.revision() == revision
        assert first_pattern(store.read("a")) == "orders*"

    def test_changes_with_an_update(self, store):
        """A follower that takes deletions first holds the new version, wherever it began."""
        start = store.revision()
        store.create(subscription("first*", id="a"))
        created = store.revision()
        store.update("a", subscription("second*"))
        updated = store.revision()

        since_creation = store.changes(created)
        assert [first_pattern(one) for one in since_creation.created] == ["second*"]
        assert since_creation.deleted_ids in ((), ("a",))
        assert not since_creation.reset
        assert [first_pattern(one) for one in store.changes(start).created] == ["second*"]
        assert store.changes(start).deleted_ids == ()
        store.delete("a")
        assert store.changes(start).deleted_ids == ()
        assert store.changes(created).deleted_ids == ("a",)
        assert store.changes(updated).deleted_ids == ("a",)

    def test_edits_of_many_threads(self, store):
        """Threads that edit one subscription at once lose no edit."""
        store.create(subscription(id="a", metadata={"n": ""}))

        def add(letter: str) -> None:
            for _ in range(5):
                edit(store, "a", lambda found: replace(found, metadata={"n": found.metadata["n"] + letter}))

        threads = [threading.Thread(target=add, args=(letter,)) for letter in "ab"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert sorted(store.read("a").metadata["n"]) == ["a"] * 5 + ["b"] * 5

    def test_delete(self, store):
        """A deleted subscription is not read, not found and not deleted again."""
        created = store.create(subscription())
        store.delete(created)

        with pytest.raises(SubscriptionNotFoundError):
            store.read(created)
        with pytest.raises(SubscriptionNotFoundError):
            store.delete(created)
        assert store.search_by_condition("subject", "orders*").items == ()
        assert store.search_by_metadata({}).items == ()

    def test_delete_with_a_conflict(self, store):
        """A delete of another version than the present one is refused with both revisions, and deletes nothing."""
        id_ = store.create(subscription())
        first = store.read(id_).revision
        store.update(id_, subscription("bills*"))
        before = store.revision()
        with pytest.raises(SubscriptionConflictError) as conflict:
            store.delete(id_, first)

        assert (conflict.value.expected, conflict.value.found) == (first, before)
        assert (store.read(id_).revision, store.revision()) == (before, before)
        store.delete(id_, before)
        with pytest.raises(SubscriptionNotFoundError):
            store.delete(id_, before)

    def test_a_change_set_is_one_change(self, store):
        """Creations, new versions and deletions have one revision; what they leave alone keeps its own."""
        ids = create_many(store, [subscription(id=f"s{number}") for number in range(4)])
        first = store.revision()
        new = replace(store.read("s1"), destinations=["other"])
        revision = apply(store, ChangeSet((subscription(id="s9"), subscription()), (new,), {"s2": first}))
        changes = store.changes(first)

        assert revision == store.revision() > first
        assert changes.revision == revision
        assert {one.id: one.revision for one in store.snapshot()} == {
            **dict.fromkeys({one.id for one in changes.created}, revision),
            "s0": first,
            "s3": first,
        }
        assert len(changes.created) == 3
        assert {*changes.deleted_ids} >= {"s2", "s1"}
        assert store.read("s1").destinations == ("other",)
        assert ids == ["s0", "s1", "s2", "s3"]
        with pytest.raises(SubscriptionNotFoundError):
            store.read("s2")

    @pytest.mark.parametrize("wrong", ["exists", "missing", "conflict", "gone", "twice", "invalid"])
    def test_a_change_set_is_all_or_nothing(self, store, wrong):
        """A change that does not fit refuses all of them, and the error names the subscription."""
        create_many(store, [subscription(id=f"s{number}") for number in range(3)])
        first = store.revision()
        before = store.snapshot()
        new = replace(store.read("s1"), destinations=["other"])
        sets = {
            "exists": (ChangeSet((subscription(id="s0"),), (new,), {"s2": first}), SubscriptionExistsError),
            "missing": (
                ChangeSet((subscription(id="s9"),), (new, replace(new, id="none")), {}),
                SubscriptionNotFoundError,
            ),
            "conflict": (ChangeSet((), (replace(new, revision=first + 7),), {"s2": first}), SubscriptionConflictError),
            "gone": (ChangeSet((subscription(id="s9"),), (new,), {"s2": first + 7}), SubscriptionConflictError),
            "twice": (ChangeSet((), (new,), {"s1": first}), SubscriptionInvalidError),
            "invalid": (
                ChangeSet((), (new, replace(store.read("s2"), destinations=["a b"])), {}),
                SubscriptionInvalidError,
            ),
        }
        changes, error = sets[wrong]
        with pytest.raises(error):
            apply(store, changes)

        assert store.snapshot() == before
        assert [one.revision for one in store.snapshot()] == [one.revision for one in before]
        assert store.create(subscription(id="later")) == "later"

    def test_an_import_replaces_and_prunes(self, store):
        """What is unchanged keeps its revision; what is gone from the set goes, and nothing that others own."""
        week = [subscription(f"orders{number}", id=f"rule-{number}") for number in range(5)]
        others = [
            subscription(id="rule-of-nobody"),
            subscription(id="rule-other", metadata={SET_NAME: "other"}),
        ]
        create_many(store, others)
        first = import_set(store, week, ImportSet("week"))
        new = [*week[:3], replace(week[3], destinations=["changed"]), subscription(id="rule-new")]
        trial = import_set(store, new, ImportSet("week", prune=True), dry_run=True)
        plan = import_set(store, new, ImportSet("week", prune=True))

        assert (first.added, first.changed, first.removed) == (tuple(one.id for one in week), (), ())
        assert (first.unchanged, first.kept) == (0, 2)
        assert (plan.added, plan.changed, plan.removed) == (("rule-new",), ("rule-3",), ("rule-4",))
        assert (plan.unchanged, plan.kept) == (3, 2)
        assert plan.fields == {"rule-3": ("destinations",)}
        assert (trial.added, trial.changed, trial.removed) == (plan.added, plan.changed, plan.removed)
        assert trial.revision == first.revision < plan.revision == store.revision()
        assert {one.id: one.revision for one in store.snapshot()} == {
            **{one.id: store.read(one.id).revision for one in others},
            **dict.fromkeys(["rule-0", "rule-1", "rule-2"], first.revision),
            **dict.fromkeys(["rule-3", "rule-new"], plan.revision),
        }
        again = import_set(store, new, ImportSet("week", prune=True))
        assert (again.unchanged, again.revision) == (5, plan.revision)

    def test_an_import_does_not_remove_everything(self, store):
        """An import without any of its set's subscriptions is refused, unless it says that all go."""
        import_set(store, [subscription(id="one"), subscription(id="two")], ImportSet("week"))
        with pytest.raises(SubscriptionInvalidError, match="would remove all"):
            import_set(store, [subscription(id="three")], ImportSet("week", prune=True))
        with pytest.raises(SubscriptionInvalidError, match="would remove all"):
            import_set(store, [], ImportSet("week", prune=True))

        assert [one.id for one in store.snapshot()] == ["one", "two"]
        assert import_set(store, [], ImportSet("week", prune_all=True)).removed == ("one", "two")

    def test_an_import_leaves_alone_what_others_own(self, store):
        """An id of another set is refused; a prefix owns what no set has."""
        import_set(store, [subscription(id="a.1")], ImportSet("one"))
        create_many(store, [subscription(id="a.2"), subscription(id="b.1")])
        for owned in (ImportSet("two"), ImportSet(), ImportSet(prefix="a.", prune=True)):
            with pytest.raises(SubscriptionInvalidError, match="owned by another import"):
                import_set(store, [subscription("other", id="a.1")], owned)
        with pytest.raises(SubscriptionInvalidError, match=r"expected the prefix 'a\.'"):
            import_set(store, [subscription(id="b.1")], ImportSet(prefix="a."))
        with pytest.raises(SubscriptionInvalidError, match="occurs twice"):
            import_set(store, [subscription(id="a.3")] * 2, ImportSet("one"))
        with pytest.raises(SubscriptionInvalidError, match="give it one"):
            import_set(store, [subscription()], ImportSet("one"))
        plan = import_set(store, [subscription(id="a.3")], ImportSet(prefix="a.", prune_all=True))

        assert (plan.added, plan.removed) == (("a.3",), ("a.2",))
        assert [one.id for one in store.snapshot()] == ["a.1", "a.3", "b.1"]

    def test_search_by_any_part(self, store):
        """Searches by key, leaf, kind, destination, text and state, alone and together, page by page."""
        create_many(
            store,
            [
                Subscription(["orders.oulu"], "city:Oulu AND total>5", {"owner": "Depot"}, "a"),
                Subscription(["orders.turku", "x"], "city:Turku AND NOT total>5", {"owner": "desk"}, "b"),
                Subscription(["https://one.test/hook?x=[1]"], "ip in 10.0.0.0/8", {"team": "n"}, "depot-c"),
                Subscription(["x"], "any(items, sku:A1) AND paid<field(total)", {}, "d", enabled=False),
            ],
        )
        searches = {
            "ab": Search(key="city"),
            "abd": Search(key="total"),
            "d": Search(key="sku"),
            "a": Search(key="city", pattern="Oulu"),
            "ab ": Search(leaf="total > 5"),
            "depot-c": Search(leaf="ip in 10.0.0.0/8"),
            "ab  ": Search(kind="compare"),
            "d ": Search(kind="element"),
            "": Search(kind="compare", key="city"),
            "ab   ": Search(destination="orders.*"),
            "depot-c ": Search(destination="https://one.test/hook?x=[1]"),
            "bd": Search(destination="x"),
            "adepot-c": Search(text="DEPOT"),
            "d  ": Search(enabled=False),
            "b": Search({"owner": "desk"}, key="city", destination="x"),
        }
        for expected, search in searches.items():
            for limit in (1, 2, 100):
                pages = every_page(
                    lambda limit, cursor, search=search: find(store, search, limit=limit, cursor=cursor), limit
                )
                assert "".join(one.id for one in pages) == expected.strip(), search

    def test_edits_of_what_a_search_finds(self, store):
        """One change pauses, resumes or edits all that is found; what is like this already keeps its revision."""
        ids = [*"abc"]
        create_many(store, [subscription(id=id_, metadata={"team": "x", "old": "1"}) for id_ in ids])
        store.create(subscription(id="d"))
        first = store.revision()
        trial = edit_all(store, Search({"team": "x"}), Edit(enabled=False, keep=True), dry_run=True)
        paused = edit_all(store, Search({"team": "x"}), Edit(enabled=False, keep=True))
        again = edit_all(store, Search(), Edit(enabled=False), everything=True)
        edited = edit_all(
            store, Search(key="subject", text="b"), Edit(True, metadata={"owner": "me"}, without=("old",))
        )

        assert (trial.ids, trial.found, trial.revision) == (("a", "b", "c"), 3, first)
        assert (paused.ids, paused.found) == (("a", "b", "c"), 3)
        assert (again.ids, again.found) == (("d",), 4)
        assert edited.ids == ("b",)
        assert [(one.id, one.enabled, one.keep, one.revision) for one in store.snapshot()] == [
            ("a", False, True, paused.revision),
            ("b", True, True, edited.revision),
            ("c", False, True, paused.revision),
            ("d", False, False, again.revision),
        ]
        assert store.read("b").metadata == {"team": "x", "owner": "me"}
        with pytest.raises(SubscriptionInvalidError, match="finds everything"):
            edit_all(store, Search(), Edit(enabled=True))

    def test_search_by_condition_is_exact(self, store):
        """The stored pattern is looked up letter by letter, with its key and its partial flag."""
        store.create(subscription("orders*", id="s"))

        def searched(key, pattern, partial):
            return [m.subscription_id for m in store.search_by_condition(key, pattern, partial).items]

        assert searched("subject", "orders*", False) == ["s"]
        assert searched("location", "Helsinki", True) == ["s"]
        for key, pattern, partial in [
            ("subject", "orders*", True),
            ("location", "Helsinki", False),
            ("subject", "orders", False),
            ("subject", "Orders*", False),
            ("topic", "orders*", False),
            ("subject", "*", False),
        ]:
            assert searched(key, pattern, partial) == [], (key, pattern, partial)

    def test_search_by_condition_names_the_leaf(self, store):
        """The condition id is that of the leaf, and the subscription comes with it."""
        created = store.create(subscription())
        (match,) = store.search_by_condition("location", "Helsinki", True).items
        leaf = list(leaves(store.read(created).condition))[1]

        assert (created, leaf.id) == (match.subscription_id, match.condition_id)
        assert store.read(created) == match.subscription

    def test_search_by_condition_finds_a_subscription_once(self, store):
        """Two leaves alike in one subscription are one result, so that paging by id is exact."""
        twice = all_of(kiwi("k", "v"), any_of(not_(kiwi("k", "v")), kiwi("other", "x")))
        store.create(Subscription(["d"], twice, id="s"))

        assert len(store.search_by_condition("k", "v").items) == 1

    @pytest.mark.parametrize("limit", [1, 3, 10, 11])
    def test_pages(self, store, limit):
        """Pages are in the order of ids and leave nothing out, whatever their size."""
        ids = sorted(store.create_many(subscription(metadata={"n": "x"}) for _ in range(10)))
        by_condition = every_page(lambda **page: store.search_by_condition("subject", "orders*", **page), limit)
        by_metadata = every_page(lambda **page: store.search_by_metadata({"n": "x"}, **page), limit)

        assert ids == [match.subscription_id for match in by_condition]
        assert ids == [match.id for match in by_metadata]

    def test_cursor_is_the_last_id(self, store):
        """A client that sends the last id of its page gets the rest, as the original's clients do."""
        ids = sorted(store.create_many(subscription() for _ in range(4)))
        page = store.search_by_condition("subject", "orders*", limit=10, cursor=ids[1])

        assert ids[2:] == [match.subscription_id for match in page.items]

    def test_huge_limit(self, store):
        """A limit beyond the largest page is no error."""
        store.create(subscription())

        assert len(store.search_by_metadata({}, limit=MAX_LIMIT * 1000).items) == 1

    def test_search_by_metadata(self, store):
        """Every given pair must be equal; other pairs do not matter."""
        store.create(subscription(id="both", metadata={"user": "u", "name": "n"}))
        store.create(subscription(id="one", metadata={"user": "u"}))
        store.create(subscription(id="odd", metadata={"user.x": "u", "$set": "%_'\""}))

        def searched(**pairs):
            return [item.id for item in store.search_by_metadata(pairs).items]

        assert searched(user="u") == ["both", "one"]
        assert searched(user="u", name="n") == ["both"]
        assert searched(user="U") == []
        assert searched(**{"$set": "%_'\""}) == ["odd"]
        assert searched(**{"user.x": "u"}) == ["odd"]
        assert searched() == ["both", "odd", "one"]

    def test_revision_grows_with_every_change(self, store):
        """Creating and deleting lead to higher revisions; reading does not."""
        revisions = [store.revision()]
        created = store.create(subscription())
        revisions.append(store.revision())
        store.read(created)
        store.search_by_metadata({})
        unchanged = store.revision()
        store.delete(created)
        revisions.append(store.revision())

        assert unchanged == revisions[1]
        assert sorted(set(revisions)) == revisions

    def test_changes(self, store):
        """Changes since a snapshot are what was created and deleted after it, and nothing else."""
        store.create_many([subscription(id="stays"), subscription(id="goes")])
        snapshot = store.snapshot()
        store.create(subscription(id="comes"))
        store.delete("goes")
        store.create(subscription(id="brief"))
        store.delete("brief")
        changes = store.changes(snapshot.revision)

        assert [subscription.id for subscription in changes.created] == ["comes"]
        assert changes.deleted_ids == ("goes",)
        assert not changes.reset
        assert not store.changes(changes.revision)

    def test_a_name_used_again(self, store):
        """An id that is deleted and created again is reported as both, so that a follower replaces it."""
        store.create(subscription("old", id="x"))
        revision = store.snapshot().revision
        store.delete("x")
        store.create(subscription("new", id="x"))
        changes = store.changes(revision)

        assert changes.deleted_ids == ("x",)
        assert [subscription("new").condition] == [subscription.condition for subscription in changes.created]

    def test_a_follower_arrives_where_a_snapshot_is(self, store):
        """Whoever applies changes, deletions first, holds what a fresh snapshot holds."""
        held: dict[str, Subscription] = {}
        revision = store.snapshot().revision
        for step in range(30):
            store.create(subscription(f"p{step}", id=f"s{step % 7}-{step}"))
            if step % 3 == 2:
                store.delete(f"s{(step - 1) % 7}-{step - 1}")
            if step % 4 == 3:
                changes = store.changes(revision)
                for gone in changes.deleted_ids:
                    del held[gone]
                held |= {subscription.id: subscription for subscription in changes.created}
                revision = changes.revision

        snapshot = store.snapshot()
        for gone in (last := store.changes(revision)).deleted_ids:
            del held[gone]
        held |= {subscription.id: subscription for subscription in last.created}
        assert {subscription.id: subscription for subscription in snapshot} == held
        assert snapshot.revision == last.revision

    def test_changes_from_an_unknown_revision(self, store):
        """For an unknown revision the reader must reload everything."""
        store.create(subscription(id="x"))
        for unknown in (-1, store.snapshot().revision + 1000):
            changes = store.changes(unknown)

            assert changes.reset
            assert [subscription.id for subscription in changes.created] == ["x"]

    @pytest.mark.parametrize("changes", [1, 2, 3, 6])
    def test_a_store_that_is_restored_to_an_older_state(self, store, restored, caplog, changes):
        """Followers begin again with one warning, also where other changes have reached or passed their revision."""
        store.create(subscription(id="kept"))
        with restored(store):
            store.create(subscription(id="lost"))
            store.create(subscription(id="lost too"))
            matcher = Matcher.from_store(store)
            tenant = store.for_tenant("ann").snapshot().revision
        for number in range(changes):
            store.create(subscription(id=f"new{number}"))

        assert matcher.refresh(store)
        assert matcher.revision == store.revision() > tenant
        assert len(matcher) == changes + 1
        assert store.for_tenant("ann").changes(tenant).reset
        assert store.changes(tenant).reset
        assert not store.changes(store.revision())
        assert len([record for record in caplog.records if "begin again" in record.message]) == 1

    def test_snapshot_is_in_the_order_of_ids(self, store):
        """A snapshot has everything, sorted, and does not change later."""
        store.create_many(subscription(id=id_) for id_ in ("b", "a", "c"))
        snapshot = store.snapshot()
        store.delete("a")

        assert [subscription.id for subscription in snapshot] == ["a", "b", "c"]

    def test_concurrent_use(self, store):
        """Threads that create, delete and search at once lose nothing and see no half of anything."""
        failures: list[BaseException] = []
        kept: list[str] = []

        def work(name: int) -> None:
            try:
                for n in range(15):
                    created = store.create(subscription(metadata={"by": str(name)}))
                    page = store.search_by_metadata({"by": str(name)}, limit=100)
                    assert created in {item.id for item in page.items}
                    if n % 2:
                        store.delete(created)
                    else:
                        kept.append(created)
            except BaseException as failure:  # noqa: BLE001 - a thread's failure has to reach the test
                failures.append(failure)

        threads = [threading.Thread(target=work, args=(name,)) for name in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert failures == []
        assert sorted(kept) == [subscription.id for subscription in store.snapshot()]

    def test_a_match_beside_other_matches_sees_what_was_stored_before_it(self, store, monkeypatch):
        """Threads match and change at once: each answer has what was stored before, at its revision."""
        # Behind a store that takes longer the index as it was answers, and this machine may have other work.
        for limit in ("_CATCH_UP_SECONDS", "_OWN_CHANGE_SECONDS"):
            monkeypatch.setattr(f"turnout.subscriptions.matcher.{limit}", 60.0)
        live = LiveMatcher(store, max_age=60.0)

        def create(id_: str) -> None:
            store.create(subscription(id=id_))
            live.changed()

        def delete(id_: str) -> None:
            store.delete(id_)
            live.changed()

        def match() -> tuple[set[str], int]:
            answer = live.match({"subject": "orders"})
            return {match.subscription_id for match in answer.matches}, answer.revision

        check_linearizable(create, delete, match)


def _set_clock(monkeypatch, seconds: float) -> None:
    """Have the stores' wall clock be ahead by so many seconds. Others, as gRPC's deadlines, keep theirs."""
    wrong = SimpleNamespace(
        time=lambda: time.time() + seconds,
        time_ns=lambda: time.time_ns() + int(seconds * 1e9),
        monotonic=time.monotonic,
    )
    for module in ("turnout.base.clocks", "turnout.subscriptions.past"):
        monkeypatch.setattr(f"{module}.time", wrong)


class HistoryContract:
    """Contract of a store that keeps its history, for each owner of subscriptions."""

    def actors(self, *names: str) -> list[str]:
        """The actors that a store records of callers with these names."""
        return list(names)

    def test_as_of_a_revision(self, store):
        """Each revision shows what was there then, also what is gone, and a name's earlier bearer."""
        store.create(subscription("first*", id="a"))
        store.create(subscription(id="b"))
        before = store.revision()
        store.delete("a")
        between = store.revision()
        store.create(subscription("second*", id="a"))

        assert [subscription.id for subscription in store.as_of(before)] == ["a", "b"]
        assert store.as_of(before).read("a").condition == subscription("first*").condition
        assert [subscription.id for subscription in store.as_of(between).snapshot()] == ["b"]
        assert store.as_of(store.revision()).read("a").condition == subscription("second*").condition
        assert store.as_of(between).revision == between
        with pytest.raises(SubscriptionNotFoundError, match="'a'"):
            store.as_of(between).read("a")

    def test_every_revision_is_as_it_was(self, store):
        """After any changes, also of reused names, each revision equals the snapshot taken at that revision."""
        rng = random.Random(11)
        shown = {}
        for step in range(40):
            there = [subscription.id for subscription in store.snapshot()]
            name = f"n{rng.randrange(6)}"
            if name in there and rng.random() < 0.5:
                store.delete(name)
            elif name in there:
                store.update(name, subscription(f"step{step}*"))
            else:
                store.create(subscription(f"step{step}*", id=name))
            shown[store.revision()] = store.snapshot()

        for revision, snapshot in shown.items():
            then = store.as_of(revision).snapshot()
            assert then == snapshot
            assert [one.revision for one in then] == [one.revision for one in snapshot]

    def test_as_of_a_time(self, store):
        """A time shows the revision that was present then; the future shows the last one."""
        store.create(subscription(id="a"))
        store.delete("a")
        store.create(subscription(id="b"))
        births = store.births()
        after = births["b"].at

        assert set(births) == {"b"}
        assert births["b"].revision == store.revision()
        assert [subscription.id for subscription in store.as_of(after)] == ["b"]
        assert [subscription.id for subscription in store.as_of(after.replace(tzinfo=None))] == ["b"]
        assert store.as_of(after - timedelta(microseconds=1)).revision < store.revision()
        assert store.as_of(after + timedelta(days=9)).revision == store.revision()

    @pytest.mark.parametrize("hours", [24, -24])
    def test_one_wrong_reading_of_a_clock_hides_nothing(self, store, monkeypatch, hours):
        """After a write with a clock a day ahead or behind, the present and the later revisions are what they are."""
        store.create(subscription(id="a"))
        with monkeypatch.context() as wrong:
            _set_clock(wrong, hours * 3_600)
            store.create(subscription(id="skewed"))
        store.create(subscription(id="b"))
        between = store.births()["b"].at
        store.create(subscription(id="c"))

        present = datetime.now(UTC)
        assert [subscription.id for subscription in store.as_of(present)] == ["a", "b", "c", "skewed"]
        assert [subscription.id for subscription in store.as_of(between)] == ["a", "b", "skewed"]
        assert store.as_of(present + timedelta(days=2)).revision == store.revision()

    def test_one_wrong_reading_of_a_clock_forgets_nothing(self, store, monkeypatch):
        """Deletions with a clock that is years ahead forget no history that is not due."""
        for kind in ("_sql", "_mongo_driver"):
            monkeypatch.setattr(f"turnout.subscriptions.stores.{kind}._PRUNE_EVERY", 1)
        store.create_many(subscription(id=f"s{number}") for number in range(3))
        before = store.revision()
        store.delete("s0")
        with monkeypatch.context() as wrong:
            _set_clock(wrong, 10 * 365 * 86_400)
            store.delete("s1")
        store.delete("s2")

        assert len(store.as_of(before).snapshot()) == 3

    def test_history_of_a_subscription(self, store):
        """Each change is there with its actor, its time and both versions; a bearer of the same id is another one."""
        with acting_as("ann"):
            store.create(subscription("first*", id="a"))
            store.create(subscription(id="other"))
        with acting_as("bob"):
            store.update("a", subscription("second*"))
            store.delete("a")
        store.create(subscription("third*", id="a"))
        entries = store.history("a")

        def pattern(version):
            return version and first_pattern(version)

        assert [(entry.action, pattern(entry.before), pattern(entry.after)) for entry in entries] == [
            ("created", None, "first*"),
            ("updated", "first*", "second*"),
            ("deleted", "second*", None),
            ("created", None, "third*"),
        ]
        assert [entry.actor for entry in entries] == self.actors("ann", "bob", "bob", "")
        first = entries[0].revision
        assert [entry.revision - first for entry in entries] == [0, 2, 3, 4]
        assert [entry.at for entry in entries] == sorted(entry.at for entry in entries)
        assert {version.id for entry in entries for version in (entry.before, entry.after) if version} == {"a"}
        with pytest.raises(SubscriptionNotFoundError, match="'nobody'"):
            store.history("nobody")

    @pytest.mark.parametrize("moment", [-1, 10_000])
    def test_as_of_what_never_was(self, store, moment):
        """A revision that never was is refused, with those that are remembered."""
        store.create(subscription())

        with pytest.raises(HistoryForgottenError, match=f"revision {moment}: it remembers revisions"):
            store.as_of(moment)

    def test_the_past_cannot_be_changed(self, store):
        """A past state can be read, but not changed."""
        store.create(subscription(id="a"))

        assert not {"create", "create_many", "update", "delete"} & set(dir(store.as_of(store.revision())))


class StoreContract(OwnerContract):
    """Contract of a store that several owners share."""

    def test_tenants_see_their_own(self, store):
        """A tenant reads, finds and follows its own subscriptions, under the ids that it gave, and no others."""
        acme, bolt = store.for_tenant("acme"), store.for_tenant("bolt")
        store.create(subscription(id="nobodys", metadata={"n": "x"}))
        bolt.create_many([subscription(id=id_, metadata={"n": "x"}) for id_ in ("a", "z")])
        own = acme.create(subscription(metadata={"n": "x"}))
        acme.create(subscription(id="m", metadata={"n": "x"}))
        expected = sorted([own, "m"])

        assert acme.read(own).id == own
        assert expected == [item.subscription_id for item in acme.search_by_condition("subject", "orders*").items]
        assert expected == [item.subscription.id for item in acme.search_by_condition("subject", "orders*").items]
        assert expected == [item.id for item in acme.search_by_metadata({"n": "x"}).items]
        assert expected == [item.id for item in acme.search_by_metadata({}).items]
        assert expected == [subscription.id for subscription in acme.snapshot()]
        assert expected == sorted(subscription.id for subscription in acme.changes(0).created)
        assert expected == sorted(subscription.id for subscription in acme.changes(-1).created)

    def test_keeps_the_quota_of_deliveries(self, store):
        """The quota that was recorded with a version is returned by every query of the whole store."""
        store.create(subscription(id="@acme/a", deliveries=7))
        (found,) = store.snapshot()
        store.update("@acme/a", replace(found, deliveries=9))

        assert found.deliveries == store.as_of(found.revision).read("@acme/a").deliveries == 7
        assert [one.deliveries for one in (store.read("@acme/a"), *store.changes(0).created)] == [9, 9]

    def test_secrets_belong_to_one_subscription(self, store, monkeypatch):
        """The whole store shows encrypted secrets to open for their subscription; a copy elsewhere is refused."""
        monkeypatch.setenv(SECRET_KEY, new_key())
        secret = new_secret()
        acme = store.for_tenant("acme")
        acme.create(subscription(id="a", delivery=DeliverySettings.from_mapping({"secrets": [secret]})))
        (sealed,) = store.read("@acme/a").delivery.secrets
        (hidden,) = acme.read("a").delivery.secrets
        copied = DeliverySettings.from_mapping({"secrets": [sealed.text]})
        acme.create(subscription(id="b"))

        assert needed_keys().open("@acme/a", sealed) == secret
        assert hidden == HiddenSecret(sealed.name)
        with pytest.raises(SubscriptionInvalidError, match="it was encrypted for another subscription"):
            acme.update("b", subscription(delivery=copied))
        with pytest.raises(SubscriptionInvalidError, match="it was encrypted for another subscription"):
            store.create(subscription(id="a", delivery=copied))
        monkeypatch.setenv(SECRET_KEY, new_key())
        with pytest.raises(SubscriptionInvalidError, match="none of the keys in TURNOUT_SECRET_KEY decrypts it"):
            acme.update("b", subscription(delivery=copied))

    def test_tenants_cannot_reach_each_other(self, store):
        """Subscriptions of another tenant do not exist: not to read, not to delete, for any id."""
        acme, bolt = store.for_tenant("acme"), store.for_tenant("bolt")
        theirs = bolt.create(subscription())
        nobodys = store.create(subscription(id="nobodys"))
        for id_ in (theirs, nobodys, f"@bolt/{theirs}", f"/../@bolt/{theirs}", "@bolt/", "@acme/"):
            for attempt in (acme.read, acme.delete, lambda id_: acme.update(id_, subscription())):
                with pytest.raises(SubscriptionNotFoundError) as refused:
                    attempt(id_)
                assert id_ == refused.value.id

        assert bolt.read(theirs).id == theirs
        assert store.read(nobodys).id == nobodys

    def test_tenants_choose_ids_freely(self, store):
        """An id of another tenant is free; one of the tenant's own is taken, and reported in the tenant's form."""
        acme, bolt = store.for_tenant("acme"), store.for_tenant("bolt")
        for owner in (store, acme, bolt):
            owner.create(subscription("own", id="x"))

        with pytest.raises(SubscriptionExistsError) as refused:
            acme.create(subscription(id="x"))
        assert refused.value.id == "x"
        acme.update("x", subscription("newer*"), expected_revision=acme.read("x").revision)
        with pytest.raises(SubscriptionConflictError, match="'x' is at"):
            acme.update("x", subscription(id="x"), expected_revision=0)
        assert [first_pattern(owner.read("x")) for owner in (store, acme, bolt)] == ["own", "newer*", "own"]
        acme.delete("x")
        assert bolt.read("x").id == store.read("x").id == "x"

    @pytest.mark.parametrize("limit", [1, 2, 3, 7])
    def test_tenants_pages(self, store, limit):
        """A tenant's pages end with its last subscription, independent of later tenants in the store."""
        for name in ("acmd", "acme", "acme-2", "acmf"):
            store.for_tenant(name).create_many(subscription(id=f"{n}", metadata={"n": "x"}) for n in range(3))
        acme = store.for_tenant("acme")

        by_condition = every_page(lambda **page: acme.search_by_condition("subject", "orders*", **page), limit)
        assert [match.subscription_id for match in by_condition] == ["0", "1", "2"]
        for metadata in ({}, {"n": "x"}):
            items = every_page(lambda given=metadata, **page: acme.search_by_metadata(given, **page), limit)
            assert [outcome.id for outcome in items] == ["0", "1", "2"]

    def test_tenants_changes(self, store):
        """A tenant's changes are of its own subscriptions, and lead to the store's revision."""
        acme, bolt = store.for_tenant("acme"), store.for_tenant("bolt")
        acme.create_many([subscription(id="goes"), subscription(id="stays")])
        bolt.create(subscription(id="goes"))
        revision = acme.snapshot().revision
        bolt.delete("goes")
        bolt.create(subscription(id="comes"))
        quiet = acme.changes(revision)

        assert not quiet
        assert quiet.revision == store.revision()
        acme.delete("goes")
        acme.create(subscription(id="comes"))
        changes = acme.changes(revision)
        assert changes.deleted_ids == ("goes",)
        assert [subscription.id for subscription in changes.created] == ["comes"]

    def test_the_whole_store_has_every_tenants(self, store):
        """A caller without a tenant, such as a route, sees all of them, and each belongs to one."""
        store.for_tenant("acme").create(subscription(id="x"))
        store.for_tenant("bolt").create(subscription(id="x"))
        store.create(subscription(id="x"))

        assert [tenant_of(subscription.id) for subscription in store.snapshot()] == ["acme", "bolt", ""]
        exported = list(store.snapshot())
        store.for_tenant("acme").delete("x")
        store.create_many(one for one in exported if tenant_of(one.id) == "acme")
        assert store.for_tenant("acme").read("x").condition == exported[0].condition

    @pytest.mark.parametrize("name", ["", "a/b", "@a", "a b", "é", "a" * 64, "a\n", "."])
    def test_no_such_tenant_names(self, store, name):
        """A tenant's name is of letters, digits, dots, dashes and underscores."""
        with pytest.raises(SubscriptionInvalidError, match="no tenant is named"):
            store.for_tenant(name)

    def test_a_tenant_has_no_tenants(self, store):
        """A tenant's store gives no other tenant's."""
        acme = store.for_tenant("acme")
        acme.create(subscription(id="x"))

        assert acme.for_tenant("acme").read("x").id == "x"
        with pytest.raises(SubscriptionInvalidError, match="not of 'bolt'"):
            acme.for_tenant("bolt")


class TenantHistoryContract(HistoryContract):
    """The same, and to tenants."""

    def test_a_tenants_past(self, store):
        """A tenant sees its own past under its own ids, and no other tenant's."""
        acme = store.for_tenant("acme")
        acme.create(subscription(id="x"))
        store.for_tenant("other").create(subscription(id="y"))
        before = store.revision()
        acme.delete("x")

        assert [subscription.id for subscription in acme.as_of(before)] == ["x"]
        assert acme.as_of(before).read("x").id == "x"
        assert [(entry.action, (entry.before or entry.after).id) for entry in acme.history("x")] == [
            ("created", "x"),
            ("deleted", "x"),
        ]
        with pytest.raises(SubscriptionNotFoundError, match="'y'"):
            acme.history("y")
        assert [subscription.id for subscription in acme.as_of(store.revision())] == []
        assert set(store.for_tenant("other").births()) == {"y"}
        assert [subscription.id for subscription in store.as_of(before)] == ["@acme/x", "@other/y"]
