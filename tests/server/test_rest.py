"""The interface for programs: routes, offsets, explanations, subscriptions and subjects."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from starlette.testclient import TestClient

from tests.server.conftest import Bench, client_of, route_text, wait_for
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
    bench.routes.look()

    answer = client.get("/v1/routes/a")
    route = answer.json()

    assert (route["state"], route["counts"]["read"], route["last_batch"]["number"]) == ("running", 5, 0)
    assert (route["text"], route["running_text"]) == (running + "unknwon: 1\n", running)
    assert route["mistakes"][0]["path"] == "unknwon"
    assert route["mistakes"][0]["line"] == running.count("\n") + 1
    assert answer.headers["etag"] == f'"{route["digest"]}"'
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
    assert [one["who"] for one in client.get("/v1/routes/a/revisions").json()] == ["anybody"] * 3


def test_a_file_that_waits_is_confirmed_by_putting_it(bench: Bench, client: TestClient) -> None:
    """What is pending is told with its reasons."""
    bench.start("a")
    bench.write("a", route_text("a", stream="B"))
    bench.routes.look()
    answered = client.get("/v1/routes/a").json()
    assert [one["verdict"] for one in answered["pending"]] == ["needs_new_checkpoint"]

    client.put("/v1/routes/a?confirm=new-checkpoint", json={"text": answered["text"]})

    assert bench.run_of("a", 2).route.source.options()["stream"] == "B"
    assert client.get("/v1/routes/a").json()["pending"] == []


def test_what_nobody_foresaw_is_told_without_its_insides(bench: Bench, client: TestClient) -> None:
    """The log has it."""
    client = TestClient(client.app, base_url="http://127.0.0.1:8090", raise_server_exceptions=False)
    bench.routes.entries = lambda: 1 / 0

    failed = client.get("/v1/routes")

    assert failed.status_code == 500
    assert failed.headers["content-type"] == "application/problem+json"
    assert "division" not in failed.text


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


def test_pause_resume_restart_and_delete(bench: Bench, client: TestClient) -> None:
    """All answer at once, and the state follows."""
    bench.start("a")
    post = lambda what: client.post(f"/v1/routes/a/{what}", json={}).status_code  # noqa: E731
    assert post("pause") == 202
    bench.wait_phase("a", Phase.PAUSED)
    assert client.get("/v1/routes/a").json()["reason"] == "paused by anybody"
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
    wait_for(lambda: bench.routes.entry("a").supervisor.idle)

    for to in ("earliest", "latest", 17, {"IN": 17}, "2026-01-01T00:00:00+00:00"):
        assert put(to).json() == {"batch": None, "next": {}, "begins_at": to}
    for to in ("soon", 0, {"OTHER": 1}, {}, 1.5, None, True):
        assert put(to).status_code == 422, to
    assert client.get("/v1/routes/a/offsets").json()["begins_at"] == "2026-01-01T00:00:00+00:00"


def test_the_history_has_what_was_counted_by_minute(bench: Bench, client: TestClient) -> None:
    """Once it is written down."""
    bench.start("a")
    bench.run_of("a").deliver(5)
    bench.run_of("a").deliver(6)
    bench.recorder.flush()

    assert sum(one["counts"]["delivered"] for one in client.get("/v1/routes/a/history").json()) == 11


TRANSFORMS = """
value: {format: json}
transforms:
  - {name: old, type: Filter, predicate: {type: HasHeaderKey, name: Old}}
  - {name: rename, type: ReplaceField$Value, renames: "city:town"}
mappings: {"a.*": "b.{{wildcard(1)}}"}
"""


def test_explain_shows_what_each_stage_does_to_a_record(bench: Bench, client: TestClient) -> None:
    """And where the mappings send it; a record that is dropped goes nowhere."""
    bench.write("a", route_text("a", more=TRANSFORMS))
    bench.routes.look()
    ask = lambda record: client.post("/v1/routes/a/explain", json={"record": record})  # noqa: E731

    kept = ask({"topic": "a.1", "value": {"city": "Oulu"}}).json()
    dropped = ask({"topic": "a.1", "value": {}, "headers": {"Old": "yes"}}).json()

    assert [stage["outcome"] for stage in kept["stages"]] == ["not matched", "applied"]
    assert kept["stages"][-1]["after"]["value"] == {"town": "Oulu"}
    assert kept["mapped"]["mapped"] == "b.1"
    assert (dropped["stages"][0]["outcome"], dropped["mapped"]) == ("dropped", None)
    assert (kept["outcome"], dropped["outcome"]) == ("delivered", "filtered")
    assert ask({"value": 1}).status_code == 422
    assert client.post("/v1/routes/a/explain", json={}).status_code == 422


def test_subscriptions_are_made_found_matched_and_deleted(client: TestClient) -> None:
    """Conditions go in and come out as JSON and as text."""
    by_text = client.post(
        "/v1/subscriptions",
        json={
            "destinations": ["d"],
            "condition_text": "subject:orders* AND NOT location:Oulu",
            "metadata": {"of": "ann"},
        },
    )
    by_json = client.post(
        "/v1/subscriptions",
        json={
            "id": "mine",
            "destinations": ["e"],
            "condition": {"kiwiCondition": {"key": "subject", "pattern": "orders*"}},
        },
    ).json()
    document = by_text.json()
    match = lambda **message: client.post("/v1/subscriptions/match", json={"message": message}).json()  # noqa: E731

    assert by_text.headers["location"] == f"/v1/subscriptions/{document['id']}"
    assert document["condition_text"] == "subject:orders* AND NOT location:Oulu"
    assert by_json["condition_text"] == "subject:orders*"
    assert client.get("/v1/subscriptions/mine").json() == by_json
    assert [one["subscription_id"] for one in match(subject="orders 1", location="Oulu")["matches"]] == ["mine"]
    assert {one["subscription_id"] for one in match(subject="orders 1")["matches"]} == {"mine", document["id"]}

    def search(**query: str) -> list[str]:
        return [item["id"] for item in client.get("/v1/subscriptions", params=query).json()["items"]]

    assert search(metadata="of=ann") == [document["id"]]
    assert set(search(key="subject", pattern="orders*")) == {"mine", document["id"]}
    assert len(search(limit=1)) == 1
    assert client.delete("/v1/subscriptions/mine").status_code == 204
    assert client.get("/v1/subscriptions/mine").status_code == 404
    assert {one["subscription_id"] for one in match(subject="orders 1")["matches"]} == {document["id"]}


@pytest.mark.parametrize(
    "body",
    [
        {"destinations": ["d"]},
        {"destinations": ["d"], "condition_text": "subject:"},
        {"destinations": [], "condition_text": "a:b"},
        {"destinations": ["d"], "condition_text": "a:b", "condition": {}},
        {"destinations": ["d"], "condition": {"kiwi": {}}},
        {"destinations": "d", "condition_text": "a:b"},
        {"destinations": ["d"], "condition_text": "a:b", "unknown": 1},
    ],
)
def test_a_subscription_that_breaks_a_rule_is_refused(client: TestClient, body: dict[str, Any]) -> None:
    """With the rule."""
    refused = client.post("/v1/subscriptions", json=body)

    assert refused.status_code == 422
    assert refused.json()["detail"]
    assert client.get("/v1/subscriptions").json()["total"] == 0


def test_a_condition_is_read_for_whoever_writes_one(client: TestClient) -> None:
    """In both forms, or with the place of the mistake."""
    ask = lambda **body: client.post("/v1/subscriptions/conditions/validate", json=body).json()  # noqa: E731

    right, wrong = ask(condition_text="a:b OR c~d"), ask(condition_text="a:b OR")

    assert right["valid"]
    assert ask(condition=right["condition"])["condition_text"] == "a:b OR c~d"
    assert (wrong["valid"], wrong["position"]) == (False, 6)


def test_a_server_without_a_store_says_so(bench: Bench) -> None:
    """And what to set."""
    from dataclasses import replace

    bench.parts = replace(bench.parts, subscriptions=None)

    refused = client_of(bench).get("/v1/subscriptions")

    assert (refused.status_code, "turnout.yaml" in refused.json()["detail"]) == (404, True)


def test_subjects_are_mapped_by_a_transform_by_mappings_and_by_a_route(bench: Bench, client: TestClient) -> None:
    """With the mapping, its shares, and what cannot be mapped."""
    bench.write("a", route_text("a", more='mappings: {"a.*": "b.{{wildcard(1)}}"}'))
    bench.routes.look()
    ask = lambda **body: client.post("/v1/subjects/map", json=body)  # noqa: E731
    shares = {"a": [{"destination": "west", "weight": 30}, {"destination": "east", "weight": 70}]}

    one = ask(subjects=["a.1", "c"], source="a.*", destination="b.{{wildcard(1)}}").json()
    two = ask(subjects=["a"], mappings=shares).json()
    three = ask(subjects=["a.1", "x"], route="a").json()

    assert (one[0]["outcomes"][0]["subject"], one[1]["outcomes"]) == ("b.1", [])
    assert one[1]["problem"]
    assert [(way["subject"], way["share"]) for way in two[0]["outcomes"]] == [("west", 30), ("east", 70)]
    assert [line["mapping"] for line in three] == ["a.*", None]
    assert ask(subjects=["a"]).status_code == 422
    assert ask(subjects=["a"], source="a.*", destination="b.{{nothing(1)}}").status_code == 422
    assert ask(subjects=["a"], route="nowhere").status_code == 404


def test_the_description_is_openapi_3_1_and_has_a_page_of_its_own(client: TestClient) -> None:
    """Every path is on the page, which loads nothing from elsewhere."""
    document = client.get("/v1/openapi.json").json()
    page = client.get("/v1/docs").text

    assert document["openapi"].startswith("3.1")
    assert {"/v1/routes/{name}/offsets", "/v1/subscriptions/match", "/connectors/{name}/status"} <= set(
        document["paths"]
    )
    assert all(path in page for path in document["paths"])
    assert client.get("/v1/docs.css").headers["content-type"].startswith("text/css")
    operations = [operation for methods in document["paths"].values() for operation in methods.values()]
    assert all(operation.get("summary") for operation in operations)


def test_a_text_that_is_served_is_the_text_that_was_put(bench: Bench, client: TestClient, tmp_path: Path) -> None:
    """Letter by letter, whatever YAML would make of it."""
    text = "# ü\n" + route_text("a") + "\n\n# end"

    client.put("/v1/routes/a", json={"text": text})

    assert client.get("/v1/routes/a").json()["text"] == text
    assert yaml.safe_load(text)["name"] == "a"
