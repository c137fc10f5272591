"""Trees as jumps, and merged checks, say what their nodes and checks say."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from turnout.conditions import Condition, Group, Logic, evaluate, kiwi
from turnout.conditions.model import Kiwi
from turnout.subscriptions import Matcher, Subscription
from turnout.subscriptions.index.arrays import EQUAL, GROUP, MANY, TREE
from turnout.subscriptions.index.programs import IS_TRUE, NONE_OF, merged, tree_of

_leaves = st.builds(
    Kiwi,
    st.sampled_from("kln"),
    st.sampled_from(["a", "b", "*a*", "*b*", "b*", "*?b"]),
    negated=st.booleans(),
)
_conditions: st.SearchStrategy[Condition] = st.recursive(
    _leaves,
    lambda inner: st.builds(
        lambda logic, children, negated: Group(logic, tuple(children), negated=negated),
        st.sampled_from(Logic),
        st.lists(inner, min_size=1, max_size=4),
        st.booleans(),
    ),
    max_leaves=14,
)
_messages = st.dictionaries(st.sampled_from("kln"), st.text(alphabet="abc", max_size=3), max_size=3)


@given(conditions=st.lists(_conditions, min_size=1, max_size=4), messages=st.lists(_messages, min_size=1, max_size=4))
def test_verifies_as_the_reference(conditions, messages):
    """Conditions nested in any way match one message as the interpreter says, with any logic and negation."""
    subscriptions = [Subscription(["d"], condition, id=str(number)) for number, condition in enumerate(conditions)]
    matcher = Matcher(subscriptions)

    for message in messages:
        expected = [own.id for own in subscriptions if evaluate(own.condition, message)]
        assert expected == sorted(matcher.match(message).ids)


def test_negated_literals_of_a_fact_are_one_check():
    """Filters of a rule that name one key are compared with its literals in one go, where the first one was."""
    checks = [(MANY << 1 | 1, 3, 7), (EQUAL << 1, 2, 1), (EQUAL << 1 | 1, 2, 5), (MANY << 1 | 1, 3, 9)]

    assert merged(checks) == ((NONE_OF, 3, frozenset((7, 9))), (EQUAL << 1, 2, 1), (EQUAL << 1 | 1, 2, 5))


def test_a_tree_stops_at_the_leaf_that_decides():
    """Of two leaves that both have to be true, the second is not looked at where the first is false."""
    jumps, nodes = tree_of([(GROUP << 1, 2, 2, 0), (EQUAL << 1, 0, 4, 1), (EQUAL << 1 | 1, 0, 5, 2)])

    _, _, literal, if_true, if_false = jumps[-1]
    assert (literal, if_true, nodes) == (4, 0, [])
    assert if_false < IS_TRUE
    assert jumps[if_true][3:] == (if_false, IS_TRUE)


def test_exclusive_alternatives_are_counted():
    """With XOR all leaves are looked at."""
    jumps, nodes = tree_of([(GROUP << 1, 1, 1, 0), (EQUAL << 1, 0, 4, 1), (EQUAL << 1, 0, 5, 2)])

    assert [kind for kind, *_ in jumps] == [TREE]
    assert [node for node, *_ in nodes] == [2, 1, 0]


def test_deep_groups_are_jumps_too():
    """A group for each level that conditions may nest is one tree."""
    condition: Condition = kiwi("k", "a")
    for level in range(40):
        logic = Logic.OR if level % 2 else Logic.AND
        condition = Group(logic, (condition, kiwi("l", str(level))))
    matcher = Matcher([Subscription(["d"], condition, id="deep")])

    assert [len(matcher.match({"k": "a", "l": str(level)})) for level in (38, 39)] == [
        evaluate(condition, {"k": "a", "l": str(level)}) for level in (38, 39)
    ]
