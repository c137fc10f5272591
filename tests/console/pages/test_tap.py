"""Watching records as they come."""

from __future__ import annotations

import json
from typing import Any

import pytest
from starlette.testclient import TestClient


def events(shown: TestClient, count: int, **query: Any) -> list[tuple[str, Any]]:
    """The first events of a tap, by kind."""
    received: list[tuple[str, Any]] = []
    kind = ""
    with shown.stream("GET", "/v1/tap/orders", params=query) as answer:
        assert answer.status_code == 200
        for line in answer.iter_lines():
            name, _, text = line.partition(": ")
            if name == "event":
                kind = text
            elif name == "data":
                received.append((kind, json.loads(text)))
                if len(received) == count:
                    return received
    return received


def test_records_are_told_before_and_after_a_stage(shown: TestClient) -> None:
    """Those that meet the condition there, from a sequence on."""
    received = events(shown, 3, stage="town", where="topic:orders.3", start=1, rate=50)

    assert [kind for kind, _ in received] == ["record"] * 3
    first = received[0][1]
    assert [one["before"]["topic"] for _, one in received] == ["orders.3"] * 3
    assert first["stage"] == "town"
    assert "city" in first["before"]["value"]
    assert "town" in first["after"]["value"]


@pytest.mark.parametrize("start", ["earliest", '{"ORDERS": 1}', " 1 ", "2020-01-01T00:00:00Z"])
def test_a_tap_begins_at_a_place(shown: TestClient, start: str) -> None:
    """A word, a sequence for each stream, a number or a time."""
    ((_, record),) = events(shown, 1, stage="source", start=start, rate=50)

    assert record["sequence"] == 1


def test_deliveries_are_matched_with_the_index_that_the_server_keeps(
    shown: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store may hold a million subscriptions: opening a tap must not read them all."""

    def read_whole_store(*_: object) -> None:
        raise AssertionError("the tap built an index of its own")

    monkeypatch.setattr("turnout.history.tap._index", read_whole_store)

    received = events(shown, 20, start=1, rate=50)

    assert any(message["subscription"] for _, record in received for message in record["messages"])


def test_what_cannot_be_watched_is_refused(shown: TestClient) -> None:
    """Before anything is sent: an unknown place, a condition that cannot be read, a route that is not there."""
    assert shown.get("/v1/tap/orders", params={"stage": "nowhere"}).status_code == 422
    assert shown.get("/v1/tap/orders", params={"where": "a:"}).status_code == 422
    for start in ("soon", "-1", "1.5", '{"ORDERS": [1]}', "1" + "0" * 30, "[" * 5000):
        assert shown.get("/v1/tap/orders", params={"start": start}).status_code == 422, start
    assert shown.get("/v1/tap/nobody").status_code == 404


def test_the_page_names_the_places_of_a_route(shown: TestClient) -> None:
    """In their order."""
    page = shown.get("/tap?route=orders").text
    places = [page.index(f">{place}</option>") for place in ("source", "no-tests", "town", "amount", "mapped")]

    assert places == sorted(places)
    assert shown.get("/tap?route=nobody").status_code == 404
