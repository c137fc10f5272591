"""The editor of a route's file: CodeMirror with completion from the schema, in a real browser."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

import turnout.console
from tests.console.browser import MISSING, axe, chromium, in_editor, press, quiet, text_of, until, write
from turnout.server.serving import RouteServer

ROOT = Path(__file__).parents[2]
VENDOR = Path(turnout.console.__file__).parent / "static" / "vendor"

needs_browser = pytest.mark.skipif(chromium() is None, reason=MISSING)


def field(driver: webdriver.Chrome) -> str:
    return str(driver.find_element(By.CSS_SELECTOR, "#text").get_attribute("value"))


def options(driver: webdriver.Chrome) -> list[str]:
    return [one.text for one in in_editor(driver, ".cm-completionLabel")]


def type_keys(driver: webdriver.Chrome, *keys: str) -> None:
    webdriver.ActionChains(driver).send_keys(*keys).perform()


def take(driver: webdriver.Chrome) -> None:
    """Take the completion that is shown; the editor takes none in the first 75 milliseconds, against accidents."""
    time.sleep(0.2)
    type_keys(driver, Keys.ENTER)


@pytest.mark.parametrize(("name", "contained"), [("codemirror", "@codemirror/view"), ("uplot", "uplot")])
def test_a_bundle_is_that_of_the_pinned_versions(name: str, contained: str) -> None:
    """Each package is listed with its version in the bundle, and its licence is beside it."""
    lock = json.loads((ROOT / "tools/editor/package-lock.json").read_text())["packages"]
    pinned = {path.removeprefix("node_modules/"): one["version"] for path, one in lock.items() if path}
    bundle = VENDOR / f"{name}.js"
    head = bundle.read_text("utf-8").partition("*/")[0]
    bundled = dict(line.removesuffix(" ").split(" ")[:2] for line in head.splitlines()[1:])
    licences = bundle.with_name(f"{name}.LICENSE.txt").read_text("utf-8")

    assert {package: pinned[package] for package in bundled} == bundled
    assert re.findall(r"^(\S+) (\S+) \(MIT\)$", licences, re.MULTILINE) == list(bundled.items())
    assert contained in bundled


def _diagnostics(driver: webdriver.Chrome) -> list[str]:
    """Return the texts of the mistake under the pointer, which moves there if none is shown yet."""
    shown = [one.text for one in in_editor(driver, ".cm-diagnosticText") if one.text]
    if not shown:
        heading, mistake = driver.find_element(By.TAG_NAME, "h1"), in_editor(driver, ".cm-lintRange-error")[0]
        webdriver.ActionChains(driver).move_to_element(heading).move_to_element(mistake).perform()
    return shown


@needs_browser
def test_a_route_is_written_with_completion_and_its_mistakes_stand_in_their_lines(
    server: RouteServer, driver: webdriver.Chrome
) -> None:
    """Typed, completed, marked, corrected and saved; nothing violates the policy of the page."""
    with quiet(driver, server.url):
        driver.get(f"{server.url}/new-route")
        write(driver, "name: typed")
        type_keys(driver, Keys.ENTER, "sou")
        until(driver, lambda _: options(driver)[:1] == ["source"])
        found = axe(driver)
        take(driver)
        assert field(driver).endswith("source:\n  ")
        type_keys(driver, "form")
        until(driver, lambda _: options(driver)[:1] == ["format"])
        take(driver)
        assert field(driver).endswith("format: ")
        until(driver, lambda _: "kafka" in options(driver))
        type_keys(driver, "natz", Keys.ESCAPE)
        until(driver, lambda _: in_editor(driver, ".cm-lint-marker-error"))
        until(driver, lambda _: [one.text for one in in_editor(driver, ".cm-lintRange-error")] == ["source:"])
        told = until(driver, _diagnostics)
        webdriver.ActionChains(driver).move_to_element(driver.find_element(By.CSS_SELECTOR, "h1")).perform()
        text = server.routes.entry("archive").file.text.replace("name: archive", "name: typed")
        write(driver, text)
        until(driver, lambda _: not in_editor(driver, ".cm-lintRange-error"))
        press(driver, "form[action$='/check'] button")
        press(driver, "#checked form[data-json] button")
        until(driver, lambda _: driver.current_url == f"{server.url}/routes/typed")

    assert found == []
    assert "natz" in told[0]
    assert server.routes.entry("typed").file.text == text
    server.routes.delete("typed", who="test")


@needs_browser
def test_without_the_script_the_field_is_plain(server: RouteServer, driver: webdriver.Chrome) -> None:
    """The field contains the file, with its label."""
    driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        driver.get(f"{server.url}/routes/archive/file")
        driver.find_element(By.CSS_SELECTOR, "#edit summary").click()
        plain = driver.find_element(By.CSS_SELECTOR, "#text")
        visible, text = plain.is_displayed(), plain.get_attribute("value")
    finally:
        driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})

    assert (visible, text) == (True, server.routes.entry("archive").file.text)


@needs_browser
def test_the_editor_is_loaded_where_somebody_edits(server: RouteServer, driver: webdriver.Chrome) -> None:
    """By opening its part of a route's page, not by looking at the route."""
    loaded = (
        "return performance.getEntriesByType('resource').map((one) => one.name).filter((one) => /vendor/.test(one))"
    )
    driver.get(f"{server.url}/routes/archive/file")
    before = driver.execute_script(loaded)
    press(driver, "#edit summary")
    until(driver, lambda _: in_editor(driver, ".cm-content"))

    assert (before, len(driver.execute_script(loaded))) == ([], 1)
    assert text_of(driver, "label[for=text]") == in_editor(driver, ".cm-content")[0].get_attribute("aria-label")


@needs_browser
@pytest.mark.parametrize(
    ("text", "offered"),
    [
        ("|", "name"),
        ("source:\n  |", "format"),
        ("source:\n  format: kafka\n  to|", "topics"),
        ("source: {format: nats, str|}", "stream"),
        ("source: {format: |}", "parquet"),
        ("source:\n  |\n  format: kafka", "topicPattern"),
        ("unmatched: d|  # what nobody wants", "deadLetter"),
        ("transforms:\n  |", "- type"),
        ("transforms:\n- type: MaskField$Value\n  re|", "replacement"),
        ("transforms:\n  - type: |", "Cast$Value"),
        ("transforms:\n  - {type: Filter, predicate: {type: HasHeaderKey, n|}}", "negate"),
        ("mappings:\n  a.*:\n    - |", "destination"),
        ("sinks:\n  'east': {format: kafka, op|}", "options"),
        ("value: {format: avro,\n  |}", "registry"),
        ("# |", None),
        ("checkpoint: >\n  na|", None),
        ("name: |", None),
        ("name: a\n  |", None),
    ],
)
def test_completion_is_that_of_the_place(
    server: RouteServer, driver: webdriver.Chrome, text: str, offered: str | None
) -> None:
    """Keys of the mapping, values of the key, by what the other keys say, in blocks and within brackets."""
    if driver.current_url != f"{server.url}/tap":
        driver.get(f"{server.url}/tap")
    found = driver.execute_async_script(
        "const done = arguments[2]; Promise.all([import('/static/completion.js'),"
        " fetch('/fragments/route-schema').then((one) => one.json())])"
        ".then(([{ completionsAt }, schema]) => completionsAt(arguments[0], arguments[1], schema))"
        ".then((found) => done(found && found.options.map((one) => one.label)), (failure) => done([String(failure)]));",
        text.replace("|", "", 1),
        text.index("|"),
    )

    assert offered in (found or [None]), found
