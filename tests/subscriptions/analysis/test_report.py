"""Planted defects among subscriptions are found, and no others are reported."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conditions.strategies import conditions, messages
from turnout.conditions import all_of, evaluate, kiwi, parse
from turnout.subscriptions import Matcher, Subscription
from turnout.subscriptions.analysis import AnchorTraffic, Catalogue, analysis_of, candidates, expensive
from turnout.subscriptions.analysis.cost import access_of


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


def test_a_crowded_anchor_is_named(monkeypatch) -> None:
    """If too many share an anchor, these are not compared, which the report states."""
    monkeypatch.setattr(candidates, "MOST_UNDER_ANCHOR", 10)
    crowd = [subscription(f"{number}", f"n>{number}") for number in range(20)]

    analysis = analysis_of(Catalogue(crowd))

    assert analysis.crowded == {"n has '' with n": 20}
    assert analysis.subsumed == ()


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


def test_a_second_anchor_parts_a_crowd(monkeypatch) -> None:
    """Many under one anchor are compared with those alone that may be wider, and none is missed."""
    monkeypatch.setattr(candidates, "MOST_UNDER_ANCHOR", 60)
    texts = {f"narrow{n}": f"a:x AND b:value{n} AND c:more" for n in range(50)}
    texts |= {f"wide{n}": f"a:x AND b:value{n}*" for n in range(50)}
    texts |= {"number": "a:x AND n>5", "above": "a:x AND n>7"}
    # "a:x" is not the rarest anchor of any but the last two: the others are put there as a crowd would be.
    monkeypatch.setattr(candidates, "anchor_costs", lambda _: lambda anchor: 0.0 if anchor.text == "x" else 1.0)

    analysis = analysis_of(Catalogue(subscription(id_, text) for id_, text in texts.items()))

    proven = {(pair.id, pair.by) for pair in analysis.subsumed}
    expected = {(f"narrow{n}", f"wide{m}") for n in range(50) for m in range(50) if str(n).startswith(str(m))}
    expected |= {("above", "number")}
    assert expected <= proven
    assert proven - expected == {
        (f"wide{n}", f"wide{m}") for n in range(50) for m in range(50) if n != m and str(n).startswith(str(m))
    }
    assert (analysis.crowded, analysis.cut) == ({}, 0)
    # An anchor of a prefix has six characters here: narrow and wide ones are compared with the wide ones that begin
    # alike, and "number" and "above" with each other. By keys alone each of the hundred would meet fifty and more.
    alike = sum(f"value{n}"[:6] == f"value{m}"[:6] for n in range(50) for m in range(50))
    assert analysis.compared == alike + (alike - 50) + 2


@pytest.mark.parametrize("several", [False, True])
def test_what_is_verified_in_vain(several) -> None:
    """A message with an anchor costs a verification of each term under it; those without a match are wasted."""
    extra = " OR (carrier:AA AND n>5)" if several else ""
    catalogue = Catalogue([subscription("a", f"(carrier:UA AND n>5){extra}"), subscription("b", "carrier:UA AND n>9")])
    messages = [{"carrier": "UA", "n": "7"}, {"carrier": "UA", "n": "1"}, {"carrier": "DL", "n": "9"}, {"n": "3"}]
    matcher = Matcher([subscription("a", f"(carrier:UA AND n>5){extra}"), subscription("b", "carrier:UA AND n>9")])

    traffic = AnchorTraffic(catalogue.terms())
    traffic.add({key: [message.get(key) for message in messages] for key in ("carrier", "n")}, len(messages))
    for message in messages:
        for match in matcher.match(message):
            traffic.match(match.subscription_id, message)
    access = access_of(catalogue.terms(), 1, traffic)

    (hottest,) = access.hottest
    assert (hottest.anchor, hottest.terms, hottest.messages) == ("carrier = 'UA'", 2, 2)
    assert hottest.in_vain == 3


def test_a_network_inside_another() -> None:
    """Networks are found by prefixes of different lengths, and still meet."""
    texts = {"wide": "ip in 10.0.0.0/8", "narrow": "ip in 10.1.0.0/16", "other": "ip in fe80::/10"}

    analysis = analysis_of(Catalogue(subscription(id_, text) for id_, text in texts.items()))

    assert [(pair.id, pair.by) for pair in analysis.subsumed] == [("narrow", "wide")]


def test_verified_for_every_record_is_what_the_index_verifies() -> None:
    """Many overlapping alternatives are found by each; negations and as many with XOR are not."""
    texts = {
        "overlapping": " OR ".join(f"a:*text{n}*" for n in range(100)),
        "exactly one": " XOR ".join(f"a:*text{n}*" for n in range(100)),
        "negations": "NOT a:x OR NOT b:x",
        "literal": "a:x AND NOT b:x",
    }
    subscriptions = [subscription(id_, text) for id_, text in texts.items()]

    access = analysis_of(Catalogue(subscriptions)).access

    assert (access.always, access.by_presence) == (("exactly one", "negations"), ())
    assert Matcher(subscriptions).stats().always == 2


def test_what_is_found_by_the_presence_of_a_key_alone() -> None:
    """Expressions without a text and wildcards without one; ranges, networks and short texts are looked up."""
    texts = {
        "expression": "a=~x|y", "wildcards": "a:??", "not this": "a exists AND NOT a:x",
        "range": "a>5", "network": "a in 10.0.0.0/8", "short": "a:*x*", "required": "a=~xyz+", "exists": "a exists",
    }  # fmt: skip

    access = analysis_of(Catalogue(subscription(id_, text) for id_, text in texts.items())).access

    assert access.by_presence == ("expression", "not this", "wildcards")


def test_many_tests_under_one_anchor_are_expensive(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not those that a second literal finds, and not one test that many subscriptions share."""
    monkeypatch.setattr(expensive, "EXPENSIVE_MS", 0.2)
    numbers = range(60)
    texts = {
        **{f"tested {n}": f"kind:x AND NOT msg:a*{n}?c" for n in numbers},
        **{f"spread {n}": f"kind:{n} AND NOT msg:a*{n}?c" for n in numbers},
        **{f"shared {n}": "kind:y AND NOT msg:a*?c" for n in numbers},
        **{f"second {n}": f"kind:z AND user:{n} AND NOT msg:a*{n}?c" for n in numbers},
    }
    terms = Catalogue(subscription(id_, text) for id_, text in texts.items()).terms()
    few = {id_: own for id_, own in terms.items() if not id_.startswith(("tested 1", "tested 2"))}

    assert access_of(terms, 1).expensive == tuple(sorted(f"tested {n}" for n in numbers))
    assert access_of(few, 1).expensive == ()


def test_tests_that_one_record_may_need_together_are_expensive(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short texts are all in one value, any value is each of a record's, and elements are read one by one."""
    monkeypatch.setattr(expensive, "EXPENSIVE_MS", 0.2)
    texts = {
        **{f"short {a}{b}": f"msg:*{a}*{b}?*" for a in "abcdefgh" for b in "stuvwxyz"},
        **{f"long {n}": f"log:*{n:0400}*z*" for n in range(60)},
        **{f"any {n}": f"*:*{n}a?b*" for n in range(4)},
        **{f"bounds {n}": f"*>{n} AND *<{n + 3}" for n in range(60)},
        **{f"element {n}": f"any(items, sku:A* AND n>{n})" for n in range(4)},
        **{f"long element {n}": f"kind:{n} AND any(items, n>{n})" for n in range(60)},
    }
    named = access_of(Catalogue(subscription(id_, text) for id_, text in texts.items()).terms(), 1).expensive

    assert named == tuple(sorted(id_ for id_ in texts if not id_.startswith("long")))
