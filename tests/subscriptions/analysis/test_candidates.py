"""Pairs of subscriptions that are compared, and anchors with too many."""

from __future__ import annotations

from turnout.conditions import parse
from turnout.subscriptions import Subscription
from turnout.subscriptions.analysis import Catalogue, analysis_of, candidates


def subscription(id_: str, text: str, *destinations: str) -> Subscription:
    return Subscription(destinations or ("out",), parse(text), {}, id_)


def test_a_crowded_anchor_is_named(monkeypatch) -> None:
    """If too many share an anchor, these are not compared, which the report states."""
    monkeypatch.setattr(candidates, "MOST_UNDER_ANCHOR", 10)
    crowd = [subscription(f"{number}", f"n>{number}") for number in range(20)]

    analysis = analysis_of(Catalogue(crowd))

    assert analysis.crowded == {"n has '' with n": 20}
    assert analysis.subsumed == ()


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
