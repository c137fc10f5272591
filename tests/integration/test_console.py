"""The console as people use it: a real browser, real Spark behind the server, and a real nats-server that dies."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from tests.console.browser import MISSING, chromium, driver_of, fill, press, quiet, text_of, until, write
from tests.integration.routes import Streams, wait_for
from tests.integration.served import SECONDS, Served

from turnout.nats.wire import Connection, create_stream

pytestmark = [pytest.mark.heavy, pytest.mark.skipif(chromium() is None, reason=MISSING)]

SHOP = """name: {name}
source: {{format: nats, servers: "{url}", stream: {source}, reconnectTimeout: 2}}
value: {{format: json}}
transforms:
  - {{name: amount, type: "Cast$Value", spec: "amount:int32"}}
mappings: {{"in-{prefix}.>": "out-{prefix}.>"}}
sink: {{format: nats, servers: "{url}", reconnectTimeout: 2}}
deadLetter: {{topic: dead-{prefix}.shop}}
errors: {{tolerance: all}}
"""
NEWS = """name: {name}
source: {{format: nats, servers: "{url}", stream: {source}, reconnectTimeout: 2}}
value: {{format: json}}
subscriptions:
  store: "STORE"
  metadata: {{town: value.town}}
sink: {{format: nats, servers: "{url}", reconnectTimeout: 2}}
"""
STATE = ".facts .state"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("console")
    store = f"sqlite:///{folder}/subscriptions.db"
    settings = f"store: '{store}'\ngrpc: {{listen: '127.0.0.1:0'}}\n"
    served = Served(folder, {"shop": SHOP, "news": NEWS.replace("STORE", store)}, settings)
    try:
        with Connection.open(served.nats.url) as connection:
            prefix = served.streams["shop"].name
            create_stream(connection, {"name": f"DEAD_{prefix}", "subjects": [f"dead-{prefix}.>"], "storage": "file"})
        yield served
    finally:
        served.close()


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    with driver_of(tmp_path_factory.mktemp("profile")) as driver:
        yield driver


@pytest.fixture
def driver(served: Served, browser: webdriver.Chrome) -> Iterator[webdriver.Chrome]:
    """No message on the browser's console, no request off the server, whatever a test does."""
    with quiet(browser, served.url):
        yield browser


def publish(streams: Streams, subject: str, *values: dict[str, object]) -> None:
    streams.publish([(subject, json.dumps(value).encode(), ()) for value in values])


def follow(driver: webdriver.Chrome, text: str) -> None:
    """The link with this text, as soon as it is there."""
    until(driver, lambda _: driver.find_elements(By.PARTIAL_LINK_TEXT, text))[0].click()


def test_a_poisoned_record_is_found_explained_mended_redriven_and_delivered(
    served: Served, driver: webdriver.Chrome
) -> None:
    """From the list of dead letters to the record's cause, to the file, and back to its delivery; nothing is lost."""
    streams = served.streams["shop"]
    publish(streams, "orders", {"order": 1, "amount": "7"}, {"order": 2, "amount": "7.50"}, {"order": 3, "amount": "8"})
    wait_for(lambda: served.route("shop")["counts"]["read"] == 3, SECONDS)
    wait_for(lambda: streams.stored(streams.sink) == 2, SECONDS)

    driver.get(f"{served.url}/dead-letters")
    follow(driver, "shop")
    until(driver, lambda _: "TRANSFORMATION" in text_of(driver, "table.list"))
    follow(driver, "sandbox")
    blamed = until(driver, lambda _: text_of(driver, "#explanation .problem"))

    driver.get(f"{served.url}/routes/shop/file")
    driver.find_element(By.CSS_SELECTOR, "#edit summary").click()
    text = driver.find_element(By.CSS_SELECTOR, "#text").get_attribute("value")
    assert text is not None
    write(driver, text.replace("amount:int32", "amount:float64"))
    press(driver, "form[action$='/check'] button")
    until(driver, lambda _: "continues from its checkpoint" in text_of(driver, "#checked"))
    press(driver, "#checked form[data-json] button")
    until(driver, lambda _: "amount:float64" in text_of(driver, ".code"))
    driver.find_element(By.ID, "tab-overview").click()
    until(driver, lambda _: text_of(driver, STATE) == "running", SECONDS)

    driver.get(f"{served.url}/dead-letters/shop")
    press(driver, "form[data-fragment='#redriven'] button:not(.danger)")
    until(driver, lambda _: "delivered: 1" in text_of(driver, "#redriven"))
    stored = streams.stored(streams.sink)
    press(driver, "form[data-fragment='#redriven'] button.danger", confirmed=True)
    until(driver, lambda _: "new to their streams: 1;" in text_of(driver, "#redriven"))
    follow(driver, "Look again")
    until(driver, lambda _: "There is none." in text_of(driver, "main"))

    assert "7.50" in blamed
    assert stored == 2
    assert [json.loads(row["value"]) for row in streams.delivered()] == [
        {"order": 1, "amount": 7},
        {"order": 3, "amount": 8},
        {"order": 2, "amount": 7.5},
    ]


def test_a_subscription_is_created_and_its_first_message_is_seen(served: Served, driver: webdriver.Chrome) -> None:
    """Earlier records are not sent again; the first matching record is, and no other."""
    streams = served.streams["news"]
    publish(streams, "paper", {"town": "Oulu", "number": 1})
    wait_for(lambda: served.route("news")["counts"]["read"] == 1, SECONDS)
    driver.get(f"{served.url}/new-subscription")
    fill(driver, "#condition_text", "town:Oulu")
    until(driver, lambda _: "It reads: town:Oulu" in text_of(driver, "#read"))
    fill(driver, "#destinations", streams.out("oulu"))
    press(driver, "form[action='/v1/subscriptions'] button")
    until(driver, lambda _: "town:Oulu" in text_of(driver, "table.list"))

    # Whoever sees it in the list gets what is published from then on: the next micro-batch has it.
    publish(streams, "paper", {"town": "Turku", "number": 2}, {"town": "Oulu", "number": 3})
    wait_for(lambda: streams.stored(streams.sink) >= 1 and served.route("news")["counts"]["read"] == 3, SECONDS)

    assert [(row["rest"], json.loads(row["value"])) for row in streams.delivered()] == [
        ("oulu", {"town": "Oulu", "number": 3})
    ]


def test_reset_offsets_are_read_again_exactly(served: Served, driver: webdriver.Chrome) -> None:
    """Paused, told how much that is, reset, resumed: every message since the place is read once more, and no other."""
    streams = served.streams["shop"]
    publish(streams, "orders", *({"order": number, "amount": "1"} for number in range(4, 54)))
    last = streams.stored(streams.source)
    wait_for(lambda: served.ask("/v1/routes/shop/offsets")[1]["next"] == {streams.source: last + 1}, SECONDS)
    # Counts follow the offsets within a second.
    wait_for(lambda: served.route("shop")["counts"]["read"] >= 50, SECONDS)

    driver.get(f"{served.url}/routes/shop")
    driver.find_element(By.CSS_SELECTOR, "#reset summary").click()
    refused = driver.find_element(By.CSS_SELECTOR, "#reset button.danger")
    assert not refused.is_enabled()
    assert "while it is paused" in str(refused.get_attribute("title"))
    press(driver, "form[action$='/pause'] button")
    until(driver, lambda _: text_of(driver, STATE) == "paused", SECONDS)
    read, stored = served.route("shop")["counts"]["read"], streams.stored(streams.sink)
    fill(driver, "#to", str(last - 29))
    until(driver, lambda _: "30 sequences are read again" in text_of(driver, "#replay"))
    press(driver, "#reset button.danger", confirmed=True)
    until(driver, lambda _: "nothing is committed yet" in text_of(driver, "#reset"))
    press(driver, "form[action$='/resume'] button")
    until(driver, lambda _: text_of(driver, STATE) == "running", SECONDS)
    wait_for(lambda: served.ask("/v1/routes/shop/offsets")[1]["next"] == {streams.source: last + 1}, SECONDS)
    wait_for(lambda: served.route("shop")["counts"]["read"] >= read + 30, SECONDS)

    assert served.route("shop")["counts"]["read"] == read + 30
    # The same messages have the same ids: the stream stores none of them twice.
    assert streams.stored(streams.sink) == stored


def test_a_killed_nats_server_turns_the_route_red_and_back(served: Served, driver: webdriver.Chrome) -> None:
    """Without the page being loaded again; what is published after the outage is delivered."""
    streams, read = served.streams["shop"], served.route("shop")["counts"]["read"]
    driver.get(f"{served.url}/routes/shop")
    assert not driver.find_elements(By.CSS_SELECTOR, "main .problem")
    served.nats.stop(kill=True)
    wait_for(lambda: served.ask("/ready?route=shop")[0] == 503, SECONDS)
    problem = until(driver, lambda _: text_of(driver, "main .problem"), SECONDS)
    colour = driver.execute_script("return getComputedStyle(document.querySelector('main .problem')).borderLeftColor")

    served.nats.start()
    wait_for(lambda: served.ask("/ready?route=shop")[0] == 200, SECONDS)
    until(driver, lambda _: not driver.find_elements(By.CSS_SELECTOR, "main .problem"), SECONDS)
    until(driver, lambda _: text_of(driver, STATE) == "running", SECONDS)
    publish(streams, "orders", {"order": 54, "amount": "1"})
    served.wait_read("shop", read + 1)

    assert str(served.nats_port) in problem
    assert colour == driver.execute_script(
        "const one = document.body.appendChild(document.createElement('p')); one.style.color = 'var(--bad)';"
        "const colour = getComputedStyle(one).color; one.remove(); return colour;"
    )
