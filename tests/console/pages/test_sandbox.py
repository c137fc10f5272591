"""The sandbox: a record through the engine."""

from __future__ import annotations

import json
import re

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

    assert "It does not match this record" in html
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
