"""The sandbox: a record through the engine."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from starlette.testclient import TestClient


def try_it(shown: TestClient, **form: str) -> str:
    answer = shown.post("/fragments/sandbox", json={"route": "orders", **form})
    assert answer.status_code == 200, answer.text
    return answer.text


def stages(html: str) -> dict[str, str]:
    matched = re.findall(r"<h3>([\w-]+) <small>.*?</small> <span class=\"outcome [\w-]+\">([\w ]+)</span>", html)
    return dict(matched)


def test_a_record_is_shown_stage_by_stage(shown: TestClient) -> None:
    """Before and after, predicates, mapping, matching subscriptions, and messages."""
    record = {"topic": "orders.3", "value": {"city": "Oulu", "amount": "17.5"}}
    html = try_it(shown, record=json.dumps(record))

    assert stages(html) == {"no-tests": "not matched", "town": "applied", "amount": "applied"}
    assert re.search(r'<tr class="changed"><td><code>.*?city.*?</code></td><td><code>.*?town', html)
    assert "town-oulu" in html
    assert "<code>town = Oulu</code>" in html
    assert re.search(r"orders\.3</code> → <code>(shop|trial)\.3", html)


def test_a_record_of_the_source_is_tried_by_its_sequence(shown: TestClient) -> None:
    """A single stream may be left out; the page can be linked to."""
    assert stages(try_it(shown, at="1")) == {"no-tests": "dropped", "town": "skipped", "amount": "skipped"}
    assert "Outcome:" in shown.get("/sandbox?route=orders&at=ORDERS:2").text
    assert "holds no message 9999" in shown.get("/sandbox?route=orders&at=ORDERS:9999").text


def test_a_subscription_that_does_not_get_it_shows_the_leaves_to_blame(shown: TestClient) -> None:
    """Only the leaves whose opposite result would make it match."""
    record = json.dumps({"topic": "orders.3", "value": {"city": "Oulu", "amount": "17.5"}})
    html = try_it(shown, record=record, subscription="large-in-oulu")
    (blamed,) = re.findall(r'<ul class="blame">(.*?)</ul>', html, re.DOTALL)

    answer = re.sub(r"<[^>]+>", "", html.partition("</h2>")[0]).strip()
    assert answer == "No: large-in-oulu does not match this record, because of:"
    assert html.index('id="answer"') < html.index('id="outcome"')
    assert blamed.count("<li>") == 1
    assert "amount = 17.5" in blamed


@pytest.mark.parametrize(
    ("form", "problem"),
    [
        ({"record": "{"}, "is not JSON"),
        ({"record": "[]"}, "expected a JSON object"),
        ({"record": '{"topic": 1}'}, "expected a text"),
        ({"at": "OTHER:1"}, "with a stream of ORDERS, as in ORDERS:17"),
        ({"record": '{"topic": "orders.1"}', "subscription": "nobody"}, "nobody"),
    ],
)
def test_what_cannot_be_tried_says_why(shown: TestClient, form: dict[str, str], problem: str) -> None:
    """The reason is a fragment in place of the result."""
    answer = shown.post("/fragments/sandbox", json={"route": "orders", **form})

    assert answer.status_code in (404, 422)
    assert problem in answer.text
    assert answer.text.startswith('<div class="problem" role="alert">')


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
    page = shown.get("/routes/orders/records").text
    places = [page.index(f">{place}</option>") for place in ("source", "no-tests", "town", "amount", "mapped")]

    assert places == sorted(places)
    assert shown.get("/tap?route=nobody").status_code == 404
    assert "<option>orders</option>" in shown.get("/tap").text
