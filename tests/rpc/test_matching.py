"""Matching beside changes, and explanations of too many matches at once."""

from __future__ import annotations

import grpc
import pytest

from tests.contracts.linearizable import check_linearizable
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


def test_match_beside_changes(server, store):
    """A call of Match that begins after Create or Delete has returned sees it, whatever other calls do meanwhile."""
    with grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        stub = MatchingStub(channel)

        def match() -> tuple[set[str], int]:
            answer = stub.Match(matching_pb2.MatchRequest(metadata={"subject": "orders"}), timeout=30)
            return {match.subscription_id for match in answer.matches}, answer.revision

        check_linearizable(lambda id_: store.create(subscription(id=id_)), store.delete, match)
