"""Planted defects among subscriptions are found, and no others are reported."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from tests.conditions.strategies import conditions, messages
from turnout.conditions import all_of, evaluate, kiwi, parse
from turnout.subscriptions import Subscription
from turnout.subscriptions.analysis import Catalogue, analysis_of


def subscription(id_: str, text: str, *destinations: str) -> Subscription:
    return Subscription(destinations or ("out",), parse(text), {}, id_)


def planted() -> list[Subscription]:
    """Three thousand subscriptions of which most have nothing to do with each other, and some that have."""
    rng = random.Random(7)
    crowd = [
        Subscription(
            (f"out.{number}",),
            all_of(kiwi("origin", f"O{number % 997}"), kiwi("flight", f"F{number}"), kiwi("x", rng.choice("abc"))),
            {},
            f"crowd-{number}",
        )
        for number in range(3_000)
    ]
    return [
        *crowd,
        subscription("twin-1", "origin:OUL AND flight:17"),
        subscription("twin-2", "flight:17 AND origin:OUL"),
        subscription("same-1", "delay>=60 AND origin:HEL", "a"),
        subscription("same-2", "NOT delay<60 AND delay>0 AND origin:HEL", "b"),
        subscription("wide", "origin:TK*", "w"),
        subscription("narrow", "origin:TKU AND delay>30", "w"),
        subscription("never", "origin:XXX AND origin:YYY"),
        subscription("every", "origin exists OR NOT origin exists"),
        subscription("open", "NOT origin:ZZZ"),
        subscription("@acme/other-tenant", "origin:OUL AND flight:17"),
    ]


def test_what_is_planted_is_found() -> None:
    """Twins, equivalents, the narrower, the impossible, the ever true and the unanchored, and no pair of the crowd."""
    analysis = analysis_of(Catalogue(planted()), revision=3)

    assert [(equal.ids, equal.duplicates) for equal in analysis.equal] == [
        (("twin-1", "twin-2"), True),
        (("same-1", "same-2"), False),
    ]
    assert {(pair.id, pair.by, pair.covered) for pair in analysis.subsumed if pair.by != "open"} == {
        ("narrow", "wide", True)
    }
    assert {pair.id for pair in analysis.subsumed if pair.by == "open"} >= {"twin-1", "narrow", "crowd-0"}
    assert [(finding.ids, finding.clash) for finding in analysis.impossible] == [
        (("never",), "origin:XXX and origin:YYY")
    ]
    assert analysis.always_true == ("every",)
    assert analysis.undecided == ()
    assert set(analysis.access.always) == {"every", "open"}
    assert (analysis.subscriptions, analysis.revision) == (3_010, 3)


@given(st.lists(conditions, min_size=2, max_size=12), st.lists(messages, min_size=10, max_size=20))
def test_no_claim_has_a_counterexample(some, seen) -> None:
    """Of random subscriptions, no message that is drawn contradicts what the report claims."""
    by_id = {f"{number:02}": condition for number, condition in enumerate(some)}
    analysis = analysis_of(Catalogue(Subscription(("out",), one, {}, id_) for id_, one in by_id.items()))

    for message in seen:
        true = {id_ for id_, condition in by_id.items() if evaluate(condition, message)}
        assert all(set(equal.ids) <= true or not set(equal.ids) & true for equal in analysis.equal)
        assert all(pair.by in true for pair in analysis.subsumed if pair.id in true)
        assert not any(set(finding.ids) & true for finding in analysis.impossible)
        assert set(analysis.always_true) <= true


def test_words_of_one_value() -> None:
    """Of conditions on several words of one value it is decided which subsume which."""
    texts = {
        "both": "tags~red AND tags~hot",
        "red": "tags~red AND NOT tags~cold",
        "three": "tags~red AND tags~hot AND tags~new",
    }

    analysis = analysis_of(Catalogue(subscription(id_, text) for id_, text in texts.items()))

    assert [(pair.id, pair.by) for pair in analysis.subsumed] == [("three", "both")]
    assert analysis.undecided == ()


def test_a_network_inside_another() -> None:
    """Networks are found by prefixes of different lengths, and still meet."""
    texts = {"wide": "ip in 10.0.0.0/8", "narrow": "ip in 10.1.0.0/16", "other": "ip in fe80::/10"}

    analysis = analysis_of(Catalogue(subscription(id_, text) for id_, text in texts.items()))

    assert [(pair.id, pair.by) for pair in analysis.subsumed] == [("narrow", "wide")]
