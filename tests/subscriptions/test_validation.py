"""Rules that a subscription obeys."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.subscriptions.test_service import subscribed
from turnout.conditions import Condition, Group, Kiwi, Logic, all_of, any_of, kiwi, not_, parse
from turnout.errors import SubscriptionInvalidError
from turnout.subscriptions import Subscription
from turnout.subscriptions.delivery_settings import DeliverySettings
from turnout.subscriptions.validation import MAX_LEAVES, MAX_NESTING, RULES, check, is_plain


def test_every_broken_rule_is_named():
    """One error has every broken rule, each with its place."""
    twice = any_of(kiwi("k", "v"), kiwi("k", "v"))
    with pytest.raises(SubscriptionInvalidError) as refused:
        check(Subscription([], not_(all_of(twice))))
    text = str(refused.value)

    assert "route.destinations: at least one" in text
    assert "LIM-1" in text
    assert "route.condition: a group needs two children or more, found 1" in text
    assert "route.condition.group[0].group[1]: the same as group[0]" in text


def test_variables_in_headers_of_requests():
    """A route's texts are filled in, those of a stored subscription are sent as they are: it is refused."""
    settings = DeliverySettings(headers={"X-Key": "a ${BILLING_KEY} b", "X-Price": "$5 {net}"})
    wanted = Subscription(["https://e.example"], all_of(kiwi("a", "1"), kiwi("b", "2")), delivery=settings)

    with pytest.raises(SubscriptionInvalidError, match=r"delivery.headers.X-Key: \$\{BILLING_KEY\} would be sent"):
        check(wanted)
    check(replace(wanted, delivery=DeliverySettings(headers={"X-Price": "$5 {net}"})))


@pytest.mark.parametrize(
    ("destination", "words"),
    [
        ("out.$1", "only mappings of routes fill in '$1'"),
        ("sink:out.new-$2.x", "only mappings of routes fill in '$2'"),
        ("out.{{wildcard(1)}}", "only mappings of routes fill in '{{wildcard(1)}}'"),
        ("out.${REGION}.x", "only mappings of routes fill in '${REGION}'"),
        ("late?Delay=5m", "?delay= or ?deliverAt= and follows, found '?Delay='"),
        ("late?deliver_at=value.due", "found '?deliver_at='"),
        ("late?delay=", "found '?delay='"),
    ],
)
def test_a_destination_that_nothing_fills_in(destination, words):
    """Only mappings have placeholders: messages would go to a subject of this text, without a word."""
    with pytest.raises(SubscriptionInvalidError, match=f"{re.escape(words)}$"):
        check(Subscription(["d", destination], kiwi("a", "1")))
    with pytest.raises(SubscriptionInvalidError, match="as it is written"):
        check(Subscription(["d", destination], all_of(kiwi("a", "1"), kiwi("b", "2"))))


@pytest.mark.parametrize(
    "destination",
    ["$KV.b.k", "a.{b}", "a.$1x", "a.$", "late?delay=5m", "x?limit=1", "https://e.example/{{a}}?deliverat=$1", "feed:"],
)
def test_a_destination_that_is_meant_as_it_is_written(destination):
    """Subjects of the server, other braces and queries, and URLs."""
    check(Subscription([destination], kiwi("a", "1")))


def test_equal_children_are_equal_whatever_their_ids():
    """Ids do not make two children different; another logic, flag or negation does."""
    first, second = kiwi("a", "1"), kiwi("b", "2")
    check(subscribed(any_of(first, second), all_of(first, second)))
    check(subscribed(kiwi("a", "1"), kiwi("a", "1", partial=True), not_(kiwi("a", "1"))))
    alike = subscribed(kiwi("a", "1").__class__("a", "1", id="x"), kiwi("a", "1").__class__("a", "1", id="y"))

    with pytest.raises(SubscriptionInvalidError, match="the same as"):
        check(alike)


def test_bounds():
    """Conditions of the largest size are taken, larger ones refused."""
    check(subscribed(*(kiwi("k", f"v{n}") for n in range(MAX_LEAVES))))
    with pytest.raises(SubscriptionInvalidError, match=f"{MAX_LEAVES + 1} leaves"):
        check(subscribed(*(kiwi("k", f"v{n}") for n in range(MAX_LEAVES + 1))))
    deep: Condition = kiwi("k", "v")
    for number in range(MAX_NESTING):
        deep = all_of(deep, kiwi("k", f"v{number}"))
    check(Subscription(["d"], deep))
    with pytest.raises(SubscriptionInvalidError, match=f"nest {MAX_NESTING + 1} deep"):
        check(Subscription(["d"], all_of(deep, kiwi("k", "v"))))


_TEXTS = st.one_of(
    st.sampled_from(["", "d", "a.b", "x*", "*" * 9, ".", "a..b", "q w", "\ud800", "ä", "v" * 200]), st.text(max_size=4)
)
_LEAVES = st.one_of(
    st.builds(
        lambda key, pattern, negated: Kiwi(key or "k", pattern, negated=negated), _TEXTS, st.just("v"), st.booleans()
    ),
    st.sampled_from(
        [kiwi("k", "*" * 9 + "a"), not_(kiwi("k", "v")), kiwi("k", "v"), parse("n>5"), parse("a:1 AND b:2")]
    ),
)
_CONDITIONS = st.one_of(
    _LEAVES, st.builds(Group, st.sampled_from(Logic), st.lists(_LEAVES, min_size=1, max_size=3), st.booleans())
)


@given(st.lists(_TEXTS, max_size=3), _CONDITIONS, st.dictionaries(_TEXTS, _TEXTS, max_size=2), _TEXTS)
def test_a_plain_subscription_keeps_every_rule(destinations, condition, metadata, id_):
    """The quick test lets nothing pass that a rule refuses."""
    subscription = Subscription(destinations, condition, metadata, id_)
    problems = [problem for rule in RULES for problem in rule(subscription)]

    assert not (is_plain(subscription) and problems)


def test_usual_subscriptions_are_plain():
    """The quick test is of use: leaves and flat groups of them pass it."""
    assert is_plain(Subscription(["d.e"], kiwi("k", "v*"), {"owner": "desk"}))
    assert is_plain(subscribed(kiwi("a", "1"), not_(kiwi("b", "2"))))
    assert not is_plain(subscribed(not_(kiwi("a", "1")), not_(kiwi("b", "2"))))


@pytest.mark.parametrize(
    "condition",
    [
        'a:1 OR k=~"[^x]{1,1000}y"',
        'any(items, a:1 AND k=~"[^x]{1,1000}y")',
    ],
)
def test_large_regular_expressions_are_refused(condition):
    """A new subscription has none, also within elements of arrays."""
    with pytest.raises(SubscriptionInvalidError, match="instructions, at most 1,000 are taken"):
        check(Subscription(["d"], parse(condition)))


def test_regular_expressions_within_elements_are_counted():
    """Their number is that of the whole condition."""
    inner = " OR ".join(f"k=~a{number}" for number in range(30))
    with pytest.raises(SubscriptionInvalidError, match="60 regular expressions, at most 50"):
        check(Subscription(["d"], parse(f"any(one, {inner}) OR any(other, {inner})")))
