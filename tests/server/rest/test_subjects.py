"""Subjects mapped by a transform, by mappings and by a route."""

from __future__ import annotations

from starlette.testclient import TestClient

from tests.server.conftest import Bench, route_text


def test_subjects_are_mapped_by_a_transform_by_mappings_and_by_a_route(bench: Bench, client: TestClient) -> None:
    """With the mapping, its shares, and what cannot be mapped."""
    bench.write("a", route_text("a", more='mappings: {"a.*": "b.{{wildcard(1)}}"}'))
    bench.routes.scan()
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
