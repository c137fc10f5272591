"""Explanations of too many matches at once."""

from __future__ import annotations

import grpc
import pytest

from tests.contracts.store import subscription
from turnout.rpc import matching
from turnout.rpc.v1 import matching_pb2
from turnout.rpc.v1.matching_pb2_grpc import MatchingStub


def test_explained_matches(server, store, monkeypatch):
    """More matches than are explained at once are RESOURCE_EXHAUSTED; without explanations they are given."""
    monkeypatch.setattr(matching, "MAX_EXPLAINED", 2)
    with grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        stub = MatchingStub(channel)
        for count in range(1, 4):
            store.create(subscription())
            request = matching_pb2.MatchRequest(metadata={"subject": "orders"}, explain=True)
            if count <= 2:
                assert all(match.explanation.holds for match in stub.Match(request, timeout=10).matches)
                continue
            with pytest.raises(grpc.RpcError, match="RESOURCE_EXHAUSTED"):
                stub.Match(request, timeout=10)
            request.explain = False
            assert len(stub.Match(request, timeout=10).matches) == count
