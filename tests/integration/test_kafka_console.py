"""Kafka in the console: lag, dead letters, records that pass and a reset, in a browser with a real broker."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from tests.console.browser import MISSING, axe, chromium, driver_of, fill, press, quiet, text_of, until
from tests.integration.kafka_broker import KafkaBroker
from tests.integration.test_kafka_history import Scene
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
def scene(broker: KafkaBroker, tmp_path: Path, request: pytest.FixtureRequest) -> Scene:
    """A route that has read eight records, whose letters are in two partitions, and has three before it."""
    name = str(request.node.name).removeprefix("test_")
    scene = Scene(broker, tmp_path, name)
    scene.write(scene.text.replace(f"{name}.dead", f"{name}.letters"))
    with KafkaAdmin(scene.options) as admin:
        admin.create_topic(f"{name}.letters", 2, {"retention.ms": "-1"})
    scene.publish(*[{"n": f"x{n}", "city": "Oulu"} for n in range(8)])
    _run(Route.load(scene.file), tmp_path / f"{name}.checkpoint")
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
    offsets = json.dumps({route.name: {"0": 8, "1": 0}})
    for part, position in (("offsets", offsets), ("commits", "")):
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
        wait_for(lambda: runner.runs[scene.name])
        server.parts.survey.measure()
        yield server


def test_lag_and_letters(server: RouteServer, scene: Scene, tmp_path: Path) -> None:
    """Each is as for NATS; letters are found by partition and offset."""
    with driver_of(tmp_path / "profile") as driver, quiet(driver, server.url):
        _lag(driver, server, scene.name)
        _letters(driver, server, scene)


def _lag(driver: webdriver.Chrome, server: RouteServer, name: str) -> None:
    driver.get(server.url)
    assert text_of(driver, f"tr:has(#route-{name}) [data-name=Behind]").startswith("3")
    driver.get(f"{server.url}/routes/{name}")
    assert "Behind3" in text_of(driver, ".facts").replace("\n", "")
    assert axe(driver) == []


def _letters(driver: webdriver.Chrome, server: RouteServer, scene: Scene) -> None:
    """Open the letter with offset 0 of the second partition, see its record, and redrive it alone."""
    letter = f"{scene.name}.letters:1:0"
    driver.get(f"{server.url}/dead-letters/{scene.name}?where=key:k*&column=value.n")
    assert "8 wait" in text_of(driver, "main p")
    cells = [one.text for one in driver.find_elements(By.CSS_SELECTOR, "td[data-name='value.n']")]
    assert sorted(cells) == [f"x{n}" for n in range(8)]
    assert axe(driver) == []
    driver.find_element(By.LINK_TEXT, letter).click()
    until(driver, lambda _: text_of(driver, "h2") == letter)
    assert axe(driver) == []
    (origin,) = [one.text for one in driver.find_elements(By.XPATH, "//dt[.='From']/following-sibling::dd")]
    value = json.loads(text_of(driver, "[aria-label=Value] pre"))
    press(driver, "form[data-fragment='#redriven'] button.danger", confirmed=True)
    until(driver, lambda _: "new to their streams: 1;" in text_of(driver, "#redriven"))
    driver.find_element(By.PARTIAL_LINK_TEXT, "in the sandbox").click()
    until(driver, lambda _: text_of(driver, "#explanation .outcome") == "delivered")
    assert value["n"] in str(driver.find_element(By.CSS_SELECTOR, "#record").get_attribute("value"))
    driver.get(f"{server.url}/dead-letters/{scene.name}")
    assert "7 wait" in text_of(driver, "main p")
    assert not driver.find_elements(By.LINK_TEXT, letter)

    assert origin.startswith(f"{scene.name}:0:")
    assert [json.loads(row["value"])["n"] for row in scene.rows(f"{scene.name}.oulu")] == [value["n"]]


def test_tap(server: RouteServer, tmp_path: Path) -> None:
    """Records of all partitions are shown from the first ones on, before and after, and by a condition."""
    with driver_of(tmp_path / "profile") as driver, quiet(driver, server.url):
        driver.get(f"{server.url}/routes/tap/records")
        fill(driver, "#start", "earliest")
        driver.find_element(By.CSS_SELECTOR, "form[data-tap] button").click()
        until(driver, lambda _: len(_tapped(driver)) == 11)
        assert {place.rpartition(":")[0] for place in _tapped(driver)} == {"tap:0", "tap:1"}
        afters = driver.find_elements(By.CSS_SELECTOR, "#tapped .after")
        assert any("Oulu" in str(after.get_attribute("textContent")) for after in afters)
        assert axe(driver) == []

        driver.get(f"{server.url}/routes/tap/records")
        fill(driver, "#start", '{"tap:0": 8, "tap:1": 1}')
        fill(driver, "#where", "city:Espoo")
        driver.find_element(By.CSS_SELECTOR, "form[data-tap] button").click()
        until(driver, lambda _: _tapped(driver) == ["tap:1:2"])


def _tapped(driver: webdriver.Chrome) -> list[str]:
    """Return the records' places in the table."""
    return [cell.text for cell in driver.find_elements(By.CSS_SELECTOR, "#tapped .record th")]


def test_reset(server: RouteServer, tmp_path: Path) -> None:
    """A paused route begins again at an offset of each partition; what is read again is told before."""
    with driver_of(tmp_path / "profile") as driver:
        with quiet(driver, server.url):
            driver.get(f"{server.url}/routes/reset")
            driver.find_element(By.CSS_SELECTOR, "#reset summary").click()
            assert "reset:0 continues at 8" in text_of(driver, "#reset")
            press(driver, "form[action$='/pause'] button")
            until(driver, lambda _: text_of(driver, ".facts .state") == "paused")
            fill(driver, "#to", '{"reset:0": 5, "reset:1": 1}')
            until(driver, partial(_previews, "3 offsets are read again"))
            assert _previews("1 offset is passed over", driver)
            assert axe(driver) == []
            press(driver, "#reset button.danger", confirmed=True)
            until(driver, lambda _: "nothing is committed yet" in text_of(driver, "#reset"))
        # The browser logs the refusals: a sequence of a stream, and a partition that is not there.
        fill(driver, "#to", "17")
        until(driver, partial(_previews, "latest, {topic:partition: offset} or an ISO time, found 17"))
        fill(driver, "#to", '{"reset:7": 1}')
        until(driver, partial(_previews, "start.reset.7: there is no such partition"))


def _previews(text: str, driver: webdriver.Chrome) -> bool:
    return text in text_of(driver, "#replay")
