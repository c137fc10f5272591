"""Feeds over REST: pages, named readers, events, and permissions."""

from __future__ import annotations

import pytest
from starlette.testclient import TestClient

from tests.feeds import FedRoute
from tests.server.conftest import Bench
from turnout.subscriptions import open_store


@pytest.fixture
def reads(bench: Bench, client: TestClient, fed: FedRoute) -> TestClient:
    """A client of a server with that route."""
    bench.write("orders", fed.text)
    bench.routes.look()
    return client


def test_pages_follow_each_other_by_their_cursors(reads: TestClient) -> None:
    """Each message is in one page, with the bytes of the record."""
    first = reads.get("/v1/feeds/oulu", params={"limit": 3}).json()
    second = reads.get("/v1/feeds/oulu", params={"limit": 3, "after": first["cursor"]}).json()
    third = reads.get("/v1/feeds/oulu", params={"after": second["cursor"], "route": "orders"}).json()

    assert [message["cursor"] for message in first["messages"]] == [1, 3, 5]
    assert first["messages"][0]["value"] == '{"n":0,"city":"Oulu"}'
    assert not first["last"]
    assert [message["cursor"] for message in second["messages"]] == [7, 9]
    assert second["last"]
    assert third == {"messages": [], "cursor": 10, "last": True}


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
