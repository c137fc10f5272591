"""Hashes of facts that collide."""

from __future__ import annotations

from contextlib import contextmanager
from math import inf

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conditions.strategies import conditions, messages
from tests.subscriptions.index.asking import candidates, expected, pairs, subscriptions_of
from turnout.conditions import all_of, any_of, compare, kiwi, not_, one_of, parse
from turnout.subscriptions import Matcher, Subscription
from turnout.subscriptions.index import Index, facts, postings
from turnout.subscriptions.index.build import build
from turnout.subscriptions.index.facts import SPAN
from turnout.subscriptions.index.literal_choice import Costs

_conditions = st.lists(conditions, min_size=1, max_size=12)
_messages = st.lists(messages, min_size=1, max_size=8)


@given(_conditions, _messages)
def test_hashes_decide_nothing(stored_conditions, given_messages):
    """With hashes that are nearly all the same, the texts that are compared keep every answer right."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(facts, "_hash64", lambda raw, salt: (len(raw) % 2) << 63)
        subscriptions = subscriptions_of(stored_conditions)

        assert expected(subscriptions, given_messages) == pairs(Index.of(subscriptions), given_messages)
        matcher = Matcher(subscriptions)
        for message in given_messages:
            ids = sorted(match.subscription_id for match in matcher.match(message))

            assert [id_ for _, id_ in expected(subscriptions, [message])] == ids


_bounds = st.one_of(st.integers(-6, 6).map(float), st.sampled_from([0.5, -0.0, 1e300, -1e300, 1.7976931348623157e308]))
_limits = st.tuples(st.one_of(_bounds, st.just(-inf)), st.one_of(_bounds, st.just(inf)))
_numbers = st.one_of(_bounds, st.sampled_from([inf, -inf, 5e-324, 0.4999999999999999]))

_leaves = st.builds(compare, st.sampled_from("pv"), st.sampled_from(["<", "<=", "=", ">=", ">"]), _bounds)
_rows = st.lists(st.one_of(_leaves, _leaves.map(not_), st.just(kiwi("k", "x"))), min_size=1, max_size=5)
_conditions_of_ranges = st.one_of(
    _rows.map(lambda rows: all_of(*rows)),
    st.lists(_rows.map(lambda rows: all_of(*rows)), min_size=1, max_size=3).map(lambda rows: any_of(*rows)),
    _rows.map(lambda rows: one_of(*rows)),
    _leaves,
)
_values = st.one_of(_numbers.map(str), st.sampled_from(["1e999", "-1e999", "", "x", "nan", "+3", "1.e0"]))
_messages_of_ranges = st.fixed_dictionaries({}, optional={"p": _values, "v": _values, "k": st.sampled_from("xy")})


RESOLUTIONS = [(2, 1), (4, 2), (1 << 14, 32)]
"""Cells of a key, and of an interval: few and many."""


@contextmanager
def bounds(cells, resolution, hot=False):
    """Use these bounds; with *hot* every literal is looked up together with a second one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(facts, "CELLS", cells)
        patch.setattr(facts, "_RESOLUTION", resolution)
        if hot:
            patch.setattr(postings, "HOT", 0)
            patch.setattr(postings, "_LEAST_SAVED", 0)
        yield


def above(node):
    """The node and the nodes above it."""
    return {node >> level for level in range(node.bit_length())}


@pytest.mark.parametrize(("cells", "resolution"), RESOLUTIONS)
@given(limits=st.lists(_limits, min_size=1, max_size=20), number=_numbers)
def test_nodes_are_the_interval(cells, resolution, limits, number):
    """A number is in one node of each interval that it is in, and in no node inside another one."""
    low, high = np.array(limits).T
    true = {interval for interval, (least, most) in enumerate(limits) if least <= number <= most}
    with bounds(cells, resolution):
        cuts = facts.cuts_of(low, high)
        own = above(facts.size_of(cuts) + int(facts.cells_of(cuts, np.array([number]))[0]))
        for nodes in (
            facts.nodes_of(cuts, low, high),
            *(facts.cover_of(cuts, low, high, most) for most in (1, 2, 4)),
        ):
            found = [(interval, inside) for interval, node, inside in zip(*nodes, strict=True) if node in own]

            assert len(found) == len(dict(found))
            assert {interval for interval, inside in found if inside} <= true <= {interval for interval, _ in found}


@pytest.mark.parametrize(("cells", "resolution"), RESOLUTIONS)
@given(
    stored_conditions=st.lists(_conditions_of_ranges, min_size=1, max_size=10),
    given_messages=st.lists(_messages_of_ranges, min_size=1, max_size=6),
    hot=st.booleans(),
)
def test_is_the_interpreter(cells, resolution, stored_conditions, given_messages, hot):
    """Intervals alone, joined, beside others and in alternatives match as the interpreter says, however asked."""
    subscriptions = subscriptions_of(stored_conditions)
    with bounds(cells, resolution, hot):
        index, matcher = Index.of(subscriptions, sample=given_messages[:2]), Matcher(subscriptions)
    true = expected(subscriptions, given_messages)

    assert true == pairs(index, given_messages)
    for row, message in enumerate(given_messages):
        found = sorted((row, match.subscription_id) for match in matcher.match(message))
        assert [pair for pair in true if pair[0] == row] == found


def test_nodes_are_few():
    """However wide an interval is, it has few nodes; where all bounds are cuts, none of them is verified."""
    low = np.linspace(0, 1, 50_000)
    cuts = facts.cuts_of(low, low + 0.3)
    few = np.array([0.25, 0.5])

    assert len(cuts) < facts.CELLS
    assert len(facts.nodes_of(cuts, low, low + 0.3).node) < 12 * len(low)
    assert facts.nodes_of(facts.cuts_of(few, few + 1), few, few + 1).inside.all()
    assert np.bincount(facts.cover_of(cuts, low, low + 0.3, 4).interval).max() <= 5


def test_two_intervals_have_few_candidates():
    """A subscription with two intervals is found by their nodes together; in the middle of both nothing is verified."""
    subscriptions = [
        Subscription(["d"], parse(f"a >= {x} AND a < {x + 300} AND b >= {y} AND b < {y + 300}"), id=f"{x}-{y}")
        for x in range(0, 700, 20)
        for y in range(0, 700, 20)
    ]
    segment = build(subscriptions, Costs(()))
    messages = [{"a": str(number), "b": str(999 - number)} for number in range(7, 1_000, 10)]
    verified, matched = map(sum, zip(*(candidates(segment, message) for message in messages), strict=True))

    assert segment.head.probed == (segment.head.facts.index(("a", SPAN)),)
    assert matched == sum(map(len, Matcher(subscriptions).match_many(messages).ids())) > 0
    assert verified < 2 * matched
    assert np.count_nonzero(segment.arrays.entry_program == 0) > 0.2 * len(segment.arrays.entry_program)


def test_nothing_is_verified_in_vain():
    """Ranges that a number is not in are no candidates, with an equality beside them or without."""
    rules = [all_of(compare("p", ">=", n), compare("p", "<", n + 1)) for n in range(1_000)]
    rules += [all_of(compare("p", ">=", n), compare("p", "<", n + 1), kiwi("k", f"x{n % 3}")) for n in range(1_000)]
    matcher = Matcher(subscriptions_of(rules))
    (layer,) = matcher._state.layers

    assert matcher.stats().always == 0
    assert candidates(layer.view.segment, {"p": "12.5", "k": "x0"}) == (2, 2)
    assert all(count <= 10 for anchor, count in matcher.stats(10_000).hottest if anchor.kind.op == "cell")


def test_contradictory_bounds():
    """A conjunction that no number fulfils holds for several: each bound looks for one by itself."""
    matcher = Matcher(subscriptions_of([all_of(compare("p", ">", 2), compare("p", "<", 1), kiwi("k", "x"))]))

    assert matcher.match({"p": "1.5", "k": "x"}) == []
    assert [match.subscription_id for match in matcher.match({"p": ["0", "3"], "k": "x"})] == ["0"]
