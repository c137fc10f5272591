"""The machine's Chromium, headless, with a profile of its own."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from selenium import webdriver
from selenium.common.exceptions import NoSuchElementException, StaleElementReferenceException
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import WebDriverWait

__all__ = [
    "MISSING",
    "axe",
    "chromium",
    "driver_of",
    "fill",
    "in_editor",
    "prefer",
    "press",
    "quiet",
    "requests_of",
    "text_of",
    "until",
    "write",
]

MISSING = "no Chromium: apt-get install chromium chromium-driver, or name them by CHROMIUM and CHROMEDRIVER"

_AXE = Path(__file__).with_name("vendor") / "axe.min.js"
_ARGUMENTS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-default-apps",
    "--disable-extensions",
    "--no-proxy-server",
    "--hide-scrollbars",
)


def chromium() -> tuple[str, str] | None:
    """The browser and its driver; None where one is missing."""
    browser = os.environ.get("CHROMIUM") or shutil.which("chromium")
    driver = os.environ.get("CHROMEDRIVER") or shutil.which("chromedriver")
    return (browser, driver) if browser and driver else None


@contextmanager
def driver_of(profile: Path, width: int = 1280, height: int = 900) -> Iterator[webdriver.Chrome]:
    """A browser that logs what its pages ask for and what goes wrong in them."""
    places = chromium()
    assert places is not None, MISSING
    options = webdriver.ChromeOptions()
    options.binary_location = places[0]
    for argument in (*_ARGUMENTS, f"--user-data-dir={profile}", f"--window-size={width},{height}"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(places[1]))
    try:
        driver.set_page_load_timeout(30)
        # The browser's own first page asks for things of its own.
        driver.get("about:blank")
        requests_of(driver)
        yield driver
    finally:
        driver.quit()


def requests_of(driver: webdriver.Chrome) -> list[str]:
    """Return the addresses that pages have requested since the last call."""
    messages: list[dict[str, Any]] = [
        json.loads(entry["message"])["message"] for entry in driver.get_log("performance")
    ]
    sent = [message["params"] for message in messages if message["method"] == "Network.requestWillBeSent"]
    return [str(params["request"]["url"]) for params in sent]


def axe(driver: webdriver.Chrome, *rules: str) -> list[Any]:
    """Return what axe-core finds on the page: rule, impact and elements of each violation.

    Args:
        driver: the browser.
        rules: only these; all if there are none.
    """
    only = f", runOnly: {json.dumps(rules)}" if rules else ""
    if not driver.execute_script("return 'axe' in window"):
        driver.execute_script(_AXE.read_text("utf-8"))
    found: list[Any] = driver.execute_async_script(
        "const done = arguments[arguments.length - 1];"
        f"axe.run(document, {{resultTypes: ['violations']{only}}}).then((all) => done(all.violations.map((one) =>"
        " [one.id, one.impact, ...one.nodes.map((node) => node.html).slice(0, 3)])));"
    )
    return found


def prefer(driver: webdriver.Chrome, scheme: str) -> None:
    """Have pages drawn light or dark."""
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})


def until(driver: webdriver.Chrome, condition: Callable[[webdriver.Chrome], Any], seconds: float = 30) -> Any:
    """Wait until something is true, and give it."""
    ignored = (NoSuchElementException, StaleElementReferenceException)
    return WebDriverWait(driver, seconds, ignored_exceptions=ignored).until(condition)


def text_of(driver: webdriver.Chrome, selector: str) -> str:
    """The text of the first element of that kind; "" where there is none."""
    return str(driver.execute_script("return document.querySelector(arguments[0])?.textContent ?? ''", selector))


def fill(driver: webdriver.Chrome, selector: str, text: str) -> None:
    """Type a text instead of what a field holds; several lines are pasted, as editors indent those that are typed."""
    field = driver.find_element(By.CSS_SELECTOR, selector)
    field.clear()
    if "\n" in text.rstrip("\n"):
        field.click()
        driver.execute_script("document.execCommand('insertText', false, arguments[0])", text)
    else:
        field.send_keys(text)


def write(driver: webdriver.Chrome, text: str) -> None:
    """Put a text into the editor of a route's file, instead of what it holds."""
    content = until(driver, lambda _: in_editor(driver, ".cm-content"))[0]
    content.click()
    keys = webdriver.ActionChains(driver)
    keys.key_down(Keys.CONTROL).send_keys("a").key_up(Keys.CONTROL).send_keys(Keys.DELETE).perform()
    driver.execute_cdp_cmd("Input.insertText", {"text": text})
    until(driver, lambda _: driver.find_element(By.CSS_SELECTOR, "#text").get_attribute("value") == text)


def in_editor(driver: webdriver.Chrome, selector: str) -> list[WebElement]:
    """The elements of that kind in the editor of a route's file, which has a tree of its own."""
    found: list[WebElement] = driver.execute_script(
        "return [...document.querySelector('.code-editor')?.shadowRoot.querySelectorAll(arguments[0]) ?? []]", selector
    )
    return found


def press(driver: webdriver.Chrome, selector: str, *, confirmed: bool = False) -> None:
    """Press a button as soon as it can be pressed, and say yes where it asks."""

    def pressed(_: webdriver.Chrome) -> bool:
        button = driver.find_element(By.CSS_SELECTOR, selector)
        if not button.is_enabled():
            return False
        button.click()
        return True

    WebDriverWait(driver, 30, ignored_exceptions=(NoSuchElementException, StaleElementReferenceException)).until(
        pressed
    )
    if confirmed:
        driver.switch_to.alert.accept()


@contextmanager
def quiet(driver: webdriver.Chrome, url: str) -> Iterator[None]:
    """Check that pages write nothing to the browser's console and contact no other server."""
    driver.get_log("browser")
    requests_of(driver)
    yield
    messages = [entry["message"] for entry in driver.get_log("browser")]
    strangers = [request for request in requests_of(driver) if not request.startswith((url, "data:"))]
    assert (messages, strangers) == ([], []), (messages, strangers)
