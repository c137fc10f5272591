"""Bulks that are too long."""

from __future__ import annotations

import grpc
import pytest

from tests.contracts.store import subscription
from turnout.errors import StoreUnavailableError
from turnout.rpc import storage
from turnout.rpc.v1 import matching_pb2 as pb


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
