"""Text of others in a real browser: it reverses nothing but itself, and pushes no column off the page."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import quote

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By

from tests.console.browser import MISSING, chromium, fill, text_of, until
from tests.server.conftest import wait_for
from turnout.conditions import parse
from turnout.nats.wire import Connection, ConnectionOptions, Publisher
from turnout.rpc.caller import Caller
from turnout.server.sandbox import newest
from turnout.server.serving import RouteServer
from turnout.subscriptions import Subscription

pytestmark = pytest.mark.skipif(chromium() is None, reason=MISSING)

REVERSING = "\u202eREVERSED"
LONG = "n" * 200

_REASON = "__connect.errors.exception.message"

LEAKS = """
const isolates = (one) => /isolate|plaintext/.test(getComputedStyle(one).unicodeBidi);
const leaks = [];
const nodes = document.createTreeWalker(document.querySelector('main'), NodeFilter.SHOW_TEXT);
let seen = 0;
for (let node = nodes.nextNode(); node; node = nodes.nextNode()) {
  const at = node.data.lastIndexOf(arguments[0]);
  // A field and a text in a drawing are paragraphs of their own.
  if (at < 0 || !node.parentElement.checkVisibility() || node.parentElement.closest('textarea, svg')) continue;
  seen += 1;
  let box = node.parentElement;
  while (!isolates(box)) box = box.parentElement;
  const rest = document.createRange();
  rest.setStart(node, at + arguments[0].length);
  rest.setEnd(box, box.childNodes.length);
  // A line of a program's text is the text of others as a whole.
  if (!box.closest('code, pre') && rest.toString().trim()) leaks.push(box.outerHTML.slice(0, 300));
}
return [seen, leaks];
"""
"""Counts reversing texts, and returns the elements in which one is followed by text that it could reverse."""


@dataclass(frozen=True)
class Foreign:
    """Pages with text of others."""

    server: RouteServer
    letter: int
    reversing: str = f"id {REVERSING}"

    @property
    def pages(self) -> tuple[str, ...]:
        route, subscription = f"/routes/{LONG}", f"/subscriptions/{quote(self.reversing, safe='')}"
        return (
            "/subscriptions",
            subscription,
            "/dead-letters/orders",
            f"/dead-letters/orders/{self.letter}",
            f"{route}/file",
        )


@pytest.fixture(scope="module")
def foreign(server: RouteServer) -> Iterator[Foreign]:
    """A subscription, a dead letter and a route with reversing and with long texts, for as long as these tests last."""
    assert server.parts.subscriptions is not None
    service = server.parts.subscriptions.service(Caller())
    source = server.routes.entry("orders").file.text.partition("source: ")[2].partition("\n")[0]
    text = (
        f"name: {LONG}\nsource: {source}\nsink: {source.replace(', stream: ORDERS', '')}\ntransforms:\n"
        f'  - {{name: "t{REVERSING}", type: Filter, predicate: {{type: HasHeaderKey, name: "h{REVERSING}"}}}}\n'
    )
    for id_ in (Foreign.reversing, LONG):
        condition = parse(f'town:"{id_}" OR "{id_}":a')
        service.create(Subscription((f"deliver.{id_.replace(' ', '')}",), condition, {id_: id_}, id_))
    server.parts.subscriptions.changed()
    server.routes.put(LONG, text, who=REVERSING)
    with dead_letter(server) as sequence:
        yield Foreign(server, sequence)
    server.routes.delete(LONG, who="test")
    for id_ in (Foreign.reversing, LONG):
        service.delete(id_)
    server.parts.subscriptions.changed()


@contextmanager
def dead_letter(server: RouteServer) -> Iterator[int]:
    """A letter like another one of the route, with a reversing and long reason; its sequence."""
    version = server.routes.entry("orders").version
    assert version is not None
    letter = newest(version.route)[0]
    reason = f"{LONG} {REVERSING}".encode()
    headers = [(name, reason if name == _REASON else value or b"") for name, value in letter.raw]
    with Connection.open(ConnectionOptions.from_mapping(version.route.source.options())) as connection:
        publisher = Publisher(connection)
        publisher.publish("dead.orders", letter.record.value or b"", headers)
        publisher.flush()
        sequence = newest(version.route)[0].sequence
        yield sequence
        connection.request("$JS.API.STREAM.MSG.DELETE.DEAD", json.dumps({"seq": sequence}).encode())


def test_a_text_reverses_nothing_but_itself(foreign: Foreign, driver: webdriver.Chrome) -> None:
    """No text follows it up to the end of its isolating element: in lists, on pages, and in an explanation."""
    for page in foreign.pages:
        driver.get(foreign.server.url + page)
        seen, leaks = driver.execute_script(LEAKS, REVERSING)

        assert seen > 0, page
        assert leaks == [], page

    record = {"topic": "orders.1", "value": {"city": REVERSING}, "headers": {"Other": REVERSING}}
    driver.get(f"{foreign.server.url}/sandbox?route=orders")
    fill(driver, "#record", json.dumps(record))
    fill(driver, "#subscription", Foreign.reversing)
    driver.find_element(By.CSS_SELECTOR, "form[data-fragment='#explanation'] button").click()
    until(driver, lambda _: text_of(driver, "#explanation .asked"))
    seen, leaks = driver.execute_script(LEAKS, REVERSING)

    assert seen > 3
    assert leaks == []


@pytest.mark.parametrize("width", [1280, 1100, 375])
def test_long_names_push_nothing_off_the_page(foreign: Foreign, driver: webdriver.Chrome, width: int) -> None:
    """Names of 200 letters without a space are broken; no list needs to be scrolled for its last column."""
    wait_for(lambda: foreign.server.routes.entry(LONG).supervisor)
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 700}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    more = (
        "/",
        "/dead-letters",
        f"/subscriptions/{LONG}",
        f"/sandbox?route={LONG}",
        f"/routes/{LONG}",
        f"/routes/{LONG}/records",
        f"/routes/{LONG}/revisions",
    )
    try:
        for page in (*foreign.pages, *more):
            driver.get(foreign.server.url + page)
            wide = driver.execute_script("return document.documentElement.scrollWidth")
            lists = driver.execute_script(
                "return [...document.querySelectorAll('.scroll:has(> .list)')]"
                ".map((one) => one.scrollWidth - one.clientWidth)"
            )

            assert wide <= width, page
            assert max(lists, default=0) <= 0, page
    finally:
        driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_a_record_that_is_too_large_is_refused_in_a_sentence(server: RouteServer, driver: webdriver.Chrome) -> None:
    """The page shows a message instead of JSON; the previous record can be explained again."""

    def try_it(record: str) -> None:
        driver.execute_script("document.querySelector('#record').value = arguments[0]", record)
        driver.find_element(By.CSS_SELECTOR, "form[data-fragment='#explanation'] button").click()

    def shown() -> str:
        return text_of(driver, "#explanation").strip()

    driver.get(f"{server.url}/sandbox?route=orders")
    for _ in range(2):
        try_it('{"topic": "orders.3", "value": {"city": "Oulu", "amount": "1"}}')
        until(driver, lambda _: shown().startswith("Outcome"))
        try_it(json.dumps({"value": "x" * (5 << 20)}))
        until(driver, lambda _: not shown().startswith("Outcome"))

        assert shown() == "a request has at most 4,194,304 bytes"


def test_a_condition_that_is_too_long_to_preview_shows_no_json(server: RouteServer, driver: webdriver.Chrome) -> None:
    """The preview says what is wrong in a sentence."""
    driver.get(f"{server.url}/new-subscription")
    driver.execute_script(
        "const field = document.querySelector('#condition_text'); field.value = 'a:' + 'x'.repeat(100000);"
        "field.dispatchEvent(new Event('input', {bubbles: true}));"
    )
    until(driver, lambda _: text_of(driver, "#read"))

    # The HTTP parser answers 4xx by itself unless the whole head arrives at once.
    assert text_of(driver, "#read").startswith(("The server answered 4", "path and headers have at most"))
