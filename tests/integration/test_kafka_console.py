"""Kafka in the console: lag, and dead letters by partition and offset, in a browser with a real broker."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from tests.console.browser import MISSING, axe, chromium, driver_of, press, quiet, text_of, until
from tests.integration.kafka_broker import KafkaBroker
from tests.integration.test_kafka_history import Scene, broker  # noqa: F401 - a fixture
from tests.server.conftest import wait_for
from tests.server.fakes import FakeRunner

from turnout.console import add_console
from turnout.engine import Program
from turnout.kafka.admin import KafkaAdmin
from turnout.routes import Route
from turnout.runtime.endpoints import adapter_of
from turnout.server.config import ServerConfig
from turnout.server.serving import RouteServer
from turnout.subscriptions.index import Index

pytestmark = [pytest.mark.kafka, pytest.mark.heavy, pytest.mark.skipif(chromium() is None, reason=MISSING)]


@pytest.fixture
def scene(broker: KafkaBroker, tmp_path: Path) -> Scene:  # noqa: F811
    """A route that has read eight records, whose letters are in two partitions, and has three before it."""
    scene = Scene(broker, tmp_path, "shop")
    scene.write(scene.text.replace("shop.dead", "shop.letters"))
    with KafkaAdmin(scene.options) as admin:
        admin.create_topic("shop.letters", 2, {"retention.ms": "-1"})
    scene.publish(*[{"n": f"x{n}", "city": "Oulu"} for n in range(8)])
    _run(Route.load(scene.file), tmp_path / "shop.checkpoint")
    scene.publish({"n": 1, "city": "Oulu"}, {"n": 2, "city": "Oulu"}, {"n": 3, "city": "Espoo"}, partition=1)
    # Now the numbers of the letters are read as they are.
    scene.write(scene.file.read_text("utf-8").replace("n:int32", "n:string"))
    return scene


def _run(route: Route, checkpoint: Path) -> None:
    """Put the records through the engine, publish what it makes of them, and commit their offsets."""
    batches = list(adapter_of(route.source).last_records(100))
    messages = [Program.of(route).run(batch, Index.of([])).messages for batch in batches]
    (sink,) = route.sinks.values()
    for some in messages:
        adapter_of(sink).send(some, _refused, "test")
    for part, position in (("offsets", '{"shop": {"0": 8, "1": 0}}'), ("commits", "")):
        (checkpoint / part).mkdir(parents=True)
        (checkpoint / part / "0").write_text(f"v1\n{{}}\n{position}")


def _refused(*reasons: object) -> None:
    raise AssertionError(reasons)


@pytest.fixture
def server(scene: Scene) -> Iterator[RouteServer]:
    """A server with the route; its runner runs nothing."""
    config = ServerConfig.model_validate({"listen": "127.0.0.1:0"})
    runner = FakeRunner()
    with RouteServer(config, [scene.file], runner_of=lambda *_: runner, pages=add_console) as server:
        wait_for(lambda: runner.runs["shop"])
        server.parts.survey.measure()
        yield server


def test_lag_and_letters(server: RouteServer, scene: Scene, tmp_path: Path) -> None:
    """Each is as for NATS; letters are found by partition and offset."""
    with driver_of(tmp_path / "profile") as driver, quiet(driver, server.url):
        _lag(driver, server)
        _letters(driver, server, scene)


def _lag(driver: webdriver.Chrome, server: RouteServer) -> None:
    driver.get(server.url)
    assert text_of(driver, "tr:has(#route-shop) [data-name=Behind]").startswith("3")
    driver.get(f"{server.url}/routes/shop")
    assert "Behind3" in text_of(driver, ".facts").replace("\n", "")
    assert axe(driver) == []


def _letters(driver: webdriver.Chrome, server: RouteServer, scene: Scene) -> None:
    """Open the letter with offset 0 of the second partition, see its record, and redrive it alone."""
    driver.get(f"{server.url}/dead-letters/shop?where=key:k*&column=value.n")
    assert "8 wait" in text_of(driver, "main p")
    cells = [one.text for one in driver.find_elements(By.CSS_SELECTOR, "td[data-name='value.n']")]
    assert sorted(cells) == [f"x{n}" for n in range(8)]
    assert axe(driver) == []
    driver.find_element(By.LINK_TEXT, "shop.letters:1:0").click()
    until(driver, lambda _: text_of(driver, "h1") == "shop.letters:1:0")
    assert axe(driver) == []
    (origin,) = [one.text for one in driver.find_elements(By.XPATH, "//dt[.='From']/following-sibling::dd")]
    value = json.loads(text_of(driver, "[aria-label=Value] pre"))
    press(driver, "form[data-fragment='#redriven'] button.danger", confirmed=True)
    until(driver, lambda _: "1 messages were new" in text_of(driver, "#redriven"))
    driver.find_element(By.PARTIAL_LINK_TEXT, "in the sandbox").click()
    until(driver, lambda _: text_of(driver, "#explanation .outcome") == "delivered")
    assert value["n"] in str(driver.find_element(By.CSS_SELECTOR, "#record").get_attribute("value"))
    driver.get(f"{server.url}/dead-letters/shop")
    assert "7 wait" in text_of(driver, "main p")
    assert not driver.find_elements(By.LINK_TEXT, "shop.letters:1:0")

    assert origin.startswith("shop:0:")
    assert [json.loads(row["value"])["n"] for row in scene.rows("shop.oulu")] == [value["n"]]
