"""Many calls at once, the end of the server among them, large responses, and calls that have no answer."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import replace

import grpc
import pytest
from google.protobuf.struct_pb2 import Struct
from grpc_health.v1 import health_pb2
from grpc_health.v1.health_pb2_grpc import HealthStub

from tests.contracts.store import subscription
from turnout.conditions import kiwi
from turnout.rpc.caller import MAX_RESPONSE_KEY
from turnout.rpc.server import subscriptions_server
from turnout.rpc.v1 import matching_pb2
from turnout.rpc.v1 import subscriptions_pb2 as pb
from turnout.rpc.v1.matching_pb2_grpc import MatchingStub
from turnout.rpc.v1.subscriptions_pb2_grpc import ServiceStub

MESSAGE = matching_pb2.MatchRequest(metadata={"subject": "orders"})


def outcomes(port: int, connections: int, calls: int, then=lambda: None) -> Counter[str]:
    """Statuses of *calls* that are all under way at once; those that the library made have its words."""
    # A pool of its own: channels to one address would share a connection.
    options = [("grpc.use_local_subchannel_pool", 1), ("grpc.enable_retries", 0)]
    channels = [grpc.insecure_channel(f"127.0.0.1:{port}", options=options) for _ in range(connections)]
    try:
        for channel in channels:
            grpc.channel_ready_future(channel).result(30)
        stubs = [MatchingStub(channel) for channel in channels]
        futures = [stubs[number % connections].Match.future(MESSAGE, timeout=120) for number in range(calls)]
        then()
        counts: Counter[str] = Counter()
        for future in futures:
            error = future.exception()
            counts["OK" if error is None else f"{error.code().name}: {error.details()}"] += 1
        return counts
    finally:
        for channel in channels:
            channel.close()


@pytest.mark.parametrize("connections", [1, 20])
def test_calls_at_once_are_answered_or_refused(backing, settings, connections):
    """5,000 calls at once are answered, or refused with RESOURCE_EXHAUSTED; none is cut off."""
    with subscriptions_server(backing, replace(settings, max_calls=200)) as server:
        counts = outcomes(server.port, connections, 5_000)

    assert counts.total() == 5_000
    assert {text.partition(":")[0] for text in counts} <= {"OK", "RESOURCE_EXHAUSTED"}
    assert counts["OK"] >= 200


@pytest.mark.parametrize("connections", [1, 20])
def test_calls_at_the_end_are_answered_or_told(backing, settings, connections):
    """A server that stops answers what it has accepted, and says to the others that it stops."""
    server = subscriptions_server(backing, replace(settings, grace_seconds=60.0)).start()
    stopping = threading.Thread(target=server.stop)
    try:
        counts = outcomes(server.port, connections, 2_000, stopping.start)
    finally:
        stopping.join(90)

    refusal = "UNAVAILABLE: the server is shutting down: call another one, or try again"
    assert counts["OK"] + counts[refusal] == 2_000, counts


def test_a_response_that_is_too_large_says_so(server, backing):
    """A match of more than a client takes is RESOURCE_EXHAUSTED with both sizes; a client that takes more gets it."""
    backing.create_many(subscription(id=f"{number}{'x' * 1_000}") for number in range(4_500))
    with grpc.insecure_channel(
        f"127.0.0.1:{server.port}", options=[("grpc.max_receive_message_length", -1)]
    ) as channel:
        stub = MatchingStub(channel)
        with pytest.raises(grpc.RpcError, match=r"the response has 4,[0-9,]+ bytes, and this client takes 4,194,304"):
            stub.Match(MESSAGE, timeout=60)
        matches = stub.Match(MESSAGE, timeout=60, metadata=[(MAX_RESPONSE_KEY, str(64 << 20))]).matches

    assert len(matches) == 4_500


def test_pages_end_where_a_client_has_no_more_room(server, backing):
    """A page of large subscriptions is shorter than asked for, and its cursor continues it."""
    backing.create_many(
        subscription(id=f"{number:03}", metadata={"k": "v", "large": "x" * 60_000}) for number in range(200)
    )
    with grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        stub = ServiceStub(channel)
        by_metadata, by_condition = [], []
        cursor = None
        while cursor != "":
            page = stub.SearchByMetadata(
                pb.SearchByMetadataRequest(metadata={"k": "v"}, limit=1_000, cursor=cursor or ""), timeout=60
            )
            by_metadata += [found.id for found in page.page]
            cursor = page.cursor
        cursor = None
        query = pb.KiwiConditionQuery(key="subject", pattern="orders*")
        while cursor != "":
            found = stub.SearchByCondition(
                pb.SearchByConditionRequest(kiwiConditionQuery=query, limit=1_000, cursor=cursor or ""), timeout=60
            )
            by_condition += [match.subscriptionId for match in found.page]
            cursor = found.cursor

    assert by_metadata == by_condition == [f"{number:03}" for number in range(200)]


def test_health_of_all_services(server):
    """Health.List has the state of every service."""
    with grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        statuses = HealthStub(channel).List(health_pb2.HealthListRequest(), timeout=10).statuses

    assert {name: state.status for name, state in statuses.items()} == dict.fromkeys(
        ["", "subscriptions.Service", "turnout.subscriptions.v1.Matching", "turnout.subscriptions.v1.Storage"],
        health_pb2.HealthCheckResponse.SERVING,
    )


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_numbers_that_json_does_not_have(server, store, number):
    """NaN and infinities in settings are INVALID_ARGUMENT and name the field."""
    delivery = Struct()
    delivery["rate"] = number
    id_ = store.create(subscription(condition=kiwi("a", "b")))
    with grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        stub = ServiceStub(channel)
        data = stub.Read(pb.ReadRequest(id=id_), timeout=10)
        data.delivery.CopyFrom(delivery)
        with pytest.raises(grpc.RpcError, match="INVALID_ARGUMENT") as refused:
            stub.Update(pb.UpdateRequest(id=id_, data=data), timeout=10)

    assert "delivery" in refused.value.details()
