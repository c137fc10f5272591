"""Files of tests, read."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.history.routes import SUBSCRIPTIONS, TEXT, route
from turnout.errors import ConfigError
from turnout.history import Suite, load_suites
from turnout.routes import Route


def mistakes(text: str, *, prefix: tuple[str, ...] = (), of: str = TEXT) -> list[tuple[str, str, int | None]]:
    with pytest.raises(ConfigError) as refused:
        Suite.parse(text, route(of), Path("small.test.yaml"), prefix)
    return [(mistake.path, mistake.problem.partition("\n")[0], mistake.line) for mistake in refused.value.mistakes]


def test_tests_stand_in_the_route_and_beside_it(tmp_path: Path) -> None:
    """A list of tests, or a block with what they share; each knows its place."""
    file = tmp_path / "small.yaml"
    case = "{name: own, record: {topic: a, timestamp: 2013-01-01T00:00:00Z}}"
    own = f"tests:\n  subscriptions: []\n  cases:\n    - {case}\n"
    file.write_text(TEXT + own, encoding="utf-8")
    beside = tmp_path / "small.test.yaml"
    beside.write_text(
        "- name: beside\n  subscriptions: []\n  record: {topic: b, value: 2013-01-01}\n", encoding="utf-8"
    )

    loaded = Route.load(file, {})
    first, second = load_suites(file, loaded)

    (one,), (two,) = first.cases, second.cases
    assert (one.name, one.file, one.path) == ("own", file, ("tests", "cases", 0))
    assert one.line == (TEXT + own).count("\n")
    assert one.record.timestamp == 1_356_998_400_000_000
    assert (two.name, two.file, two.line, two.path) == ("beside", beside, 1, (0,))
    assert two.record.value == b"2013-01-01"


def test_a_route_without_tests(tmp_path: Path) -> None:
    """The output names the expected files."""
    file = tmp_path / "small.yaml"
    file.write_text(TEXT, encoding="utf-8")

    with pytest.raises(ConfigError, match=r"small\.yaml has none, and there is no small\.test\.yaml beside it"):
        load_suites(file, route())


@pytest.mark.parametrize(
    ("cases", "place", "problem"),
    [
        ("  - {name: a, recrod: {}}", ("cases[0].recrod", 6), 'unknown name; did you mean "record"?'),
        ("  - {name: a, recrod: {}}", ("cases[0].record", 6), "is required and missing"),
        (
            "  - {name: a, record: {topc: b}}",
            ("cases[0].record.topc", 6),
            'is no part of a record; did you mean "topic"?',
        ),
        ("  - {name: a, record: {topc: b}}", ("cases[0].record.topic", 6), "expected a text, found None"),
        (
            "  - name: a\n    record: {topic: b}\n    expect: {outcome: filterd}",
            ("cases[0].expect.outcome", 8),
            '"filtered"?',
        ),
        (
            "  - name: a\n    record: {topic: b}\n    expect: {exact: [vlaue]}",
            ("cases[0].expect.exact[0]", 8),
            '"value"?',
        ),
        (
            "  - name: a\n    record: {topic: b}\n    expect: {deliveries: [{subscriber: x}]}",
            ("cases[0].expect.deliveries[0].subscriber", 8),
            'unknown name; did you mean "subscription"?',
        ),
        (
            "  - name: a\n    record: {topic: b}\n    subscriptions:\n      - {id: x, destinations: d, when: a:1 AND}",
            ("cases[0].subscriptions[0].when", 9),
            "expected a key, '(' or NOT, found the end (at 7)",
        ),
        (
            "  - name: a\n    record: {topic: b}\n    subscriptions:\n      - {id: x, destinations: [], when: 'a:1'}",
            ("cases[0].subscriptions[0]", 9),
            "at least one destination is needed",
        ),
    ],
)
def test_every_mistake_has_its_path_and_line(cases: str, place: tuple[str, int], problem: str) -> None:
    """With what was perhaps meant."""
    by_place = {(path, line): text for path, text, line in mistakes(f"{SUBSCRIPTIONS}cases:\n{cases}\n")}

    assert problem in by_place[place]


def test_mistakes_inside_a_route_file() -> None:
    """Their paths begin where the tests do."""
    in_list = "tests:\n  - {name: a, subscriptions: [], record: {topic: 1}}\n  - {nam: b, record: {topic: a}}\n"
    in_block = "tests: {subscriptions: [], case: []}\n"

    assert [(path, line) for path, _, line in mistakes(in_list, prefix=("tests",))] == [
        ("tests[1].name", 3), ("tests[1].nam", 3),
    ]  # fmt: skip
    assert [path for path, *_ in mistakes(in_block, prefix=("tests",))] == ["tests.cases", "tests.case"]


def test_subscriptions_have_to_be_said() -> None:
    """A route that has some is not tested by mistake with none; one that has none cannot be given any."""
    none = TEXT.replace('subscriptions: {store: "memory://history", metadata: {town: value.town, n: value.n}}\n', "")
    case = "cases: [{name: a, record: {topic: b}}]\n"

    assert mistakes(case) == [
        ("subscriptions", "the route has subscriptions: list those of the tests, [] for none, or say store", None)
    ]
    assert [path for path, *_ in mistakes(f"{SUBSCRIPTIONS}{case}", of=none)] == ["subscriptions"]


def test_what_is_no_yaml() -> None:
    """It is reported as invalid YAML."""
    ((_, problem, _),) = mistakes("cases: [")

    assert problem.startswith("not YAML")
