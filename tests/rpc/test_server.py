"""Health, reflection, tokens, TLS, limits, metrics and logs of the services."""

from __future__ import annotations

import json
import sqlite3
import threading
import urllib.request
from dataclasses import replace

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2

from tests.certificates import make_certificates
from tests.contracts.store import subscription
from turnout.errors import ConfigError, StoreUnavailableError, SubscriptionError
from turnout.rpc.client import Channel
from turnout.rpc.remote_store import RemoteStore
from turnout.rpc.server import subscriptions_server
from turnout.rpc.tokens import AcceptedToken, read_tokens
from turnout.rpc.v1 import subscriptions_pb2 as pb
from turnout.subscriptions import open_store


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


def test_a_locked_store_keeps_no_other_call_waiting(server, store, client, tmp_path):
    """While more writers wait than there are threads for calls, health, a match and a read are answered."""
    id_ = store.create(subscription())
    other = sqlite3.connect(tmp_path / "subscriptions.db", isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    with grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        request = pb.DeleteRequest(id="nobody").SerializeToString()
        delete = channel.unary_unary("/subscriptions.Service/Delete")
        writers = [delete.future(request, timeout=60) for _ in range(40)]
        read = channel.unary_unary("/subscriptions.Service/Read", request_serializer=pb.ReadRequest.SerializeToString)
        state = health(channel, "")
        read(pb.ReadRequest(id=id_), timeout=30)
        matches = client.match({"subject": "orders 17"})
        waiting = sum(not writer.done() for writer in writers)
        other.execute("ROLLBACK")
        other.close()
        codes = {writer.code().name for writer in writers}

    assert state == health_pb2.HealthCheckResponse.SERVING
    assert [match.subscription_id for match in matches] == [id_]
    assert waiting == 40
    assert codes == {"NOT_FOUND"}


@pytest.mark.parametrize("version", ["v1", "v1alpha"])
def test_reflection(server, version):
    """A client without the proto lists the services and methods, by either version of reflection."""
    with grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        reflect = channel.stream_stream(
            f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo",
            request_serializer=reflection_pb2.ServerReflectionRequest.SerializeToString,
            response_deserializer=reflection_pb2.ServerReflectionResponse.FromString,
        )
        ask = [reflection_pb2.ServerReflectionRequest(list_services="")]
        (answer,) = reflect(iter(ask), timeout=10)
        names = {service.name for service in answer.list_services_response.service}
        ask = [reflection_pb2.ServerReflectionRequest(file_containing_symbol="subscriptions.Service")]
        (described,) = reflect(iter(ask), timeout=10)

    assert {"subscriptions.Service", "turnout.subscriptions.v1.Matching", "grpc.health.v1.Health"} <= names
    assert b"SearchByMetadata" in described.file_descriptor_response.file_descriptor_proto[0]


def test_tokens(backing, settings):
    """With tokens, a call needs one of them; health does not."""
    with subscriptions_server(
        backing, replace(settings, tokens=(AcceptedToken.plain("alpha"), AcceptedToken.plain("beta")))
    ) as server:
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
        settings,
        tls_certificate=certificates / "server.pem",
        tls_key=certificates / "server.key",
        tokens=(AcceptedToken.plain("t"),),
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


def test_a_renewed_certificate(backing, settings, certificates, tmp_path, monkeypatch):
    """New connections get it, also of another authority; a pair that does not fit is not used."""
    monkeypatch.setattr("turnout.base.files._LOOK_SECONDS", 0.0)
    pair = {"pem": tmp_path / "tls.crt", "key": tmp_path / "tls.key"}

    def install(name, *kinds):
        for kind in kinds or pair:
            pair[kind].write_bytes((certificates / f"{name}.{kind}").read_bytes())

    def is_served(authority):
        with RemoteStore(Channel(f"localhost:{server.port}", ca=certificates / authority, timeout=3)) as store:
            try:
                return store.revision() == 0
            except StoreUnavailableError:
                return False

    install("server")
    secured = replace(settings, tls_certificate=pair["pem"], tls_key=pair["key"])
    with subscriptions_server(backing, secured) as server:
        assert [is_served("ca.pem"), is_served("other.pem")] == [True, False]
        install("stranger", "pem")
        assert is_served("ca.pem")
        install("stranger", "key")
        assert [is_served("ca.pem"), is_served("other.pem")] == [False, True]


def test_a_renewed_certificate_of_a_client(backing, settings, certificates, tmp_path, monkeypatch, caplog):
    """A client that stays shows it, as does one that a tenant shares it with; a pair that does not fit is not used."""
    monkeypatch.setattr("turnout.base.files._LOOK_SECONDS", 0.0)
    pair = {"pem": tmp_path / "client.pem", "key": tmp_path / "client.key"}

    def install(name, *kinds):
        for kind in kinds or pair:
            pair[kind].write_bytes((certificates / f"{name}.{kind}").read_bytes())

    install("stranger")
    files = {part: certificates / f"server.{end}" for part, end in (("tls_certificate", "pem"), ("tls_key", "key"))}
    with subscriptions_server(backing, replace(settings, tls_client_ca=certificates / "ca.pem", **files)) as server:
        options = f"ca={certificates}/ca.pem&certificate={pair['pem']}&key={pair['key']}&timeout=5"
        with RemoteStore(Channel.parse(f"grpc://localhost:{server.port}?{options}")) as store:
            shared = store.for_tenant("acme")
            with pytest.raises(StoreUnavailableError):
                store.revision()
            install("client", "key")
            with pytest.raises(StoreUnavailableError):
                shared.revision()
            assert "the renewed certificate cannot be used" in caplog.text
            install("client", "pem")
            assert [store.revision(), shared.revision()] == [0, 0]


def test_a_renewed_token_of_a_client(backing, settings, tmp_path, monkeypatch):
    """The file of a client's token is read again; while it is not there the former token is used."""
    monkeypatch.setattr("turnout.base.files._LOOK_SECONDS", 0.0)
    accepted, own = tmp_path / "accepted", tmp_path / "own"
    accepted.write_text("first")
    own.write_text("first\n")
    with (
        subscriptions_server(backing, replace(settings, tokens=read_tokens(accepted))) as server,
        RemoteStore(Channel.parse(f"grpc://127.0.0.1:{server.port}?token-file={own}&timeout=10")) as store,
    ):
        assert store.revision() == 0
        accepted.write_text("second")
        with pytest.raises(SubscriptionError, match="UNAUTHENTICATED"):
            store.revision()
        own.write_text("second\n")
        assert store.revision() == 0
        own.unlink()
        assert store.revision() == 0


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

        def read(self, id):
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

        def read(self, id):
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


def test_port_taken(server, settings, tmp_path):
    """A port that is in use is reported as an invalid request, without a traceback."""
    with (
        open_store(f"sqlite:///{tmp_path}/other.db") as store,
        pytest.raises(ConfigError, match=f"cannot listen on 127.0.0.1:{server.port}"),
    ):
        subscriptions_server(store, replace(settings, port=server.port)).start()
