"""Tenants over gRPC: a token sees, changes and matches what is its tenant's, and learns nothing of others."""

from __future__ import annotations

from dataclasses import replace

import grpc
import pytest
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from tests.contracts.store import HistoryContract, OwnerContract, subscription
from turnout.errors import QuotaExceededError, SubscriptionError, SubscriptionInvalidError, SubscriptionNotFoundError
from turnout.rpc.caller import NEEDS, OPEN, Caller, Right
from turnout.rpc.client import Channel, MatchingClient
from turnout.rpc.remote_store import RemoteStore
from turnout.rpc.server import subscriptions_server
from turnout.rpc.tokens import AcceptedToken, Sha256
from turnout.rpc.v1 import subscriptions_pb2 as pb
from turnout.rpc.v1.subscriptions_pb2_grpc import ServiceStub
from turnout.subscriptions.credentials import HiddenSecret, new_secret
from turnout.subscriptions.delivery_settings import DeliverySettings
from turnout.subscriptions.lines import read_plain
from turnout.subscriptions.sealing import SECRET_KEY, needed_keys, new_key
from turnout.subscriptions.tenants import Quota

MESSAGE = {"subject": "orders 17", "location": "Oulu"}


def token(text: str, tenant: str | None, *rights: Right, allow: tuple[str, ...] | None = None) -> AcceptedToken:
    return AcceptedToken(Sha256.of(text), Caller(tenant, frozenset(rights or Right), allow, f"token {text}"))


@pytest.fixture
def tenanted(backing, settings):
    """A server with tokens of two tenants, of single rights, and of the whole store."""
    tokens = (
        token("acme", "acme"),
        token("bolt", "bolt"),
        token("reader", "acme", Right.READ),
        token("writer", "acme", Right.WRITE, allow=("acme.>",)),
        token("matcher", "acme", Right.MATCH),
        token("root", None),
    )
    with subscriptions_server(backing, replace(settings, tokens=tokens)) as server:
        yield server


@pytest.fixture
def as_(tenanted):
    """The store and the matching client of a token."""
    opened: list = []

    def connect(name: str, tenant: str | None = None):
        channel = Channel(f"127.0.0.1:{tenanted.port}", token=name, timeout=10, tenant=tenant)
        opened.extend([RemoteStore(channel), MatchingClient(channel)])
        return opened[-2:]

    yield connect
    for one in opened:
        one.close()


class TestTenantsStore(OwnerContract, HistoryContract):
    """A tenant's own store, by its token and beside another tenant's, keeps every promise of a store."""

    @pytest.fixture
    def store(self, as_):
        as_("bolt")[0].create_many(subscription(id=id_, metadata={"n": "x", "user": "u"}) for id_ in ("0", "a", "x"))
        return as_("acme")[0]

    def actors(self, *names):
        """The token's name, whatever a caller says of itself."""
        return ["token acme"] * len(names)


def test_a_tenants_store_has_no_tenants(as_):
    """A tenant's token cannot act for another tenant."""
    acme = as_("acme")[0]

    assert len(acme.for_tenant("acme").snapshot()) == 0
    with pytest.raises(SubscriptionError, match="PERMISSION_DENIED: this token is not for the tenant 'bolt'"):
        acme.for_tenant("bolt").revision()


def test_the_past_is_of_ones_own(as_):
    """A tenant sees what it had itself, at revisions of the whole store; reading it is a right."""
    acme, bolt, root = as_("acme")[0], as_("bolt")[0], as_("root")[0]
    acme.create(subscription(id="x"))
    bolt.create(subscription(id="y"))
    before = root.revision()
    acme.delete("x")
    bolt.delete("y")

    assert [subscription.id for subscription in acme.as_of(before)] == ["x"]
    assert [subscription.id for subscription in as_("reader")[0].as_of(before)] == ["x"]
    assert [subscription.id for subscription in as_("root", "bolt")[0].as_of(before)] == ["y"]
    assert [subscription.id for subscription in root.as_of(before)] == ["@acme/x", "@bolt/y"]
    with pytest.raises(SubscriptionNotFoundError):
        acme.as_of(before).read("y")
    with pytest.raises(SubscriptionNotFoundError):
        acme.as_of(before).read("@bolt/y")
    for name in ("writer", "matcher"):
        for asked in (
            lambda store: store.as_of(before),
            lambda store: store.births(),
            lambda store: store.read_at(1, "x"),
        ):
            with pytest.raises(
                SubscriptionError, match="PERMISSION_DENIED: this token does not give the right to read"
            ):
                asked(as_(name)[0])


def test_matching_is_of_ones_own(as_):
    """A match gives the tenant's own subscriptions, by its own ids, and the whole store's token gives all."""
    acme, acme_matching = as_("acme")
    bolt, bolt_matching = as_("bolt")
    acme.create(subscription(id="x"))
    bolt.create(subscription(id="x"))
    bolt.create(subscription(id="y"))

    def ids(client):
        return sorted(match.subscription_id for match in client.match(MESSAGE))

    assert ids(acme_matching) == ["x"]
    assert ids(bolt_matching) == ["x", "y"]
    assert ids(as_("root")[1]) == ["@acme/x", "@bolt/x", "@bolt/y"]
    assert ids(as_("root", "acme")[1]) == ["x"]
    assert [[match.subscription_id for match in matches] for matches in acme_matching.match_stream([MESSAGE])] == [
        ["x"]
    ]
    bolt.delete("x")
    assert ids(bolt_matching) == ["y"]
    assert ids(acme_matching) == ["x"]


def test_watching_is_of_ones_own(as_):
    """A watcher gets the tenant's own changes, and no others."""
    acme, matching = as_("acme")
    bolt, _ = as_("bolt")
    bolt.create(subscription(id="theirs"))
    acme.create(subscription(id="before"))
    watching = matching.watch()

    assert [subscription.id for subscription in next(watching).created] == ["before"]
    bolt.delete("theirs")
    bolt.create(subscription(id="others"))
    acme.delete("before")
    changes = next(watching)
    assert (changes.created, changes.deleted_ids) == ((), ("before",))
    watching.close()


def test_ids_of_others_are_not_there(as_, tenanted):
    """An id of another tenant is NOT_FOUND, with the same message as an unknown one."""
    theirs = as_("bolt")[0].create(subscription())
    acme, matching = as_("acme")
    for id_ in (theirs, f"@bolt/{theirs}", "nobody"):
        details = set()
        for attempt in (acme.read, acme.delete, lambda id_: matching.explain(id_, MESSAGE)):
            with pytest.raises(SubscriptionNotFoundError) as refused:
                attempt(id_)
            details.add(str(refused.value))
        assert details == {f"no subscription has the id {id_!r}"}
    assert acme.create(subscription(id=theirs)) == theirs


WORKING = {
    "search": lambda store, _: store.search_by_metadata({}),
    "search by leaf": lambda store, _: store.search_by_condition("k", "v"),
    "snapshot": lambda store, _: store.snapshot(),
    "changes": lambda store, _: store.changes(0),
    "revision": lambda store, _: store.revision(),
    "explain": lambda _, matching: matching.explain("x", MESSAGE),
    "read": lambda store, _: store.read("x"),
    "watch": lambda _, matching: next(matching.watch()),
    "create": lambda store, _: store.create(subscription(destinations=["acme.a"])),
    "delete": lambda store, _: store.delete("x"),
    "match": lambda _, matching: matching.match(MESSAGE),
    "match stream": lambda _, matching: list(matching.match_stream([MESSAGE])),
}


@pytest.mark.parametrize(
    ("name", "rights"),
    [("reader", set(list(WORKING)[:8])), ("writer", {"create", "delete"}), ("matcher", {"match", "match stream"})],
)
@pytest.mark.parametrize("work", WORKING)
def test_rights(as_, name, rights, work):
    """Calls without the token's right are PERMISSION_DENIED, calls with it succeed."""
    as_("acme")[0].create(subscription(id="x"))
    if work in rights:
        WORKING[work](*as_(name))
        return
    with pytest.raises(SubscriptionError, match="PERMISSION_DENIED: this token does not give the right to"):
        WORKING[work](*as_(name))


@pytest.mark.parametrize("work", WORKING)
@pytest.mark.parametrize("name", ["wrong", "", None])
def test_wrong_tokens(as_, name, work):
    """An unknown token is UNAUTHENTICATED, for every request and for existing and missing ids."""
    with pytest.raises(SubscriptionError, match="UNAUTHENTICATED"):
        WORKING[work](*as_(name))


def test_explanations_of_matches_need_the_right_to_read(as_, tenanted):
    """A token that may match is not shown conditions."""
    from turnout.rpc.v1 import matching_pb2
    from turnout.rpc.v1.matching_pb2_grpc import MatchingStub

    with grpc.insecure_channel(f"127.0.0.1:{tenanted.port}") as channel:
        request = matching_pb2.MatchRequest(metadata=MESSAGE, explain=True)
        for name, code in (("matcher", grpc.StatusCode.PERMISSION_DENIED), ("acme", None)):
            metadata = [("authorization", f"Bearer {name}")]
            call = MatchingStub(channel).Match.future(request, timeout=10, metadata=metadata)
            assert (call.exception() and call.code()) == code


LEAF = '{"kiwiCondition": {"key": "k", "pattern": "v"}}'
PLAIN = f'{{"id": "line", "route": {{"destinations": ["acme.a"], "condition": {LEAF}}}}}'


def test_destinations_of_a_token(as_):
    """A token with patterns of destinations creates only what goes there, one by one and in bulk."""
    writer, acme = as_("writer")[0], as_("acme")[0]
    writer.create(subscription(destinations=["acme.a"], id="good"))
    for destinations in (["bolt.a"], ["acme.a", "bolt.a"], ["acme"]):
        with pytest.raises(SubscriptionError, match=r"PERMISSION_DENIED: .*is not allowed: only acme\.> is"):
            writer.create_many([subscription(destinations=["acme.a"]), subscription(destinations=destinations)])

    for read in (subscription(destinations=["bolt.a"]), read_plain(PLAIN.replace("acme.a", "bolt.a"))):
        with pytest.raises(SubscriptionError, match=r"PERMISSION_DENIED: .*is not allowed: only acme\.> is"):
            writer.create_read([read_plain(PLAIN), read])

    assert [subscription.id for subscription in acme.snapshot()] == ["good"]
    assert writer.create_read([read_plain(PLAIN)]) == ["line"]
    assert acme.read("line").destinations == ("acme.a",)
    acme.delete("line")
    create = grpc.insecure_channel(as_("writer")[0]._options.address)
    body = pb.SubscriptionDataInput(route=pb.RouteInput(destinations=["bolt.a"]))
    body.route.condition.existsCondition.key = "k"
    call = create.unary_unary("/subscriptions.Service/Create", request_serializer=lambda one: one.SerializeToString())
    with pytest.raises(grpc.RpcError, match="PERMISSION_DENIED"):
        call(body, timeout=10, metadata=[("authorization", "Bearer writer")])
    create.close()


def test_acting_for_a_tenant(as_):
    """The whole store's token acts for any tenant that it names; a name that cannot be is the caller's mistake."""
    as_("acme")[0].create(subscription(id="x"))

    assert as_("root", "acme")[0].read("x").id == "x"
    assert len(as_("root", "nobody")[0].snapshot()) == 0
    with pytest.raises(SubscriptionInvalidError, match="no tenant is named 'a/b'"):
        as_("root", "a/b")[0].revision()
    with pytest.raises(SubscriptionError, match="PERMISSION_DENIED"):
        as_("acme", "bolt")[0].revision()


def test_every_method_needs_a_right(tenanted):
    """No method of a service is without an entry: a new one is not open by mistake."""
    services = [name for name in tenanted._names if name not in OPEN]
    from turnout.rpc.v1 import feeds_pb2, kiwi_tree_pb2, matching_pb2, subscriptions_pb2

    described = {
        (service.full_name, method.name)
        for file in (subscriptions_pb2, matching_pb2, feeds_pb2, kiwi_tree_pb2)
        for service in file.DESCRIPTOR.services_by_name.values()
        for method in service.methods
    }

    assert set(NEEDS) == described
    assert set(services) <= {service for service, _ in described}


def test_reflection_needs_a_token(tenanted, backing, settings):
    """With tokens, reflection requires one; if it is turned off, it is refused."""
    ask = [reflection_pb2.ServerReflectionRequest(list_services="")]
    with grpc.insecure_channel(f"127.0.0.1:{tenanted.port}") as channel:
        stub = reflection_pb2_grpc.ServerReflectionStub(channel)
        with pytest.raises(grpc.RpcError, match="UNAUTHENTICATED"):
            list(stub.ServerReflectionInfo(iter(ask), timeout=10))
        metadata = [("authorization", "Bearer acme")]
        (answer,) = stub.ServerReflectionInfo(iter(ask), timeout=10, metadata=metadata)
        assert answer.list_services_response.service
    with (
        subscriptions_server(backing, replace(settings, reflection=False)) as server,
        grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel,
        pytest.raises(grpc.RpcError, match="UNIMPLEMENTED"),
    ):
        list(reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo(iter(ask), timeout=10))


def test_a_quota_of_a_token(backing, settings):
    """A change that exceeds it is refused over gRPC with its name and value, in every call."""
    limited = AcceptedToken(Sha256.of("small"), Caller("acme", quota=Quota(subscriptions=1)))
    with (
        subscriptions_server(backing, replace(settings, tokens=(limited,))) as server,
        RemoteStore(Channel(f"127.0.0.1:{server.port}", token="small", timeout=10)) as store,
    ):
        store.create(subscription(id="a"))
        with pytest.raises(QuotaExceededError, match="the quota of subscriptions is 1, and 2 would be used"):
            store.create(subscription(id="b"))
        store.update("a", subscription("new*"))

        assert [one.id for one in backing.snapshot()] == ["@acme/a"]


def test_a_tenant_sees_markers_of_its_secrets(as_, tenanted, monkeypatch):
    """No call of a tenant has a secret, encrypted or not; with access to the whole store it is encrypted."""
    monkeypatch.setenv(SECRET_KEY, new_key())
    secret = new_secret()
    (acme, watching), (root, watching_all) = as_("acme"), as_("root")
    acme.create(subscription(id="a", delivery=DeliverySettings.from_mapping({"secrets": [secret]})))
    (watched,), (watched_by_root,) = (next(one.watch()).created for one in (watching, watching_all))
    (sealed,) = root.read("@acme/a").delivery.secrets
    own = Channel(f"127.0.0.1:{tenanted.port}", token="acme", timeout=10)
    with own.open() as channel:
        read = ServiceStub(channel).Read(pb.ReadRequest(id="a"), **own.call())
        marker = dict(read.delivery)["secrets"][0]
        read.route.destinations[:] = ["e"]
        ServiceStub(channel).Update(pb.UpdateRequest(id="a", data=read), **own.call())

    assert marker == f"hidden:{sealed.name}"
    assert watched.delivery.secrets == (HiddenSecret(sealed.name),)
    assert watched_by_root.delivery.secrets == (sealed,)
    assert root.read("@acme/a").destinations == ("e",)
    assert root.read("@acme/a").delivery.secrets == (sealed,)
    assert needed_keys().open("@acme/a", sealed) == secret


def test_the_quota_of_deliveries_is_recorded_for_the_dispatcher(backing, settings):
    """With what a tenant stores; it cannot choose another, and who acts for it keeps the recorded one."""
    limited = AcceptedToken(Sha256.of("acme"), Caller("acme", quota=Quota(deliveries=3)))
    tokens = (limited, token("root", None))
    with subscriptions_server(backing, replace(settings, tokens=tokens)) as server:
        address = f"127.0.0.1:{server.port}"
        with (
            RemoteStore(Channel(address, token="acme", timeout=10)) as acme,
            RemoteStore(Channel(address, token="root", timeout=10)) as root,
            RemoteStore(Channel(address, token="root", timeout=10, tenant="acme")) as acting,
        ):
            acme.create(subscription(id="a", deliveries=900))
            acting.update("a", subscription("other*", deliveries=900))
            acting.create(subscription(id="b", deliveries=900))
            root.create(subscription(id="@bolt/a", deliveries=5))
            recorded = {one.id: one.deliveries for one in root.snapshot()}

    assert recorded == {"@acme/a": 3, "@acme/b": None, "@bolt/a": 5}
