"""axe-core on every page and fragment of the console."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By

from tests.console.browser import MISSING, axe, chromium, prefer, requests_of
from tests.console.pages.test_webhooks import hooks, pages, shown_page  # noqa: F401 - fixtures
from tests.console.views import CLOSED, SCENE, VIEWS, WEBHOOKS, ConsolePaths
from tests.delivery.receiver import Hooks
from tests.server.fakes import FakeRunner
from turnout.console import add_console
from turnout.server.config import ServerConfig
from turnout.server.serving import RouteServer

pytestmark = pytest.mark.skipif(chromium() is None, reason=MISSING)


WIDTHS = (390, 1440)
"""Pixels of a phone, and of a screen."""


@pytest.fixture(scope="module")
def servers(
    server: RouteServer,
    pages: httpx2.Client,  # noqa: F811
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[dict[str, str]]:
    """Addresses of the servers that have the views."""
    folder: Path = tmp_path_factory.mktemp("closed")
    (folder / "tokens").write_text("sesame-long-enough-0123456789abcdef\n")
    (folder / "tokens").chmod(0o600)
    (folder / "routes").mkdir()
    config = ServerConfig.model_validate({"listen": "127.0.0.1:0", "tokens": str(folder / "tokens")})
    runner = FakeRunner()
    with RouteServer(config, [folder / "routes"], runner_of=lambda *_: runner, pages=add_console) as closed:
        yield {SCENE: server.url, WEBHOOKS: str(pages.base_url).rstrip("/"), CLOSED: closed.url}


@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.heavy)])
def test_every_view_can_be_used_by_everybody(
    servers: dict[str, str],
    hooks: Hooks,  # noqa: F811
    pages: httpx2.Client,  # noqa: F811
    driver: webdriver.Chrome,
    scheme: str,
) -> None:
    """axe finds nothing on a phone and a screen, light and dark; the browser says nothing; no page is left out."""
    prefer(driver, scheme)
    gone = hooks.endpoint["url"].replace("/in", f"/gone/{scheme}")
    asyncio.run(hooks.publish(b"x", to=gone, subscription="orders"))
    shown_page(pages, hooks, f"{gone}</bdi></td>")
    paths = ConsolePaths()
    seen: set[str] = set()
    findings: list[tuple[object, ...]] = []
    for view in VIEWS:
        address = view.address.replace("{name}", hooks.name)
        driver.get_log("browser")
        requests_of(driver)
        driver.get(servers[view.at] + address)
        # As somebody does who looks for everything.
        driver.execute_script("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
        view.act(driver)
        driver.execute_script("document.querySelectorAll('details').forEach((one) => { one.open = true; })")

        for width in WIDTHS:
            size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 700}
            driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
            # What is dark differs in its colours alone.
            rules = ["color-contrast"] if scheme == "dark" else []
            findings += [(address, width, *one) for one in axe(driver, *rules)]
        driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        messages = [entry["message"] for entry in driver.get_log("browser")]
        requests = requests_of(driver)
        assert [one for one in messages if view.refused not in one] == [], address
        assert [one for one in requests if not one.startswith((servers[view.at], "data:"))] == [], address
        live = [one.get_attribute("data-live") or "" for one in driver.find_elements(By.CSS_SELECTOR, "[data-live]")]
        seen |= {template for one in (*requests, *live) for template in paths.of(urlsplit(one).path)}

    assert not findings, "\n".join(map(str, findings))
    assert paths.all - seen == set()
