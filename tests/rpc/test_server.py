"""What surrounds the services: health, reflection, tokens, TLS, limits, metrics, logs, and strangers' bytes."""

from __future__ import annotations

import json
import random
import threading
import urllib.request
from dataclasses import replace

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from hypothesis import given
from hypothesis import strategies as st

from tests.certificates import make_certificates
from tests.contracts.store import subscription
from turnout.errors import ConfigError, StoreUnavailableError, SubscriptionError
from turnout.rpc.client import Channel, RemoteStore
from turnout.rpc.server import subscriptions_server
from turnout.rpc.settings import OPTIONS, ServerSettings
from turnout.rpc.v1 import subscriptions_pb2 as pb
from turnout.subscriptions import open_store
from turnout.subscriptions.address import store_url


def raw(server, method: str, data: bytes) -> tuple[str, str]:
    """Send these bytes as a request, and give the status."""
    with grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        call = channel.unary_unary(method, request_serializer=None, response_deserializer=None)
        try:
            call(data, timeout=10)
        except grpc.RpcError as refused:
            return refused.code().name, refused.details()
        return "OK", ""


def health(channel, service: str = "") -> int:
    stub = health_pb2_grpc.HealthStub(channel)
    return stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=10).status


def test_health(server):
    """The server and each service are healthy; an unknown one is not known."""
    with grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        for service in ("", "subscriptions.Service", "turnout.subscriptions.v1.Matching"):
            assert health(channel, service) == health_pb2.HealthCheckResponse.SERVING
        with pytest.raises(grpc.RpcError, match="NOT_FOUND"):
            health(channel, "nobody")


def test_health_follows_the_store(backing, settings, monkeypatch):
    """A server whose store is away says that it is not serving, and recovers."""
    monkeypatch.setattr("turnout.rpc.server._HEALTH_SECONDS", 0.05)
    away = threading.Event()

    class Store:
        def __getattr__(self, name):
            return getattr(backing, name)

        def revision(self):
            if away.is_set():
                raise StoreUnavailableError("away")
            return backing.revision()

    with (
        subscriptions_server(Store(), settings) as server,
        grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel,
    ):
        watching = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest(), timeout=20)
        seen = [next(watching).status]
        away.set()
        seen.append(next(watching).status)
        away.clear()
        seen.append(next(watching).status)

    kinds = health_pb2.HealthCheckResponse
    assert seen == [kinds.SERVING, kinds.NOT_SERVING, kinds.SERVING]


def test_reflection(server):
    """A client without the proto learns what there is."""
    with grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        stub = reflection_pb2_grpc.ServerReflectionStub(channel)
        ask = [reflection_pb2.ServerReflectionRequest(list_services="")]
        (answer,) = stub.ServerReflectionInfo(iter(ask), timeout=10)
        names = {service.name for service in answer.list_services_response.service}
        ask = [reflection_pb2.ServerReflectionRequest(file_containing_symbol="subscriptions.Service")]
        (described,) = stub.ServerReflectionInfo(iter(ask), timeout=10)

    assert {"subscriptions.Service", "turnout.subscriptions.v1.Matching", "grpc.health.v1.Health"} <= names
    assert b"SearchByMetadata" in described.file_descriptor_response.file_descriptor_proto[0]


def test_tokens(backing, settings):
    """With tokens, a call needs one of them; health does not."""
    with subscriptions_server(backing, replace(settings, tokens=("alpha", "beta"))) as server:
        address = f"127.0.0.1:{server.port}"
        for token, welcome in [("alpha", True), ("beta", True), ("gamma", False), ("", False), (None, False)]:
            with RemoteStore(Channel(address, token=token, timeout=5)) as store:
                if welcome:
                    store.create(subscription())
                else:
                    for attempt in (store.revision, store.snapshot, lambda store=store: store.create(subscription())):
                        with pytest.raises(SubscriptionError, match="UNAUTHENTICATED"):
                            attempt()
        with grpc.insecure_channel(address) as channel:
            assert health(channel) == health_pb2.HealthCheckResponse.SERVING
    assert len(backing.snapshot()) == 2


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    """Authorities, a server, a client and a stranger."""
    return make_certificates(tmp_path_factory.mktemp("tls"))


def test_tls(backing, settings, certificates):
    """With a certificate the server speaks TLS, to clients who trust its authority."""
    secured = replace(
        settings, tls_certificate=certificates / "server.pem", tls_key=certificates / "server.key", tokens=("t",)
    )
    with subscriptions_server(backing, secured) as server:
        address = f"localhost:{server.port}"
        with RemoteStore(Channel(address, ca=certificates / "ca.pem", token="t", timeout=10)) as store:
            assert store.revision() == 0
        for ca in (certificates / "other.pem", None):
            with (
                RemoteStore(Channel(address, ca=ca, token="t", timeout=3)) as store,
                pytest.raises(StoreUnavailableError),
            ):
                store.revision()


def test_mutual_tls(backing, settings, certificates):
    """With an authority for clients, only clients with its certificate are served."""
    secured = replace(
        settings,
        tls_certificate=certificates / "server.pem",
        tls_key=certificates / "server.key",
        tls_client_ca=certificates / "ca.pem",
    )

    def client(name):
        own = {"certificate": certificates / f"{name}.pem", "key": certificates / f"{name}.key"} if name else {}
        return RemoteStore(Channel(f"localhost:{server.port}", ca=certificates / "ca.pem", timeout=3, **own))

    with subscriptions_server(backing, secured) as server:
        with client("client") as store:
            assert store.revision() == 0
        for name in ("stranger", None):
            with client(name) as store, pytest.raises(StoreUnavailableError):
                store.revision()


def test_message_size(backing, settings):
    """A request beyond the limit is refused, and the server goes on."""
    with (
        subscriptions_server(backing, replace(settings, max_message_bytes=10_000)) as server,
        RemoteStore(Channel(f"127.0.0.1:{server.port}", timeout=10)) as store,
    ):
        with pytest.raises(StoreUnavailableError, match=r"RESOURCE_EXHAUSTED: .*10000"):
            store.create(subscription(metadata={"text": "x" * 20_000}))
        store.create(subscription(metadata={"text": "x" * 5_000}))


def test_page_size(backing, settings):
    """A page has a hundred items where no limit is given, and never more than the server's largest page."""
    backing.create_many(subscription() for _ in range(150))
    with (
        subscriptions_server(backing, replace(settings, max_page=120)) as server,
        RemoteStore(Channel(f"127.0.0.1:{server.port}", timeout=10)) as store,
    ):
        assert len(store.search_by_metadata({}, limit=0).items) == 100
        assert len(store.search_by_metadata({}, limit=1_000).items) == 120
        assert len(store.search_by_condition("subject", "orders*", limit=1_000).items) == 120


def test_too_many_calls(backing, settings):
    """Calls beyond the limit are refused at once instead of queueing without end."""
    release = threading.Event()

    class Store:
        def __getattr__(self, name):
            return getattr(backing, name)

        def read(self, id):  # noqa: A002 - the protocol's name
            release.wait(10)
            return backing.read(id)

    with (
        subscriptions_server(Store(), replace(settings, max_calls=3)) as server,
        grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel,
    ):
        read = channel.unary_unary("/subscriptions.Service/Read", request_serializer=pb.ReadRequest.SerializeToString)
        calls = [read.future(pb.ReadRequest(id="x"), timeout=10) for _ in range(12)]
        while sum(call.done() for call in calls) < 9:
            threading.Event().wait(0.01)
        codes = [call.code().name for call in calls if call.done()]
        release.set()
        later = [call.code().name for call in calls]

    assert codes == ["RESOURCE_EXHAUSTED"] * 9
    assert later.count("NOT_FOUND") == 3


def test_metrics(backing, settings):
    """Prometheus sees calls by status, their times, and the size of the index."""
    with subscriptions_server(backing, replace(settings, metrics_port=0)) as server:
        with RemoteStore(Channel(f"127.0.0.1:{server.port}", timeout=10)) as store:
            created = store.create(subscription())
            store.read(created)
            with pytest.raises(LookupError):
                store.read("nobody")
        with urllib.request.urlopen(f"http://127.0.0.1:{server.metrics_port}/metrics", timeout=10) as page:
            text = page.read().decode()

    read = 'turnout_rpc_calls_total{code="%s",method="Read",service="subscriptions.Service"} 1.0'
    assert read % "OK" in text
    assert read % "NOT_FOUND" in text
    assert 'turnout_rpc_seconds_count{method="Read",service="subscriptions.Service"} 2.0' in text
    assert "turnout_revision 0.0" in text or "turnout_revision 1.0" in text


def test_logs(backing, settings, capsys):
    """Refused calls and failures are lines of JSON; a failure's trace stays in the log."""

    class Store:
        def __getattr__(self, name):
            return getattr(backing, name)

        def read(self, id):  # noqa: A002 - the protocol's name
            raise ZeroDivisionError("the secret")

    with (
        subscriptions_server(Store(), replace(settings, log_level="warning")) as server,
        RemoteStore(Channel(f"127.0.0.1:{server.port}", timeout=10)) as store,
    ):
        with pytest.raises(LookupError):
            store.delete("nobody")
        with pytest.raises(SubscriptionError, match="INTERNAL: internal error") as failure:
            store.read("x")
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    refused, failed = lines

    assert "the secret" not in str(failure.value)
    assert (refused["level"], refused["method"], refused["code"]) == ("warning", "Delete", "NOT_FOUND")
    assert (failed["level"], failed["code"], failed["problem"]) == ("error", "INTERNAL", "the secret")
    assert "ZeroDivisionError" in failed["exception"]
    assert failed["ms"] >= 0


METHODS = [
    f"/{service}/{method}"
    for service, methods in {
        "subscriptions.Service": ("Create", "Read", "Delete", "SearchByCondition", "SearchByMetadata"),
        "turnout.subscriptions.v1.Matching": ("Match", "Explain"),
        "turnout.subscriptions.v1.Storage": ("Revision",),
    }.items()
    for method in methods
]


@pytest.mark.parametrize("method", METHODS)
def test_not_a_message(server, method):
    """Bytes that are no message are the caller's mistake."""
    code, details = raw(server, method, b"\xff\xff\xff\xff")

    assert code == "INVALID_ARGUMENT"
    assert "not a message" in details


def test_not_a_message_in_a_stream(server, backing):
    """The same where requests are a stream, and nothing of the stream is stored."""
    good = pb.Subscription(id="x", data={"route": {"destinations": ["d"]}})
    good.data.route.condition.existsCondition.key = "k"
    sent = [good.SerializeToString(), b"\xff\xff\xff\xff"]
    with grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        with pytest.raises(grpc.RpcError, match="INVALID_ARGUMENT") as refused:
            channel.stream_unary("/turnout.subscriptions.v1.Storage/CreateMany")(iter(sent), timeout=10)
        assert "not a message" in refused.value.details()
        with pytest.raises(grpc.RpcError, match="INVALID_ARGUMENT"):
            list(channel.stream_stream("/turnout.subscriptions.v1.Matching/MatchStream")(iter(sent[1:]), timeout=10))
        with pytest.raises(grpc.RpcError, match="INVALID_ARGUMENT"):
            list(channel.unary_stream("/turnout.subscriptions.v1.Matching/Watch")(sent[1], timeout=10))
    assert len(backing.snapshot()) == 0


def test_a_stream_that_breaks_off(server, backing):
    """A bulk whose client goes away in the middle stores nothing."""
    good = pb.Subscription(data={"route": {"destinations": ["d"]}})
    good.data.route.condition.existsCondition.key = "k"
    gone = threading.Event()

    def some():
        for _ in range(100):
            yield good.SerializeToString()
        gone.set()
        threading.Event().wait(1)

    with grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        call = channel.stream_unary("/turnout.subscriptions.v1.Storage/CreateMany").future(some(), timeout=10)
        gone.wait(10)
        call.cancel()
    server.stop()

    assert backing.revision() == 0


def test_no_such_method(server):
    """An unknown method is unimplemented."""
    assert raw(server, "/subscriptions.Service/Update", b"")[0] == "UNIMPLEMENTED"


def test_deep_nesting(server):
    """Groups a thousand deep are refused, whether the parser or a rule does it."""
    for depth in (42, 49, 60, 1_000, 20_000):
        data = pb.ConditionInput(kiwiTreeCondition=pb.KiwiTreeConditionInput(key="k", pattern="p"))
        encoded = data.SerializeToString()
        for _ in range(depth):
            encoded = _field(1, _field(3, encoded) + _field(3, data.SerializeToString()))
        request = _field(2, _field(1, b"d") + _field(2, encoded))
        code, _ = raw(server, "/subscriptions.Service/Create", request)

        assert code == "INVALID_ARGUMENT", depth


def _field(number: int, content: bytes) -> bytes:
    """A length-delimited field."""
    length, size = b"", len(content)
    while True:
        length += bytes([size & 0x7F | (0x80 if size > 0x7F else 0)])
        size >>= 7
        if not size:
            return bytes([number << 3 | 2]) + length + content


def test_fuzzed_bytes(server):
    """Thousands of requests, random or almost right, never make the server fail: it says what is wrong."""
    good = {
        "Create": pb.SubscriptionDataInput(
            metadata={"a": "b"},
            route=pb.RouteInput(
                destinations=["d"],
                condition=pb.ConditionInput(
                    groupCondition=pb.GroupConditionInput(
                        logic=pb.Or,
                        group=[
                            pb.ConditionInput(kiwiTreeCondition=pb.KiwiTreeConditionInput(key="k", pattern="p*")),
                            pb.ConditionInput(compareCondition=pb.CompareConditionInput(key="n", op="<", number=1.5)),
                            pb.ConditionInput(cidrCondition=pb.CidrConditionInput(key="c", network="10.0.0.0/8")),
                        ],
                    )
                ),
            ),
        ).SerializeToString(),
        "SearchByCondition": pb.SearchByConditionRequest(
            limit=3, kiwiConditionQuery=pb.KiwiConditionQuery(key="k", pattern="p*")
        ).SerializeToString(),
        "Match": b"\n\x06\n\x01k\x12\x01p",
    }
    rolls = random.Random(30)
    allowed = {"OK", "INVALID_ARGUMENT", "NOT_FOUND"}
    with grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        calls = {method: channel.unary_unary(method) for method in METHODS}
        pending = []
        for number in range(4_000):
            method = METHODS[number % len(METHODS)]
            data = bytearray(good.get(method.rpartition("/")[2], b"\n\x01x"))
            for _ in range(rolls.randint(1, 6)):
                data[rolls.randrange(len(data))] = rolls.randrange(256)
            if number % 5 == 0:
                data = bytearray(rolls.randbytes(rolls.randint(0, 60)))
            pending.append((method, bytes(data), calls[method].future(bytes(data), timeout=60)))
            if len(pending) == 200 or number == 3_999:
                for sent_to, sent, call in pending:
                    assert call.code().name in allowed, (sent_to, sent, call.details())
                pending.clear()
        assert health(channel) == health_pb2.HealthCheckResponse.SERVING


TEXTS = st.text(st.characters(exclude_categories=("Cs",)), max_size=12)
KIWI = st.builds(
    lambda negated, key, pattern, partial: {"not": negated, "key": key, "pattern": pattern, "partial": partial},
    st.booleans(),
    TEXTS,
    TEXTS,
    st.booleans(),
)


@given(
    TEXTS,
    st.lists(TEXTS, max_size=3),
    st.dictionaries(TEXTS, TEXTS, max_size=3),
    st.lists(KIWI, max_size=3),
    st.integers(min_value=-(2**31), max_value=2**31 - 1),
)
def test_any_message_is_converted_or_refused(id_, destinations, metadata, kiwis, logic):
    """Whatever a message holds, it becomes a subscription that comes back the same, or it is refused."""
    from turnout.errors import SubscriptionInvalidError
    from turnout.rpc.convert import subscription_from, subscription_to

    message = pb.Subscription(id=id_)
    message.data.metadata.update(metadata)
    message.data.route.destinations.extend(destinations)
    group = message.data.route.condition.groupCondition
    group.logic = logic
    for kiwi in kiwis:
        group.group.add(kiwiCondition=pb.KiwiConditionOutput(**kiwi))
    try:
        found = subscription_from(message)
    except SubscriptionInvalidError as problem:
        refused = str(problem)
    else:
        refused = None

    assert "route.condition" in refused if refused is not None else subscription_to(found) == message


def test_settings_from_the_environment(tmp_path):
    """The variables are read, and what is given on the command line comes first."""
    tokens = tmp_path / "tokens"
    tokens.write_text("s3cret\n\n other \n")
    environment = {
        "API_PORT": "9000",
        "API_WORKERS": "4",
        "API_TOKENS_FILE": str(tokens),
        "API_GRACE_SECONDS": "1.5",
        "LOG_LEVEL": "WARNING",
        "API_HOST": "",
    }
    read = ServerSettings.from_environment(environment, port=9001, workers=None)

    assert (read.port, read.workers, read.tokens, read.grace_seconds) == (9001, 4, ("s3cret", "other"), 1.5)
    assert (read.log_level, read.host) == ("warning", "[::]")
    assert "s3cret" not in repr(read)


def test_every_wrong_variable_is_listed():
    """One error names all of them."""
    wrong = {"API_PORT": "grpc", "API_WORKERS": "0", "API_GRACE_SECONDS": "-1", "API_TOKENS_FILE": "/nowhere/tokens"}
    with pytest.raises(ConfigError) as refused:
        ServerSettings.from_environment(wrong)

    assert sorted(mistake.path for mistake in refused.value.mistakes) == sorted(wrong)


def test_every_variable_is_documented():
    """Each option's variable and text are in the page about the service."""
    from pathlib import Path

    page = (Path(__file__).parents[2] / "docs" / "subscriptions.md").read_text("utf-8")
    for option in OPTIONS:
        assert f"| `{option.variable}` | {option.doc} |" in page


@pytest.mark.parametrize(
    ("environment", "url"),
    [
        ({}, "sqlite:///subscriptions.db"),
        ({"DB_URI": "sqlite:////data/s.db", "DB_NAME": "ignored"}, "sqlite:////data/s.db"),
        (
            {"DB_URI": "mongodb://h/?retryWrites=true&w=majority", "DB_NAME": "subs", "DB_TABLE_NAME": "t x"},
            "mongodb://h/subs?retryWrites=true&w=majority&table=t%20x",
        ),
        ({"DB_URI": "mongodb+srv://u:p@h", "DB_TABLE_NAME": "t"}, "mongodb+srv://u:p@h/?table=t"),
    ],
)
def test_store_url(environment, url):
    """The original's variables name the store."""
    assert store_url(environment, "sqlite:///subscriptions.db") == url


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"tls_certificate": "x.pem"}, "both"),
        ({"tls_client_ca": "x.pem"}, "client certificates need"),
        ({"workers": 1}, "expected 2 or more"),
        ({"log_level": "loud"}, "expected one of debug, info"),
    ],
)
def test_settings_that_cannot_be(fields, words, tmp_path):
    """What does not fit together is refused when the settings are made."""
    from pathlib import Path

    paths = {name: Path(value) if isinstance(value, str) and "tls" in name else value for name, value in fields.items()}
    with pytest.raises(ConfigError, match=words):
        ServerSettings(**paths)


def test_port_taken(server, settings, tmp_path):
    """A port that somebody listens on is a wrong request, not a trace."""
    with (
        open_store(f"sqlite:///{tmp_path}/other.db") as store,
        pytest.raises(ConfigError, match=f"cannot listen on 127.0.0.1:{server.port}"),
    ):
        subscriptions_server(store, replace(settings, port=server.port)).start()
