"""Conditions are encoded as JSON and decoded; invalid JSON is refused with its path."""

from __future__ import annotations

import json

import pytest
from hypothesis import given

from tests.conditions.strategies import conditions
from turnout.conditions import Kiwi, all_of, decode, encode, kiwi, nodes, not_, with_ids
from turnout.errors import ConditionError

SEED_BODY = """{"groupCondition": {"not": false, "logic": 0, "group": [
    {"kiwiTreeCondition": {"not": false, "key": "key0", "pattern": "pattern?", "partial": false}},
    {"kiwiTreeCondition": {"not": true, "key": "key1", "pattern": "pattern1", "partial": true}}]}}"""


def test_seed_body():
    """The seed's grpcurl body is a valid condition."""
    expected = all_of(kiwi("key0", "pattern?"), not_(kiwi("key1", "pattern1", partial=True)))
    condition = decode(json.loads(SEED_BODY))

    assert expected == condition
    assert [node.tree for node in nodes(condition) if isinstance(node, Kiwi)] == [True, True]


@given(conditions)
def test_round_trip(condition):
    """An encoded condition is decoded unchanged, through text, with its ids and dialects."""
    numbers = iter(range(1000))
    named = with_ids(condition, lambda: f"id{next(numbers)}")
    decoded_condition = decode(json.loads(json.dumps(encode(named))))

    assert condition == decoded_condition
    assert [node.id for node in nodes(named)] == [node.id for node in nodes(decoded_condition)]


KIWI = {"key": "k", "pattern": "v"}


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (None, "condition: expected an object, found nothing"),
        ([], "condition: expected an object, found a list"),
        ({}, "condition: expected exactly one of groupCondition"),
        ({"kiwiCondition": KIWI, "existsCondition": {"key": "k"}}, "found kiwiCondition, existsCondition"),
        ({"kiwiCondtion": KIWI}, "did you mean 'kiwiCondition'?"),
        ({"kiwiCondition": 3}, "condition.kiwiCondition: expected an object, found 3"),
        ({"kiwiCondition": {**KIWI, "patern": "x"}}, "condition.patern: unknown field (did you mean 'pattern'?)"),
        ({"kiwiCondition": {"key": 3, "pattern": "v"}}, "condition.key: expected text, found 3"),
        ({"kiwiCondition": {**KIWI, "not": 1}}, "condition.not: expected true or false, found 1"),
        ({"kiwiCondition": {"pattern": "v"}}, "condition: a leaf needs the key"),
        ({"kiwiCondition": {"key": "k", "pattern": "\ud800"}}, "condition.pattern: the character at 0 is half"),
        ({"kiwiTreeCondition": {"key": "k", "pattern": "a*b"}}, "kiwi bird takes it anywhere"),
        ({"groupCondition": {"logic": "Nor", "group": []}}, "condition.logic: expected And or 0, Or or 1, Xor or 2"),
        ({"groupCondition": {"logic": 3, "group": []}}, "condition.logic"),
        ({"groupCondition": {"logic": -1, "group": []}}, "condition.logic"),
        ({"groupCondition": {"group": []}}, "condition: the And group is empty"),
        (
            {"groupCondition": {"group": [{"kiwiCondition": KIWI}, {"kiwiCondition": {"key": "k", "pattern": "\\"}}]}},
            "condition.group[1]: the pattern '\\\\' ends in a backslash",
        ),
        ({"compareCondition": {"key": "k", "op": "~", "number": 1}}, "no comparison is written '~'"),
        ({"compareCondition": {"key": "k", "op": "<", "number": "1"}}, "condition.number: expected"),
        ({"compareCondition": {"key": "k", "op": "<", "number": 10**400}}, "condition: expected a finite number"),
        ({"compareCondition": {"key": "k", "op": "<", "number": True}}, "condition.number: expected a whole number or"),
        ({"groupCondition": {"group": [{"kiwiCondition": {"key": "k", "pattern": None}}]}}, "pattern: expected text"),
        ({"cidrCondition": {"key": "k", "network": "10.0.0.1/8"}}, "has host bits set"),
        ({"regexCondition": {"key": "k", "regex": "a(?=b)"}}, "not a regular expression: invalid perl operator: (?="),
        ({"regexCondition": {"key": "k", "regex": "a" * 1025}}, "of 1025 characters, at most 1024 are taken"),
        ({"regexCondition": {"key": "k"}}, "a regular expression is empty"),
    ],
)
def test_refuses(data, says):
    """A mistake is named with its place and what was found there."""
    with pytest.raises(ConditionError) as caught:
        decode(data)

    assert says in str(caught.value)


def test_refuses_depth():
    """Groups nest a hundred deep, and a deeper one is an error of ours, not of Python."""
    data: dict[str, object] = {"kiwiCondition": KIWI}
    for _ in range(5000):
        data = {"groupCondition": {"group": [data]}}

    with pytest.raises(ConditionError, match="nest"):
        decode(data)
