"""Explanations of a record by a route's engine."""

from __future__ import annotations

from starlette.testclient import TestClient

from tests.server.conftest import Bench, route_text

TRANSFORMS = """
value: {format: json}
transforms:
  - {name: old, type: Filter, predicate: {type: HasHeaderKey, name: Old}}
  - {name: rename, type: ReplaceField$Value, renames: "city:town"}
mappings: {"a.*": "b.{{wildcard(1)}}"}
"""


def test_explain_shows_what_each_stage_does_to_a_record(bench: Bench, client: TestClient) -> None:
    """The response also has the mapped destinations; a dropped record has none."""
    bench.write("a", route_text("a", more=TRANSFORMS))
    bench.routes.scan()
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
