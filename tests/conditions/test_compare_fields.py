"""A leaf that compares two keys of one message."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conditions.strategies import KEYS, multivalued_messages
from turnout.conditions import (
    CompareFields,
    FieldOperator,
    compare_fields,
    decode,
    encode,
    evaluate,
    explain,
    format_condition,
    keys_of,
    not_,
    parse,
)
from turnout.errors import ConditionError
from turnout.rpc.convert import condition_from, data_to
from turnout.rpc.v1.subscriptions_pb2 import ConditionInput, ConditionOutput
from turnout.subscriptions import Matcher, Subscription, open_store
from turnout.subscriptions.analysis import form_of


@pytest.mark.parametrize(
    ("text", "seen", "holds"),
    [
        ("a<field(b)", {"a": "9", "b": "10"}, True),
        ("a<field(b)", {"a": "x", "b": "y"}, False),
        ("a<=field(b)", {"a": "1e1", "b": "10.0"}, True),
        ("a=field(b)", {"a": "1e1", "b": "10.0"}, True),
        ("a=field(b)", {"a": "ten", "b": "ten"}, True),
        ("a=field(b)", {"a": "Ten", "b": "ten"}, False),
        ("a=i=field(b)", {"a": "Ten", "b": "ten"}, True),
        ("a!=i!=field(b)", {"a": "Ten", "b": "ten"}, False),
        ("a!=field(b)", {"a": "1", "b": "one"}, True),
        ("a!=field(b)", {"a": "1", "b": "01"}, False),
        ("a!=field(b)", {"a": "1"}, False),
        ("a!=field(b)", {"b": "1"}, False),
        ("NOT a=field(b)", {"a": "1"}, True),
        ("a>=field(b)", {"a": "5", "b": ("9", "3")}, True),
        ("a>field(b)", {"a": ("5", "x"), "b": ("9", "5")}, False),
    ],
)
def test_a_comparison(text: str, seen: dict[str, str], holds: bool) -> None:
    """Two numbers as numbers, other values as texts; false where a key is missing; of several values any pair."""
    condition = parse(text)
    assert evaluate(condition, seen) is holds
    others = [Subscription(["d"], f"a:x{n}", id=f"x{n}") for n in range(50)]
    matcher = Matcher([Subscription(["d"], condition, id="one"), *others])
    assert ("one" in matcher.match(seen).ids) is holds
    assert [("one" in ids) for ids in matcher.match_many([seen, {}] * 20).ids()] == [
        holds,
        condition.negated,
    ] * 20


_leaves = st.builds(
    CompareFields,
    st.sampled_from(KEYS),
    st.sampled_from(list(FieldOperator)),
    st.sampled_from(KEYS),
    negated=st.booleans(),
)


@given(st.lists(_leaves, min_size=1, max_size=20), st.lists(multivalued_messages, min_size=1, max_size=20))
def test_the_matcher_is_the_interpreter(some, messages) -> None:
    """One by one and in batches, with one value of a key or several, alone and beside others."""
    subscriptions = [
        Subscription(["d"], leaf if n % 3 else f"({format_condition(leaf)}) AND NOT price:77", id=f"{n:02}")
        for n, leaf in enumerate(some)
    ]
    matcher = Matcher(subscriptions)
    wanted = [[own.id for own in subscriptions if evaluate(own.condition, message)] for message in messages]
    assert [sorted(matcher.match(message).ids) for message in messages] == wanted
    assert [sorted(ids) for ids in matcher.match_many(messages).ids()] == wanted


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("a<field(b)", None),
        ("a = field( b )", "a=field(b)"),
        ("NOT a!=FIELD(b)", "NOT a!=field(b)"),
        ('"a b">=field("c,d")', None),
        ("total:number=i=field(other:text)", None),
        ('"*"<field("*")', None),
        ("field<5 AND field:x AND field=field(field)", None),
        ("any(items, n<field(limit))", None),
    ],
)
def test_text_json_and_protobuf(text: str, form: str | None) -> None:
    """Each form is read back."""
    condition = parse(text)
    assert format_condition(condition) == (form or text)
    assert parse(format_condition(condition)) == decode(encode(condition)) == condition
    output = data_to(Subscription(["d"], condition, id="a")).route.condition
    assert condition_from(ConditionOutput.FromString(output.SerializeToString())) == condition


def test_protobuf_of_an_input() -> None:
    """A client of gRPC gives it as one message."""
    message = ConditionInput(fieldCondition={"key": "a", "op": "<", "field": "b", "not": True})
    assert condition_from(message) == not_(compare_fields("a", "<", "b"))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a<field()", "expected the key to compare with"),
        ("a<field(b", "expected '\\)' after the key"),
        ("a<i<field(b)", "only = and != can ignore case, found <"),
        ("*<field(b)", "\\* is all of them"),
        ("a=field(*)", "\\* is all of them"),
        ("a=fields(b)", "expected a number"),
    ],
)
def test_what_is_no_comparison(text: str, problem: str) -> None:
    """It is refused with its position."""
    with pytest.raises(ConditionError, match=problem) as caught:
        parse(text)
    assert caught.value.position


def test_an_unknown_operator_in_json() -> None:
    """The operators are named."""
    with pytest.raises(ConditionError, match="no comparison of fields is written '~'; there are < <= = != >= >"):
        decode({"fieldCondition": {"key": "a", "op": "~", "field": "b"}})


@pytest.mark.parametrize("url", ["memory://fields", "sqlite:///{}/s.db"])
def test_stores_keep_it(url: str, tmp_path) -> None:
    """Also inside of a condition about elements."""
    with open_store(url.format(tmp_path)) as store:
        condition = parse("paid!=i!=field(total) AND any(items, n>field(limit))")
        store.create(Subscription(["d"], condition, id="one"))
        assert store.read("one").condition == condition


def test_one_element_has_both() -> None:
    """Inside of an element, keys are its fields."""
    condition = parse("any(items, n>field(limit))")
    assert evaluate(condition, {"items": '[{"n": 1, "limit": 2}, {"n": 3, "limit": 2}]'})
    assert not evaluate(condition, {"items": '[{"n": 1, "limit": 2}, {"n": 3}]', "limit": "0"})


def test_both_keys_are_read_and_explained() -> None:
    """A route reads both, and an explanation has the values of both."""
    condition = parse("paid<field(total)")
    assert list(keys_of(condition)) == ["paid", "total"]
    assert explain(condition, {"paid": "7"}).reason == "'paid' is '7', 'total' is missing"


def test_it_is_looked_up_by_either_key() -> None:
    """Both have to be there."""
    assert [str(anchor) for anchor in compare_fields("a", "<", "b").anchors()] == ["a has ''", "b has ''"]


@pytest.mark.parametrize(
    ("text", "always"),
    [
        ("a<field(b) AND a>field(b)", False),
        ("a<field(b) AND NOT a<=field(b)", False),
        ("a<field(b) AND a!=field(b)", None),
        ("a:5 AND a<field(b)", None),
        ("a<field(b) AND NOT a exists", False),
    ],
)
def test_what_analysis_proves(text: str, always: bool | None) -> None:
    """Comparisons of the same two keys exclude or contain each other."""
    assert form_of(parse(text)).always is always
    if text.endswith("a!=field(b)"):
        assert form_of(parse(text)).digest == form_of(parse("a<field(b)")).digest
