"""The machine's Chromium, headless, with a profile of its own."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from selenium import webdriver
from selenium.webdriver.chrome.service import Service

__all__ = ["MISSING", "chromium", "driver_of", "prefer", "requests_of"]

MISSING = "no Chromium: apt-get install chromium chromium-driver, or name them by CHROMIUM and CHROMEDRIVER"

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
        yield driver
    finally:
        driver.quit()


def requests_of(driver: webdriver.Chrome) -> list[str]:
    """The addresses that pages have asked for since the last call."""
    messages: list[dict[str, Any]] = [
        json.loads(entry["message"])["message"] for entry in driver.get_log("performance")
    ]
    sent = [message["params"] for message in messages if message["method"] == "Network.requestWillBeSent"]
    return [str(params["request"]["url"]) for params in sent]


def prefer(driver: webdriver.Chrome, scheme: str) -> None:
    """Have pages drawn light or dark."""
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
