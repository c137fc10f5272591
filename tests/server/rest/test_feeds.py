"""Feeds over REST: pages, named readers, events, and permissions."""

from __future__ import annotations

import contextlib
import json
import urllib.request
from collections.abc import Callable, Generator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient, WebSocketDenialResponse
from starlette.websockets import WebSocketDisconnect

from tests.feeds import FedRoute
from tests.server.conftest import Bench, client_of, wait_for
from tests.server.test_serving import serving
from turnout.nats.wire import Connection
from turnout.nats.wire.streams import purge_stream
from turnout.rpc.caller import Caller, Right
from turnout.runtime.cursors import FeedCursors
from turnout.server.feeds import Feeds
from turnout.server.security import Principal
from turnout.subscriptions import open_store


@pytest.fixture
def reads(bench: Bench, client: TestClient, fed: FedRoute) -> TestClient:
    """A client of a server with that route."""
    bench.write("orders", fed.text)
    bench.routes.scan()
    return client


def test_pages_follow_each_other_by_their_cursors(reads: TestClient) -> None:
    """Each message is in one page, with the bytes of the record."""
    first = reads.get("/v1/feeds/oulu", params={"limit": 3}).json()
    second = reads.get("/v1/feeds/oulu", params={"limit": 3, "after": first["cursor"]}).json()
    third = reads.get("/v1/feeds/oulu", params={"after": second["cursor"], "route": "orders"}).json()

    assert [message["cursor"] for message in first["messages"]] == [1, 3, 5]
    assert first["messages"][0]["value"] == '{"n": 0, "city": "Oulu"}'
    assert not first["last"]
    assert [message["cursor"] for message in second["messages"]] == [7, 9]
    assert second["last"]
    assert third == {"messages": [], "cursor": 10, "last": True, "removed": 0}


def test_removed_records_are_counted(reads: TestClient, fed: FedRoute) -> None:
    """A page says how many of its records the stream no longer holds."""
    with Connection.open(fed.streams.url) as connection:
        purge_stream(connection, fed.streams.source, seq=4)
    page = reads.get("/v1/feeds/oulu").json()

    assert [message["cursor"] for message in page["messages"]] == [5, 7, 9]
    assert (page["removed"], page["cursor"], page["last"]) == (2, 10, True)


def test_a_named_reader_begins_behind_what_it_acknowledged(reads: TestClient) -> None:
    """Unacknowledged messages are read again; an older acknowledgement changes nothing."""
    page = reads.get("/v1/feeds/turku", params={"reader": "desk", "limit": 2}).json()
    again = reads.get("/v1/feeds/turku", params={"reader": "desk", "limit": 2}).json()
    acknowledged = reads.post("/v1/feeds/turku", json={"reader": "desk", "cursor": page["cursor"]})
    older = reads.post("/v1/feeds/turku", json={"reader": "desk", "cursor": 1})
    rest = reads.get("/v1/feeds/turku", params={"reader": "desk"}).json()

    assert again == page
    assert acknowledged.json() == older.json() == {"cursor": 4}
    assert [message["cursor"] for message in rest["messages"]] == [6, 8, 10]


@pytest.mark.parametrize("accept", ["application/json", "text/event-stream"])
def test_a_cursor_beyond_the_end(reads: TestClient, accept: str) -> None:
    """It waited until other messages had its position: the stream was made anew, or its server has older data."""
    answer = reads.get("/v1/feeds/oulu", params={"after": 11}, headers={"Accept": accept})
    acknowledged = reads.post("/v1/feeds/oulu", json={"reader": "desk", "cursor": 11})

    assert reads.get("/v1/feeds/oulu", params={"after": 10}).json()["messages"] == []
    assert "11 is beyond the end of" in answer.text
    assert "which ends at 10: the stream was made anew" in answer.text
    assert acknowledged.status_code == 422
    assert "begin again with 0" in acknowledged.text


def test_a_named_reader_beyond_the_end(reads: TestClient, fed: FedRoute, caplog: pytest.LogCaptureFixture) -> None:
    """It begins again, with a warning, and what it acknowledges then counts."""
    FeedCursors(fed.folder).acknowledge("oulu", "desk", 40)

    page = reads.get("/v1/feeds/oulu", params={"reader": "desk"}).json()
    acknowledged = reads.post("/v1/feeds/oulu", json={"reader": "desk", "cursor": 3}).json()
    rest = reads.get("/v1/feeds/oulu", params={"reader": "desk"}).json()

    assert [message["cursor"] for message in page["messages"]] == [1, 3, 5, 7, 9]
    assert acknowledged == {"cursor": 3}
    assert [message["cursor"] for message in rest["messages"]] == [5, 7, 9]
    assert "a feed's reader begins again in" in caplog.text
    assert "40 is beyond the end" in caplog.text


def test_events_end_with_the_subscription(reads: TestClient, fed: FedRoute) -> None:
    """A client that follows a feed gets its messages, and an event when the subscription is deleted."""
    events = []
    with reads.stream("GET", "/v1/feeds/oulu?after=5", headers={"Accept": "text/event-stream"}) as answer:
        for line in answer.iter_lines():
            events.append(line)
            if line == "id: 9":
                with open_store(fed.store_url) as store:
                    store.delete("oulu")

    assert [line for line in events if line.startswith(("id:", "event:"))] == [
        "id: 7", "event: message", "id: 9", "event: message", "event: end",
    ]  # fmt: skip
    assert reads.get("/v1/feeds/oulu").status_code == 404


def with_three_destinations(fed: FedRoute) -> list[tuple[int, str]]:
    """Give a subscription three destinations; return the messages of its feed: number of the record, topic."""
    with open_store(fed.store_url) as store:
        store.update("oulu", replace(store.read("oulu"), destinations=("a", "b", "c")))
    return [(n, topic) for n in (0, 2, 4, 6, 8) for topic in "abc"]


def read_with_cuts(
    read: Callable[[int | str], Generator[dict[str, Any]]], most: int, cursor: Callable[[dict[str, Any]], int | str]
) -> list[tuple[int, str]]:
    """Read a feed whose connection ends after *most* messages each time; the messages in their order."""
    seen: list[tuple[int, str]] = []
    after: int | str = 0
    while len(set(seen)) < 15:
        with contextlib.closing(read(after)) as messages:
            for message in islice(messages, min(most, 15 - len(seen))):
                after = cursor(message)
                seen.append((json.loads(message["value"])["n"], message["topic"]))
        assert len(seen) < 100, "no progress"
    return seen


@pytest.mark.parametrize("most", [2, 4])
def test_a_cut_between_the_messages_of_a_record_loses_none(
    reads: TestClient, fed: FedRoute, tmp_path: Path, most: int
) -> None:
    """A client that continues behind the last event's id, or a message's cursor, gets every message once."""
    expected = with_three_destinations(fed)

    def events(after: int | str) -> Generator[dict[str, Any]]:
        headers = {"Accept": "text/event-stream", **({"Last-Event-ID": f"{after}"} if after else {})}
        request = urllib.request.Request(f"{server.url}/v1/feeds/oulu", headers=headers)
        with urllib.request.urlopen(request, timeout=30) as answer:
            id_ = ""
            for line in map(bytes.decode, answer):
                if line.startswith("id: "):
                    id_ = line.removeprefix("id: ").strip()
                if line.startswith("data: "):
                    yield {**json.loads(line.removeprefix("data: ")), "event": id_}

    def sockets(after: int | str) -> Generator[dict[str, Any]]:
        with reads.websocket_connect(f"/v1/feeds/oulu?after={after}") as socket:
            while True:
                yield socket.receive_json()

    def pages(after: int | str) -> Generator[dict[str, Any]]:
        yield from reads.get("/v1/feeds/oulu", params={"after": after}).json()["messages"]

    (tmp_path / "served").mkdir()
    (tmp_path / "served" / "orders.yaml").write_text(fed.text, encoding="utf-8")
    with serving(tmp_path / "served") as server:
        assert read_with_cuts(events, most, lambda message: message["event"]) == expected
    assert read_with_cuts(sockets, most, lambda message: message["cursor"]) == expected
    assert read_with_cuts(pages, most, lambda message: message["cursor"]) == expected


@pytest.mark.parametrize(("after", "number"), [("0.1", 0), ("2.2", 2), ("3.1", 2), ("3.3", 4), ("3.9", 4), ("8.1", 8)])
def test_a_cursor_within_another_record_skips_nothing(
    reads: TestClient, fed: FedRoute, after: str, number: int
) -> None:
    """Messages are left out of the record of the cursor alone, not of the next one where the feed has not this one."""
    with_three_destinations(fed)
    messages = reads.get("/v1/feeds/oulu", params={"after": after}).json()["messages"]
    own = [message["topic"] for message in messages if json.loads(message["value"])["n"] == number]

    assert json.loads(messages[0]["value"])["n"] == number
    assert own == (["b", "c"] if after == "3.1" else ["a", "b", "c"])


@pytest.mark.parametrize("written", ["garbage", "0:1,0:2", "-1", "9" * 400])
def test_an_id_that_is_no_cursor_is_refused(reads: TestClient, written: str) -> None:
    """A Last-Event-ID that is no cursor does not begin with the oldest message."""
    answer = reads.get("/v1/feeds/oulu", headers={"Accept": "text/event-stream", "Last-Event-ID": written})

    assert answer.status_code == 422
    assert answer.json()["detail"].startswith("Last-Event-ID: expected the cursor of a message")


def test_requests_that_cannot_be_answered(reads: TestClient, bench: Bench) -> None:
    """Unknown subscriptions and routes, and a route without feeds."""
    bench.start("plain")

    assert reads.get("/v1/feeds/nobody").status_code == 404
    assert reads.get("/v1/feeds/oulu", params={"route": "none"}).status_code == 404
    assert reads.get("/v1/feeds/oulu", params={"route": "plain"}).status_code == 422
    assert reads.get("/v1/feeds/oulu", params={"limit": 0}).status_code == 422
    assert reads.post("/v1/feeds/nobody", json={"reader": "desk", "cursor": 1}).status_code == 404
    assert reads.post("/v1/feeds/oulu", json={"reader": "desk", "cursor": -1}).status_code == 422


def test_without_a_route_with_feeds_one_has_to_be_named(client: TestClient) -> None:
    """The response asks for the route's name."""
    answer = client.get("/v1/feeds/oulu")

    assert answer.status_code == 409
    assert "name the route" in answer.json()["detail"]


def test_a_websocket_resumes_behind_what_was_acknowledged(reads: TestClient, fed: FedRoute) -> None:
    """A named reader gets each message, acknowledges over the same connection, and goes on behind that."""
    with reads.websocket_connect("/v1/feeds/oulu?reader=desk&limit=2") as socket:
        cursors = [socket.receive_json()["cursor"] for _ in range(3)]
        socket.send_json({"cursor": cursors[-1]})
        assert [socket.receive_json()["cursor"] for _ in range(2)] == [7, 9]
        wait_for(lambda: reads.get("/v1/feeds/oulu", params={"reader": "desk"}).json()["messages"][0]["cursor"] == 7)
    with reads.websocket_connect("/v1/feeds/oulu?reader=desk") as socket:
        message = socket.receive_json()
        assert socket.receive_json()["cursor"] == 9
        with open_store(fed.store_url) as store:
            store.delete("oulu")
        with pytest.raises(WebSocketDisconnect) as ended:
            socket.receive_json()

    assert cursors == [1, 3, 5]
    assert message == reads_page_of(message)
    assert ended.value.code == 1000
    assert "oulu" in ended.value.reason


def reads_page_of(message: dict[str, object]) -> dict[str, object]:
    """The message of a feed as its cursor says."""
    return {**message, "cursor": 7, "value": '{"n": 6, "city": "Oulu"}'}


@pytest.mark.parametrize(
    ("path", "status"),
    [("nobody", 404), ("oulu?route=none", 404)],
)
def test_a_websocket_that_is_refused(reads: TestClient, path: str, status: int) -> None:
    """The answer is the problem that a request would get."""
    with pytest.raises(WebSocketDenialResponse) as refused, reads.websocket_connect(f"/v1/feeds/{path}"):
        pass
    assert refused.value.status_code == status
    assert refused.value.json()["status"] == status


def test_too_many_websockets(bench: Bench, fed: FedRoute) -> None:
    """One more is refused with 429 and a time, and the end of one makes room."""
    bench.parts = replace(bench.parts, feeds=Feeds(max_followers=1))
    bench.write("orders", fed.text)
    bench.routes.scan()
    reads = client_of(bench)
    with reads.websocket_connect("/v1/feeds/oulu") as socket:
        assert socket.receive_json()["cursor"] == 1
        with pytest.raises(WebSocketDenialResponse) as refused, reads.websocket_connect("/v1/feeds/turku"):
            pass
    with reads.websocket_connect("/v1/feeds/turku") as socket:
        assert socket.receive_json()["cursor"] == 2

    assert refused.value.status_code == 429
    assert refused.value.headers["retry-after"] == "5"


@pytest.mark.parametrize("text", ["[", "[1]", '{"cursor": -1}', '{"cursor": 5}'])
def test_what_is_no_acknowledgement_ends_a_websocket(reads: TestClient, text: str) -> None:
    """So does one without a named reader."""
    query = "" if text == '{"cursor": 5}' else "&reader=desk"
    with reads.websocket_connect(f"/v1/feeds/oulu?after=9{query}") as socket:
        socket.send_text(text)
        with pytest.raises(WebSocketDisconnect) as ended:
            socket.receive_json()
    assert ended.value.code == 1008


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        ({"Authorization": "Bearer wrong"}, 401),
        ({"Authorization": "Bearer w", "Origin": "https://elsewhere.example"}, 403),
        ({"Authorization": "Bearer w", "Host": "elsewhere.example"}, 421),
        ({"Authorization": "Bearer none"}, 403),
        ({"Authorization": "Bearer w"}, None),
        ({"Authorization": "Bearer w", "Origin": "http://testserver"}, None),
    ],
)
def test_who_may_open_a_websocket(bench: Bench, fed: FedRoute, headers: dict[str, str], status: int | None) -> None:
    """A token with the right to read, from a page of this server alone."""
    bench.write("orders", fed.text)
    bench.routes.scan()
    client = client_of(bench, authenticator=Bearers(), hosts={"testserver"})
    if status is None:
        with client.websocket_connect("/v1/feeds/oulu", headers=headers) as socket:
            assert socket.receive_json()["cursor"] == 1
        return
    with pytest.raises(WebSocketDenialResponse) as refused, client.websocket_connect("/v1/feeds/oulu", headers=headers):
        pass
    assert refused.value.status_code == status


class Bearers:
    """Knows one token with all rights and one without any."""

    def principal(self, token: str | None) -> Principal | None:
        rights = {"w": frozenset(Right), "none": frozenset[Right]()}.get(token or "")
        return None if rights is None else Principal("somebody", Caller(rights=rights))
