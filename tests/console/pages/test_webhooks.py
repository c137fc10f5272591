"""Pages of webhooks: a server with a dispatcher, a real nats-server, and endpoints that fail."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections.abc import Iterator
from html import unescape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx2
import pytest
from selenium import webdriver

from tests.console.browser import MISSING, chromium, press, quiet, until
from tests.delivery.receiver import Hooks, Receiver
from tests.server.conftest import wait_for
from tests.server.fakes import FakeRunner
from tests.server.test_masked_views import tokens_of
from turnout.console import add_console
from turnout.embedded import NatsServer
from turnout.server.config import ServerConfig
from turnout.server.serving import RouteServer

ANSWER = b"<script>alert(1)</script>" + b"x" * 500
DELIVERY = {"retry": [0.05], "jitter": 0, "breakerFailures": 2, "breakerPause": "10m"}


class Failing(BaseHTTPRequestHandler):
    """Answers 410 below /gone, and 500 elsewhere, with a script."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(410 if self.path.startswith("/gone") else 500)
        self.send_header("Content-Length", f"{len(ANSWER)}")
        self.end_headers()
        self.wfile.write(ANSWER)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def hooks(nats_server: NatsServer) -> Iterator[Hooks]:
    """A route with an endpoint that always fails."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Failing) as endpoint:
        thread = threading.Thread(target=endpoint.serve_forever, daemon=True)
        thread.start()
        url = f"http://127.0.0.1:{endpoint.server_port}"
        hooks = Hooks(nats_server.url, Receiver(url=f"{url}/in"), delivery=DELIVERY)
        hooks.subscribe("desk", retry=[0.05])
        yield hooks
        endpoint.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def pages(hooks: Hooks, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx2.Client]:
    """A client of a server with that route, after its endpoint has failed."""
    folder: Path = tmp_path_factory.mktemp("webhooks")
    (folder / "hooks.yaml").write_text(json.dumps(hooks.document))
    asyncio.run(hooks.publish(b"first", subscription="orders"))
    config = ServerConfig.model_validate({"listen": "127.0.0.1:0"})
    runner = FakeRunner()
    with (
        RouteServer(config, [folder], runner_of=lambda *_: runner, pages=add_console) as server,
        httpx2.Client(base_url=server.url, timeout=30) as client,
    ):
        shown_page(client, hooks, "the last of 2 attempts failed")
        yield client


def test_endpoints_and_dead_letters(pages: httpx2.Client, hooks: Hooks) -> None:
    """State of the breaker, lag, last response and schedule; a response is cut and is text."""
    asyncio.run(hooks.publish(b"second", b"third", subscription="orders"))
    # Both wait behind the breaker.
    text = shown_page(pages, hooks, 'data-name="Waiting">2</td>')
    overview = pages.get("/webhooks").text

    assert "breaker open</span><small>probe in" in text
    assert '<td class="n" data-name="In flight">0 of 8</td>' in text
    assert '<strong class="status bad">500</strong>' in text
    assert "<bdi>webhook:e</bdi>" in text
    assert text.count("&lt;script&gt;alert(1)&lt;/script&gt;xxx") == 3, "the last response, and two attempts"
    assert "<script>alert" not in text
    assert "x" * 201 not in text
    assert f'<a href="/subscriptions/orders?of={hooks.name}">orders</a>' in text
    assert f'<a href="/webhooks/{hooks.name}">' in overview
    assert "1 open" in overview


def shown_page(pages: httpx2.Client, hooks: Hooks, part: str) -> str:
    """The page of the route, once it has a text."""

    def look() -> str:
        found = str(pages.get(f"/webhooks/{hooks.name}").text)
        return found if part in found else ""

    return str(wait_for(look))


def test_dead_letters_are_redriven(pages: httpx2.Client, hooks: Hooks) -> None:
    """One by its button, which does nothing twice; all of them by another."""
    text = shown_page(pages, hooks, 'aria-label="Redrive 1"')
    path = f"/fragments/webhooks/{hooks.name}/redrive"
    single = [pages.post(path, json={"letter": "1"}).text for _ in range(2)]
    done = pages.post(path, json={}).text

    assert text.count('name="letter"') == 1
    assert "1 waits for its endpoint again." in single[0]
    assert "1 was moved or removed before." in single[1]
    assert "0 dead letters wait for their endpoints again." in done
    shown_page(pages, hooks, "There is none.")


def test_the_same_over_rest(pages: httpx2.Client, hooks: Hooks) -> None:
    """Endpoints, letters with their attempts, and the redrive of one."""
    base = f"/v1/routes/{hooks.name}/webhooks"
    failing = hooks.endpoint["url"].replace("/in", "/gone/rest")
    asyncio.run(hooks.publish(b"rest", to=failing, subscription="orders"))

    def own() -> list[dict[str, Any]]:
        return [letter for letter in pages.get(f"{base}/dead-letters").json() if letter["destination"] == failing]

    (letter,) = wait_for(own)
    moved = [pages.post(f"{base}/redrive", json={"letters": [letter["position"]]}).json() for _ in range(2)]

    assert (letter["subscription"], letter["reason"]) == ("orders", "the endpoint answered 410, and is disabled")
    assert [attempt["status"] for attempt in letter["attempts"]] == [410]
    assert moved == [{"moved": 1}, {"moved": 0}]
    assert {one["destination"] for one in pages.get(base).json()} >= {"webhook:e", failing}
    assert pages.post(f"{base}/enable", json={"destination": failing}).json() == {"enabled": True}
    assert pages.post(f"{base}/redrive", json={}).status_code == 422


def test_a_disabled_endpoint_is_enabled(pages: httpx2.Client, hooks: Hooks) -> None:
    """One that has answered 410 is first, with a button."""
    gone = hooks.endpoint["url"].replace("/in", "/gone")
    asyncio.run(hooks.publish(b"x", to=gone))
    text = shown_page(pages, hooks, f'aria-label="Enable {gone}"')
    form = {"destination": gone}
    done = [pages.post(f"/fragments/webhooks/{hooks.name}/enable", json=form).text for _ in range(2)]

    assert text.index(gone) < text.index("webhook:e")
    assert '<span class="state failed">disabled</span><small>by 410' in text
    assert "gets requests again within seconds." in done[0]
    assert "was not disabled." in done[1]


def test_letters_are_grouped_by_endpoint_and_reason(pages: httpx2.Client, hooks: Hooks) -> None:
    """A group has its letters on pages of 25; its button moves these and no others."""
    many, one = (hooks.endpoint["url"].replace("/in", f"/gone/{name}") for name in ("many", "one"))
    asyncio.run(hooks.publish(*[b"m"] * 30, to=many, subscription="orders"))
    asyncio.run(hooks.publish(b"o", to=one, subscription="orders"))
    path = f"/webhooks/{hooks.name}"

    def groups() -> dict[str, tuple[int, str]]:
        rows = re.findall(
            r'<a href="\?group=(\w+)"[^>]*>(\d+)</a></td><td data-name="Endpoint"><bdi>([^<]+)', pages.get(path).text
        )
        found: dict[str, tuple[int, str]] = {}
        for id_, count, endpoint in rows:
            before = found.get(endpoint, (0, id_))
            found[endpoint] = (before[0] + int(count), id_)
        return found

    wait_for(lambda: groups().get(many, (0, ""))[0] == 30 and one in groups())
    total = sum(count for count, _ in groups().values())
    largest = next(iter(groups().items()))
    first = pages.get(path, params={"group": largest[1][1]}).text
    second = pages.get(path, params={"group": largest[1][1], "page": 2}).text

    assert largest[0] == many
    assert (first.count('name="letter"'), "Page 1 of 2" in first) == (25, True)
    shown = second.count('name="letter"')
    reason = re.findall(r'name="reason" value="([^"]+)"', first)[0]
    redriven = pages.post(f"/fragments{path}/redrive", json={"endpoint": many, "reason": unescape(reason)}).text
    assert f"{25 + shown} dead letters wait for their endpoints again." in redriven
    assert one in groups()
    # The endpoint is disabled: they come back without a request.
    wait_for(lambda: sum(count for count, _ in groups().values()) == total)
    assert "not sent" in pages.get(path).text


def test_routes_without_webhooks(pages: httpx2.Client) -> None:
    """An unknown route is not found."""
    assert pages.get("/webhooks/none").status_code == 404
    assert pages.post("/fragments/webhooks/none/redrive", json={}).status_code == 404


@pytest.mark.skipif(chromium() is None, reason=MISSING)
def test_the_page_can_be_used_on_a_phone(pages: httpx2.Client, hooks: Hooks, driver: webdriver.Chrome) -> None:
    """No message on the console, nothing wider than a phone; a button asks before a redrive."""
    base = str(pages.base_url).rstrip("/")
    asyncio.run(hooks.publish(b"fourth", to=hooks.endpoint["url"].replace("/in", "/gone"), subscription="orders"))
    shown_page(pages, hooks, "answered 410")
    for page in ("/webhooks", f"/webhooks/{hooks.name}"):
        with quiet(driver, base):
            driver.get(base + page)
        size = {"width": 375, "height": 740, "deviceScaleFactor": 1, "mobile": True}
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        width = driver.execute_script("return document.documentElement.scrollWidth")
        driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})

        assert width <= 375, page
    press(driver, "form[action$='/redrive'] button.danger")
    driver.switch_to.alert.accept()
    until(driver, lambda _: "wait for their endpoints again" in driver.find_element("id", "done").text)


def test_responses_are_hidden_where_the_route_masks(pages: httpx2.Client, hooks: Hooks, tmp_path: Path) -> None:
    """An endpoint may answer with its message: callers without the right to it see only the status."""
    masking = {"value": {"format": "json"}, "transforms": [{"name": "m", "type": "MaskField$Value", "fields": "pan"}]}
    routes = tmp_path / "routes"
    routes.mkdir()
    (routes / "hooks.yaml").write_text(json.dumps({**hooks.document, **masking}))
    file, tokens = tokens_of(tmp_path)
    config = ServerConfig.model_validate({"listen": "127.0.0.1:0", "tokens": file})
    asyncio.run(hooks.publish(b"sixth", to=hooks.endpoint["url"].replace("/in", "/gone/m"), subscription="orders"))
    shown_page(pages, hooks, "/gone/m</bdi></td>")

    with RouteServer(config, [routes], runner_of=lambda *_: FakeRunner(), pages=add_console) as server:
        texts = {}
        for name, token in tokens.items():
            headers = {"Authorization": f"Bearer {token}"}
            with httpx2.Client(base_url=server.url, timeout=30, headers=headers) as client:
                texts[name] = shown_page(client, hooks, "/gone/m</bdi></td>")

    assert "&lt;script&gt;" in texts["seer"]
    assert "&lt;script&gt;" not in texts["reader"]
    assert "<bdi>***</bdi>" in texts["reader"]
