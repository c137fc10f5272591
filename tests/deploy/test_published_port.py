"""The port that `make run` publishes: it is answered, and without TLS only where that is asked for."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from turnout.embedded import free_port

ROOT = Path(__file__).parents[2]
RUN = ROOT / "deploy" / "image" / "run.sh"

pytestmark = pytest.mark.subscriptions

# Stands for an engine: runs `turnout` here with the variables of the container, and notes what is published. What
# listens on 0.0.0.0 answers on 127.0.0.2, as a container answers on its address; what listens on its loopback does not.
_ENGINE = """#!{python}
import os, sys
words = sys.argv[1:]
if words[0] == "info":
    sys.exit(0)
variables = dict(os.environ)
given = [words[i + 1] for i, word in enumerate(words) if word == "--env"]
for name in [words[i + 1] for i, word in enumerate(words) if word == "--env-file"]:
    given = [line for line in open(name).read().splitlines() if line and line[0] != "#"] + given
variables.update(line.split("=", 1) for line in given)
open("published", "w").write(" ".join(words[i + 1] for i, word in enumerate(words) if word == "--publish"))
command = words[words.index("the-image") + 1 :]
os.execve({python!r}, [{python!r}, "-m", "turnout", *command], variables)
"""

Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Run the script with a stand-in for the container engine; *text* becomes its env.txt."""
    folder = tmp_path / "bin"
    folder.mkdir()
    engine = folder / "docker"
    engine.write_text(_ENGINE.format(python=sys.executable), encoding="utf-8")
    engine.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setenv("IMAGE", "the-image")
    for name in ("API_HOST", "API_INSECURE", "ENGINE", "ENV_FILE", "PUBLISH"):
        monkeypatch.delenv(name, raising=False)
    started: list[subprocess.Popen[str]] = []

    def run(text: str) -> subprocess.Popen[str]:
        (tmp_path / "env.txt").write_text(text, encoding="utf-8")
        process = subprocess.Popen([RUN], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        started.append(process)
        return process

    yield run
    for process in started:
        process.terminate()
        process.communicate(timeout=60)


def variables(tmp_path: Path, port: int) -> str:
    """env.txt of the repository, with a port and a store of the test."""
    changed = {"API_PORT": str(port), "DB_URI": f"sqlite:///{tmp_path / 's.db'}"}
    lines = (ROOT / "env.txt").read_text(encoding="utf-8").splitlines()
    names = [line.partition("=")[0] for line in lines]
    return "\n".join(
        f"{name}={changed[name]}" if name in changed else line for name, line in zip(names, lines, strict=True)
    )


def answers(address: str, seconds: float = 60) -> bool:
    """Whether the health service of an address says that it is serving."""
    with grpc.insecure_channel(address) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        answer = stub.Check(health_pb2.HealthCheckRequest(), timeout=seconds, wait_for_ready=True)
    return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)


def test_the_published_port_is_answered(start: Start, tmp_path: Path) -> None:
    """With env.txt as it is the service answers beyond the container's loopback, and is published on the machine's."""
    port = free_port()
    start(variables(tmp_path, port))

    assert answers(f"127.0.0.2:{port}")
    assert (tmp_path / "published").read_text() == "127.0.0.1:8080:8080 127.0.0.1:8090:8090"


def test_in_the_clear_is_asked_for(start: Start, tmp_path: Path) -> None:
    """Without TLS and without API_INSECURE nothing is served, and the message names both."""
    text = variables(tmp_path, free_port()).replace("API_INSECURE=true\n", "")
    process = start(text)
    printed, _ = process.communicate(timeout=60)

    assert process.returncode == 2
    for word in ("API_HOST: 0.0.0.0", "API_TLS_CERT", "API_INSECURE=true", "published on 127.0.0.1"):
        assert word in printed


def test_an_address_of_ones_own(start: Start, tmp_path: Path) -> None:
    """API_HOST in env.txt is not overridden."""
    port = free_port()
    start(variables(tmp_path, port) + "\nAPI_HOST=127.0.0.1\n")

    assert answers(f"127.0.0.1:{port}")
    with pytest.raises(grpc.RpcError):
        answers(f"127.0.0.2:{port}", 2)


def test_in_a_container(tmp_path: Path) -> None:
    """The port that a real engine publishes is answered on the machine's loopback."""
    image = os.environ.get("TURNOUT_IMAGE")
    engine = next((name for name in ("docker", "podman") if shutil.which(name) and _works(name)), None)
    if engine is None:
        pytest.skip("no container engine that publishes ports works here: docker with its daemon, or podman")
    if not image:
        pytest.skip("TURNOUT_IMAGE names no image: make image builds one")
    port = free_port()
    environment = {**os.environ, "ENGINE": engine, "IMAGE": image, "PUBLISH": f"127.0.0.1:{port}:8080"}
    environment["STATE"] = f"turnout-test-{os.getpid()}"
    shutil.copy(ROOT / "env.txt", tmp_path)
    process = subprocess.Popen([RUN], cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        assert answers(f"127.0.0.1:{port}", 120)
    finally:
        process.terminate()
        process.communicate(timeout=60)
        subprocess.run([engine, "volume", "rm", environment["STATE"]], capture_output=True, check=False)


def _works(engine: str) -> bool:
    return subprocess.run([engine, "info"], capture_output=True, timeout=60, check=False).returncode == 0
