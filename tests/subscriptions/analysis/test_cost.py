"""Matching work by anchor: verified terms, keys that find by their presence, and expensive tests."""

from __future__ import annotations

import pytest

from turnout.conditions import parse
from turnout.subscriptions import Matcher, Subscription
from turnout.subscriptions.analysis import AnchorTraffic, Catalogue, analysis_of, cost
from turnout.subscriptions.analysis.cost import access_of


def subscription(id_: str, text: str, *destinations: str) -> Subscription:
    return Subscription(destinations or ("out",), parse(text), {}, id_)


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
        "expression": 'a=~"[a-z]+"', "alternatives": "a=~x|y", "wildcards": "a:??", "not this": "a exists AND NOT a:x",
        "range": "a>5", "network": "a in 10.0.0.0/8", "short": "a:*x*", "required": "a=~xyz+", "exists": "a exists",
    }  # fmt: skip

    access = analysis_of(Catalogue(subscription(id_, text) for id_, text in texts.items())).access

    assert access.by_presence == ("expression", "not this", "wildcards")


def test_many_tests_under_one_anchor_are_expensive(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not those that a second literal finds, and not one test that many subscriptions share."""
    monkeypatch.setattr(cost, "EXPENSIVE_MS", 0.2)
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
    monkeypatch.setattr(cost, "EXPENSIVE_MS", 0.2)
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
