"""Errors that no endpoint foresees."""

from __future__ import annotations

from starlette.testclient import TestClient

from tests.server.conftest import Bench


def test_what_nobody_foresaw_is_told_without_its_insides(bench: Bench, client: TestClient) -> None:
    """The log has it."""
    client = TestClient(client.app, base_url="http://127.0.0.1:8090", raise_server_exceptions=False)
    bench.routes.entries = lambda: 1 / 0

    failed = client.get("/v1/routes")

    assert failed.status_code == 500
    assert failed.headers["content-type"] == "application/problem+json"
    assert "division" not in failed.text
