"""``turnout test`` as a person or a build runs it."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from tests.history.routes import SUBSCRIPTIONS, TEXT

PASSES = "  - {name: Oulu gets it, record: {topic: in.a, value: {city: Oulu}}, expect: {deliveries: [out.oulu]}}\n"
FAILS = (
    "  - name: many get it\n    record: {topic: in.a, value: {n: 3}}\n    expect: {value: {n: 4}, outcome: unmatched}\n"
)


@pytest.fixture
def folder(turnout, tmp_path) -> Path:
    """The present folder, with a route in it."""
    (tmp_path / "small.yaml").write_text(TEXT, encoding="utf-8")
    return tmp_path


def write_tests(folder: Path, *cases: str) -> Path:
    file = folder / "small.test.yaml"
    file.write_text(f"{SUBSCRIPTIONS}cases:\n{''.join(cases)}", encoding="utf-8")
    return file


def test_passing_tests_and_what_they_reach(turnout, folder) -> None:
    """Exit code 0, a line of numbers, and what no test reaches."""
    write_tests(folder, PASSES)

    code, out, err = turnout("test", "small.yaml")

    first, second, *missed = out.splitlines()
    assert (code, err) == (0, "")
    assert first.startswith("small: 1 passed in ")
    assert second == "reached 1 of 3 transforms, 2 of 4 predicates, 1 of 5 mappings, 1 of 2 subscriptions"
    assert "    no test reaches transform old" in missed
    assert "    no test reaches mapping split.x → b.x (10 %, east)" in missed


def test_the_file_of_the_tests_stands_for_its_route(turnout, folder) -> None:
    """Named by itself or beside its route, as the shell makes of ``*.yaml``: the route is tested once."""
    write_tests(folder, PASSES)

    for names in (["small.test.yaml"], ["small.test.yaml", "small.yaml"]):
        code, out, err = turnout("test", *names)
        assert (code, err, out.count("small: 1 passed")) == (0, "", 1)


def test_a_folder_of_routes(turnout, folder) -> None:
    """Those with tests are tested; the others are named. A route without tests that is named is a wrong request."""
    write_tests(folder, PASSES)
    (folder / "bare.yaml").write_text(TEXT, encoding="utf-8")

    code, out, err = turnout("test", ".")

    assert (code, err, out.count("small: 1 passed")) == (0, "note: bare.yaml has no tests\n", 1)
    assert turnout("test", "bare.yaml")[0] == 2
    (folder / "small.yaml").unlink()
    (folder / "small.test.yaml").unlink()
    code, _, err = turnout("test", ".")
    assert (code, "no route there has tests" in err) == (2, True)


def test_a_route_that_cannot_be_used_beside_others(turnout, folder) -> None:
    """The others are tested; exit code 2, and each such file is told."""
    write_tests(folder, PASSES)
    for name in ("worse", "worst"):
        (folder / f"{name}.yaml").write_text(TEXT.replace("name: ", "nmae: "), encoding="utf-8")

    code, out, err = turnout("test", ".")

    assert (code, "1 passed" in out) == (2, True)
    assert [line.split(" cannot be used")[0].split()[-1] for line in err.splitlines() if "cannot be used" in line] == [
        "worst.yaml", "worse.yaml",
    ]  # fmt: skip


def test_tests_without_a_route(turnout, folder) -> None:
    """One sentence says what to name, whatever the file is called."""
    tests = write_tests(folder, PASSES)
    tests.rename(folder / "big.test.yaml")
    code, out, err = turnout("test", "big.test.yaml")
    assert (code, out) == (2, "")
    assert "big.test.yaml: has the tests of a route, and there is no big.yaml beside it: name the route's file" in err

    (folder / "big.test.yaml").rename(folder / "cases.yaml")
    code, _, err = turnout("test", "cases.yaml")
    assert (code, "cases.yaml: has the tests of a route: name the route's file" in err) == (2, True)
    assert err.count("\n") == 2


def test_failures_are_told_value_by_value(turnout, folder) -> None:
    """Exit code 1, the test's place and name, and for each path what was expected and found."""
    write_tests(folder, PASSES, FAILS)

    code, out, _ = turnout("test", "small.yaml")

    assert code == 1
    assert out.splitlines()[:4] == [
        "FAILED small.test.yaml:7 many get it",
        "    value.n: expected 4",
        "             found    3",
        out.splitlines()[3],
    ]
    assert out.splitlines()[3].startswith("small: 1 passed, 1 failed in ")


def test_some_of_them(turnout, folder) -> None:
    """By a part of their names; where none has it, the request was wrong."""
    write_tests(folder, PASSES, FAILS)

    assert turnout("test", "small.yaml", "-k", "oulu")[:1] == (0,)
    code, _, err = turnout("test", "small.yaml", "-k", "turku")
    assert (code, "no test has 'turku' in its name" in err) == (2, True)


def test_json_has_everything(turnout, folder) -> None:
    """Cases with their differences, and the coverage."""
    write_tests(folder, PASSES, FAILS)

    code, out, _ = turnout("test", "small.yaml", "--json")

    (route,) = json.loads(out)["routes"]
    assert (code, route["route"], route["tests"], route["failed"]) == (1, "small", 2, 1)
    assert route["cases"][1]["differences"] == [{"path": "value.n", "expected": 4, "found": 3, "note": None}]
    assert {"kind": "subscription", "name": "many", "reached": False} in route["coverage"]


def test_junit(turnout, folder) -> None:
    """A failing test is a failure with its differences, with file and line."""
    write_tests(folder, PASSES, FAILS)

    turnout("test", "small.yaml", "--junit", "report.xml")

    (suite,) = ET.parse(folder / "report.xml").getroot()
    passed, failed = suite
    assert (suite.get("name"), suite.get("tests"), suite.get("failures")) == ("small", "2", "1")
    assert (passed.get("name"), list(passed)) == ("Oulu gets it", [])
    assert (failed.get("file"), failed.get("line")) == ("small.test.yaml", "7")
    assert "found    3" in str(failed[0].text)


def test_update_accepts_what_happens(turnout, folder) -> None:
    """The file is rewritten, and its tests pass."""
    file = write_tests(folder, PASSES, FAILS)

    code, _, err = turnout("test", "small.yaml", "--update")

    assert (code, err) == (0, "small.test.yaml: 1 expectation rewritten\n")
    assert file.read_text(encoding="utf-8").endswith("expect: {value: {n: 3}, outcome: unmatched}\n")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("cases: [{nam: x, record: {}}]\n", 'cases[0].nam: unknown name; did you mean "name"?'),
        ("cases: [\n", "not YAML"),
        (None, "has none, and there is no small.test.yaml beside it"),
    ],
)
def test_a_wrong_file(turnout, folder, text, problem) -> None:
    """Exit code 2, with the mistake's place."""
    if text is not None:
        (folder / "small.test.yaml").write_text(text, encoding="utf-8")

    code, _, err = turnout("test", "small.yaml")

    assert code == 2
    assert problem in err


def test_the_example_routes_tests_pass(turnout, monkeypatch) -> None:
    """They reach everything that the example has."""
    root = Path(__file__).parents[3]
    monkeypatch.chdir(root)

    code, out, err = turnout("test", "examples/flights.yaml", "--json")

    (route,) = json.loads(out)["routes"]
    assert (code, err) == (0, "")
    assert [item["name"] for item in route["coverage"] if not item["reached"]] == []


MASK = "  - {{name: {name}, record: {{topic: in.a, value: {{n: 7, {field}: x}}}}, expect: {{outcome: unmatched}}}}\n"


def test_a_mask_that_masks_nothing_fails_the_tests(turnout, folder) -> None:
    """Every test passes, and the field to mask is in no record: exit code 1, named in text, JSON and JUnit."""
    text = TEXT.replace("value: {format: json}", "value: {format: json}\nunmatched: drop")
    (folder / "small.yaml").write_text(text.replace("n>5", "n>50"), encoding="utf-8")
    shared = SUBSCRIPTIONS.replace("n>5", "n>50")
    file = folder / "small.test.yaml"
    file.write_text(f"{shared}cases:\n{MASK.format(name='slip', field='secert')}", encoding="utf-8")

    code, out, _ = turnout("test", "small.yaml", "--junit", "junit.xml")
    _, as_json, _ = turnout("test", "small.yaml", "--json")
    _, of_part, _ = turnout("test", "small.yaml", "-k", "slip")

    assert code == 1
    assert "small: 1 passed in" in out
    assert (
        'FAILED mask transforms[2].fields: value.secret in 0 of 1 records: nothing is masked; did you mean "secert"?\n'
    ) in out
    names = {
        (one["path"], one["name"]): (one["found"], one["mask"]) for one in json.loads(as_json)["routes"][0]["names"]
    }
    assert names["transforms[2].fields", "value.secret"] == (0, True)
    assert names["transforms[2].predicate.when", "value.n"] == (1, False)
    suite = ET.parse(folder / "junit.xml").find(".//testsuite")
    assert suite is not None
    assert suite.get("failures") == "1"
    assert "FAILED" not in of_part

    file.write_text(f"{shared}cases:\n{MASK.format(name='right', field='secret')}", encoding="utf-8")
    code, out, _ = turnout("test", "small.yaml")
    assert code == 0
    assert "    name transforms[2].fields: value.secret in 1 of 1 records\n" in out


def test_a_tombstone_says_nothing_of_a_mask(turnout, folder) -> None:
    """It has no fields: the mask of such records alone is not reached, and no failure."""
    text = TEXT.replace(
        'predicate: {when: {key: value.n, ">": 5}}', "predicate: {type: RecordIsTombstone}, negate: true"
    )
    (folder / "small.yaml").write_text(text, encoding="utf-8")
    case = "  - {name: gone, record: {topic: in.a, value: null}, expect: {outcome: unmatched}}\n"
    write_tests(folder, case)

    code, out, _ = turnout("test", "small.yaml")

    assert "FAILED mask" not in out
    assert code == 0
