"""Limits of a connection of the gRPC service: time for its handshake, number of connections, and long texts."""

from __future__ import annotations

import socket
from contextlib import ExitStack
from dataclasses import replace

import grpc
import pytest

from tests.contracts.store import subscription
from tests.rpc.sockets import read_to_end
from turnout.errors import SubscriptionInvalidError
from turnout.rpc.client import Channel
from turnout.rpc.remote_store import RemoteStore
from turnout.rpc.server import subscriptions_server
from turnout.rpc.v1 import subscriptions_pb2
from turnout.rpc.v1.matching_pb2 import PastRequest
from turnout.rpc.v1.matching_pb2_grpc import StorageStub
from turnout.rpc.v1.subscriptions_pb2_grpc import ServiceStub
from turnout.subscriptions.validation import MAX_ID


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
