"""Predicates."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

from turnout.errors import ConfigError
from turnout.records import Batch, Header, Record
from turnout.transforms import Chain, Predicate
from turnout.transforms import predicates as all_predicates
from turnout.transforms.base import Errors
from turnout.transforms.java.regex import LONGEST
from turnout.transforms.predicates import HasHeaderKey, RecordIsTombstone, SubjectMatches, TopicNameMatches

RECORDS = [
    Record("orders.eu", {"n": 5, "at": {"x.y": "home"}}, "k1", [Header("h", b"one"), Header("h", b"two")]),
    Record("orders", None, None, [Header("other", b"\xff")]),
    Record("orders.us", {"n": 50}, {"id": 1}),
    Record(None, "plain", b"bytes"),
]


def holds(predicate: Predicate) -> list[bool]:
    errors: Errors = {}
    answer = predicate.test(Batch.of_records(RECORDS), errors)

    assert errors == {}
    return list(answer.tolist())


@pytest.mark.parametrize(
    ("predicate", "expected"),
    [
        (TopicNameMatches("orders\\..*"), [True, False, True, False]),
        (TopicNameMatches("orders"), [False, True, False, False]),
        (SubjectMatches("orders.*"), [True, False, True, False]),
        (SubjectMatches(">"), [True, True, True, False]),
        (HasHeaderKey("h"), [True, False, False, False]),
        (RecordIsTombstone(), [False, True, False, False]),
    ],
)
def test_each_row_is_told_by_itself(predicate: Predicate, expected: list[bool]) -> None:
    """Null topics match nothing, names of headers and subjects are exact."""
    assert expected == holds(predicate)
    assert expected == holds(pickle.loads(pickle.dumps(predicate)))


def test_a_topic_that_cannot_be_tested_fails_its_own_records_only() -> None:
    """The others get their answers, and those that are not alive do not count."""
    batch = Batch.of_records([Record("a" * (LONGEST + 1)), Record("a"), Record("a" * (LONGEST + 1))])
    batch.filter(np.array([2]))
    errors: Errors = {}
    answer = TopicNameMatches("a+").test(batch, errors)

    assert list(errors) == [0]
    assert answer[1]


def test_a_topic_is_matched_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many records have it, and however many batches come."""
    requested: list[tuple[str, str]] = []
    monkeypatch.setattr(all_predicates, "matches", lambda pattern, topic: not requested.append((pattern, topic)))
    predicate = SubjectMatches("*")
    for _ in range(2):
        predicate.test(Batch.of_records([Record("a"), Record("b"), Record("a")]), {})

    assert sorted(requested) == [("*", "a"), ("*", "b")]


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ({"key": "value.n", ">": 10}, [False, False, True, False]),
        ({"key": "value.at.`x.y`", "equals": "home"}, [True, False, False, False]),
        ({"key": "key", "exists": True}, [True, False, True, True]),
        ({"key": "key", "equals": "bytes"}, [False, False, False, True]),
        ({"key": "key.id", "equals": "1"}, [False, False, True, False]),
        ({"key": "value", "equals": "plain"}, [False, False, False, True]),
        ({"key": "subject", "pattern": "orders.?s"}, [False, False, True, False]),
        ({"key": "h", "equals": "two"}, [True, False, False, False]),
        ({"key": "h", "equals": "one"}, [False, False, False, False]),
        ({"key": "other", "exists": True}, [False, False, False, False]),
        ({"not": {"key": "value.n", "exists": True}}, [False, True, False, True]),
        ({"all": [{"key": "topic", "exists": True}, {"key": "value.n", "<": 10}]}, [True, False, False, False]),
        ({"any": [{"key": "topic", "equals": "orders"}, {"key": "h", "exists": True}]}, [True, True, False, False]),
        ({"xor": [{"key": "value.n", "exists": True}, {"key": "h", "exists": True}]}, [False, False, True, False]),
        ({"fieldCondition": {"key": "topic", "op": "=", "field": "topic"}}, [True, True, True, False]),
        ({"fieldCondition": {"key": "value.n", "op": "!=", "field": "h"}}, [True, False, False, False]),
    ],
)
def test_a_condition_sees_topic_headers_key_and_value(condition: dict[str, Any], expected: list[bool]) -> None:
    """The last header of a name, bytes that are UTF-8, numbers as text; what is not there is missing."""
    chain = Chain.from_route([{"type": "Filter", "predicate": {"when": condition}}])

    errors: Errors = {}
    assert expected == chain.stages[0].guards[0].predicate.test(Batch.of_records(RECORDS), errors).tolist()
    assert errors == {}


def test_a_path_that_cannot_be_read_is_refused_with_the_chain() -> None:
    """It is refused when the chain is built, not at the first record."""
    with pytest.raises(ConfigError, match="backtick"):
        Chain.from_route([{"type": "Filter", "predicate": {"when": {"key": "value.`a", "exists": True}}}])
