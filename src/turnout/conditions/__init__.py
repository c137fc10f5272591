"""Conditions over a message's metadata: the model, its text and JSON forms, and their evaluation."""

from turnout.conditions import leaves as _leaves
from turnout.conditions.codec import decode, encode
from turnout.conditions.explain import Blame, Explanation, SeenLeaf, blame, explain, true_leaves
from turnout.conditions.leaf import Leaf
from turnout.conditions.leaves import *  # noqa: F403 - each leaf names its class and its function there alone
from turnout.conditions.model import (
    Condition,
    Group,
    Logic,
    all_leaves,
    all_of,
    any_of,
    evaluate,
    keys_of,
    leaves,
    nodes,
    not_,
    one_of,
    with_ids,
)
from turnout.conditions.text import format_condition, parse

__all__ = [
    "Blame",
    "Condition",
    "Explanation",
    "Group",
    "Leaf",
    "Logic",
    "SeenLeaf",
    "all_leaves",
    "all_of",
    "any_of",
    "blame",
    "decode",
    "encode",
    "evaluate",
    "explain",
    "format_condition",
    "keys_of",
    "leaves",
    "nodes",
    "not_",
    "one_of",
    "parse",
    "true_leaves",
    "with_ids",
]
__all__ += _leaves.__all__
