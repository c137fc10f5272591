"""The pages of dead letters, on those that the engine has made."""

from __future__ import annotations

import json
import re
import time
from html import unescape

import pytest
from starlette.testclient import TestClient

from tests.server.conftest import Bench, route_text
from turnout.console.pages import dead_letters as pages
from turnout.engine.counts import Counts
from turnout.engine.sample_records import SampleRecord


def test_letters_are_grouped_by_stage_and_reason(shown: TestClient) -> None:
    """The largest group first; each can be looked at alone."""
    page = shown.get("/dead-letters/orders").text
    groups = re.findall(
        r'data-name="Letters"><a href="\?group=(\w+)".*?>(\d+)</a></td><td class="tight" data-name="Stage">(\w+)', page
    )
    letters = re.findall(r'<th scope="row"><a href="/dead-letters/orders/([^"]+)"', page)
    one = shown.get(f"/dead-letters/orders?group={groups[1][0]}").text

    assert {stage for _, _, stage in groups} == {"TRANSFORMATION", "VALUE_CONVERTER"}
    assert [int(count) for _, count, _ in groups] == sorted((int(count) for _, count, _ in groups), reverse=True)
    assert sum(int(count) for _, count, _ in groups) == len(letters)
    assert one.count('<th scope="row">') == int(groups[1][1])


def test_a_letter_is_shown_as_it_came(shown: TestClient) -> None:
    """Bytes that are no text as hexadecimal, with the reason beside them."""
    page = shown.get("/dead-letters/orders").text
    rows = [row for row in page.split("<tr>") if 'href="/dead-letters/orders/' in row]
    place = re.search(r"/dead-letters/orders/(\d+)", next(row for row in rows if "VALUE_CONVERTER</td>" in row))
    assert place is not None
    letter = shown.get(f"/dead-letters/orders/{place[1]}").text

    assert "00000000  00 01 ff 00 01 02" in letter
    assert "VALUE_CONVERTER" in letter
    assert shown.get("/dead-letters/orders/9999").status_code == 404
    assert shown.get("/dead-letters/orders/x").status_code == 404


@pytest.mark.parametrize(
    ("record", "origin"),
    [
        (SampleRecord("t", stream="S", offset=7), "S:7"),
        (SampleRecord("t", partition=2, offset=0), "t:2:0"),
        (SampleRecord("t", offset=None), ""),
    ],
)
def test_the_origin_of_a_letter(record: SampleRecord, origin: str) -> None:
    """A sequence of a stream, or an offset of a partition of Kafka."""
    assert pages.origin_of(record) == origin


def test_a_letter_goes_into_the_sandbox_as_the_record_that_it_was(shown: TestClient) -> None:
    """Trying it there fails as it did before."""
    page = shown.get("/dead-letters/orders").text
    link = re.search(r'href="(/sandbox\?route=orders&amp;letter=[^"]+)"', page)
    assert link is not None
    sandbox = shown.get(unescape(link[1])).text
    (written,) = re.findall(r"<textarea[^>]*>(.*?)</textarea>", sandbox, re.DOTALL)
    record = json.loads(unescape(written))

    assert record["topic"].startswith("orders.")
    assert not any(name.startswith("__connect") for name, _ in record["headers"])
    assert 'class="outcome dead_lettered"' in sandbox


def test_a_route_without_dead_letters_says_how_to_have_them(bench: Bench, console: TestClient) -> None:
    """Instead of an empty page."""
    bench.start("a")

    answer = console.get("/dead-letters/a")

    assert answer.status_code == 409
    assert "deadLetter" in answer.text


def test_a_redrive_is_tried_before_it_is_done(shown: TestClient) -> None:
    """The page shows the outcome of a group's letters; nothing is delivered."""
    form = {"stage": "TRANSFORMATION", "reason": "amount: Value (much) was out of range for requested data type"}
    answer = shown.post("/fragments/dead-letters/orders/redrive", json={**form, "dry_run": True})
    api = shown.post("/v1/routes/orders/dead-letters/redrive", json={"stage": "TRANSFORMATION"}).json()

    assert "Nothing was delivered" in answer.text
    assert re.search(r"failed</span>: \d+", answer.text)
    assert (api["dryRun"], set(api["outcomes"])) == (True, {"failed"})


def test_letters_are_listed_page_by_page_for_programs(shown: TestClient) -> None:
    """The newest first, each once; groups and single ones as well."""
    sequences: list[int] = []
    before: int | None = None
    while True:
        query = {"limit": 5} | ({} if before is None else {"before": before})
        page = shown.get("/v1/routes/orders/dead-letters", params=query).json()
        sequences += [item["sequence"] for item in page["items"]]
        before = page["cursor"]
        if before is None:
            break
    groups = shown.get("/v1/routes/orders/dead-letters/groups").json()
    one = shown.get(f"/v1/routes/orders/dead-letters/{sequences[0]}").json()

    assert sequences == sorted(set(sequences), reverse=True)
    assert sum(group["count"] for group in groups) == len(sequences) > 5
    assert one["record"]["topic"].startswith("orders.")
    assert one["record"]["stream"] == "ORDERS"


def test_groups_are_drawn_over_time(shown: TestClient) -> None:
    """A bar for each piece of the time between the first letter and the last, for each group."""
    page = shown.get("/dead-letters/orders").text
    figures = re.findall(r'<svg class="bars"[^>]*aria-label="(\d+ letters?) ', page)

    assert figures == ["13 letters", "1 letter"]
    assert page.count('class="bar"') >= 2


def test_many_groups_are_shown_page_by_page(shown: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """A link to a group stays that of the group, on whichever page it is by then."""
    monkeypatch.setattr(pages, "_GROUPS_ON_PAGE", 1)
    row = r'href="\?([^"]*group=\w+)"'
    first, second = (shown.get(f"/dead-letters/orders?groups={number}").text for number in (1, 2))
    (one,), (other,) = re.findall(row, first), re.findall(row, second)
    chosen = shown.get(f"/dead-letters/orders?{unescape(other)}").text

    assert "Page 2 of 2" in second
    assert one != other
    assert chosen.count("VALUE_CONVERTER</td>") == 2
    assert "TRANSFORMATION</td>" not in chosen
    assert 'aria-current="true"' in chosen


def test_routes_are_counted_together_and_shown_page_by_page(bench: Bench, console: TestClient) -> None:
    """Those with the most letters first; a thousand of them are one question, and not one page."""
    for number in range(60):
        bench.write(f"r{number:02}", route_text(f"r{number:02}", more="deadLetter: {topic: dead.letters}"))
    bench.routes.scan()
    bench.parts.state.add_counts("r41", Counts(read=9, dead_lettered=3, undeliverable=2), time.time())
    bench.parts.state.add_counts("r17", Counts(read=9, dead_lettered=4), time.time() - 7200)
    row = r'href="/dead-letters/(r\d+)">' + 4 * r'.*?, last (?:hour|day)">(\d+)<'

    first = re.findall(row, console.get("/dead-letters").text)
    second = re.findall(row, console.get("/dead-letters?page=2").text)

    assert first[:2] == [("r41", "3", "3", "2", "2"), ("r17", "0", "4", "0", "0")]
    assert (len(first), len(second)) == (50, 10)
    assert len({name for name, *_ in (*first, *second)}) == 60


@pytest.mark.parametrize("written", [0, 1, "no", None])
def test_a_dry_run_is_asked_for_in_so_many_words(shown: TestClient, written: object) -> None:
    """Only `false` delivers: a 0 or a text is refused as ambiguous."""
    for path in ("/v1/routes/orders/dead-letters/redrive", "/fragments/dead-letters/orders/redrive"):
        assert shown.post(path, json={"dry_run": written}).status_code == 422


@pytest.mark.parametrize("written", [[False], [True], ["1"], [1.5], [-1]])
def test_sequences_of_a_redrive_are_numbers(shown: TestClient, written: object) -> None:
    """A boolean or a text is no sequence; a whole number is, also written as JSON's 1.0."""
    path = "/v1/routes/orders/dead-letters/redrive"

    assert shown.post(path, json={"dry_run": True, "sequences": written}).status_code == 422
    assert shown.post(path, json={"dry_run": True, "sequences": [1.0]}).status_code == 200


def test_letters_are_filtered_by_a_condition(shown: TestClient) -> None:
    """Over their records, in console and REST alike; a redrive takes those that meet it, and a mistake is told."""
    every = shown.get("/v1/routes/orders/dead-letters").json()["items"]
    found = shown.get("/v1/routes/orders/dead-letters", params={"where": "value.city:Oulu"}).json()["items"]
    oulu = [one["sequence"] for one in every if '"Oulu"' in str(one["record"].get("value"))]
    page = shown.get("/dead-letters/orders", params={"where": "value.city:Oulu"}).text
    groups = shown.get("/v1/routes/orders/dead-letters/groups", params={"where": "value.city:Oulu"}).json()
    redriven = shown.post("/v1/routes/orders/dead-letters/redrive", json={"where": "value.city:Oulu"}).json()
    pressed = shown.post(
        "/fragments/dead-letters/orders/redrive", json={"where": "value.city:Oulu", "dry_run": True}
    ).text

    assert 0 < len(oulu) < len(every)
    assert [one["sequence"] for one in found] == oulu
    assert re.findall(r'<th scope="row"><a href="/dead-letters/orders/(\d+)"', page) == [str(one) for one in oulu]
    assert '<input type="hidden" name="where" value="value.city:Oulu">' in page
    assert "dead-letters?limit=1000&amp;where=value.city%3AOulu" in page
    assert sum(group["count"] for group in groups) == redriven["letters"] == len(oulu)
    assert f"Outcomes of {len(oulu)} in a dry run" in pressed
    assert shown.get("/v1/routes/orders/dead-letters?where=value.city:").status_code == 422
    assert shown.get("/dead-letters/orders?where=value.city:").status_code == 422


def test_letters_are_searched_and_have_columns_of_ones_choice(shown: TestClient) -> None:
    """In their reasons and records; links keep both, and a redrive of everything is not offered beside a search."""
    every = shown.get("/dead-letters/orders").text
    found = shown.get(
        "/dead-letters/orders", params={"q": '"city": "oulu"', "column": ["value.city", "value.<b>"]}
    ).text
    nothing = shown.get("/dead-letters/orders?q=nowhere-to-be-found").text

    assert '<input type="checkbox" name="column" value="value.city">' in every
    assert 'id="redrive"' in every
    assert '<td data-name="value.city"><code>Oulu</code></td>' in found
    assert "<code>Turku</code>" not in found
    assert "value.&lt;b&gt;" in found
    assert "<b>" not in found
    assert "&amp;q=%22city%22%3A+%22oulu%22&amp;column=value.city&amp;column=value.%3Cb%3E" in found
    assert 'id="redrive"' not in found
    assert re.search(r"<p>0 of \d+ wait", nothing)
    assert shown.get("/dead-letters/orders", params={"column": ["a"] * 21}).status_code == 422
