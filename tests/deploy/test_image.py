"""The image, built from the Dockerfile and run with a root that cannot be written, where an engine and a base are.

``TURNOUT_IMAGE`` names an image that is built already; ``TURNOUT_IMAGE_BASE`` a Debian 13 to build one of, as
``deploy/image/base.sh`` makes it. `docs/deploy.md` has both.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest

from tests.integration.nats_socket import NatsSocket
from tests.server.conftest import wait_for
from turnout.embedded import NatsServer, free_port

ROOT = Path(__file__).parents[2]
IMAGES = ROOT / "deploy" / "image"

pytestmark = [pytest.mark.heavy, pytest.mark.spark, pytest.mark.jetstream, pytest.mark.timeout(3_000)]

InImage = Callable[..., list[str]]


@pytest.fixture(scope="module")
def image(tmp_path_factory) -> str:
    """The name of the image."""
    if built := os.environ.get("TURNOUT_IMAGE"):
        return built
    base = os.environ.get("TURNOUT_IMAGE_BASE")
    if not base:
        pytest.skip("TURNOUT_IMAGE_BASE names no base: deploy/image/base.sh makes one where there is mmdebstrap")
    if not any(map(shutil.which, ("docker", "podman", "buildah"))):
        pytest.skip("there is no container engine here: apt-get install buildah")
    folder = tmp_path_factory.mktemp("context")
    for name in ("deploy", "src", "benchmarks", "examples", "schema"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("constraints.txt", "pyproject.toml", "setup.py", "README.md", "LICENSE", "MANIFEST.in"):
        shutil.copy(ROOT / name, folder)
    for command in (
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", "dist", "."],
        [folder / "deploy" / "image" / "build.sh"],
    ):
        environment = {**os.environ, "BASE": base, "UNPINNED_BASE": "yes", "IMAGE": "localhost/turnout-test"}
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout[-2_000:] + done.stderr[-2_000:]
    return "localhost/turnout-test"


@pytest.fixture
def in_image(image, tmp_path, monkeypatch) -> Callable[..., subprocess.Popen[str]]:
    """Start ``turnout`` in the image; it sees the folder of the test, and keeps its state in one of its own."""
    tmp_path.chmod(0o755)
    monkeypatch.setenv("IMAGE", image)
    monkeypatch.setenv("MOUNTS", str(tmp_path))
    monkeypatch.setenv("STATE", str(tmp_path.parent / f"{tmp_path.name}-state"))
    return lambda *words: subprocess.Popen(
        [IMAGES / "run.sh", *words], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def printed_by(process: subprocess.Popen[str]) -> str:
    """Return the output of a process that must end with success."""
    text, _ = process.communicate(timeout=300)
    assert process.returncode == 0, text
    return text


@pytest.fixture
def server() -> Iterator[NatsServer]:
    with NatsServer() as server, NatsSocket(server.port) as client:
        for name in ("IN", "OUT"):
            client.request(
                f"$JS.API.STREAM.CREATE.{name}".encode(),
                json.dumps({"name": name, "subjects": [f"{name.lower()}.*"]}).encode(),
            )
        for number in range(20):
            client.request(b"in.%d" % number, b'{"n": %d}' % number)
        yield server


def route(folder: Path, server: NatsServer) -> Path:
    file = folder / "orders.yaml"
    file.write_text(
        f"""name: orders
source: {{format: nats, servers: "{server.url}", stream: IN}}
value: {{format: json}}
mappings:
  "in.*": [{{destination: "out.{{{{wildcard(1)}}}}", weight: 100%}}]
sink: {{format: nats, servers: "{server.url}"}}
""",
        encoding="utf-8",
    )
    return file


def stored(server: NatsServer, stream: str) -> int:
    with NatsSocket(server.port) as client:
        _, answer = client.request(f"$JS.API.STREAM.INFO.{stream}".encode())
    return int(json.loads(answer)["state"]["messages"])


def test_it_says_what_it_is(in_image) -> None:
    """The program starts as an unprivileged user, on a read-only root."""
    assert printed_by(in_image("--version")).startswith("turnout ")


def test_a_route_is_checked(in_image, server, tmp_path) -> None:
    """With its servers."""
    assert "is fine" in printed_by(in_image("check", str(route(tmp_path, server)), "--connect"))


def test_a_server_routes_and_is_ready(in_image, server, tmp_path) -> None:
    """It starts its JVM, delivers every record, reports that it is ready, and ends on request."""
    routes = tmp_path / "routes"
    routes.mkdir()
    route(routes, server)
    port = free_port()
    (tmp_path / "turnout.yaml").write_text(
        f"listen: 127.0.0.1:{port}\nstate: /var/lib/turnout/server\ncheckpoints: /var/lib/turnout/checkpoints\n"
    )

    process = in_image("serve", str(routes), "--config", str(tmp_path / "turnout.yaml"))
    try:
        wait_for(lambda: process.poll() is not None or stored(server, "OUT") == 20, 240)
        with urlopen(f"http://127.0.0.1:{port}/ready", timeout=10) as response:
            ready = response.status
    finally:
        process.terminate()
        text, _ = process.communicate(timeout=90)

    assert ready == 200, text
