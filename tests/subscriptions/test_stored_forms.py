"""Stored and sent forms of every kind of leaf in every codec, to the byte, so that they remain readable."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import pytest

from turnout.conditions import (
    Cidr,
    Compare,
    CompareFields,
    Condition,
    Element,
    Exists,
    FieldOperator,
    Group,
    Kiwi,
    Leaf,
    Logic,
    Operator,
    Regex,
    SubjectMatch,
    decode,
    encode,
    format_condition,
    leaves,
    parse,
)
from turnout.conditions.codec import KINDS
from turnout.rpc.convert import data_from, subscription_from, subscription_to
from turnout.rpc.v1 import subscriptions_pb2
from turnout.subscriptions import Subscription
from turnout.subscriptions.delivery_settings import DeliverySettings
from turnout.subscriptions.model import SETTINGS, Expiry, Start
from turnout.subscriptions.stores._record import decode_record, document_of, encode_record, subscription_of


@dataclass(frozen=True, slots=True)
class Stored:
    """A leaf, and what each codec makes of it."""

    leaf: Leaf
    json: str
    text: str
    protobuf: str
    document: dict[str, Any]


FORMS = [
    Stored(
        Kiwi("k", "a*b", id="1"),
        '{"kiwiCondition": {"id": "1", "key": "k", "pattern": "a*b"}}',
        "k:a*b",
        "120b0a01311a016b2203612a62",
        {"id": "1", "base": {"not": False}, "key": "k", "pattern": "a*b", "partial": False},
    ),
    Stored(
        Kiwi("k", "a*b", partial=True, ignore_case=True, negated=True, id="1"),
        '{"kiwiCondition": {"id": "1", "not": true, "key": "k", "pattern": "a*b", '
        '"partial": true, "ignoreCase": true}}',
        "NOT k~i~a*b",
        "12110a013110011a016b2203612a6228013001",
        {"id": "1", "base": {"not": True}, "key": "k", "pattern": "a*b", "partial": True, "ignoreCase": True},
    ),
    Stored(
        Kiwi("k", "a*", tree=True, id="1"),
        '{"kiwiTreeCondition": {"id": "1", "key": "k", "pattern": "a*"}}',
        "k:t:a*",
        "120c0a01311a016b2202612a3801",
        {"id": "1", "base": {"not": False}, "key": "k", "pattern": "a*", "partial": False, "tree": True},
    ),
    Stored(
        Compare("k", Operator.AT_MOST, 5, negated=True, id="1"),
        '{"compareCondition": {"id": "1", "not": true, "key": "k", "op": "<=", "number": 5.0}}',
        "NOT k<=5",
        "1a150a013110011a016b22023c3d290000000000001440",
        {"id": "1", "base": {"not": True}, "key": "k", "op": "<=", "number": 5.0},
    ),
    Stored(
        Compare("k", Operator.EQUAL, 0, id="1"),
        '{"compareCondition": {"id": "1", "key": "k", "op": "=", "number": 0.0}}',
        "k=0",
        "1a090a01311a016b22013d",
        {"id": "1", "base": {"not": False}, "key": "k", "op": "=", "number": 0.0},
    ),
    Stored(
        Exists("k", negated=True, id="1"),
        '{"existsCondition": {"id": "1", "not": true, "key": "k"}}',
        "NOT k exists",
        "22080a013110011a016b",
        {"id": "1", "base": {"not": True}, "key": "k"},
    ),
    Stored(
        Cidr("k", "10.0.0.0/8", id="1"),
        '{"cidrCondition": {"id": "1", "key": "k", "network": "10.0.0.0/8"}}',
        "k in 10.0.0.0/8",
        "2a120a01311a016b220a31302e302e302e302f38",
        {"id": "1", "base": {"not": False}, "key": "k", "network": "10.0.0.0/8"},
    ),
    Stored(
        Regex("k", "^a", id="1"),
        '{"regexCondition": {"id": "1", "key": "k", "regex": "^a"}}',
        "k=~^a",
        "320a0a01311a016b22025e61",
        {"id": "1", "base": {"not": False}, "key": "k", "regex": "^a"},
    ),
    Stored(
        SubjectMatch("k", "a.>", id="1"),
        '{"subjectCondition": {"id": "1", "key": "k", "subject": "a.>"}}',
        "k matches a.>",
        "420b0a01311a016b2203612e3e",
        {"id": "1", "base": {"not": False}, "key": "k", "subject": "a.>"},
    ),
    Stored(
        CompareFields("k", FieldOperator.DIFFERENT, "b", ignore_case=True, negated=True, id="1"),
        '{"fieldCondition": {"id": "1", "not": true, "key": "k", "op": "!=", "field": "b", "ignoreCase": true}}',
        "NOT k!=i!=field(b)",
        "4a110a013110011a016b2202213d2a01623001",
        {"id": "1", "base": {"not": True}, "key": "k", "op": "!=", "field": "b", "ignoreCase": True},
    ),
    Stored(
        Element("k", "a:b", id="1"),
        '{"elementCondition": {"id": "1", "key": "k", "where": "a:b"}}',
        "any(k, a:b)",
        "3a0b0a01311a016b2203613a62",
        {"id": "1", "base": {"not": False}, "key": "k", "where": "a:b"},
    ),
]

each_form = pytest.mark.parametrize("form", FORMS, ids=[form.text for form in FORMS])


def _same(expected: Leaf, actual: Condition) -> bool:
    # Equality of leaves leaves out the id and the dialect.
    return repr(expected) == repr(actual)


def test_every_kind_has_a_form() -> None:
    """A new kind of leaf is pinned here too."""
    assert set(KINDS) == {next(iter(json.loads(form.json))) for form in FORMS}


@each_form
def test_json(form: Stored) -> None:
    """The JSON has these fields in this order, and is read back."""
    assert form.json == json.dumps(encode(form.leaf))
    assert _same(form.leaf, decode(json.loads(form.json)))


@each_form
def test_text(form: Stored) -> None:
    """The text says all but the id."""
    assert form.text == format_condition(form.leaf)
    assert form.leaf == parse(form.text)


@each_form
def test_record(form: Stored) -> None:
    """A row of a store holds destinations, condition and metadata as compact JSON, and is read back."""
    compact = json.dumps(json.loads(form.json), separators=(",", ":"))
    record = f'[["d"],{compact},{{"m":"n"}}]'
    subscription = Subscription(["d"], form.leaf, {"m": "n"}, "s")

    assert record == encode_record(subscription, iter(()).__next__)
    assert _same(form.leaf, decode_record("s", record, 1).condition)


@each_form
def test_protobuf(form: Stored) -> None:
    """The condition of a message has these bytes, and is read back."""
    message = subscription_to(Subscription(["d"], form.leaf, {}, "s"))
    condition = message.data.route.condition

    assert form.protobuf == condition.SerializeToString(deterministic=True).hex()
    assert _same(form.leaf, subscription_from(message).condition)


@each_form
def test_document(form: Stored) -> None:
    """A document holds these fields in this order, and is read back."""
    document = document_of(Subscription(["d"], form.leaf, {}, "s"), 1)

    assert json.dumps(form.document) == json.dumps(document["route"]["condition"])
    assert _same(form.leaf, subscription_of(document).condition)


def test_group() -> None:
    """A group has its form in every codec, around the forms of its children."""
    group = Group(Logic.XOR, (Exists("a", id="2"), Exists("b", id="3")), negated=True, id="1")
    condition = {
        "groupCondition": {
            "id": "1",
            "not": True,
            "logic": "Xor",
            "group": [{"existsCondition": {"id": "2", "key": "a"}}, {"existsCondition": {"id": "3", "key": "b"}}],
        }
    }
    document = {
        "base": {"id": "1", "not": True},
        "logic": "Xor",
        "group": [
            {"id": "2", "base": {"not": False}, "key": "a"},
            {"id": "3", "base": {"not": False}, "key": "b"},
        ],
    }
    subscription = Subscription(["d"], group, {}, "s")

    assert json.dumps(condition) == json.dumps(encode(group))
    assert format_condition(group) == "NOT (a exists XOR b exists)"
    assert json.dumps(document) == json.dumps(document_of(subscription, 1)["route"]["condition"])
    assert (
        subscription_to(subscription).data.route.condition.SerializeToString(deterministic=True).hex()
        == "0a1b080110021a0822060a01321a01611a0822060a01331a0162220131"
    )


_GROUP = Group(
    Logic.OR,
    (
        Kiwi("city", 'Jyväskylä "x" \\* \x01\x7f/\u2028', id="2"),
        Group(
            Logic.AND,
            (Compare("total", Operator.AT_LEAST, 5, id="4"), Kiwi("k", "a*", partial=True, tree=True, id="5")),
            negated=True,
            id="3",
        ),
    ),
    id="1",
)
_WHOLE = Subscription(
    ["a.b", "https://h/x?y=1"],
    _GROUP,
    {"o.w$n%r": 'ä"\t'},
    "s",
    enabled=False,
    expires=Expiry(datetime(2030, 1, 1, tzinfo=UTC), "wall"),
    delivery=DeliverySettings(retry=(1.0, 0.1), headers={"X-A": "b"}),
    start=Start(17),
    keep=True,
    project="value.id",
    deliveries=5,
)
_SETTINGS = (
    '"enabled":false,"expires":{"at":"2030-01-01T00:00:00+00:00","by":"wall"},'
    '"delivery":{"retry":[1.0,0.1],"headers":{"X-A":"b"}},"from":17,"pause":{"keep":true},"project":"value.id",'
    '"quota":{"deliveries":5}'
)


def test_row_of_a_whole_subscription() -> None:
    """SQLite and PostgreSQL keep every field in one text; one of an earlier version writes numbers with a sign."""
    record = (
        '[["a.b","https://h/x?y=1"],{"groupCondition":{"id":"1","logic":"Or","group":[{"kiwiCondition":{"id":"2",'
        '"key":"city","pattern":"Jyväskylä \\"x\\" \\\\* \\u0001\x7f/\u2028"}},{"groupCondition":{"id":"3","not":true,'
        '"logic":"And","group":[{"compareCondition":{"id":"4","key":"total","op":">=","number":5.0}},'
        '{"kiwiTreeCondition":{"id":"5","key":"k","pattern":"a*","partial":true}}]}}]}},{"o.w$n%r":"ä\\"\\t"},'
        f"{{{_SETTINGS}}}]"
    )
    earlier = decode_record("s", record.replace("5.0", "1e+16"), 7).condition

    assert record == encode_record(_WHOLE, iter(()).__next__)
    assert repr(replace(_WHOLE, revision=7)) == repr(decode_record("s", record, 7))
    assert [leaf.number for leaf in leaves(earlier) if isinstance(leaf, Compare)] == [1e16]


def test_document_of_a_whole_subscription() -> None:
    """MongoDB keeps every field in one document, with the tokens that it is looked up by."""
    document = document_of(_WHOLE, 7)

    assert document["metadata"] == {"o%2Ew%24n%25r": 'ä"\t'}
    assert document["leaves"] == ['["city", "Jyväskylä \\"x\\" \\\\* \\u0001\x7f/\u2028", false]', '["k", "a*", true]']
    assert document["pairs"] == ['["o.w$n%r", "ä\\"\\t"]']
    assert {name: document[name] for name in SETTINGS} == json.loads(f"{{{_SETTINGS}}}")
    assert repr(replace(_WHOLE, revision=7)) == repr(subscription_of(document))


@pytest.mark.parametrize(
    ("kind", "tree"), [("kiwiCondition", False), ("kiwiTreeCondition", True)], ids=["kiwi bird", "kiwi tree"]
)
def test_dialect_of_an_input(kind: str, tree: bool) -> None:
    """In a request the name of the condition says the dialect of its pattern."""
    message = subscriptions_pb2.SubscriptionDataInput()
    getattr(message.route.condition, kind).key = "k"
    getattr(message.route.condition, kind).pattern = "a*"

    assert _same(Kiwi("k", "a*", tree=tree), data_from(message).condition)
