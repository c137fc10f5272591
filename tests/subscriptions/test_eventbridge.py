"""Event patterns want the events that EventBridge's user guide says they do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from turnout.conditions import evaluate, format_condition, leaves, parse
from turnout.engine.metadata import Metadata, texts_of
from turnout.records import Batch
from turnout.records.batch import Record
from turnout.subscriptions import Subscription
from turnout.subscriptions.eventbridge import EventRule, PatternError, condition_of, rules_of
from turnout.subscriptions.index import Index

VECTORS = Path(__file__).parents[1] / "vectors/eventbridge"
CASES = [case for name in ("patterns", "arrays") for case in json.loads((VECTORS / f"{name}.json").read_text())]
"""The comparisons of EventBridge's user guide, and events for which event-ruler 2.0.1 has given the answers."""


@pytest.mark.parametrize("case", CASES, ids=[case["id"] for case in CASES])
def test_published_comparisons(case: dict[str, Any]) -> None:
    """By the interpreter and by the index, on events that a route reads with one line of metadata."""
    condition = condition_of(case["pattern"])
    assert parse(format_condition(condition)) == condition
    events = [*case["wanted"], *case["unwanted"]]
    batch = Batch.of_records([Record("t", event) for event in events])
    keys = sorted({leaf.key for leaf in leaves(condition)})
    columns = Metadata({"*": "value.*"}).columns(batch, batch.alive, keys)
    wanted = [True] * len(case["wanted"]) + [False] * len(case["unwanted"])

    assert wanted == [evaluate(condition, texts_of(columns, row)) for row in range(len(events))]
    index = Index.of([Subscription(["d"], condition, id="one")])
    assert index.match(columns, len(events)).rows.tolist() == list(range(len(case["wanted"])))


@pytest.mark.parametrize(
    ("pattern", "problem"),
    [
        ([], "expected an object of fields, found []"),
        ({}, "expected an object of fields, found {}"),
        ({"a": "b"}, 'a: expected a list of values, or an object of fields, found "b"'),
        ({"a": [{"like": "b"}]}, "a[0]: the comparison 'like' is not known; there are prefix, suffix"),
        ({"a": [{"prefix": 1}]}, "a[0]: expected a text, found 1"),
        ({"a": [{"numeric": ["!", 1]}]}, "a[0]: expected one of < <= = > >= and a number"),
        ({"a": [{"exists": "yes"}]}, 'a[0]: expected true or false, found "yes"'),
        ({"a": [{"cidr": "10.0.0.1"}]}, 'a[0]: expected a network with fewer than 32 bits, found "10.0.0.1"'),
        ({"a": [{"numeric": [">", 5, "<", 3]}]}, "a[0]: expected > or >=, a number, < or <= and a larger one"),
        ({"a": [{"wildcard": "a**"}]}, "a[0]: one star suffices"),
        ({"a": [{"anything-but": [5, "x"]}]}, "a[0]: expected texts, or numbers, and not both"),
        ({"$or": [{"a": ["b"]}]}, "$or: expected a list of two patterns or more"),
        ({"a": [{"anything-but": []}]}, "a[0]: expected values, found none"),
        (json.loads('{"$or":[{"b":["c"]},' * 200 + '{"a":["b"]}' + "]}" * 200), "deep"),
        (json.loads('{"a":' * 50 + "1" + "}" * 50), "fields nest deeper than 30"),
    ],
)
def test_what_is_no_pattern(pattern: object, problem: str) -> None:
    """The path of the part, what is wrong with it, and what was expected."""
    with pytest.raises(PatternError) as caught:
        condition_of(pattern)
    assert problem in str(caught.value)


@pytest.mark.parametrize("pattern", json.loads((VECTORS / "refused.json").read_text()), ids=json.dumps)
def test_patterns_that_eventbridge_refuses(pattern: object) -> None:
    """A pattern that event-ruler 2.0.1 does not take is refused here too."""
    with pytest.raises(PatternError):
        condition_of(pattern)


def test_rules_of_a_bus() -> None:
    """A pattern alone, a rule, and what list-rules answers, with patterns as text or as objects."""
    rule = {"Name": "paid", "EventPattern": '{"a": ["b"]}'}
    listed = {"Rules": [rule, {"Name": "sent", "EventPattern": {"a": ["c"]}}]}
    assert [(found.name, found.pattern) for found in _rules(listed)] == [("paid", {"a": ["b"]}), ("sent", {"a": ["c"]})]
    assert [found.name for found in _rules({"a": ["b"]})] == [""]


def _rules(document: object) -> list[EventRule]:
    return [rule for rule in rules_of(document) if isinstance(rule, EventRule)]


@pytest.mark.parametrize(
    ("rule", "id_"),
    [
        ({}, "paid"),
        ({"EventBusName": "default"}, "paid"),
        ({"EventBusName": "shop"}, "shop:paid"),
        ({"EventBusName": "arn:aws:events:eu-north-1:123456789012:event-bus/shop"}, "shop:paid"),
        ({"Arn": "arn:aws:events:eu-north-1:123456789012:rule/shop/paid"}, "shop:paid"),
        ({"Arn": "arn:aws:events:eu-north-1:123456789012:rule/paid"}, "paid"),
        ({"EventBusName": "aws.partner/x.com/1"}, "aws.partner/x.com/1:paid"),
    ],
)
def test_the_bus_is_part_of_a_rules_identity(rule: dict[str, str], id_: str) -> None:
    """Two buses may have rules of the same name; the default bus is not named."""
    (found,) = _rules({"Name": "paid", "EventPattern": {"a": ["b"]}, **rule})
    assert found.id == id_


def test_state_of_a_rule() -> None:
    """A disabled rule is known as such; another state than those of EventBridge is a mistake."""
    states = ("ENABLED", "DISABLED", "ENABLED_WITH_ALL_CLOUDTRAIL_MANAGEMENT_EVENTS", "OFF")
    found = [next(rules_of({"Name": "n", "State": state, "EventPattern": {"a": ["b"]}})) for state in states]
    assert [rule.enabled if isinstance(rule, EventRule) else str(rule) for rule in found] == [
        True,
        False,
        True,
        'n.State: expected one of ENABLED, DISABLED, ENABLED_WITH_ALL_CLOUDTRAIL_MANAGEMENT_EVENTS, found "OFF"',
    ]


def test_one_bad_rule_leaves_the_others() -> None:
    """A rule with a schedule only, one whose pattern is no JSON or has a key twice, and one with bad targets."""
    good = {"Name": "good", "EventPattern": {"a": ["b"]}}
    bad = [
        {"Name": "nightly", "ScheduleExpression": "rate(1 day)"},
        {"Name": "open", "EventPattern": "{"},
        {"Name": "twice", "EventPattern": '{"a": ["b"], "a": ["c"]}'},
        {"Name": "to", "EventPattern": {"a": ["b"]}, "Targets": "x"},
    ]
    found = list(rules_of({"Rules": [*bad, good]}))
    assert [str(problem).partition(": Expecting")[0] for problem in found[:-1]] == [
        "nightly: has the schedule rate(1 day) and no pattern: start it by a timer",
        "open.EventPattern: is no JSON",
        "twice.EventPattern: the key 'a' occurs twice in one object",
        "to.Targets: expected a list of targets",
    ]
    assert isinstance(found[-1], EventRule)


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        (
            {"detail": {"state": ["paid"], "total": [{"numeric": [">", 5]}]}},
            "detail.state[]:text:paid AND detail.total[]:number>5",
        ),
        (
            {"staff": {"name": ["Anna"], "age": [9]}},
            (
                "staff[].age[]:number=9 AND staff[].name[]:text:Anna AND "
                "any(staff:json, age[]:number=9 AND name[]:text:Anna)"
            ),
        ),
        ({"a": {"b": {"c": [None]}}}, "a[].b[].c[]:null exists"),
        ({"a": [{"exists": False}]}, "subject exists AND NOT a[]:scalar exists"),
        ({"a.b": ["x"], "`": ["y"]}, None),
    ],
)
def test_text_of_conditions(pattern: object, text: str | None) -> None:
    """Only fields with an array in common need one element; what can be looked up stands before it."""
    if text is None:
        with pytest.raises(PatternError, match="a backtick"):
            condition_of(pattern)
    else:
        assert format_condition(condition_of(pattern)) == text


def test_too_many_combinations() -> None:
    """Choices over one array are multiplied, up to the number that EventBridge takes."""
    choices = {f"f{n}": {"$or": [{"a": ["x"]}, {"b": ["y"]}]} for n in range(11)}
    assert condition_of(choices)
    with pytest.raises(PatternError, match="more than 1000 combinations"):
        condition_of({"one": choices})
