"""Lists, filters, flags and parts of times mean what they mean for pySigma."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.subscriptions.sigma.pysigma_answers import _EVENTS, _LISTS, ANSWERS, CASES, answers
from turnout.conditions import Condition, evaluate, leaves
from turnout.errors import SubscriptionInvalidError
from turnout.subscriptions.sigma import SigmaFilter, SigmaRule, SkippedRule, divided, read_text

pytest.importorskip("re2", reason='pip install "turnout[regex]"')
RECORDED = json.loads(ANSWERS.read_text(encoding="utf-8"))
FILE = Path("rules.yml")


def filtered(documents: list[str]) -> SigmaRule:
    found = list(read_text("---\n".join(documents), FILE, lists=_LISTS))
    assert not [one for one in found if isinstance(one, SkippedRule)]
    (rule,) = [one for one in found if isinstance(one, SigmaRule)]
    return rule.with_filters([one for one in found if isinstance(one, SigmaFilter)])


@pytest.mark.parametrize(("documents", "expected"), list(zip(CASES, RECORDED, strict=True)))
def test_conditions_have_pysigmas_answers(documents: list[str], expected: list[bool]) -> None:
    """Of each event."""
    condition = filtered(documents).condition

    assert [evaluate(condition, event) for event in _EVENTS] == expected


def test_the_answers_are_pysigmas() -> None:
    """Where it is installed, as in no extra of turnout."""
    pytest.importorskip("sigma.collection")

    assert answers() == RECORDED


def left(document: str, **lists: list[str]) -> str:
    (found,) = read_text(document, FILE, lists=lists)
    assert isinstance(found, SkippedRule)
    return f"{found.path}: {found.reason}"


@pytest.mark.parametrize(
    ("search", "reason"),
    [
        ("{a|expand: '%x%'}", "detection.s.a|expand: expand needs the values of %x%: give --list x=FILE"),
        ("{a|expand: '%many%%many%'}", "detection.s.a|expand: expands to more than 20,000 values"),
        ("{a|expand: '%none%'}", "detection.s.a|expand: has no values"),
        ("{a|hour: 24}", "detection.s.a|hour: expected a hour from 0 to 23, found 24"),
        ("{a|day: x}", "detection.s.a|day: expected a day from 1 to 31, found 'x'"),
        ("{a|week: 3}", "detection.s.a|week: the modifier 'week' cannot be expressed"),
    ],
)
def test_what_is_missing_is_named(search: str, reason: str) -> None:
    """With what to do about it."""
    document = f"{{detection: {{s: {search}, condition: s}}}}"

    assert left(document, many=list(map(str, range(200))), none=[]) == reason


@pytest.mark.parametrize(
    ("detection", "reason"),
    [
        ("{s: {a: b}, condition: not s}", "filter.rules: expected any, or ids or names of rules, found None"),
        (
            "{rules: [1], s: {a: b}, condition: not s}",
            "filter.rules: expected any, or ids or names of rules, found [1]",
        ),
        ("{rules: any, s: {a: b}}", "filter: expected a filter with a condition"),
        ("{rules: any, s: {a: b}, condition: not x}", "filter.condition: no search has the name 'x'"),
    ],
)
def test_filters_that_are_none_are_named(detection: str, reason: str) -> None:
    """As rules are."""
    assert left(f"{{title: f, filter: {detection}}}") == reason


def texts(count: int, prefix: str = "v") -> str:
    return "[" + ", ".join(f"{prefix}{number}" for number in range(count)) + "]"


def matched(conditions: list[Condition], event: dict[str, str]) -> bool:
    return any(evaluate(condition, event) for condition in conditions)


def test_long_lists_become_several_subscriptions() -> None:
    """Each has at most a thousand leaves, and one of them is true where the rule is."""
    rule = filtered(
        [f"{{id: r, detection: {{s: {{a: {texts(2500)}, b: x}}, f: {{c: {texts(20)}}}, condition: s and not f}}}}"]
    )

    made = rule.subscriptions(["d"])

    assert [one.id for one in made] == ["r-1", "r-2", "r-3"]
    conditions = [one.condition for one in made]
    assert all(sum(1 for _ in leaves(condition)) <= 1000 for condition in conditions)
    for event in (
        {"a": "V2499", "b": "x"},
        {"a": "v0", "b": "x", "c": "v3"},
        {"a": "v1"},
        {"a": "v7", "b": "X", "c": "w"},
    ):
        assert matched(conditions, event) == evaluate(rule.condition, event)


def test_what_cannot_be_divided_is_left() -> None:
    """All values of a negated list are one condition."""
    rule = filtered([f"{{id: r, detection: {{s: {{b: x}}, f: {{a: {texts(1500)}}}, condition: s and not f}}}}"])

    assert divided(rule.condition, 1000) == [rule.condition]
    with pytest.raises(SubscriptionInvalidError, match=r"1,?501"):
        rule.subscriptions(["d"])
