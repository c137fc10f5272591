"""The interface against its own description, by Schemathesis: a real server gets what nobody would think of sending."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from tests.console.scene import scene
from tests.server.conftest import Bench, client_of
from turnout.embedded import NatsServer

CONFIG = Path(__file__).with_name("schemathesis.toml")
TOKEN = "ann.5d41402abc4b2a76b9719d911017c592"
EXAMPLES = 5

needs_schemathesis = pytest.mark.skipif(
    importlib.util.find_spec("schemathesis") is None, reason='no Schemathesis: pip install "turnout[dev]"'
)


@pytest.mark.heavy
@needs_schemathesis
def test_schemathesis_finds_nothing(nats_server: NatsServer, tmp_path: Path) -> None:
    """No 5xx, no status or body that is not described, no method that is not; what is wrong is refused, also tokens."""
    tokens = tmp_path / "tokens.txt"
    tokens.write_text(f"{TOKEN}\n")
    tokens.chmod(0o600)
    command = [
        *(sys.executable, "-m", "schemathesis.cli", "--config-file", str(CONFIG), "run"),
        *("--header", f"Authorization: Bearer {TOKEN}", "--no-color", "--warnings", "off"),
        *("--phases", "examples,coverage,fuzzing", "--max-examples", str(EXAMPLES)),
        *("--generation-deterministic", "--no-shrink"),
    ]
    with scene(nats_server.url, tmp_path, tokens=tokens) as server:
        finished = subprocess.run(
            [*command, f"{server.url}/v1/openapi.json"], cwd=tmp_path, capture_output=True, text=True, check=False
        )

    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert "No issues found" in finished.stdout


def test_every_error_is_described(client: TestClient) -> None:
    """Each operation says what it refuses and in which form; Connect's in Connect's."""
    document: dict[str, Any] = client.get("/v1/openapi.json").json()
    operations = {
        (method, path): operation for path, item in document["paths"].items() for method, operation in item.items()
    }
    for (method, path), operation in operations.items():
        statuses = {int(status) for status in operation["responses"]}
        if path not in ("/live", "/ready"):
            assert {401, 403, 421} <= statuses, (method, path)
            assert operation["security"] == [{"token": []}]
        if method != "get":
            assert {413, 415} <= statuses, (method, path)
        for status in statuses - {503}:
            if status >= 400:
                assert "application/problem+json" in operation["responses"][str(status)]["content"], (path, status)

    assert document["openapi"].startswith("3.1")
    assert ("post", "/v1/routes/{name}/confirm") in operations
    assert "application/json" in operations["get", "/connectors/{name}"]["responses"]["404"]["content"]
    assert "HTTPValidationError" not in document["components"]["schemas"]


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("PATCH", "/v1/routes/a", "DELETE, GET, PUT"),
        ("GET", "/v1/routes/a/dead-letters/redrive", "POST"),
        ("OPTIONS", "/v1/subscriptions", "GET, POST"),
        ("DELETE", "/connectors", "GET"),
    ],
)
def test_a_method_that_is_not_there_is_refused_with_those_that_are(
    client: TestClient, method: str, path: str, allowed: str
) -> None:
    """405 with Allow, which names the methods of all that answers under the path."""
    answer = client.request(method, path, headers={"Authorization": "Bearer x"})

    assert answer.status_code == 405
    assert answer.headers["Allow"] == allowed


def test_who_asks_comes_before_what_is_sent(bench: Bench, tmp_path: Path) -> None:
    """A stranger hears 401, whatever he sends; 415 is for those who may ask."""
    from turnout.server.security import TokenFile

    tokens = tmp_path / "tokens.txt"
    tokens.write_text(f"{TOKEN}\n")
    tokens.chmod(0o600)
    guarded = client_of(bench, authenticator=TokenFile(tokens))

    assert guarded.post("/v1/routes/a/pause").status_code == 401
    assert client_of(bench).post("/v1/routes/a/pause").status_code == 415


def test_a_form_that_connect_cannot_read_is_refused_in_its_form(client: TestClient) -> None:
    """error_code and message, as Connect's tools expect them."""
    answer = client.get("/connectors?expand=everything")

    assert answer.status_code == 422
    assert answer.json()["error_code"] == 422
