"""Kafka Connect's interface over routes, in Connect's shapes."""

from __future__ import annotations

from starlette.testclient import TestClient

from tests.server.conftest import Bench, route_text
from turnout.server.routes.supervisor import Phase
from turnout.transforms import Chain

MORE = """
value: {format: json}
transforms:
  - {name: old, type: Filter, predicate: {type: HasHeaderKey, name: Old}, negate: true}
  - {name: mask, type: MaskField$Value, fields: [a, b], replacement: x}
"""


def test_a_route_is_a_connector_with_one_task(bench: Bench, client: TestClient) -> None:
    """Its names, its state and its configuration are where tools look for them."""
    bench.write("a", route_text("a", more=MORE).replace("stream: IN", "stream: IN, user: ann, password: hunter2"))
    bench.routes.scan()
    bench.wait_phase("a", Phase.RUNNING)

    assert client.get("/connectors").json() == ["a"]
    assert client.get("/connectors/a/status").json() == {
        "name": "a",
        "connector": {"state": "RUNNING", "worker_id": "turnout"},
        "tasks": [{"id": 0, "state": "RUNNING", "worker_id": "turnout"}],
        "type": "source",
    }
    expanded = client.get("/connectors?expand=status&expand=info").json()
    assert set(expanded["a"]) == {"status", "info"}
    config = client.get("/connectors/a/config").json()
    assert expanded["a"]["info"]["config"] == config
    assert (config["name"], config["source.stream"], config["source.password"]) == ("a", "IN", "***")
    assert all(isinstance(value, str) for value in config.values())


def test_transforms_are_told_as_connect_would_take_them(bench: Bench, client: TestClient) -> None:
    """The properties make the chain that the route runs."""
    bench.write("a", route_text("a", more=MORE))
    bench.routes.scan()
    config = client.get("/connectors/a/config").json()
    chain = Chain.from_config({name: text for name, text in config.items() if name.startswith(("trans", "pred"))})

    assert [stage.transform for stage in chain.stages] == [
        stage.transform for stage in bench.run_of("a").route.chain.stages
    ]
    assert config["transforms.old.negate"] == "true"


def test_pause_resume_restart_as_connect_does(bench: Bench, client: TestClient) -> None:
    """PUT, PUT and POST, with Connect's status codes; failures carry their trace."""
    bench.start("a")
    assert client.put("/connectors/a/pause").status_code == 202
    bench.wait_phase("a", Phase.PAUSED)
    assert client.get("/connectors/a/status").json()["connector"]["state"] == "PAUSED"
    assert client.put("/connectors/a/resume").status_code == 202
    for number in (2, 3, 4):
        bench.run_of("a", number).fail()
    bench.wait_phase("a", Phase.FAILED)
    failed = client.get("/connectors/a/status").json()
    assert (failed["tasks"][0]["state"], failed["tasks"][0]["trace"]) == ("FAILED", "route a failed: no luck")

    assert client.post("/connectors/a/restart?includeTasks=true&onlyFailed=true", json={}).status_code == 202
    bench.run_of("a", 5)
    bench.wait_phase("a", Phase.RUNNING)
    assert client.post("/connectors/a/restart", json={}).status_code == 204
    bench.run_of("a", 6)


def test_the_task_is_asked_for_by_its_number(bench: Bench, client: TestClient) -> None:
    """Operators' scripts restart failed tasks: task 0 is the route, and there is no other."""
    bench.start("a")

    assert client.get("/connectors/a/tasks/0/status").json() == {"id": 0, "state": "RUNNING", "worker_id": "turnout"}
    assert client.post("/connectors/a/tasks/0/restart", json={}).status_code == 204
    bench.run_of("a", 2)
    for answer in (client.get("/connectors/a/tasks/1/status"), client.post("/connectors/a/tasks/1/restart", json={})):
        assert (answer.status_code, answer.json()["message"]) == (404, "route a has the one task 0")


def test_errors_have_connects_shape(client: TestClient) -> None:
    """An error code and a message."""
    missing = client.get("/connectors/nobody/status")

    assert (missing.status_code, set(missing.json())) == (404, {"error_code", "message"})
    assert client.put("/connector-plugins/Unknown/config/validate", json={}).json()["error_code"] == 404


def test_validation_names_the_option_and_what_is_wrong(client: TestClient) -> None:
    """Every property is answered, and those that are missing; secrets are not repeated."""
    properties = {
        "name": "x", "connector.class": "turnout.Route", "transforms": "m,f", "transforms.m.type": "MaskField$Value",
        "transforms.m.fields": "a", "transforms.m.replcement": "x", "transforms.f.type": "Nothing", "db.password": "pw",
    }  # fmt: skip

    response = client.put("/connector-plugins/turnout.Route/config/validate", json=properties)
    answer = response.json()
    errors = {one["value"]["name"]: one["value"]["errors"] for one in answer["configs"] if one["value"]["errors"]}

    assert answer["error_count"] == sum(map(len, errors.values())) >= 1
    assert "transforms.f.type" in errors
    assert set(answer["configs"][0]) == {"definition", "value"}
    assert set(properties) <= {one["definition"]["name"] for one in answer["configs"]}
    assert '"pw"' not in response.text
    assert client.get("/connector-plugins").json()[0]["class"] == "turnout.Route"


def test_validation_takes_null_for_absent(client: TestClient) -> None:
    """A form that is not filled in sends nulls."""
    stage = {"transforms": "m", "transforms.m.type": "MaskField$Value", "transforms.m.fields": "a"}
    properties = {**stage, "transforms.m.replacement": None, "transforms.m.predicate": None}
    answer = client.put("/connector-plugins/turnout.Route/config/validate", json=properties).json()

    assert answer["error_count"] == 0
    assert {one["value"]["name"]: one["value"]["value"] for one in answer["configs"]} == properties


def test_validation_shows_a_part_of_what_is_long(client: TestClient) -> None:
    """A mistake is shown as short as elsewhere, however long the value is that it quotes."""
    properties = {"transforms": "m", "transforms.m.type": "x" * 100_000, "transforms.m." + "y" * 100_000: "z"}
    answer = client.put("/connector-plugins/turnout.Route/config/validate", json=properties).json()
    errors = [error for one in answer["configs"] for error in one["value"]["errors"]]

    assert errors
    assert max(map(len, errors)) <= 500
    assert [one["value"]["name"] for one in answer["configs"] if one["value"]["name"] in properties] == [*properties]
