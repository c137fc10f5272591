"""Feeds over gRPC: the pages, readers, permissions and limits of REST, over a server on loopback."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice
from typing import Any

import grpc
import pytest
from starlette.testclient import TestClient

from tests.feeds import FedRoute
from tests.server.conftest import Bench, client_of, wait_for
from turnout.rpc import feeds
from turnout.rpc.caller import Caller, Right
from turnout.rpc.server import RpcServer, subscriptions_server
from turnout.rpc.settings import ServerSettings
from turnout.rpc.tokens import AcceptedToken, Sha256
from turnout.rpc.v1 import feeds_pb2 as pb
from turnout.rpc.v1.feeds_pb2_grpc import FeedsStub
from turnout.server.feeds import Feeds
from turnout.server.grpc import FeedCalls
from turnout.subscriptions import Subscription, open_store

SETTINGS = ServerSettings(host="127.0.0.1", port=0, grace_seconds=2.0, log_level="error")
TOKENS = tuple(
    AcceptedToken(Sha256.of(name), caller)
    for name, caller in {
        "root": Caller(),
        "acme": Caller("acme", frozenset({Right.READ})),
        "matcher": Caller(rights=frozenset({Right.MATCH})),
    }.items()
)
Read = Callable[..., list[pb.ReadResponse]]


@pytest.fixture
def calls(bench: Bench, fed: FedRoute) -> FeedCalls:
    """Access to the feeds of a server with that route."""
    bench.write("orders", fed.text)
    bench.routes.scan()
    return FeedCalls(bench.parts)


@pytest.fixture
def server(bench: Bench, calls: FeedCalls) -> Iterator[RpcServer]:
    with subscriptions_server(bench.store, replace(SETTINGS, tokens=TOKENS), feeds=calls) as server:
        yield server


@pytest.fixture
def stub(server: RpcServer) -> Iterator[FeedsStub]:
    with grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        yield FeedsStub(channel)


@pytest.fixture
def read(stub: FeedsStub) -> Read:
    """Read a feed to its present end, with further requests after the first."""

    def all_of(id_: str, *more: pb.ReadRequest, token: str = "root", **start: Any) -> list[pb.ReadResponse]:
        requests = [pb.ReadRequest(start=pb.Start(subscription_id=id_, **start)), *more]
        return list(stub.Read(iter(requests), timeout=30, metadata=_bearer(token)))

    return all_of


def _bearer(token: str) -> list[tuple[str, str]]:
    return [("authorization", f"Bearer {token}")]


def acknowledgement(cursor: str) -> pb.ReadRequest:
    return pb.ReadRequest(ack=pb.Acknowledgement(cursor=cursor))


def cursors(responses: list[pb.ReadResponse]) -> list[list[str]]:
    return [[message.cursor for message in response.messages] for response in responses]


def test_pages_have_the_messages_of_rest(read: Read, bench: Bench) -> None:
    """Every field is REST's, page by page, and the last response says that it is the last."""
    responses = read("oulu", limit=3)
    expected = client_of(bench).get("/v1/feeds/oulu").json()["messages"]
    messages = [message for response in responses for message in response.messages]

    assert cursors(responses) == [["1", "3", "5"], ["7", "9"]]
    assert [(response.cursor, response.last) for response in responses] == [("5", False), ("10", True)]
    assert [(m.topic, m.id, m.value.decode(), m.HasField("key")) for m in messages] == [
        (m["topic"], m["id"], m["value"], m["key"] is not None) for m in expected
    ]
    assert [[(header.name, header.value.decode()) for header in m.headers] for m in messages] == [
        [tuple(pair) for pair in m["headers"]] for m in expected
    ]
    assert cursors(read("oulu", after="5", route="orders")) == [["7", "9"]]
    assert read("oulu", after="9")[0] == pb.ReadResponse(cursor="10", last=True)


def test_a_named_reader_continues_behind_what_it_acknowledged(read: Read, bench: Bench) -> None:
    """The position is the one of REST's reader of that name."""
    first = read("turku", acknowledgement("4"), acknowledgement("2"), reader="desk", limit=2)
    again = read("turku", reader="desk")
    rest = client_of(bench).get("/v1/feeds/turku", params={"reader": "desk"}).json()

    assert cursors(first) == [["2", "4"], ["6", "8"], ["10"]]
    assert cursors(again) == [["6", "8", "10"]]
    assert [message["cursor"] for message in rest["messages"]] == [6, 8, 10]


def test_a_followed_feed_ends_with_its_subscription(stub: FeedsStub, fed: FedRoute, bench: Bench) -> None:
    """Messages arrive as their micro-batches are committed, acknowledgements while the call is open."""
    requests: queue.SimpleQueue[pb.ReadRequest | None] = queue.SimpleQueue()
    requests.put(pb.ReadRequest(start=pb.Start(subscription_id="oulu", reader="desk", limit=4, follow=True)))
    responses = stub.Read(iter(requests.get, None), timeout=60, metadata=_bearer("root"))
    seen = [next(responses), next(responses)]
    requests.put(acknowledgement("7"))
    desk = client_of(bench)
    wait_for(lambda: desk.get("/v1/feeds/oulu?reader=desk").json()["messages"][0]["cursor"] == 9)
    with open_store(fed.store_url) as store:
        store.delete("oulu")
    with pytest.raises(grpc.RpcError) as ended:
        list(responses)
    requests.put(None)

    assert cursors(seen) == [["1", "3", "5", "7"], ["9"]]
    assert ended.value.code() is grpc.StatusCode.NOT_FOUND
    assert "oulu" in ended.value.details()


@pytest.mark.parametrize("most", [1, 2])
def test_a_cut_between_the_messages_of_a_record(
    stub: FeedsStub, fed: FedRoute, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    """A client that continues behind a message's cursor, or a response's, gets every message of a record once."""
    monkeypatch.setattr(feeds, "_MAX_BYTES", 1)
    with open_store(fed.store_url) as store:
        store.update("oulu", replace(store.read("oulu"), destinations=("a", "b", "c")))
    seen: list[tuple[str, bytes]] = []
    after = ""
    while len(seen) < 15:
        start = pb.ReadRequest(start=pb.Start(subscription_id="oulu", after=after, follow=True))
        call = stub.Read(iter([start]), timeout=30, metadata=_bearer("root"))
        for response in islice(call, min(most, 15 - len(seen))):
            seen += [(message.topic, message.value) for message in response.messages]
            after = response.cursor
        call.cancel()

    assert [topic for topic, _ in seen] == ["a", "b", "c"] * 5
    assert len(set(seen)) == 15


def test_quiet_followers_get_the_cursor(stub: FeedsStub, monkeypatch: pytest.MonkeyPatch) -> None:
    """A response without messages after a quiet time; the call ends when its client cancels."""
    monkeypatch.setattr(feeds, "_QUIET_SECONDS", 0.0)
    start = pb.ReadRequest(start=pb.Start(subscription_id="oulu", after="9", follow=True))
    responses = stub.Read(iter([start]), timeout=60, metadata=_bearer("root"))

    assert [next(responses) for _ in range(3)] == [pb.ReadResponse(cursor="10", last=True)] * 3
    responses.cancel()


@pytest.mark.parametrize(
    ("requests", "code", "text"),
    [
        ([], "INVALID_ARGUMENT", "the first request of a call has start"),
        ([acknowledgement("1")], "INVALID_ARGUMENT", "the first request of a call has start"),
        ([pb.Start(subscription_id="nobody")], "NOT_FOUND", "nobody"),
        ([pb.Start(subscription_id="oulu", route="none")], "NOT_FOUND", "no route is named 'none'"),
        ([pb.Start(subscription_id="oulu", route="plain")], "INVALID_ARGUMENT", "feeds: true"),
        ([pb.Start(subscription_id="oulu", limit=1001)], "INVALID_ARGUMENT", "1001 records"),
        ([pb.Start(subscription_id="oulu", after="x")], "INVALID_ARGUMENT", "expected the cursor of a message"),
        ([pb.Start(subscription_id="oulu", reader="x" * 129)], "INVALID_ARGUMENT", "129 characters"),
        ([pb.Start(subscription_id="oulu", follow=True), acknowledgement("1")], "INVALID_ARGUMENT", "ack: expected"),
        (
            [pb.Start(subscription_id="oulu", reader="desk"), acknowledgement("-1")],
            "INVALID_ARGUMENT",
            "found '-1'",
        ),
        (
            [pb.Start(subscription_id="oulu", reader="desk"), pb.Start(subscription_id="turku")],
            "INVALID_ARGUMENT",
            "only the first request",
        ),
    ],
)
def test_calls_that_cannot_be_answered(
    stub: FeedsStub, bench: Bench, requests: list[pb.Start | pb.ReadRequest], code: str, text: str
) -> None:
    """The status and a text that names the value."""
    bench.start("plain")
    sent = [pb.ReadRequest(start=one) if isinstance(one, pb.Start) else one for one in requests]
    with pytest.raises(grpc.RpcError) as refused:
        list(stub.Read(iter(sent), timeout=30, metadata=_bearer("root")))

    assert refused.value.code().name == code
    assert text in refused.value.details()


def test_a_tenant_reads_its_own_feeds(read: Read, fed: FedRoute) -> None:
    """Others' subscriptions do not exist for it, and reading is a right."""
    with open_store(fed.store_url) as store:
        store.create(Subscription(["feed:"], "city:Oulu", id="@acme/mine"))

    assert cursors(read("mine", token="acme")) == [[]]
    for id_, token, code in (
        ("oulu", "acme", "NOT_FOUND"),
        ("oulu", "matcher", "PERMISSION_DENIED"),
        ("oulu", "unknown", "UNAUTHENTICATED"),
    ):
        with pytest.raises(grpc.RpcError) as refused:
            read(id_, token=token)
        assert refused.value.code().name == code


def test_followers_are_limited_with_those_of_rest(bench: Bench, calls: FeedCalls) -> None:
    """One more is refused with REST's text and time; a call that only reads pages is not."""
    calls.parts = bench.parts = replace(bench.parts, feeds=Feeds(max_followers=1))
    client: TestClient = client_of(bench)
    start = pb.Start(subscription_id="oulu", follow=True)
    with (
        subscriptions_server(bench.store, SETTINGS, feeds=calls) as server,
        grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel,
    ):
        stub = FeedsStub(channel)
        with client.websocket_connect("/v1/feeds/oulu") as socket:
            assert socket.receive_json()["cursor"] == 1
            with pytest.raises(grpc.RpcError) as refused:
                list(stub.Read(iter([pb.ReadRequest(start=start)]), timeout=30))
            start.follow = False
            assert len(list(stub.Read(iter([pb.ReadRequest(start=start)]), timeout=30))) == 1

    assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert refused.value.details() == "too many feeds are followed already: try again later"
    assert ("grpc-retry-pushback-ms", "5000") in refused.value.trailing_metadata()


def test_large_pages_come_in_parts_between_records(read: Read, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each part has a cursor of its own to continue from, and only the end of the feed is last."""
    monkeypatch.setattr(feeds, "_MAX_BYTES", 1)
    responses = read("oulu")

    assert cursors(responses) == [["1"], ["3"], ["5"], ["7"], ["9"]]
    assert [response.cursor for response in responses] == ["1", "3", "5", "7", "10"]
    assert [response.last for response in responses] == [False, False, False, False, True]


def test_calls_while_the_server_starts(bench: Bench) -> None:
    """The status says that a retry helps, with a time."""
    with (
        subscriptions_server(bench.store, SETTINGS, feeds=FeedCalls()) as server,
        grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel,
        pytest.raises(grpc.RpcError) as refused,
    ):
        list(FeedsStub(channel).Read(iter([pb.ReadRequest(start=pb.Start(subscription_id="x"))]), timeout=30))

    assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
    assert ("grpc-retry-pushback-ms", "1000") in refused.value.trailing_metadata()
