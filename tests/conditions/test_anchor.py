"""Anchors: the texts that a message can be looked up by."""

from __future__ import annotations

import pytest
from hypothesis import given

from tests.conditions.strategies import one_key_leaves, values
from turnout.conditions import Leaf, cidr, exists, kiwi, regex
from turnout.conditions.anchor import address_prefix, prober


@pytest.mark.parametrize(
    ("pattern", "anchors"),
    [
        ("abc", {("=", "abc")}),
        ("abc*", {("^", "abc")}),
        ("*abc", {("$", "abc")}),
        ("*", {("has", "")}),
    ],
)
def test_a_short_pattern_has_one_anchor_that_decides_it(pattern: str, anchors: set[tuple[str, str]]) -> None:
    """A message that has the anchor needs no further verification."""
    leaf = kiwi("k", pattern)
    found = list(leaf.anchors())

    assert anchors <= {(anchor.kind.op, anchor.text) for anchor in found}
    assert any(leaf.is_decided_by(anchor) for anchor in found)


def test_a_text_in_the_middle_is_verified() -> None:
    """The anchor is a run of three characters, and the value has to be looked at."""
    leaf = kiwi("k", "*abcd*")
    found = list(leaf.anchors())

    assert found
    assert not any(leaf.is_decided_by(anchor) for anchor in found)


def test_existence_needs_nothing_but_the_key() -> None:
    """Its anchor decides it."""
    (anchor,) = exists("k").anchors()

    assert (anchor.key, anchor.kind.op) == ("k", "has")
    assert exists("k").is_decided_by(anchor)


@given(one_key_leaves, values)
def test_a_true_leaf_has_its_anchors(leaf: Leaf, value: str) -> None:
    """Each anchor is among the probes of the value; one that implies the leaf is there only if it is true."""
    for anchor in leaf.anchors():
        found = anchor.text in prober(anchor.kind)(value)
        if leaf.holds(value):
            assert found
        elif found:
            assert not leaf.is_decided_by(anchor)


@pytest.mark.parametrize(
    ("leaf", "anchors"),
    [
        (cidr("k", "10.0.0.0/8"), ["k net8 '4:a'"]),
        (cidr("k", "0.0.0.0/0"), ["k net '4:0'"]),
        (cidr("k", "fe80::/10"), ["k net10 '6:3fa'"]),
        (regex("k", "abcd?"), ["k ~ 'abc'"]),
        (regex("k", "(?i)ABC"), ["k i~ 'abc'"]),
        (regex("k", "a|b"), ["k has ''"]),
    ],
)
def test_anchors(leaf: Leaf, anchors: list[str]) -> None:
    """Networks have the bits that they name, expressions the texts that they need."""
    assert list(map(str, leaf.anchors())) == anchors


def test_a_prefix_longer_than_the_address() -> None:
    """An IPv4 address has no first 64 bits."""
    assert (address_prefix("10.0.0.1", 64), address_prefix("::a", 128)) == ("", "6:a")
