"""Bulks that are too long, and warnings about what is stored."""

from __future__ import annotations

import grpc
import pytest
from google.protobuf import json_format

from tests.contracts.store import subscription
from turnout.errors import StoreUnavailableError
from turnout.rpc import storage
from turnout.rpc.v1 import matching_pb2 as pb
from turnout.rpc.v1 import subscriptions_pb2 as subscriptions
from turnout.rpc.v1.matching_pb2_grpc import StorageStub
from turnout.rpc.v1.subscriptions_pb2_grpc import ServiceStub


@pytest.mark.parametrize("bound", ["MAX_BULK", "MAX_BULK_BYTES"])
def test_bulks(store, monkeypatch, bound):
    """A bulk that is too long to be held is RESOURCE_EXHAUSTED, and nothing of it is stored."""
    monkeypatch.setattr(storage, bound, 3)
    with pytest.raises(StoreUnavailableError, match="RESOURCE_EXHAUSTED: a bulk has at most"):
        store.create_many(subscription() for _ in range(4))
    assert len(store.snapshot()) == 0


def test_bulks_of_ids(store, monkeypatch):
    """A bulk of too many ids is RESOURCE_EXHAUSTED, and none of them is deleted."""
    ids = store.create_many(subscription() for _ in range(4))
    monkeypatch.setattr(storage, "MAX_BULK", 3)
    with pytest.raises(StoreUnavailableError, match="RESOURCE_EXHAUSTED: a bulk has at most 3 ids"):
        store.delete_many(ids)
    store.delete_many(ids[:3])

    assert len(store.snapshot()) == 1


def test_lines_that_are_no_utf8(server, backing):
    """A line of other bytes is the caller's mistake, with its number; nothing is stored."""
    good = b'{"route": {"destinations": ["d"], "condition": {"existsCondition": {"key": "k"}}}}'
    sent = [pb.CreateLinesRequest(lines=good + b'\n{"id":"\xff"}\n').SerializeToString()]
    with grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        create = channel.stream_unary("/turnout.subscriptions.v1.Storage/CreateLines")
        with pytest.raises(grpc.RpcError, match="INVALID_ARGUMENT") as refused:
            create(iter(sent), timeout=10)

    assert "line 2" in refused.value.details()
    assert backing.revision() == 0


def test_leftovers_of_other_query_languages(server):
    """Protobuf has no quotes that would say they are meant: every call that stores has a warning, as REST's answers."""
    condition = '"condition": {"kiwiTreeCondition": {"key": "price", "pattern": ">10"}}'
    body = json_format.Parse(
        f'{{"route": {{"destinations": ["d"], {condition}}}}}', subscriptions.SubscriptionDataInput()
    )
    with grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        service, bulks = ServiceStub(channel), StorageStub(channel)
        created = service.Create.with_call(body, timeout=10)
        data = service.Read(subscriptions.ReadRequest(id=created[0].id))
        whole = subscriptions.Subscription(id="b", data=data)
        leaf = b'{"kiwiCondition": {"key": "-a", "pattern": "b"}}'
        lines = b'{"id": "c", "route": {"destinations": ["d"], "condition": %s}}' % leaf
        calls = {
            "create": created,
            "update": service.Update.with_call(subscriptions.UpdateRequest(id=created[0].id, data=data), timeout=10),
            "many": bulks.CreateMany.with_call(iter([whole]), timeout=10),
            "lines": bulks.CreateLines.with_call(iter([pb.CreateLinesRequest(lines=lines)]), timeout=10),
        }

    warnings = {name: dict(call.trailing_metadata()).get("turnout-warning", "") for name, (_, call) in calls.items()}
    assert "write price>10" in warnings["create"]
    assert warnings["create"] == warnings["update"] == warnings["many"]
    assert "'-' is part of the key; a negation is written NOT" in warnings["lines"]
