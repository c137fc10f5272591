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
from turnout.subscriptions.eventbridge import PatternError, condition_of, rules_of
from turnout.subscriptions.index import Index

CASES = json.loads((Path(__file__).parents[1] / "vectors/eventbridge/patterns.json").read_text())


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
        ({"a": {"b": [None]}}, "a.b[0]: null cannot be distinguished from a missing field"),
        ({"a": [{"like": "b"}]}, "a[0]: the comparison 'like' is not known; there are prefix, suffix"),
        ({"a": [{"prefix": 1}]}, "a[0]: expected a text, found 1"),
        ({"a": [{"numeric": ["!", 1]}]}, "a[0]: expected one of < <= = > >= and a number"),
        ({"a": [{"exists": "yes"}]}, 'a[0]: expected true or false, found "yes"'),
        ({"a": [{"cidr": "10.0.0.1/8"}]}, "not a network"),
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


def test_rules_of_a_bus() -> None:
    """A pattern alone, a rule, and what list-rules answers, with patterns as text or as objects."""
    rule = {"Name": "paid", "EventPattern": '{"a": ["b"]}'}
    listed = {"Rules": [rule, {"Name": "sent", "EventPattern": {"a": ["c"]}}]}
    assert [(found.name, found.pattern) for found in rules_of(listed)] == [
        ("paid", {"a": ["b"]}),
        ("sent", {"a": ["c"]}),
    ]
    assert [found.name for found in rules_of({"a": ["b"]})] == [""]
    with pytest.raises(PatternError, match="EventPattern: is no JSON"):
        list(rules_of({"EventPattern": "{"}))
