"""Pauses, offset resets, and confirmation of changes that need a new checkpoint."""

from __future__ import annotations

import json

import pytest
from starlette.testclient import TestClient

from tests.server.conftest import Bench, client_of, route_text, wait_for
from turnout.rpc.caller import Caller, Right
from turnout.server.principal import Principal
from turnout.server.supervisor import Phase


class Reader:
    """Caller that may read but not write."""

    def principal(self, _: str | None) -> Principal:
        return Principal("reader", Caller(rights=frozenset({Right.READ})))


@pytest.fixture
def waiting(bench: Bench) -> str:
    """A route whose file asks for another stream while it runs; the file's digest."""
    bench.start("a")
    checkpoint = bench.routes.entry("a").checkpoint
    assert checkpoint is not None
    (checkpoint / "commits").mkdir(parents=True)
    bench.write("a", route_text("a", stream="B"))
    bench.routes.scan()
    return bench.routes.entry("a").file.digest


def test_the_running_version_goes_on_and_the_file_is_told(bench: Bench, client: TestClient, waiting: str) -> None:
    """An unsafe file of the folder changes nothing by itself: the state, an event and the log say what it waits for."""
    answer = client.get("/v1/routes/a").json()
    events = bench.state.recent_events("a")

    assert (answer["state"], answer["digest"] == waiting, answer["running_digest"] == waiting) == (
        "running",
        True,
        False,
    )
    assert [one["change"] for one in answer["pending"] if one["verdict"] != "safe"] == ["source.stream"]
    assert "another" not in answer["reason"]
    assert "source.stream" in json.dumps(next(event.detail for event in events if event.kind == "route.pending"))
    assert len(bench.runner.runs["a"]) == 1


def test_to_confirm_begins_a_new_checkpoint(bench: Bench, client: TestClient, waiting: str) -> None:
    """The version of that digest runs, the old checkpoint is kept beside the new one, and nothing is pending."""
    checkpoint = bench.routes.entry("a").checkpoint
    assert checkpoint is not None

    answer = client.post("/v1/routes/a/confirm", json={"digest": waiting})

    assert answer.status_code == 202
    assert bench.run_of("a", 2).route.source.options()["stream"] == "B"
    assert checkpoint.with_name("checkpoint.1").is_dir()
    assert client.get("/v1/routes/a").json()["pending"] == []
    assert client.post("/v1/routes/a/confirm", json={"digest": waiting}).status_code == 409


def test_nobody_confirms_what_he_has_not_seen(bench: Bench, client: TestClient, waiting: str) -> None:
    """A file that has changed again since is another version."""
    bench.write("a", route_text("a", stream="C"))
    bench.routes.scan()

    assert client.post("/v1/routes/a/confirm", json={"digest": waiting}).status_code == 412
    assert len(bench.runner.runs["a"]) == 1


def test_to_confirm_needs_the_right_and_a_page_of_ours(bench: Bench, client: TestClient, waiting: str) -> None:
    """A read-only caller gets 403, and so does a page of another site; a browser's form gets 415."""
    body = {"digest": waiting}
    foreign = client.post("/v1/routes/a/confirm", json=body, headers={"Origin": "https://elsewhere.example"})
    form = client.post("/v1/routes/a/confirm", data=body)
    reader = client_of(bench, authenticator=Reader()).post("/v1/routes/a/confirm", json=body)

    assert (reader.status_code, foreign.status_code, form.status_code) == (403, 403, 415)
    assert len(bench.runner.runs["a"]) == 1


def test_pause_resume_restart_and_delete(bench: Bench, client: TestClient) -> None:
    """All answer at once, and the state follows."""
    bench.start("a")
    post = lambda what: client.post(f"/v1/routes/a/{what}", json={}).status_code  # noqa: E731
    assert post("pause") == 202
    bench.wait_phase("a", Phase.PAUSED)
    assert client.get("/v1/routes/a").json()["reason"] == "paused by anonymous"
    assert post("restart") == 409
    assert post("resume") == 202
    bench.run_of("a", 2)
    bench.wait_phase("a", Phase.RUNNING)
    assert post("restart") == 202
    bench.run_of("a", 3)

    assert client.delete("/v1/routes/a").status_code == 204
    assert client.get("/v1/routes/a").status_code == 404
    assert not (bench.folder / "a.yaml").exists()


def test_offsets_are_read_and_reset(bench: Bench, client: TestClient) -> None:
    """Only while the route is paused, and to places that its source has."""
    bench.start("a")
    put = lambda to: client.put("/v1/routes/a/offsets", json={"to": to})  # noqa: E731
    assert put("earliest").status_code == 409
    client.post("/v1/routes/a/pause", json={})
    bench.wait_phase("a", Phase.PAUSED)
    supervisor = bench.routes.entry("a").supervisor
    assert supervisor is not None
    wait_for(lambda: supervisor.idle)

    for to in ("earliest", "latest", 17, {"IN": 17}, "2026-01-01T00:00:00+00:00"):
        assert put(to).json() == {"batch": None, "next": {}, "begins_at": to}
    for wrong in ("soon", 0, {"OTHER": 1}, {}, 1.5, None, True):
        assert put(wrong).status_code == 422, wrong
    assert client.get("/v1/routes/a/offsets").json()["begins_at"] == "2026-01-01T00:00:00+00:00"
