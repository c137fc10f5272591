"""Errors that no endpoint foresees."""

from __future__ import annotations

from typing import Any

import pytest
from starlette.testclient import TestClient

from tests.server.conftest import Bench


def test_what_nobody_foresaw_is_told_without_its_insides(
    bench: Bench, client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log has it."""
    client = TestClient(client.app, base_url="http://127.0.0.1:8090", raise_server_exceptions=False)
    monkeypatch.setattr(bench.routes, "entries", lambda: 1 / 0)

    failed = client.get("/v1/routes")

    assert failed.status_code == 500
    assert failed.headers["content-type"] == "application/problem+json"
    assert "division" not in failed.text


@pytest.mark.parametrize("parts", [{"headers": {"X-Long": "x" * 17_000}}, {"params": {"q": "x" * 17_000}}])
def test_path_and_headers_have_a_limit(client: TestClient, parts: dict[str, Any]) -> None:
    """The limit also applies if they arrive in one packet, which the parser accepts at any length."""
    refused = client.get("/v1/routes", **parts)

    assert refused.status_code == 400
    assert refused.json()["detail"] == "path and headers have at most 16,384 bytes"
