"""Alerts and dashboard, asked of a real Prometheus that scrapes a server."""

from __future__ import annotations

import json
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote
from urllib.request import urlopen

import pytest
import uvicorn
import yaml

from tests.server.conftest import Bench, wait_for
from turnout.embedded import free_port
from turnout.runtime.preflight import Lag
from turnout.server.deliveries import WebhookState
from turnout.server.rest.app import build_app, guarded

pytestmark = pytest.mark.heavy

DEPLOY = Path(__file__).parents[2] / "deploy"
RULES = DEPLOY / "prometheus" / "alerts.yaml"
EXPRESSIONS = {
    rule["alert"]: rule["expr"] for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]
}
QUERIES = [
    target["expr"]
    for panel in json.loads((DEPLOY / "grafana" / "turnout.json").read_text())["panels"]
    for target in panel.get("targets", [])
]
AWAY = "there is no {} here: apt-get install prometheus"


def a_program(name: str) -> str:
    path = shutil.which(name)
    if path is None:
        pytest.skip(AWAY.format(name))
    return path


def test_the_rules_are_understood() -> None:
    """Promtool takes every alert, with its words for people."""
    done = subprocess.run([a_program("promtool"), "check", "rules", RULES], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    assert f"{len(EXPRESSIONS)} rules found" in done.stdout


@pytest.fixture(scope="module")
def metrics_port(tmp_path_factory) -> Iterator[int]:
    """Two routes' metrics over HTTP: one that goes on, and one that has failed too often."""
    bench = Bench(tmp_path_factory.mktemp("server") / "routes")
    bench.start("good", "bad")
    bench.survey._lags = {"good": Lag({"IN": 5}, 400.0)}
    bench.run_of("good").deliver(10, delivered=5, dead_lettered=5, messages=5)
    for number in (1, 2, 3):
        bench.run_of("bad", number).fail()
    states = {"good": WebhookState(True, 5, 30.0, {"closed": 2, "open": 0, "disabled": 0})}
    bench.parts.metrics.watch_webhooks(lambda: {"good": {"delivered": 3, "failed": 1, "retried": 1}}, lambda: states)
    port = free_port()
    server = uvicorn.Server(uvicorn.Config(guarded(build_app(bench.parts)), port=port, log_level="warning"))
    serving = threading.Thread(target=server.run)
    serving.start()
    wait_for(lambda: server.started)
    yield port
    server.should_exit = True
    serving.join()
    bench.close()


@pytest.fixture(scope="module")
def prometheus(metrics_port, tmp_path_factory) -> Iterator[str]:
    """The address of a Prometheus that has the alerts and has scraped twice, which a rate needs."""
    program = a_program("prometheus")
    folder = tmp_path_factory.mktemp("prometheus")
    settings = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(RULES)],
        "scrape_configs": [{"job_name": "turnout", "static_configs": [{"targets": [f"127.0.0.1:{metrics_port}"]}]}],
    }
    (folder / "prometheus.yaml").write_text(yaml.safe_dump(settings), encoding="utf-8")
    address = f"127.0.0.1:{free_port()}"
    log = (folder / "log").open("w")
    process = subprocess.Popen(
        [
            program, f"--config.file={folder / 'prometheus.yaml'}", f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address={address}", "--log.level=warn",
        ],
        stdout=log, stderr=log,
    )  # fmt: skip
    try:
        wait_for(lambda: scrapes(address) >= 3, 60)
        yield address
    finally:
        process.terminate()
        process.wait(20)
        log.close()


def answer(address: str, path: str) -> Any:
    with urlopen(f"http://{address}{path}", timeout=10) as response:
        return json.load(response)["data"]


def query(address: str, expression: str) -> list[dict[str, Any]]:
    return answer(address, f"/api/v1/query?query={quote(expression)}")["result"]


def scrapes(address: str) -> int:
    """Return the number of samples of the build's information."""
    try:
        counted = query(address, "count_over_time(turnout_build_info[1m])")
    except OSError:
        time.sleep(0.1)
        return 0
    return int(counted[0]["value"][1]) if counted else 0


@pytest.mark.parametrize("alert", EXPRESSIONS)
def test_an_alert_can_be_evaluated(prometheus, alert) -> None:
    """Its rule is loaded and without an error; those whose reason is there have a result."""
    (group,) = answer(prometheus, "/api/v1/rules")["groups"]
    rules = {rule["name"]: rule for rule in group["rules"]}
    wait_for(lambda: answer(prometheus, "/api/v1/rules")["groups"][0]["rules"][-1]["health"] == "ok")

    routes = {sample["metric"].get("route") for sample in query(prometheus, EXPRESSIONS[alert])}

    assert rules[alert].get("lastError", "") == ""
    assert routes == {"TurnoutRouteFailed": {"bad"}, "TurnoutRouteLags": {"good"}}.get(alert, set())


@pytest.mark.parametrize("expression", QUERIES)
def test_a_panel_has_something_to_show(prometheus, expression) -> None:
    """Each query of the dashboard is understood and gives series, with Grafana's variables as it would set them.

    A panel that hides what is zero is asked without that: nothing has failed here since the first scrape.
    """
    query_text = expression.replace("$route", ".*").replace("$__rate_interval", "1m")
    shown = query_text.removesuffix(" > 0")

    query(prometheus, query_text)
    assert query(prometheus, shown) != []
