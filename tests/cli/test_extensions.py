"""A codec and a transform of another package, as CONTRIBUTING.md has them, found by their entry points."""

from __future__ import annotations

import importlib
import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from turnout.codecs import format as codecs
from turnout.engine import Program
from turnout.engine.sample_records import SampleRecord, record_batch
from turnout.history import Suite
from turnout.history.suite.cases import run_cases
from turnout.routes import Route
from turnout.transforms import registry as transforms

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "plugin"
MODULES = ("pairs", "copy_field", "broken")
ROUTE = """
name: flights
source: {format: nats, servers: "nats://127.0.0.1:4222", stream: FLIGHTS}
value: {format: pairs, separator: "&"}
transforms:
- {name: copy, type: CopyField$Value, field: carrier, to: airline}
- {name: mask, type: MaskField$Value, fields: carrier}
sink: {format: nats, servers: "nats://127.0.0.1:4222"}
deadLetter: {topic: dead}
errors: {tolerance: all}
tests:
- name: copied and masked
  record: {topic: a, value: {carrier: AA, delay: "17"}}
  expect: {value: {carrier: "", delay: "17", airline: AA}}
- name: no pairs
  record: {topic: a, value: carrier}
  expect: {outcome: dead_lettered, reason: "expected name=text, found 'carrier'"}
"""
BROKEN = """
from turnout.codecs import CodecKind, Kind, Option


def _codec(url):
    raise OSError(f"nothing answers at {url}")


URL = Option("url", Kind(str), "", "there")
KIND = CodecKind("broken", "example.BrokenConverter", "nothing", _codec, settings=(URL,))
"""


@pytest.fixture(autouse=True)
def distribution(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An installed package of examples: its modules and the metadata that pip would write."""
    site = tmp_path_factory.mktemp("site")
    for name in ("pairs", "copy_field"):
        shutil.copy(EXAMPLES / f"{name}.py", site)
    (site / "broken.py").write_text(BROKEN, encoding="utf-8")
    info = site / "examples-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: examples\nVersion: 1.0\n", encoding="utf-8")
    (info / "entry_points.txt").write_text(
        "[turnout.codecs]\npairs = pairs:KIND\nbroken = broken:KIND\n\n"
        "[turnout.transforms]\nCopyField = copy_field:CopyField\n",
        encoding="utf-8",
    )
    monkeypatch.syspath_prepend(site)
    caches = (codecs.plugins, codecs._loaded, transforms._plugins)
    for cache in caches:
        cache.cache_clear()
    yield
    for cache in caches:
        cache.cache_clear()
    for name in MODULES:
        sys.modules.pop(name, None)
    importlib.invalidate_caches()


def test_a_route_with_both_is_checked_and_explained(turnout: Any, tmp_path: Path) -> None:
    """`check` knows their options, `explain` shows values in the codec's notation."""
    (tmp_path / "r.yaml").write_text(ROUTE, encoding="utf-8")
    record = json.dumps({"topic": "a", "value": {"carrier": "AA"}})

    code, out, _ = turnout("check", "r.yaml", "--json")
    explained, text, _ = turnout("explain", "r.yaml", "--stdin", "--json", stdin=record)

    assert (code, json.loads(out)["valid"]) == (0, True)
    assert (explained, json.loads(json.loads(text)["messages"][0]["value"])) == (0, {"carrier": "", "airline": "AA"})


def test_the_engine_reads_and_writes_by_both() -> None:
    """A value that is not an object cannot be copied: a tombstone becomes a dead letter."""
    route = Route.parse(ROUTE)
    records = [SampleRecord.of({"topic": "a", "value": value}, route=route) for value in ({"carrier": "AA"}, None)]

    messages = Program.of(route).run(record_batch(records)).messages

    assert messages.column("value").to_pylist() == [b"carrier=&airline=AA", None]
    assert messages.topics.to_pylist() == ["a", "dead"]


def test_cases_are_written_in_the_codecs_notation() -> None:
    """Objects of texts, in records and in expectations."""
    route = Route.parse(ROUTE)
    suite = Suite.parse(ROUTE, route, Path("r.yaml"), ("tests",))
    assert suite is not None
    report = run_cases(route, suite.cases)

    assert [(result.case.name, result.differences) for result in report.results if not result.passed] == []


def test_their_mistakes_have_path_and_line(turnout: Any, tmp_path: Path) -> None:
    """Settings and options that are unknown, or wrong."""
    text = ROUTE.replace('separator: "&"', 'separator: "=", sepaator: "&"').replace("field: carrier", "feild: carrier")
    (tmp_path / "r.yaml").write_text(text, encoding="utf-8")

    code, out, _ = turnout("check", "r.yaml", "--json")
    mistakes = {mistake["path"]: mistake for mistake in json.loads(out)["mistakes"]}

    assert code == 2
    assert mistakes["value.separator"]["problem"] == "expected a text without =, found '='"
    assert 'did you mean "separator"?' in mistakes["value.sepaator"]["problem"]
    assert {mistakes[path]["line"] for path in ("value.separator", "value.sepaator")} == {4}
    assert 'did you mean "field"?' in mistakes["transforms[0].feild"]["problem"]


def test_a_codec_that_refuses_its_settings_is_a_mistake_of_the_route(turnout: Any, tmp_path: Path) -> None:
    """With file, path and line, as JSON too."""
    (tmp_path / "r.yaml").write_text(ROUTE.replace('pairs, separator: "&"', "broken, url: x"), encoding="utf-8")

    code, out, _ = turnout("check", "r.yaml", "--json")
    plain, _, error = turnout("check", "r.yaml")

    assert (code, plain) == (2, 2)
    assert json.loads(out)["mistakes"] == [
        {"path": "value.format", "problem": "broken refuses its settings: nothing answers at x", "line": 4}
    ]
    assert "r.yaml" in error
    assert "value.format: broken refuses its settings: nothing answers at x (line 4)" in error


def test_the_schema_has_both(turnout: Any) -> None:
    """For editors, where the package is installed."""
    definitions = json.loads(turnout("schema", "route")[1])["$defs"]

    assert {"pairs", "broken"} <= set(definitions["codec"]["properties"]["format"]["enum"])
    assert definitions["transform.CopyField"]["required"] == ["field", "to"]
    rules = [rule for rule in definitions["codec"]["allOf"] if "pairs" in json.dumps(rule["if"])]
    assert rules[0]["then"]["properties"]["separator"]["default"] == ";"


@pytest.mark.parametrize(("name", "start"), [("pairs", "class Pairs"), ("copy_field", "@dataclass")])
def test_contributors_read_what_runs_here(name: str, start: str) -> None:
    """CONTRIBUTING.md shows the modules as they are."""
    code = (EXAMPLES / f"{name}.py").read_text(encoding="utf-8")

    assert code[code.index(start) :].strip() in (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
