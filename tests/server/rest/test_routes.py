"""Routes over REST: their list, their files, checks of texts, and their history."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from starlette.testclient import TestClient

from tests.server.conftest import Bench, client_of, route_text, wait_for
from turnout.rpc.caller import Caller, Right
from turnout.server.rest.routes import without_secrets
from turnout.server.routes.supervisor import Phase
from turnout.server.security import Principal


def test_routes_are_listed_by_name_a_page_at_a_time(bench: Bench, client: TestClient) -> None:
    """The cursor is empty on the last page; a state chooses."""
    bench.start("c", "a", "b")
    bench.routes.pause("b", who="ann")
    bench.wait_phase("b", Phase.PAUSED)

    first = client.get("/v1/routes", params={"limit": 2}).json()
    second = client.get("/v1/routes", params={"limit": 2, "cursor": first["cursor"]}).json()

    assert [one["name"] for one in first["items"]] == ["a", "b"]
    assert [one["name"] for one in second["items"]] == ["c"]
    assert (first["total"], second["cursor"]) == (3, "")
    assert [one["name"] for one in client.get("/v1/routes?state=paused").json()["items"]] == ["b"]


def test_a_route_is_told_with_what_it_does_and_what_its_file_says(bench: Bench, client: TestClient) -> None:
    """Counts, the last micro-batch, and the text, which is another one than what runs while it is wrong."""
    bench.start("a")
    bench.run_of("a").deliver(5)
    running = (bench.folder / "a.yaml").read_text()
    bench.write("a", running + "unknwon: 1\n")
    bench.routes.scan()

    answer = client.get("/v1/routes/a")
    route = answer.json()

    assert (route["state"], route["counts"]["read"], route["last_batch"]["number"]) == ("running", 5, 0)
    assert (route["text"], route["running_text"]) == (running + "unknwon: 1\n", running)
    assert route["mistakes"][0]["path"] == "unknwon"
    assert route["mistakes"][0]["line"] == running.count("\n") + 1
    assert answer.headers["etag"].startswith(f'"{route["digest"]}-')
    assert client.get("/v1/routes/a/status").json()["running_digest"] == route["running_digest"] != route["digest"]


def test_a_put_creates_changes_and_refuses(bench: Bench, client: TestClient) -> None:
    """201 and 200; 422 with every mistake; 412 for a stale digest; 409 until the new checkpoint is confirmed."""
    put = lambda text, **more: client.put("/v1/routes/a", json={"text": text}, **more)  # noqa: E731
    created = put(route_text("a"))
    assert created.status_code == 201
    bench.run_of("a")
    assert put(route_text("a", more="mappings: {x: y}")).status_code == 200
    wrong = put("name: a\nsource: {format: nats}\nsnik: 1\n")
    stale = put(route_text("a"), headers={"If-Match": f'"{created.json()["digest"]}"'})
    unsafe = put(route_text("a", stream="B"))

    assert wrong.status_code == 422
    assert wrong.headers["content-type"] == "application/problem+json"
    assert {"source.servers", "source.stream", "snik"} <= {mistake["path"] for mistake in wrong.json()["mistakes"]}
    assert stale.status_code == 412
    assert unsafe.status_code == 409
    assert [one["change"] for one in unsafe.json()["changes"] if one["verdict"] != "safe"] == ["source.stream"]
    assert "mappings" in (bench.folder / "a.yaml").read_text()
    assert put(route_text("a", stream="B"), params={"confirm": "new-checkpoint"}).status_code == 200
    assert put(route_text("a", stream="B"), params={"confirm": "whatever"}).status_code == 422
    assert [one["who"] for one in client.get("/v1/routes/a/revisions").json()] == ["anonymous"] * 3


def test_a_file_that_waits_is_confirmed_by_putting_it(bench: Bench, client: TestClient) -> None:
    """The pending changes are returned with their reasons."""
    bench.start("a")
    bench.write("a", route_text("a", stream="B"))
    bench.routes.scan()
    answered = client.get("/v1/routes/a").json()
    assert [one["verdict"] for one in answered["pending"]] == ["needs_new_checkpoint"]

    client.put("/v1/routes/a?confirm=new-checkpoint", json={"text": answered["text"]})

    assert bench.run_of("a", 2).route.source.options()["stream"] == "B"
    assert client.get("/v1/routes/a").json()["pending"] == []


def test_a_folder_that_cannot_be_written_is_told(bench: Bench, client: TestClient, monkeypatch: Any) -> None:
    """Nothing is started then."""

    def refuse(*_: Any) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("turnout.server.routes.routes.replace_file", refuse)

    refused = client.put("/v1/routes/a", json={"text": route_text("a")})

    assert (refused.status_code, "Permission denied" in refused.json()["detail"]) == (409, True)
    assert bench.runner.runs["a"] == []


def test_validate_says_what_a_text_would_do_and_does_nothing(bench: Bench, client: TestClient) -> None:
    """Mistakes, or the changes of what runs."""
    bench.start("a")

    wrong = client.post("/v1/routes/validate", json={"text": "name: [\n"}).json()
    right = client.post("/v1/routes/validate", json={"text": route_text("a", stream="B")}).json()

    assert (wrong["valid"], len(wrong["mistakes"])) == (False, 1)
    assert (right["valid"], right["name"], right["changes"][0]["change"]) == (True, "a", "source.stream")
    assert len(bench.runner.runs["a"]) == 1


def test_the_history_has_what_was_counted_by_minute(bench: Bench, client: TestClient) -> None:
    """Once it is written down."""
    bench.start("a")
    bench.run_of("a").deliver(5)
    bench.run_of("a").deliver(6)
    bench.recorder.flush()

    assert sum(one["counts"]["delivered"] for one in client.get("/v1/routes/a/history").json()) == 11


def test_a_text_that_is_served_is_the_text_that_was_put(bench: Bench, client: TestClient, tmp_path: Path) -> None:
    """Letter by letter, whatever YAML would make of it."""
    text = "# ü\n" + route_text("a") + "\n\n# end"

    client.put("/v1/routes/a", json={"text": text})

    assert client.get("/v1/routes/a").json()["text"] == text
    assert yaml.safe_load(text)["name"] == "a"


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


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("password: hunter2", "password: ***"),
        ("  token: 'a b'  # mine", "  token: ***  # mine"),
        ('{user: ann, password: "x, y", window: 5}', "{user: ann, password: ***, window: 5}"),
        ("nkeySeed: SUABC\nstream: S", "nkeySeed: ***\nstream: S"),
        ('"kafka.ssl.key.password": geheim', '"kafka.ssl.key.password": ***'),
        ("password: ${PASSWORD}", "password: ${PASSWORD}"),
        ("servers: [nats://ann:pw@a:4222, 'nats://tok@b']", "servers: [nats://***@a:4222, 'nats://***@b']"),
        ("key: {format: json}", "key: {format: json}"),
        ("store: mongodb://u:p@db/x", "store: mongodb://***@db/x"),
    ],
)
def test_secrets_are_masked_and_nothing_else_is(text: str, shown: str) -> None:
    """In blocks and in lines, quoted or not; a variable is no secret."""
    assert without_secrets(text) == shown


def test_secrets_over_several_lines_are_masked() -> None:
    """A block of text, and a value on the next line."""
    assert "hunter2" not in without_secrets("password: |\n  hunter2\nstream: S")
    assert "hunter2" not in without_secrets("password:\n  hunter2\nstream: S")
    assert "hunter2" not in without_secrets("password: >-\n  a\n  hunter2\n")
    assert "stream: S" in without_secrets("password: |\n  hunter2\nstream: S")


def test_what_is_not_yaml_is_not_shown() -> None:
    """Nobody knows where a secret ends in it; nothing else needs to be hidden of an empty one."""
    assert "hunter2" not in without_secrets("password: [hunter2\n")
    assert without_secrets("") == ""
    assert without_secrets("a: &a {password: x, b: *a}\n").startswith("# This is not YAML")
    assert without_secrets("a: &a x\npassword: *a\ntoken: *a\n") == "a: ***\npassword: *a\ntoken: *a\n"
