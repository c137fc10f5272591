"""The pages in a real browser."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support import expected_conditions

from tests.console.browser import MISSING, chromium, fill, prefer, press, quiet, text_of, until, write
from tests.console.views import SCENE, VIEWS
from tests.server.fakes import FakeRunner
from turnout.console import add_console
from turnout.engine.counts import Counts
from turnout.server.config import ServerConfig
from turnout.server.routes.events import Event
from turnout.server.routes.supervisor import Phase
from turnout.server.serving import RouteServer

pytestmark = pytest.mark.skipif(chromium() is None, reason=MISSING)

FOCUSABLE = "a[href], button:enabled, input:not([type=hidden]), select, textarea, summary, [tabindex='0']"


def test_light_and_dark_differ(server: RouteServer, driver: webdriver.Chrome) -> None:
    """The theme follows the system's setting."""
    colours = {}
    for scheme in ("light", "dark"):
        prefer(driver, scheme)
        driver.get(server.url)
        colours[scheme] = driver.execute_script("return getComputedStyle(document.body).backgroundColor")

    assert colours == {"light": "rgb(247, 248, 250)", "dark": "rgb(20, 23, 28)"}


@pytest.mark.parametrize(
    "page",
    [
        "/",
        "/routes/orders",
        "/routes/orders/file",
        "/sandbox",
        "/subscriptions",
        "/new-subscription",
        "/dead-letters/orders",
        "/routes/orders/records",
    ],
)
def test_the_keyboard_reaches_every_control(server: RouteServer, driver: webdriver.Chrome, page: str) -> None:
    """In the order of the page, by Tab alone."""
    driver.get(server.url + page)
    # Those of now: a part of a page that is asked for again has other elements.
    controls = "const all = [...document.querySelectorAll(arguments[0])].filter((one) => one.checkVisibility());"
    count = driver.execute_script(f"{controls} return all.length", FOCUSABLE)
    reached = set()
    for _ in range(count + 5):
        webdriver.ActionChains(driver).send_keys(Keys.TAB).perform()
        reached.add(driver.execute_script(f"{controls} return all.indexOf(document.activeElement)", FOCUSABLE))
        if len(reached - {-1}) == count:
            break

    assert reached - {-1} == set(range(count))


def test_pages_fit_a_phone(server: RouteServer, driver: webdriver.Chrome) -> None:
    """Nothing but what scrolls by itself is wider than the screen."""
    size = {"width": 375, "height": 740, "deviceScaleFactor": 1, "mobile": True}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        for page in [view.address for view in VIEWS if view.at == SCENE]:
            driver.get(server.url + page)
            assert driver.execute_script("return document.documentElement.scrollWidth") <= 375, page
    finally:
        driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def _values(driver: webdriver.Chrome) -> list[str]:
    return [one.text for one in driver.find_elements(By.CSS_SELECTOR, ".plots .value")]


def test_one_time_is_read_off_all_charts(server: RouteServer, driver: webdriver.Chrome) -> None:
    """Under the pointer or by the arrow keys, until Escape; also after the charts were fetched anew."""
    driver.get(f"{server.url}/routes/orders?range=1h")
    until(driver, lambda _: driver.find_elements(By.CSS_SELECTOR, ".plot .u-over"))
    webdriver.ActionChains(driver).move_to_element(driver.find_element(By.CSS_SELECTOR, ".plot .u-over")).perform()
    until(driver, lambda _: all(_values(driver)))
    pointed = _values(driver)
    webdriver.ActionChains(driver).move_to_element(driver.find_element(By.CSS_SELECTOR, "h1")).perform()
    driver.execute_script("document.querySelector('.plots').focus()")
    driver.switch_to.active_element.send_keys(Keys.ARROW_LEFT)
    moved = _values(driver)

    assert len({text[:11] for text in pointed}) == 1
    assert "in " in pointed[0]
    assert "p99 " in pointed[2]
    assert moved[0] != pointed[0]
    server.parts.state.add_counts("orders", Counts(read=1), int(time.time()) // 60 * 60 - 120)
    drawn = driver.find_element(By.CSS_SELECTOR, ".plot canvas")
    until(driver, lambda _: expected_conditions.staleness_of(drawn)(driver))
    until(driver, lambda _: _values(driver)[1:] == moved[1:])
    driver.execute_script("document.querySelector('.plots').focus()")
    driver.switch_to.active_element.send_keys(Keys.ESCAPE)
    assert not any(_values(driver))


def test_charts_are_zoomed_together(server: RouteServer, driver: webdriver.Chrome) -> None:
    """By dragging over a part of one, or by + and -; a link leads to finer charts of it, a button back to all."""
    driver.get(f"{server.url}/routes/orders?range=1h")
    over = until(driver, lambda _: driver.find_elements(By.CSS_SELECTOR, ".plot .u-over"))[0]
    labels = "return [...document.querySelectorAll('.zoomed')].map((one) => one.checkVisibility())"
    assert driver.execute_script(labels) == [False]
    width = over.rect["width"]
    drag = webdriver.ActionChains(driver).move_to_element_with_offset(over, int(-width / 4), 0).click_and_hold()
    drag.move_by_offset(int(width / 8), 0).release().perform()
    until(driver, lambda _: driver.execute_script(labels) == [True])
    query = parse_qs(urlsplit(driver.find_element(By.ID, "closer").get_attribute("href") or "").query)

    assert query["range"] == ["15m"]
    # An eighth of an hour, which began a quarter of the width from the left.
    assert 30 * 60 < time.time() - int(query["until"][0]) < 45 * 60
    press(driver, "[data-whole]")
    until(driver, lambda _: driver.execute_script(labels) == [False])
    plots = driver.find_element(By.CSS_SELECTOR, ".plots")
    plots.send_keys("+")
    assert driver.execute_script(labels) == [True]
    plots.send_keys("-")
    assert driver.execute_script(labels) == [False]


def test_charts_are_tables_without_the_script(server: RouteServer, driver: webdriver.Chrome) -> None:
    """Each tab has its content; the place of a drawing is not shown."""
    driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        driver.get(f"{server.url}/routes/orders")
        assert not driver.find_element(By.CSS_SELECTOR, ".plot").is_displayed()
        driver.find_element(By.CSS_SELECTOR, "figure summary").click()
        assert driver.find_element(By.CSS_SELECTOR, "figure tbody td").text.endswith("/s")
        for tab, found in (("records", "#last tbody tr"), ("file", ".code tr"), ("revisions", "details")):
            driver.find_element(By.ID, f"tab-{tab}").click()
            assert driver.find_elements(By.CSS_SELECTOR, found), tab
    finally:
        driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})


def test_each_page_says_which_server_it_is_of(tmp_path: Path, driver: webdriver.Chrome) -> None:
    """In its title and its head: the configured name, or the address."""
    (tmp_path / "routes").mkdir()
    config = ServerConfig.model_validate({"listen": "127.0.0.1:0", "name": "eu-west <1>"})
    runner = FakeRunner()
    with RouteServer(config, [tmp_path / "routes"], runner_of=lambda *_: runner, pages=add_console) as named:
        driver.get(named.url)
        assert driver.title == "Routes · eu-west <1> · turnout"
        assert text_of(driver, "header .server") == "eu-west <1>"


def test_a_period_is_kept_while_looking_around(server: RouteServer, driver: webdriver.Chrome) -> None:
    """Earlier, longer, and back to now; an event leads to the charts of its time."""
    driver.get(f"{server.url}/routes/orders?range=1h")
    driver.find_element(By.CSS_SELECTOR, "#earlier").click()
    until(driver, lambda _: "until=" in driver.current_url)
    end = driver.current_url.partition("until=")[2]
    driver.find_element(By.CSS_SELECTOR, "#range-6h").click()
    until(driver, lambda _: "range=6h" in driver.current_url)

    assert driver.current_url.endswith(f"until={end}")
    driver.find_element(By.CSS_SELECTOR, "#now").click()
    until(driver, lambda _: "until=" not in driver.current_url)
    driver.get(f"{server.url}/routes/billing")
    driver.find_element(By.CSS_SELECTOR, "#events summary").click()
    driver.find_element(By.CSS_SELECTOR, ".events a").click()
    until(driver, lambda _: "range=15m&until=" in driver.current_url)


def test_buttons_look_inactive_without_the_script(server: RouteServer, driver: webdriver.Chrome) -> None:
    """Functions that need the script are not offered; searching, which does not, is."""
    driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        driver.get(f"{server.url}/routes/archive")
        pause = driver.find_element(By.CSS_SELECTOR, "#pause").value_of_css_property("pointer-events")
        driver.get(server.url)
        search = driver.find_element(By.CSS_SELECTOR, ".search button").value_of_css_property("pointer-events")
    finally:
        driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})

    assert (pause, search) == ("none", "auto")


def test_the_description_of_the_interface_leads_back(server: RouteServer, driver: webdriver.Chrome) -> None:
    """To the console."""
    driver.get(f"{server.url}/v1/docs")
    driver.find_element(By.LINK_TEXT, "Console").click()

    until(driver, lambda _: driver.current_url == f"{server.url}/")


def test_the_list_follows_what_happens(server: RouteServer, driver: webdriver.Chrome) -> None:
    """Pause and resume by the buttons; another visitor's list is updated without a reload."""
    driver.get(server.url)
    state = "tr:has(#route-archive) .state"
    until(driver, lambda _: text_of(driver, state) == "running")
    server.routes.pause("archive", who="ann")
    until(driver, lambda _: text_of(driver, state) == "paused")

    driver.get(f"{server.url}/routes/archive")
    driver.find_element(By.CSS_SELECTOR, "form[action$='/resume'] button").click()
    until(driver, lambda _: text_of(driver, ".facts .state") == "running")

    assert server.routes.entry("archive").status.phase is Phase.RUNNING


def test_a_thousand_routes_that_tell_of_their_counts_do_not_have_the_page_asked_for_all_the_time(
    server: RouteServer, driver: webdriver.Chrome
) -> None:
    """The list is requested, but not once per route, nor per event."""
    driver.get(server.url)
    driver.execute_script(
        "window.asked = 0; window.told = 0; const ask = window.fetch;"
        "window.fetch = (...all) => {"
        "  window.asked += String(all[0]).startsWith('/fragments/routes'); return ask(...all); };"
        "new EventSource('/v1/events').addEventListener('route.progress', () => { window.told += 1; });"
    )
    listening = lambda: len(server.parts.events._listeners)  # noqa: E731
    until(driver, lambda _: listening() >= 2)
    for number in range(40):
        for route in range(50):
            server.parts.events._send(Event("route.progress", f"route-{route}", time.time(), {"batch": number}))
        time.sleep(0.1)
    until(driver, lambda _: driver.execute_script("return window.told") == 2000)
    until(driver, lambda _: driver.execute_script("return window.asked") >= 1)

    assert driver.execute_script("return window.asked") <= 6


def test_a_record_is_tried_in_the_sandbox(server: RouteServer, driver: webdriver.Chrome) -> None:
    """Typed, sent by the keyboard, and explained below; a mistake is shown there as well."""
    driver.get(f"{server.url}/sandbox?route=orders")
    fill(driver, "#record", '{"topic": "orders.3", "value": {"city": "Oulu", "amount": "1"}}')
    fill(driver, "#subscription", "large-in-oulu")
    driver.find_element(By.CSS_SELECTOR, "#subscription").send_keys(Keys.ENTER)
    blamed = until(driver, lambda _: text_of(driver, "#explanation .blame"))
    fill(driver, "#record", "{")
    driver.find_element(By.CSS_SELECTOR, "#subscription").send_keys(Keys.ENTER)
    problem = until(driver, lambda _: text_of(driver, "#explanation .problem"))

    assert "amount" in blamed
    assert "is not JSON" in problem


def test_records_are_watched(server: RouteServer, driver: webdriver.Chrome) -> None:
    """From a sequence on, before and after the stage that was chosen; a pause holds them."""
    driver.get(f"{server.url}/routes/orders/records")
    driver.find_element(By.CSS_SELECTOR, "#stage option:nth-child(3)").click()
    fill(driver, "#start", "1")
    driver.find_element(By.CSS_SELECTOR, "form[data-tap] button").click()
    until(driver, lambda _: text_of(driver, "#tapped .after").count("town"))
    driver.find_element(By.CSS_SELECTOR, "[data-pause]").click()

    assert "city" in text_of(driver, "#tapped .before")
    assert text_of(driver, "[role=status]").startswith("Paused")


def test_a_letter_is_copied_and_downloaded_as_json(server: RouteServer, driver: webdriver.Chrome) -> None:
    """The text of the clipboard and of the link is that of the interface."""
    driver.execute_cdp_cmd(
        "Browser.grantPermissions", {"permissions": ["clipboardReadWrite", "clipboardSanitizedWrite"]}
    )
    driver.get(f"{server.url}/dead-letters/orders/1")
    press(driver, "[data-copy-from]")
    until(driver, lambda _: text_of(driver, "[data-copy-from]") == "Copied")
    copied = driver.execute_async_script("navigator.clipboard.readText().then(arguments[0])")
    link = driver.find_element(By.LINK_TEXT, "Download").get_attribute("href")

    assert json.loads(copied)["sequence"] == 1
    assert link == f"{server.url}/v1/routes/orders/dead-letters/1"


def test_records_are_a_table_with_columns_of_ones_choice(server: RouteServer, driver: webdriver.Chrome) -> None:
    """Changed fields before and after; a column can be taken away, records searched, opened and copied."""
    driver.get(f"{server.url}/routes/orders/records")
    driver.find_element(By.CSS_SELECTOR, "#stage option:nth-child(3)").click()
    fill(driver, "#start", "1")
    driver.find_element(By.CSS_SELECTOR, "form[data-tap] button").click()
    until(driver, lambda _: len(driver.find_elements(By.CSS_SELECTOR, "#tapped .record")) >= 3)
    driver.find_element(By.CSS_SELECTOR, "[data-pause]").click()
    head = lambda: [one.text for one in driver.find_elements(By.CSS_SELECTOR, "#records thead th")]  # noqa: E731
    assert "value.city" in head()
    assert "Oulu → –" in text_of(driver, "#tapped") or "Turku → –" in text_of(driver, "#tapped")
    driver.find_element(By.CSS_SELECTOR, "#columns summary").click()
    driver.find_element(By.XPATH, "//label[contains(., 'value.city')]/input").click()
    assert "value.city" not in head()
    last = driver.find_elements(By.CSS_SELECTOR, "#tapped .record button")[-1]
    assert last.text == "ORDERS:2"
    last.click()
    assert '"city"' in driver.find_element(By.CSS_SELECTOR, "#tapped .detail:not([hidden]) .before").text
    link = driver.find_element(By.CSS_SELECTOR, "#tapped .detail:not([hidden]) a").get_attribute("href")
    assert link == f"{server.url}/sandbox?route=orders&at=ORDERS%3A2"
    fill(driver, "#search", '"sequence":2,')
    rows = driver.find_elements(By.CSS_SELECTOR, "#tapped .record:not([hidden]) button")
    assert [one.text for one in rows] == ["ORDERS:2"]


def test_hostile_records_are_text_in_the_table(server: RouteServer, driver: webdriver.Chrome) -> None:
    """Names of fields and headers, values, the stream, and the reason of a failure."""
    evil = "<img src=x onerror=alert(1)>"
    record = {"stream": evil, "sequence": 1, "stage": evil, "outcome": "failed", "reason": evil}
    side = {"topic": evil, "value": {evil: evil, "__proto__": evil}, "headers": [[evil, evil]]}
    driver.get(f"{server.url}/routes/orders/records")
    driver.execute_script(
        "window.EventSource = class extends EventTarget { close() {} constructor() { super(); setTimeout(() =>"
        " this.dispatchEvent(new MessageEvent('record', { data: arguments_ }))); } };"
        "window.arguments_ = arguments[0];",
        json.dumps(record | {"before": side, "after": side}),
    )
    with quiet(driver, server.url):
        press(driver, "form[data-tap] button")
        until(driver, lambda _: evil in text_of(driver, "#tapped"))
        press(driver, "#tapped .record button")
        columns = text_of(driver, "#columns fieldset")

    assert f"value.{evil}" in columns
    assert f"headers.{evil}" in columns
    assert not driver.find_elements(By.CSS_SELECTOR, "#records img")


def test_a_new_checkpoint_is_confirmed_by_a_button(server: RouteServer, driver: webdriver.Chrome) -> None:
    """A file that names another stream waits, and the page says so, until the button is pressed."""
    file = server.routes.entry("archive").file.path
    text = file.read_text()
    driver.get(f"{server.url}/routes/archive")
    file.write_text(text.replace("stream: ORDERS", "stream: DEAD"))
    button = until(driver, lambda _: driver.find_elements(By.CSS_SELECTOR, ".waits button.danger"))[0]
    before = server.routes.entry("archive").version
    assert before is not None
    assert before.route.source.options()["stream"] == "ORDERS"
    assert "would begin DEAD at 1" in text_of(driver, ".waits")

    button.click()
    driver.switch_to.alert.accept()
    until(driver, lambda _: not driver.find_elements(By.CSS_SELECTOR, ".waits"))

    confirmed = server.routes.entry("archive").version
    assert confirmed is not None
    assert confirmed.route.source.options()["stream"] == "DEAD"
    server.routes.put("archive", text, who="test", confirmed=True)


def test_a_file_is_changed_on_its_page(server: RouteServer, driver: webdriver.Chrome) -> None:
    """Its mistakes are shown first, and lead to their lines; then what it means; then it is saved."""
    driver.get(f"{server.url}/routes/archive/file")
    driver.find_element(By.CSS_SELECTOR, "#edit summary").click()
    text = server.routes.entry("archive").file.text
    write(driver, text + "unmatchd: drop\n")
    driver.find_element(By.CSS_SELECTOR, "form[action$='/check'] button").click()
    until(driver, lambda _: text_of(driver, "#checked [data-line]") == "Line 4")
    driver.find_element(By.CSS_SELECTOR, "#checked [data-line]").click()
    selected = driver.execute_script("return document.activeElement.shadowRoot.getSelection().toString()")
    write(driver, text + "errors: {tolerance: all}\n")
    driver.find_element(By.CSS_SELECTOR, "form[action$='/check'] button").click()
    until(driver, lambda _: "continues from its checkpoint" in text_of(driver, "#checked"))
    until(driver, lambda _: "0 of the last" in text_of(driver, "#effect"))
    assert "+errors: {tolerance: all}" in text_of(driver, "#checked .difference")
    driver.find_element(By.CSS_SELECTOR, "#checked form[data-json] button").click()
    until(driver, lambda _: "errors: {tolerance: all}" in text_of(driver, ".code"))

    assert selected == "unmatchd: drop"
    assert server.routes.entry("archive").file.text == text + "errors: {tolerance: all}\n"


def test_a_route_is_created_and_deleted(server: RouteServer, driver: webdriver.Chrome) -> None:
    """From another route, under a name of its own; its page has the button that removes it."""
    driver.get(server.url)
    driver.find_element(By.CSS_SELECTOR, "#new-route").click()
    until(driver, lambda _: driver.find_elements(By.CSS_SELECTOR, "#template-kafka"))
    text = server.routes.entry("archive").file.text
    write(driver, text.replace("name: archive", "name: copied"))
    press(driver, "form[action$='/check'] button")
    press(driver, "#checked form[data-json] button")
    until(driver, lambda _: driver.current_url == f"{server.url}/routes/copied")
    assert server.routes.entry("copied").version is not None
    driver.find_element(By.ID, "tab-file").click()
    driver.find_element(By.CSS_SELECTOR, "#remove summary").click()
    press(driver, "#remove button", confirmed=True)
    until(driver, lambda _: driver.current_url == f"{server.url}/")

    assert "copied" not in [entry.name for entry in server.routes.entries()]


def test_no_text_appears_twice(server: RouteServer, driver: webdriver.Chrome) -> None:
    """A sentence that a page shows in one element is in no other: neither a reason beside the same need, nor a note."""
    sentences = (
        "return [...document.querySelectorAll('main p, main dd, td.error > *, .problem li')]"
        ".filter((one) => one.checkVisibility() && !one.querySelector('p, li'))"
        ".map((one) => one.innerText.trim()).filter((text) => text.length > 20)"
    )
    twice = {}
    for page in [
        "/routes/billing",
        *(view.address for view in VIEWS if view.at == SCENE and view.address != "/v1/docs"),
    ]:
        driver.get(server.url + page)
        # Two routes of one stream say the same of themselves when it has waited for five minutes.
        shown = [text for text in driver.execute_script(sentences) if not re.fullmatch("it is .* behind", text)]
        twice[page] = {text for text in shown if shown.count(text) > 1}

    assert {page: texts for page, texts in twice.items() if texts} == {}
