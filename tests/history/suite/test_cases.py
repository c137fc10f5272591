"""Tests of a route, run without Spark."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from tests.history.routes import SUBSCRIPTIONS, TEXT, route, suite
from turnout.conditions import parse
from turnout.engine import Program
from turnout.history import Report, run_cases
from turnout.subscriptions import Subscription, open_store


def ran(cases: str, **given: str) -> Report:
    return run_cases(route(given.get("text", TEXT)), suite(cases, **given))


def differences(cases: str, **given: str) -> list[tuple[str, Any, Any]]:
    """Path, expected and found of all differences; what is not there as text."""
    return [
        (
            difference.path,
            difference.expected if difference.expected is None else str(difference.expected),
            str(difference.actual),
        )
        for result in ran(cases, **given).results
        for difference in result.differences
    ]


PASSING = """
  - name: from Oulu
    record: {topic: in.a, value: {city: Oulu, n: 7, secret: s}, headers: {Kind: even}}
    expect:
      topic: mapped.a
      value: {town: Oulu, secret: "", city: null}
      headers: {Kind: even, Other: null}
      deliveries: [{subscription: many}, out.oulu]
  - name: exactly
    record: {topic: in.a, key: k, value: {city: Oulu, n: 7, secret: s}, headers: {Kind: [a, b]}}
    expect:
      key: k
      value: {town: Oulu, n: 7, secret: ""}
      headers: {Kind: [a, b]}
      deliveries: [out.oulu, out.many, {subscription: many, destination: out.more}]
      exact: true
  - name: old
    record: {topic: in.a, value: {}, headers: {Old: "1"}}
    expect: {outcome: filtered}
  - name: nobody
    record: {topic: other, value: {city: Turku}}
    expect: {outcome: unmatched, topic: other, value: {town: Turku}, deliveries: []}
  - name: broken
    record: {topic: in.a, value: "{"}
    expect: {stage: VALUE_CONVERTER, reason: JsonParse, value: "{", headers: {__connect.errors.topic: in.a}}
  - name: lost
    record: {topic: half.x, offset: 1, value: {}}
    expect: {outcome: lost_by_weight}
"""


def test_every_outcome_has_its_expectation() -> None:
    """Delivered, filtered, unmatched, dead-lettered and lost; parts that are not named are not looked at."""
    lost = next(n for n in range(50) if not differences(f"""
  - {{name: x, record: {{topic: half.x, offset: {n}, value: {{}}}}, expect: {{outcome: lost_by_weight}}}}
"""))  # fmt: skip
    report = ran(PASSING.replace("offset: 1,", f"offset: {lost},").replace("JsonParse", ""))

    assert [(result.case.name, result.differences) for result in report.failed] == []
    assert len(report.results) == 6


AS_JSON = b'{"town":"Oulu","n":3,"list":[1, {"a": true}]}'


@pytest.mark.parametrize(
    ("expect", "expected"),
    [
        ("{value: {town: Turku}}", [("value.town", "Turku", "Oulu")]),
        ("{value: {town: Oulu, more: {a: 1}}}", [("value.more", "{'a': 1}", "nothing")]),
        ("{value: {town: Oulu, n: 3}, exact: [value]}", [("value.list", "nothing", "[1, {'a': True}]")]),
        ("{value: {n: true}}", [("value.n", "True", "3")]),
        ("{value: {n: 3.0, list: [1, {a: 1}]}}", [("value.list[1].a", "1", "True")]),
        ("{value: {list: [1]}}", [("value.list", "[1]", "[1, {'a': True}]")]),
        ("{value: text}", [("value", "text", "{'town': 'Oulu', 'n': 3, 'list': [1, {'a': True}]}")]),
        ("{topic: in.a}", [("topic", "in.a", "mapped.a")]),
        ("{headers: {H: y, I: null}}", [("headers.H", "y", "x"), ("headers.I", None, "1")]),
        ("{headers: {}, exact: [headers]}", [("headers.H", "nothing", "x"), ("headers.I", "nothing", "1")]),
        ("{outcome: filtered}", [("outcome", "filtered", "delivered")]),
        ("{deliveries: []}", [("deliveries", "nothing", "{'subscription': 'oulu', 'destination': 'out.oulu'}")]),
        ("{deliveries: [out.oulu, out.oulu]}", [("deliveries", "{'destination': 'out.oulu'}", "nothing")]),
        ("{valueBase64: AA==}", [("valueBase64", "AA==", base64.b64encode(AS_JSON).decode())]),
    ],
)  # fmt: skip
def test_differences_name_path_and_values(expect: str, expected: list[tuple[str, Any, str]]) -> None:
    """Partial where nothing else is said: what is named has to hold."""
    record = "{topic: in.a, value: {city: Oulu, n: 3, list: [1, {a: true}]}, headers: {H: x, I: 1}}"

    assert differences(f"  - {{name: one, record: {record}, expect: {expect}}}\n") == expected


def test_a_delivery_that_is_missing_comes_with_the_leaves_to_blame() -> None:
    """The leaves are shown with the values that they tested."""
    report = ran("""
  - name: one
    record: {topic: in.a, value: {city: Oulu, n: 7}, headers: {Kind: odd}}
    expect: {deliveries: [{subscription: many}, {subscription: nobody}]}
""")

    assert [difference.note for difference in report.results[0].differences] == [
        "n>5 AND NOT Kind:odd fails by NOT Kind:odd ('odd')",
        "there is no subscription 'nobody'",
    ]


def test_another_outcome_comes_with_its_reason() -> None:
    """It hides all other differences, which follow from it."""
    (result,) = ran("  - {name: one, record: {topic: in.a, value: '{'}, expect: {topic: x, value: {a: 1}}}\n").results
    (difference,) = result.differences

    assert (difference.path, difference.actual) == ("outcome", "dead_lettered")
    assert difference.note.startswith("VALUE_CONVERTER: ")


def test_a_route_that_tolerates_no_failure_is_stopped() -> None:
    """By a record that fails, with its stage and its reason."""
    text = TEXT.replace("errors: {tolerance: all}\n", "")
    cases = """
  - name: one
    record: {topic: in.a, value: "{"}
    expect: {outcome: stopped, stage: VALUE_CONVERTER, value: null, deliveries: []}
"""

    assert differences(cases, text=text) == []


def test_cases_have_clusters_and_subscriptions_of_their_own() -> None:
    """A case's come before the suite's, the suite's before the route's."""
    report = ran(
        """
  - {name: outside, record: {topic: split.x, value: {}}, expect: {outcome: unmatched, topic: split.x}}
  - name: east
    cluster: east
    record: {topic: split.x, value: {}}
    subscriptions: [{id: all, destinations: out.all, when: subject exists}]
    expect: {topic: a.x, deliveries: [out.all], exact: true}
"""
    )

    assert [result.differences for result in report.results] == [(), ()]


def test_the_subscriptions_of_the_routes_store() -> None:
    """The store is used if the file says so."""
    store = open_store("memory://history")
    stored = store.create(Subscription(("out.stored",), parse("topic:mapped.*")))
    try:
        cases = "  - {name: one, record: {topic: in.a, value: {}}, expect: {deliveries: [out.stored], exact: true}}\n"

        assert differences(cases, shared="subscriptions: store\n") == []
    finally:
        store.delete(stored)


def test_a_case_that_expects_nothing_yet_fails() -> None:
    """It says what happens, and how to accept it."""
    (result,) = ran("  - {name: one, record: {topic: in.a, value: {}}}\n").results

    assert [(difference.path, difference.actual) for difference in result.differences] == [("expect", "unmatched")]


def test_coverage_names_what_no_test_reaches() -> None:
    """Transforms, both answers of each predicate, shares of mappings, subscriptions."""
    report = ran("""
  - {name: one, record: {topic: in.a, value: {city: Oulu, n: 3}}, expect: {}}
  - {name: two, record: {topic: split.x, value: {}}, cluster: east, expect: {outcome: unmatched}}
""")
    reached = {item.name: item.reached for item in report.coverage.items}

    assert reached == {
        "old": False,
        "rename": True,
        "mask": False,
        "old: HasHeaderKey(name='Old') is true": False,
        "old: HasHeaderKey(name='Old') is false": True,
        "mask: Condition(value.n>5) is true": False,
        "mask: Condition(value.n>5) is false": True,
        "in.* → mapped.{{wildcard(1)}} (100 %)": True,
        "half.x → half.x (50 %)": False,
        "half.x → lost (50 %)": False,
        "split.x → b.x (10 %, east)": False,
        "split.x → a.x (90 %, east)": True,
        "oulu": True,
        "many": False,
    }


def test_a_hundred_tests_go_through_in_one_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each case has its own result."""
    sizes = []
    trace = Program.trace
    monkeypatch.setattr(
        Program, "trace", lambda self, batch, *more: sizes.append(len(batch)) or trace(self, batch, *more)
    )
    line = "  - {{name: case {n}, record: {{topic: in.a, value: {{n: {n}}}}}, expect: {{value: {{n: {m}}}}}}}\n"

    report = ran("".join(line.format(n=n + 10, m=n % 50 + 10) for n in range(100)))

    assert sizes == [100]
    assert [result.case.name for result in report.failed] == [f"case {n}" for n in range(60, 110)]


def test_a_route_without_subscriptions() -> None:
    """Every record goes to the sink under its own topic."""
    text = TEXT.replace('subscriptions: {store: "memory://history", metadata: {town: value.town, n: value.n}}\n', "")
    cases = "  - {name: one, record: {topic: in.a, value: {}}, expect: {deliveries: [mapped.a], exact: true}}\n"

    assert differences(cases, shared="", text=text) == []
    assert SUBSCRIPTIONS not in text
