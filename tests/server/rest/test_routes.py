"""Routes over REST: their list, their files, checks of texts, and their history."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from starlette.testclient import TestClient

from tests.server.conftest import Bench, route_text
from turnout.server.supervisor import Phase


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

    monkeypatch.setattr("turnout.server.routes.replace_file", refuse)

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
