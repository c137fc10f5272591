"""The gRPC client is a store like the others, and matches."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime

import grpc
import pytest

from tests.contracts.store import StoreContract, TenantHistoryContract, subscription
from tests.server.conftest import wait_for
from turnout.conditions import all_of, kiwi, not_
from turnout.errors import (
    HistoryForgottenError,
    StoreUnavailableError,
    SubscriptionInvalidError,
    SubscriptionNotFoundError,
)
from turnout.rpc.client import Channel
from turnout.rpc.remote_store import RemoteStore
from turnout.rpc.server import subscriptions_server
from turnout.rpc.v1 import matching_pb2, matching_pb2_grpc
from turnout.rpc.v1.matching_pb2_grpc import StorageStub
from turnout.subscriptions import Subscription
from turnout.subscriptions.lines import import_lines, read_plain, subscription_to_json


class TestRemoteStore(StoreContract, TenantHistoryContract):
    """The contract of every store, tested over the wire."""

    @pytest.fixture
    def store(self, channel):
        with RemoteStore(channel) as store:
            yield store


def ids(matches) -> set[str]:
    return {match.subscription_id for match in matches}


def test_several_values_of_a_key(store, client):
    """A leaf holds if it does for one of them, in each call."""
    both = store.create(Subscription(["d"], all_of(kiwi("sku", "A*"), kiwi("sku", "B*"))))
    message = {"sku": ["A1", "B2", "A1"], "n": 5, "none": []}

    assert ids(client.match(message)) == {both}
    assert [ids(found) for found in client.match_stream([message, {"sku": ["A1", "C3"]}, {"sku": "A1"}])] == [
        {both},
        set(),
        set(),
    ]
    explanation = client.explain(both, {"sku": ["A1", "C3"]})
    assert [(part.holds, part.reason) for part in explanation.children] == [
        (True, "'sku' has 'A1', 'C3'"),
        (False, "'sku' has 'A1', 'C3'"),
    ]


def test_lists_are_bounded(server):
    """The number of values is limited like that of keys, and a key is in one of the two maps."""
    with grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        stub = matching_pb2_grpc.MatchingStub(channel)
        for request, problem in (
            (matching_pb2.MatchRequest(lists={"k": matching_pb2.Values(values=map(str, range(1_001)))}), "1001 values"),
            (matching_pb2.MatchRequest(metadata={"k": "a"}, lists={"k": matching_pb2.Values(values=["b"])}), "lists"),
        ):
            with pytest.raises(grpc.RpcError, match=problem) as failure:
                stub.Match(request, timeout=10)
            assert failure.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_an_older_service_tells_nothing_of_its_past():
    """The error is that of a store without history."""
    server = grpc.server(ThreadPoolExecutor(1))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    gone = pytest.raises(HistoryForgottenError, match=rf"127.0.0.1:{port} is an older one")
    try:
        with RemoteStore(Channel(f"127.0.0.1:{port}", timeout=10)) as store, gone:
            store.as_of(1)
    finally:
        server.stop(None)


def test_a_moment_has_to_be_named(channel):
    """A request with neither a revision nor a time is refused; times beyond every calendar are the newest and empty."""
    with RemoteStore(channel) as store:
        store.create(subscription(id="a"))
        storage = StorageStub(store._channel)
        with pytest.raises(grpc.RpcError) as refused:
            storage.AsOf(matching_pb2.AsOfRequest())
        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        far = storage.AsOf(matching_pb2.AsOfRequest(time=2**63 - 1))
        assert far.revision == store.revision()
        assert store.as_of(datetime.min).revision == 0


def test_match_sees_own_changes_at_once(store, client):
    """A subscription created or deleted through the server applies to the next message."""
    message = {"subject": "orders 17", "location": "Oulu"}
    for _ in range(20):
        created = store.create(subscription())
        assert ids(client.match(message)) == {created}
        store.delete(created)
        assert client.match(message) == []


def test_match_sees_changes_of_others(backing, client):
    """Changes by another process apply after a short time."""
    backing.create(subscription(id="theirs"))

    wait_for(lambda: ids(client.match({"subject": "orders"})) == {"theirs"})


def test_match_gives_destinations_and_leaves(store, client):
    """A match names where to send the message, and the leaves that are true of it."""
    created = store.create(Subscription(["a", "b"], all_of(kiwi("k", "v"), not_(kiwi("l", "w")))))
    (match,) = client.match({"k": "v"})
    leaves = [leaf.id for leaf in store.read(created).condition.children]

    assert (match.subscription_id, match.destinations, list(match.leaf_ids)) == (created, ("a", "b"), leaves)


def test_match_stream_keeps_the_order(store, client):
    """Answers come in the order of the messages."""
    ids_by_name = {f"p{n}": store.create(subscription(f"p{n}")) for n in range(5)}
    messages = [{"subject": f"p{n % 7}"} for n in range(50)]

    assert [ids(matches) for matches in client.match_stream(messages)] == [
        {ids_by_name[f"p{n % 7}"]} if n % 7 < 5 else set() for n in range(50)
    ]


def test_explain(store, client):
    """The explanation goes down to the leaf that decided."""
    created = store.create(subscription())
    explanation = client.explain(created, {"subject": "orders", "location": "near Helsinki"})

    assert not explanation.holds
    assert [child.holds for child in explanation.children] == [True, False]
    assert "'near Helsinki'" in explanation.children[1].reason
    with pytest.raises(SubscriptionNotFoundError):
        client.explain("nobody", {})


def test_watch(store, client):
    """Watching gives everything since a revision, then changes as they come."""
    store.create(subscription(id="before"))
    seen: list = []
    done = threading.Event()

    def watch() -> None:
        for changes in client.watch():
            seen.append(changes)
            if "before" in changes.deleted_ids:
                done.set()
                return

    watcher = threading.Thread(target=watch)
    watcher.start()
    wait_for(lambda: len(seen) == 1)
    store.create(subscription(id="after"))
    wait_for(lambda: len(seen) == 2)
    store.delete("before")

    assert done.wait(120)
    watcher.join()
    assert [[subscription.id for subscription in changes.created] for changes in seen] == [["before"], ["after"], []]
    revisions = [changes.revision for changes in seen]
    assert revisions == sorted(set(revisions))


def test_large_answers_come_in_parts(store, client):
    """A snapshot and changes of more than a message's size arrive whole."""
    many = [subscription(metadata={"text": "x" * 2_000}) for _ in range(3_000)]
    store.create_many(many)

    assert len(store.snapshot()) == len(store.changes(0).created) == 3_000
    assert len(next(client.watch()).created) == 3_000


def test_rules_apply_to_bulk(store):
    """One bad subscription among many is named, and none is stored."""
    bad = Subscription(["d"], not_(kiwi("k", "v")))

    with pytest.raises(SubscriptionInvalidError, match=r"\Asubscription 2 of 2: route.*LIM-1"):
        store.create_many([subscription(), bad])
    with pytest.raises(SubscriptionInvalidError, match=r"\Aroute.condition: .*LIM-1"):
        store.create(bad)
    assert len(store.snapshot()) == 0


def test_lines_in_parts(store, client):
    """More lines than one message has are stored as one change; a wrong one is named, and none is stored."""
    line = '{"id": "%d", "metadata": {"text": "%s"}, "route": {"destinations": ["d"], "condition": %s}}'
    usual = '{"kiwiCondition": {"key": "k", "pattern": "v"}}'
    lines = [line % (n, "x" * 200, usual) for n in range(6_000)]
    with pytest.raises(SubscriptionInvalidError, match=r"line 6001: .*LIM-1"):
        store.create_read([*map(read_plain, lines), Subscription(["d"], not_(kiwi("k", "v")))])

    assert import_lines(store, lines).created == 6_000
    assert store.revision() == 1
    assert len(next(client.watch()).created) == 6_000


def test_lines_for_an_older_service(store):
    """A service that takes no lines gets subscriptions."""
    older = "/turnout.subscriptions.v1.Storage/NoSuchMethod"
    store._storage.CreateLines = store._channel.stream_unary(older, lambda part: part.SerializeToString())
    leaf = '{"kiwiCondition": {"key": "k", "pattern": "v"}}'
    usual = f'{{"id": "s", "route": {{"destinations": ["d"], "condition": {leaf}}}}}'

    assert store.create_read([read_plain(usual), Subscription(["d"], "a:1", id="t")]) == ["s", "t"]
    assert store.read("s").destinations == ("d",)


def test_bulk_deletion_in_parts(store, client):
    """More ids than one message has are deleted as one change, which matching sees at once."""
    ids = store.create_many(subscription(id=f"s{number}") for number in range(6_000))
    store.delete_many([*ids[1:], ids[1]])

    assert store.revision() == 2
    assert [match.subscription_id for match in client.match({"subject": "orders"})] == ids[:1]


def test_a_bulk_deletion_that_breaks_off(server, store):
    """Of a stream with fewer ids than announced nothing is deleted; nor of one with an id that cannot be."""
    store.create(subscription(id="a"))
    with grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        request = matching_pb2.DeleteManyRequest(ids=["a"])
        with pytest.raises(grpc.RpcError, match="the stream broke off: got 1 of 2"):
            StorageStub(channel).DeleteMany(iter([request]), timeout=10, metadata=[("turnout-count", "2")])
    with pytest.raises(SubscriptionInvalidError, match="at most 256"):
        store.delete_many(["a", "x" * 300])
    with pytest.raises(SubscriptionNotFoundError, match="'b'"):
        store.delete_many(["a", "b"])

    assert store.read("a").id == "a"


def test_nobody_there(settings):
    """A server that cannot be reached is an error that a retry may cure."""
    with (
        RemoteStore(Channel("127.0.0.1:1", timeout=2)) as store,
        pytest.raises(StoreUnavailableError, match="UNAVAILABLE"),
    ):
        store.revision()


def test_deadline(backing, settings):
    """A call that takes longer than its deadline ends then, while the server still works at it."""
    slow = _Slow(backing)
    with (
        subscriptions_server(slow, settings) as server,
        RemoteStore(Channel(f"127.0.0.1:{server.port}", timeout=0.2)) as store,
    ):
        slow.may_end.clear()
        with pytest.raises(StoreUnavailableError, match="DEADLINE_EXCEEDED"):
            store.read("x")
        slow.may_end.set()


def test_shutdown_lets_calls_end(backing, settings):
    """A call that runs when the server stops is answered; a later one is not."""
    slow = _Slow(backing)
    backing.create(subscription(id="x"))
    server = subscriptions_server(slow, replace(settings, grace_seconds=120.0)).start()
    with RemoteStore(Channel(f"127.0.0.1:{server.port}", timeout=120)) as store:
        slow.may_end.clear()
        batches: list = []
        call = threading.Thread(target=lambda: batches.append(store.read("x")))
        call.start()
        assert slow.has_begun.wait(120)
        stop = threading.Thread(target=server.stop)
        stop.start()
        assert server.stopping.wait(120)
        slow.may_end.set()
        call.join()
        stop.join()

        assert [outcome.id for outcome in batches] == ["x"]
        with pytest.raises(StoreUnavailableError):
            store.read("x")


class _Slow:
    """A store whose reads end when they may."""

    def __init__(self, store) -> None:
        self._store = store
        self.has_begun, self.may_end = threading.Event(), threading.Event()
        self.may_end.set()

    def __getattr__(self, name):
        return getattr(self._store, name)

    def read(self, id):
        self.has_begun.set()
        assert self.may_end.wait(120)
        return self._store.read(id)


def test_every_status_is_translated():
    """Every status becomes an error of turnout's, with the server's message."""
    from turnout.errors import SubscriptionError
    from turnout.rpc.status import error_of

    class Failure(grpc.RpcError):
        def __init__(self, code):
            self._code = code

        def code(self):
            return self._code

        def details(self):
            return "the words"

        def trailing_metadata(self):
            return ()

    for code in grpc.StatusCode:
        error = error_of(Failure(code))
        assert isinstance(error, SubscriptionError), code
        assert "the words" in str(error)


def test_every_error_has_a_status():
    """Every error of turnout's has a row in the table, the most specific one first."""
    from turnout.errors import TurnoutError
    from turnout.rpc.status import STATUS

    def below(kind):
        yield kind
        for child in kind.__subclasses__():
            yield from below(child)

    for kind in below(TurnoutError):
        assert any(issubclass(kind, row) for row, _ in STATUS), kind
    for place, (kind, _) in enumerate(STATUS):
        assert not any(issubclass(kind, earlier) for earlier, _ in STATUS[:place]), kind


def _line(id_: str, to: str = "d") -> bytes:
    one = Subscription([to], kiwi("k", "v"), id=id_)
    return json.dumps(subscription_to_json(one)).encode()


def test_a_set_is_replaced_and_edited(server, store):
    """Other languages have the same: lines in parts, numbers in the first answer, ids in all."""
    store.create(subscription(id="mine"))

    def replaced(*parts: bytes, **options) -> matching_pb2.ReplaceResponse:
        requests = [matching_pb2.ReplaceRequest(options=matching_pb2.ReplaceOptions(**options))]
        requests += [matching_pb2.ReplaceRequest(lines=part) for part in parts]
        total = matching_pb2.ReplaceResponse()
        for part in stub.Replace(iter(requests), timeout=10):
            total.MergeFrom(part)
        return total

    with grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        stub = StorageStub(channel)
        assert list(replaced(_line("a") + b"\n" + _line("b"), _line("c"), set="week").added) == ["a", "b", "c"]
        trial = replaced(_line("a"), _line("b", "e"), set="week", prune=True, dry_run=True)
        done = replaced(_line("a"), _line("b", "e"), set="week", prune=True)
        assert [(one.id, list(one.fields)) for one in done.changed] == [("b", ["destinations"])]
        assert (list(done.removed), done.unchanged, done.kept, done.revision) == (["c"], 1, 1, trial.revision + 1)
        for options, code in (
            ({"set": "other"}, grpc.StatusCode.INVALID_ARGUMENT),
            ({"set": "week", "route": "r", "dry_run": True}, grpc.StatusCode.FAILED_PRECONDITION),
            ({"set": "week", "prefix": "x"}, grpc.StatusCode.INVALID_ARGUMENT),
        ):
            with pytest.raises(grpc.RpcError) as failure:
                replaced(_line("a"), **options)
            assert failure.value.code() is code
        query = matching_pb2.Query(destination="e")
        (edited,) = stub.EditMany(matching_pb2.EditManyRequest(query=query, enabled=False, metadata={"n": "1"}))
        assert (list(edited.ids), edited.found) == (["b"], 1)
        assert not store.read("b").enabled


def test_rights_of_bulk_changes(server, store, channel):
    """A stream that breaks off changes nothing; a change that names another revision is a conflict."""
    store.create(subscription(id="a"))
    with grpc.insecure_channel(f"127.0.0.1:{server.port}") as opened:
        stub = StorageStub(opened)
        parts = [matching_pb2.ApplyRequest(deleted=[matching_pb2.Deletion(id="a", revision=1)])]
        with pytest.raises(grpc.RpcError, match="broke off"):
            stub.Apply(iter(parts), metadata=(("turnout-count", "2"),))
        parts[0].deleted[0].revision = 7
        with pytest.raises(grpc.RpcError) as failure:
            stub.Apply(iter(parts))

    assert failure.value.code() is grpc.StatusCode.ABORTED
    assert store.read("a").id == "a"
