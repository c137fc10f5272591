"""The feed of a subscription on its page, in a real browser."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By

from tests.console.browser import MISSING, axe, chromium, fill, press, quiet, text_of, until
from tests.feeds import FedRoute
from tests.server.fakes import FakeRunner
from turnout.console import add_console
from turnout.server.config import ServerConfig
from turnout.server.serving import RouteServer

pytestmark = pytest.mark.skipif(chromium() is None, reason=MISSING)


def test_a_feed_is_followed_live(fed: FedRoute, driver: webdriver.Chrome, tmp_path: Path) -> None:
    """From shortly before the route's position; later matches are added automatically, hostile values as text."""
    folder = tmp_path / "routes"
    folder.mkdir()
    (folder / "orders.yaml").write_text(fed.text)
    config = ServerConfig.model_validate(
        {"listen": "127.0.0.1:0", "store": fed.store_url, "grpc": {"listen": "127.0.0.1:0"}}
    )
    runner = FakeRunner()
    with RouteServer(config, [folder], runner_of=lambda *_: runner, pages=add_console) as server:
        with quiet(driver, server.url):
            driver.get(f"{server.url}/subscriptions/oulu")
            press(driver, "form[data-feed] button")
            rows = lambda: driver.find_elements(By.CSS_SELECTOR, "form[data-feed] + .scroll tbody tr")  # noqa: E731
            until(driver, lambda _: len(rows()) == 5)
            fed.run(4)
            (fed.folder / "offsets" / "1").write_text(f"v1\n{{}}\n{json.dumps({fed.streams.source: 15})}")
            (fed.folder / "commits" / "1").write_text("v1\n{}")
            until(driver, lambda _: len(rows()) == 7)
            first = rows()[0].text
            press(driver, "[data-stop]")
            fill(driver, "[name=after]", "9")
            press(driver, "form[data-feed] button")
            until(driver, lambda _: len(rows()) == 2)
            found = axe(driver)
        status = text_of(driver, "form[data-feed] [role=status]")
        press(driver, "[data-stop]")

    assert '"city":"Oulu"' in first.replace(" ", "")
    assert found == []
    assert status == "Following."
