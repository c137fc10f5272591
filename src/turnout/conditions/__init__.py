"""Conditions over a message's metadata: the model, its text and JSON forms, and what they mean."""

from turnout.conditions.blame import Blame, SeenLeaf, blame, true_leaves
from turnout.conditions.build import all_of, any_of, between, cidr, compare, exists, kiwi, not_, one_of, regex
from turnout.conditions.codec import decode, encode
from turnout.conditions.evaluate import evaluate
from turnout.conditions.explain import Explanation, explain
from turnout.conditions.model import (
    Cidr,
    Compare,
    Condition,
    Exists,
    Group,
    Kiwi,
    Leaf,
    Logic,
    Operator,
    Regex,
    leaves,
    nodes,
    with_ids,
)
from turnout.conditions.text import format_condition, parse

__all__ = [
    "Blame",
    "Cidr",
    "Compare",
    "Condition",
    "Exists",
    "Explanation",
    "Group",
    "Kiwi",
    "Leaf",
    "Logic",
    "Operator",
    "Regex",
    "SeenLeaf",
    "all_of",
    "any_of",
    "between",
    "blame",
    "cidr",
    "compare",
    "decode",
    "encode",
    "evaluate",
    "exists",
    "explain",
    "format_condition",
    "kiwi",
    "leaves",
    "nodes",
    "not_",
    "one_of",
    "parse",
    "regex",
    "true_leaves",
    "with_ids",
]
