"""Browsers and tokens."""

from __future__ import annotations

from pathlib import Path

import pytest
from starlette.testclient import TestClient

from tests.console.conftest import console_of
from tests.server.conftest import Bench
from turnout.server.security import TokenFile


@pytest.fixture
def closed(bench: Bench, tmp_path: Path) -> TestClient:
    (tmp_path / "tokens").write_text("sesame\n")
    return console_of(bench, TokenFile(tmp_path / "tokens"), follow_redirects=False)


PAGE = {"Accept": "text/html"}


def test_a_browser_without_a_token_is_sent_to_sign_in(closed: TestClient) -> None:
    """After signing in it returns to the requested page; an API client gets an error."""
    sent = closed.get("/routes/a?range=24h", headers=PAGE)

    assert (sent.status_code, sent.headers["location"]) == (303, "/sign-in?next=%2Froutes%2Fa%3Frange%3D24h")
    assert 'data-then="/routes/a?range=24h"' in closed.get(sent.headers["location"], headers=PAGE).text
    assert 'data-then="/"' in closed.get("/sign-in?next=//elsewhere.example", headers=PAGE).text
    assert closed.get("/v1/routes").status_code == 401
    assert [closed.get(path, headers=PAGE).status_code for path in ("/v1/routes", "/metrics", "/v1/docs")] == [
        401,
        401,
        303,
    ]
    assert closed.get("/static/console.css").status_code == 200


def test_the_token_becomes_a_cookie_that_scripts_and_other_sites_do_not_get(closed: TestClient) -> None:
    """With it pages and the REST interface answer; without JSON nothing is changed."""
    assert closed.post("/sign-in", json={"token": "wrong"}).status_code == 403
    answer = closed.post("/sign-in", json={"token": "sesame"})

    assert answer.status_code == 204
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert closed.get("/", headers=PAGE).status_code == 200
    assert closed.get("/v1/routes").status_code == 200
    assert closed.post("/v1/routes/a/pause", content="x=1").status_code == 415
    assert closed.post("/v1/routes/a/pause", json={}, headers={"Origin": "http://elsewhere.example"}).status_code == 403
    assert closed.post("/sign-out", json={}).status_code == 204
    assert closed.get("/", headers=PAGE).status_code == 303
