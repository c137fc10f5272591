"""Limits of a connection of the gRPC service: time for its handshake, number of connections, and long texts."""

from __future__ import annotations

import socket
import urllib.request
from contextlib import ExitStack
from dataclasses import replace

import grpc
import pytest

from tests.contracts.store import subscription
from tests.server.conftest import wait_for
from turnout.errors import SubscriptionInvalidError
from turnout.rpc import metrics
from turnout.rpc.channel import Channel
from turnout.rpc.remote_store import RemoteStore
from turnout.rpc.server import subscriptions_server
from turnout.rpc.v1 import subscriptions_pb2
from turnout.rpc.v1.matching_pb2 import PastRequest
from turnout.rpc.v1.matching_pb2_grpc import StorageStub
from turnout.rpc.v1.subscriptions_pb2_grpc import ServiceStub
from turnout.subscriptions.rules import MAX_ID


def read_to_end(client: socket.socket) -> None:
    try:
        while client.recv(4_096):
            pass
    except ConnectionError:
        pass


def scraped(port: int | None) -> bytes:
    """The metrics; nothing where a slot is about to be given back."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as page:
            return page.read()
    except OSError:
        return b""


def test_a_connection_that_says_nothing_is_closed(backing, settings):
    """A connection that does not finish its handshake within the limit is closed."""
    with (
        subscriptions_server(backing, replace(settings, handshake_seconds=0.2)) as server,
        socket.create_connection(("127.0.0.1", server.port), timeout=30) as client,
    ):
        read_to_end(client)


def test_connections_beyond_the_limit_are_closed(backing, settings):
    """One more connection than the limit is closed, and calls on those that are open go on."""
    limits = replace(settings, max_connections=5, handshake_seconds=60.0)
    with (
        subscriptions_server(backing, limits) as server,
        RemoteStore(Channel(f"127.0.0.1:{server.port}", timeout=10)) as store,
        ExitStack() as clients,
    ):
        id_ = store.create(subscription())
        for _ in range(4):
            clients.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=30))
        with socket.create_connection(("127.0.0.1", server.port), timeout=30) as refused:
            read_to_end(refused)
        assert store.read(id_).id == id_


@pytest.mark.parametrize("text", ["x" * 100_000, "ä" * 10_000, "x" * (MAX_ID + 1)])
def test_a_long_id_is_refused(server, text):
    """An id beyond the limit is INVALID_ARGUMENT for every method that takes one, and short in the answer."""
    with grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        service, storage = ServiceStub(channel), StorageStub(channel)
        for call in (
            lambda: service.Read(subscriptions_pb2.ReadRequest(id=text), timeout=10),
            lambda: service.Delete(subscriptions_pb2.DeleteRequest(id=text), timeout=10),
            lambda: list(storage.GetPast(PastRequest(revision=0, id=text), timeout=10)),
        ):
            with pytest.raises(grpc.RpcError) as refused:
                call()
            assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
            assert f"{len(text)} characters, at most {MAX_ID}" in refused.value.details()
            assert len(refused.value.details()) < 200


def test_an_id_of_the_longest_length(store):
    """It is stored, found and repeated in errors; one character more is not stored."""
    longest = "ä" * MAX_ID
    store.create(replace(subscription(), id=longest))
    assert store.read(longest).id == longest
    store.delete(longest)
    with pytest.raises(LookupError, match="no subscription has the id 'ää"):
        store.read(longest)
    with pytest.raises(SubscriptionInvalidError, match=f"at most {MAX_ID}"):
        store.create(replace(subscription(), id=f"{longest}ä"))


def test_a_long_tenant_is_refused(server):
    """A tenant that is named in metadata and cannot exist is INVALID_ARGUMENT, however long its name is."""
    with grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel, pytest.raises(grpc.RpcError) as refused:
        ServiceStub(channel).Read(
            subscriptions_pb2.ReadRequest(id="a"), timeout=10, metadata=(("turnout-tenant", "t" * 9_000),)
        )
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert len(refused.value.details()) < 300


def test_slow_clients_of_metrics_hold_few_threads(backing, settings, monkeypatch, capfd):
    """Half-open connections to the metrics port are closed in time or at once, and Prometheus is answered again."""
    monkeypatch.setattr(metrics._Handler, "timeout", 0.3)
    with subscriptions_server(backing, replace(settings, metrics_port=0)) as server, ExitStack() as clients:
        address = ("127.0.0.1", server.metrics_port)
        for client in [clients.enter_context(socket.create_connection(address, timeout=30)) for _ in range(100)]:
            read_to_end(client)
        assert b"turnout_subscriptions" in wait_for(lambda: scraped(server.metrics_port))
    assert "Traceback" not in capfd.readouterr().err
