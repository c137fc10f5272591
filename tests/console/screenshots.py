"""``python -m tests.console.screenshots docs/images/``: pictures of the pages, for the documentation."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

from tests.console.browser import driver_of, fill, prefer, press, text_of, until
from tests.console.scene import scene
from turnout.embedded import NatsServer

__all__ = ["take"]

_WIDTH, _HEIGHT = 1180, 820
_PAGES = (
    ("routes", "/", "light", 640),
    ("route", "/routes/orders", "light", 1180),
    ("mistakes", "/routes/stock/file", "dark", 640),
    ("sandbox", "/sandbox?route=orders&at=ORDERS:2&subscription=large-in-oulu", "light", 1100),
    ("subscriptions", "/new-subscription", "light", 900),
    ("dead-letters", "/dead-letters/orders?column=value.city&column=value.amount", "dark", 900),
    ("dead-letter", "/dead-letters/orders/{letter}", "light", 900),
    ("tap", "/routes/orders/records", "dark", 1090),
)
"""File, address, light or dark, and how much of the page is shown."""


def take(folder: Path) -> list[Path]:
    """Take a picture of each page; where they are."""
    folder.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory() as work,
        NatsServer() as nats,
        scene(nats.url, Path(work)) as server,
        driver_of(Path(work) / "profile", _WIDTH, _HEIGHT) as driver,
    ):
        letter = _binary_letter(driver, server.url)
        return [
            _picture(driver, server.url + address.format(letter=letter), scheme, height, folder / f"{name}.png")
            for name, address, scheme, height in _PAGES
        ]


def _binary_letter(driver: webdriver.Chrome, url: str) -> str:
    """The letter whose value is no text."""
    driver.get(f"{url}/dead-letters/orders")
    row = "[...document.querySelectorAll('tr')].findLast((row) => row.textContent.includes('VALUE_CONVERTER'))"
    return str(driver.execute_script(f"return {row}.querySelector('th a').getAttribute('href').split('/').pop()"))


def _picture(driver: webdriver.Chrome, address: str, scheme: str, height: int, file: Path) -> Path:
    size = {"width": _WIDTH, "height": height, "deviceScaleFactor": 1, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    prefer(driver, scheme)
    driver.get(address)
    if address.endswith("/records"):
        _watch(driver)
    if address.endswith("/new-subscription"):
        _build(driver)
    driver.save_screenshot(str(file))
    return file


def _build(driver: webdriver.Chrome) -> None:
    """Have a condition built and tried."""
    fill(driver, "#part-key", "town")
    fill(driver, "#part-value", "Oulu")
    press(driver, "form[data-builder] button")
    until(driver, lambda _: "of 400" in text_of(driver, "#trial"))
    driver.execute_script("window.scrollTo(0, 0)")


def _watch(driver: webdriver.Chrome) -> None:
    """Have the tap show some records of the past."""
    driver.find_element(By.CSS_SELECTOR, "#stage option:nth-child(3)").click()
    driver.find_element(By.CSS_SELECTOR, "#start").send_keys("20")
    driver.find_element(By.CSS_SELECTOR, "form[data-tap] button").click()
    WebDriverWait(driver, 30).until(lambda _: len(driver.find_elements(By.CSS_SELECTOR, "#tapped .record")) > 1)
    driver.find_element(By.CSS_SELECTOR, "[data-pause]").click()
    driver.find_element(By.CSS_SELECTOR, "#tapped .record button").click()


if __name__ == "__main__":
    for picture in take(Path(sys.argv[1])):
        print(f"{picture} {picture.stat().st_size:,} bytes")
