"""The Compose stack without containers: its programs, started as its file says, with the files that it mounts.

A path in a container is replaced by the one outside that the file mounts there, or by a folder of the test;
names of containers become the loopback address, and ports free ones. Grafana is not among them.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import Request, urlopen

import pytest
import yaml

from tests.integration.routes import wait_for
from turnout.embedded import NatsServer, free_port
from turnout.nats.wire import Connection, Publisher, create_stream, stream_info

pytestmark = [pytest.mark.heavy, pytest.mark.spark, pytest.mark.integration, pytest.mark.jetstream]

DEPLOY = Path(__file__).parents[2] / "deploy"
SERVICES: dict[str, dict[str, Any]] = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))["services"]
TOKEN = "a-token-of-this-test-alone"
SECONDS = 120.0
ROUTE = """
name: orders
source: {format: nats, servers: "${NATS_URL}", stream: ORDERS}
mappings: {"orders.*": "shop.{{wildcard(1)}}"}
sink: {format: nats, servers: "${NATS_URL}", stream: SHOP}
"""


@dataclass(frozen=True)
class Mounts:
    """Where the files of a service lie outside of its container.

    Attributes:
        outside: the path outside by the path inside.
    """

    outside: dict[str, Path]

    @classmethod
    def of(cls, service: str, folder: Path) -> Mounts:
        """Of a service of the Compose file, with its volumes and what one puts beside the file in *folder*."""
        outside = {}
        for volume in SERVICES[service]["volumes"]:
            source, inside = volume.split(":")[:2]
            beside = DEPLOY / source
            outside[inside] = beside if source.startswith(".") and beside.exists() else folder / source
            if not source.startswith("."):
                outside[inside].mkdir(exist_ok=True)
        return cls(outside)

    def in_text(self, text: str) -> str:
        """A command's word or a file, with paths outside for those inside; the longer of two is meant."""
        inside = "|".join(map(re.escape, sorted(self.outside, key=len, reverse=True)))
        return re.sub(inside, lambda path: str(self.outside[path[0]]), text)


@dataclass(frozen=True)
class Stack:
    """The running programs.

    Attributes:
        connection: to the nats-server.
        nats_health: the address of its health check.
        server: the address of ``turnout serve``.
        prometheus: that of Prometheus.
    """

    connection: Connection
    nats_health: str
    server: str
    prometheus: str

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The series of an expression, as Prometheus has them now."""
        return answer(f"{self.prometheus}/api/v1/query?query={quote(expression)}")["data"]["result"]


def answer(url: str, token: str | None = None) -> Any:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    with urlopen(Request(url, headers=headers), timeout=30) as response:
        return json.load(response)


@contextmanager
def process(command: list[str], log: Path, ready: Callable[[], bool], **variables: str) -> Iterator[None]:
    """A program from its being ready to the end of the block; its output is in *log*."""
    with log.open("w") as output:
        started = subprocess.Popen(command, env={**os.environ, **variables}, stdout=output, stderr=output)
        try:
            wait_for(lambda: ready() or started.poll() is not None, SECONDS)
            assert started.poll() is None, log.read_text()[-3000:]
            yield
        finally:
            started.terminate()
            started.wait(60)


def answers(url: str) -> bool:
    try:
        with urlopen(url, timeout=5):
            return True
    except HTTPError:
        return True
    except OSError:
        return False


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """All of it but Grafana, with one route."""
    prometheus = shutil.which("prometheus")
    if prometheus is None:
        pytest.skip("there is no prometheus here: apt-get install prometheus")
    folder = tmp_path_factory.mktemp("stack")
    (folder / "tokens.txt").write_text(f"{TOKEN}\n", encoding="utf-8")
    (folder / "routes").mkdir()
    (folder / "routes" / "orders.yaml").write_text(ROUTE, encoding="utf-8")
    with ExitStack() as running:
        connection, nats_url, nats_health = nats(running, folder)
        address = turnout(running, folder, nats_url)
        yield Stack(connection, nats_health, f"http://{address}", scraper(running, folder, prometheus, address))


def nats(running: ExitStack, folder: Path) -> tuple[Connection, str, str]:
    """The nats-server with the streams of the route; NatsServer says itself where it listens and stores."""
    port = free_port()
    words = [word for word in SERVICES["nats"]["command"] if not word.startswith(("--jetstream", "--store_dir"))]
    assert words == ["--http_port=8222"]
    (store,) = Mounts.of("nats", folder).outside.values()
    server = running.enter_context(NatsServer(store, arguments=[words[0].replace("8222", str(port))]))
    connection = running.enter_context(Connection.open(server.url))
    for stream, subjects in (("ORDERS", "orders.*"), ("SHOP", "shop.*")):
        create_stream(connection, {"name": stream, "subjects": [subjects]})
    return connection, server.url, SERVICES["nats"]["healthcheck"]["test"][-1].replace("8222", str(port))


def turnout(running: ExitStack, folder: Path, nats_url: str) -> str:
    """``turnout serve`` with turnout.yaml; its address."""
    mounts = Mounts.of("turnout", folder)
    settings = folder / "turnout.yaml"
    port = free_port()
    text = mounts.in_text(mounts.outside["/etc/turnout/turnout.yaml"].read_text(encoding="utf-8"))
    settings.write_text(text.replace("0.0.0.0:8090", f"127.0.0.1:{port}"), encoding="utf-8")
    mounts.outside["/etc/turnout/turnout.yaml"] = settings
    command = [sys.executable, "-m", "turnout", *map(mounts.in_text, SERVICES["turnout"]["command"])]
    live = f"http://127.0.0.1:{port}/live"
    running.enter_context(process(command, folder / "turnout.log", lambda: answers(live), NATS_URL=nats_url))
    return f"127.0.0.1:{port}"


def scraper(running: ExitStack, folder: Path, program: str, target: str) -> str:
    """Prometheus with prometheus.yaml; its address."""
    mounts = Mounts.of("prometheus", folder)
    settings = folder / "prometheus.yaml"
    text = mounts.in_text(mounts.outside["/etc/prometheus/prometheus.yml"].read_text(encoding="utf-8"))
    assert "turnout:8090" in text
    settings.write_text(text.replace("turnout:8090", target), encoding="utf-8")
    address = f"127.0.0.1:{free_port()}"
    command = [
        program, f"--config.file={settings}", f"--storage.tsdb.path={mounts.outside['/prometheus']}",
        f"--web.listen-address={address}",
    ]  # fmt: skip
    running.enter_context(process(command, folder / "prometheus.log", lambda: answers(f"http://{address}/-/ready")))
    return f"http://{address}"


def test_the_health_checks(stack: Stack) -> None:
    """Those of the Compose file say yes."""
    url = SERVICES["turnout"]["healthcheck"]["test"][-1].replace("http://127.0.0.1:8090", stack.server)

    done = subprocess.run([sys.executable, DEPLOY / "image" / "healthy.py", url], check=False, timeout=60)

    assert answer(stack.nats_health) == {"status": "ok"}
    assert done.returncode == 0


def test_who_has_no_token_is_sent_away(stack: Stack) -> None:
    """The console asks for one, and metrics are for those who have it."""
    with pytest.raises(HTTPError, match="401"):
        answer(f"{stack.server}/v1/routes")

    assert [route["name"] for route in answer(f"{stack.server}/v1/routes", TOKEN)["items"]] == ["orders"]


def test_records_are_routed_and_counted(stack: Stack) -> None:
    """Published records arrive in the other stream, and Prometheus scrapes the count with its own configuration."""
    with Publisher(stack.connection) as publisher:
        for number in range(100):
            publisher.publish(f"orders.{number}", b"{}", ())

    wait_for(lambda: stream_info(stack.connection, "SHOP")["state"]["messages"] == 100, SECONDS)
    delivered = 'turnout_route_records_total{route="orders", outcome="delivered"}'
    wait_for(lambda: [series["value"][1] for series in stack.query(delivered)] == ["100"], SECONDS)
    (target,) = answer(f"{stack.prometheus}/api/v1/targets")["data"]["activeTargets"]

    assert (target["health"], target["lastError"], target["labels"]["job"]) == ("up", "", "turnout")


def test_alerts_are_evaluated(stack: Stack) -> None:
    """Every rule of the file that is mounted is loaded and evaluated without an error, and none fires."""
    mounted = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yaml").read_text(encoding="utf-8"))["groups"]

    def rules() -> list[dict[str, Any]]:
        groups = answer(f"{stack.prometheus}/api/v1/rules")["data"]["groups"]
        return [rule for group in groups for rule in group["rules"]]

    wait_for(lambda: all(rule["health"] != "unknown" for rule in rules()), SECONDS)

    assert [rule["name"] for rule in rules()] == [rule["alert"] for group in mounted for rule in group["rules"]]
    assert {rule["health"] for rule in rules()} == {"ok"}
    assert {rule["state"] for rule in rules()} == {"inactive"}
