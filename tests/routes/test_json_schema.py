"""Route files and tests as JSON Schema: what it takes and what it refuses."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator
from tests.documentation import DOCS, blocks

from turnout.errors import RouteError
from turnout.history.suite import suite
from turnout.routes import Route
from turnout.routes.json_schema import route_schema
from turnout.routes.yaml_text import YamlText

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.yaml"))
MADE = {"route": lambda: route_schema(suite.suite_schema()), "test": suite.test_file_schema}
ROUTES = Draft202012Validator(MADE["route"]())
TESTS = Draft202012Validator(MADE["test"]())
NATS = {"format": "nats", "servers": "nats://127.0.0.1:4222"}


def route(**more: Any) -> dict[str, Any]:
    return {"name": "a", "source": {**NATS, "stream": "S"}, "sink": NATS, **more}


def stage(**more: Any) -> dict[str, Any]:
    return route(transforms=[more], key={"format": "json"}, value={"format": "json"})


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.name)
def test_examples_are_valid(file) -> None:
    """Every example is valid, and names the schema that it is held to in its first line, as editors look for it."""
    text = file.read_text(encoding="utf-8")
    kind = "test" if file.name.endswith(".test.yaml") else "route"

    assert list({"route": ROUTES, "test": TESTS}[kind].iter_errors(YamlText.parse(text, what="").value)) == []
    assert text.splitlines()[0] == f"# yaml-language-server: $schema=../schema/{kind}.schema.json"


def _documented() -> Iterator[Any]:
    """The YAML of all pages that ``turnout check`` takes for a route."""
    for page in sorted(DOCS.glob("*.md")):
        for block in blocks(page.name, "yaml"):
            try:
                Route.parse(block.text, {}, file=DOCS / page.name)
            except RouteError:
                continue
            yield pytest.param(block.text, id=str(block))


@pytest.mark.parametrize("text", list(_documented()))
def test_documented_routes_are_valid(text) -> None:
    """The schema accepts every route that ``check`` accepts."""
    assert list(ROUTES.iter_errors(yaml.safe_load(text))) == []


def _properties(part: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    """Every property that is described somewhere in a schema; conditions name some that are described elsewhere."""
    if isinstance(part, list):
        for at, item in enumerate(part):
            yield from _properties(item, f"{place}/{at}")
    elif isinstance(part, dict):
        for name, inner in part.items():
            if name == "properties" and isinstance(inner, dict):
                yield from ((f"{place}/{one}", value) for one, value in inner.items() if isinstance(value, dict))
            if name != "if":
                yield from _properties(inner, f"{place}/{name}")


def test_everything_is_described() -> None:
    """An editor has a sentence for every name."""
    named = [place for kind in MADE.values() for place, one in _properties(kind()) if not one.get("description")]

    assert named == []


@pytest.mark.parametrize(
    "document",
    [
        route(source={**NATS, "stream": "S", "maxRecordsPerTrigger": "${COUNT:-5}", "tls": "${TLS:-false}"}),
        route(source={**NATS, "stream": "S", "maxRecordsPerTrigger": "100", "timeout": "2.5"}),
        route(value={"format": "json", "schema": "a INT"}, key={"format": "connect-json", "schemasEnable": False}),
        route(mappings={"a.*": [{"dest": "b", "weight": "40%", "CLUSTER": "west"}], "c": "d"}, cluster=None),
        stage(type="org.apache.kafka.connect.transforms.ExtractField$Key", field="a"),
        stage(type="Filter", predicate={"when": {"key": "value.a", ">": 1}}, negate=True),
        stage(type="Filter", predicate=[{"type": "TopicMatches", "pattern": "a"}, {"type": "RecordIsTombstone"}]),
        stage(type="InsertHeader", header="h", **{"value.literal": 5}),
        stage(type="ReplaceField$Value", exclude=["a", "b"]),
        stage(type="ExtractField$Value", field="a", **{"field.syntax.version": "v2"}),
        route(transforms={"transforms": "t", "transforms.t.type": "Filter", "errors.tolerance": "all"}),
    ],
)
def test_what_check_takes_is_valid(document) -> None:
    """Numbers as texts, variables, names in any case, long names and short ones."""
    Route.parse(yaml.safe_dump(document), {})

    assert list(ROUTES.iter_errors(document)) == []


@pytest.mark.parametrize(
    ("document", "place"),
    [
        (route(source={**NATS, "stream": "S", "maxRecordsPerTrigger": 0}), "$.source.maxRecordsPerTrigger"),
        (route(value={"format": "string", "schema": "a INT"}), "$.value"),
        (route(trigger={"availableNow": "perhaps"}), "$.trigger.availableNow"),
        (route(mappings={"a": {"destination": "b", "wieght": 5}}), "$.mappings"),
        (stage(type="MaskField$Value"), "$.transforms"),
        (stage(type="MaskField$Value", fields=[]), "$.transforms"),
        (stage(type="HeaderFrom$Value", fields="a", headers="b", operation="steal"), "$.transforms"),
        (stage(type="Filter", negate=True), "$.transforms"),
        (stage(type="SetSchemaMetadata$Value", **{"schema.version": 1 << 31}), "$.transforms"),
        ({name: part for name, part in route().items() if name != "sink"}, "$"),
    ],
)
def test_what_is_refused(document, place) -> None:
    """Mistakes that check finds by names, types and enumerations are found by an editor too."""
    with pytest.raises(RouteError):
        Route.parse(yaml.safe_dump(document), {})

    assert {error.json_path.partition("[")[0] for error in ROUTES.iter_errors(document)} == {place}


@pytest.mark.parametrize(
    "document",
    [
        [{"name": "a", "record": {"topic": "t", "value": {"n": 1}}, "expect": {"deliveries": ["x"], "exact": True}}],
        {"subscriptions": "store", "cases": []},
        {"cases": [{"name": "a", "record": {"topic": "t"}, "expect": {"exact": ["headers"], "value": None}}]},
    ],
)
def test_tests_are_valid(document) -> None:
    """A file of tests is a block or a list; both are also valid under ``tests`` in a route."""
    assert list(TESTS.iter_errors(document)) == []
    assert list(ROUTES.iter_errors(route(tests=document))) == []


@pytest.mark.parametrize(
    "case",
    [
        {"name": "a"},
        {"name": "a", "record": {"topic": "t", "vlaue": 1}},
        {"name": "a", "record": {"topic": "t"}, "expect": {"outcome": "delivred"}},
        {"name": "a", "record": {"topic": "t"}, "expects": {}},
    ],
)
def test_tests_that_are_refused(case) -> None:
    """A missing part, and unknown names and words."""
    assert not TESTS.is_valid({"cases": [case]})
    assert not ROUTES.is_valid(route(tests=[case]))
