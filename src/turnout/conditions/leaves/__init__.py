"""Leaves of conditions, each in a module of its own; `LEAVES` lists them."""

from __future__ import annotations

from typing import Final

from turnout.conditions.leaf import LeafSpec
from turnout.conditions.leaves.cidr import CIDR, Cidr, cidr
from turnout.conditions.leaves.compare import COMPARE, Compare, Operator, between, compare
from turnout.conditions.leaves.compare_fields import COMPARE_FIELDS, CompareFields, FieldOperator, compare_fields
from turnout.conditions.leaves.element import ELEMENT_LEAF, Element, any_element
from turnout.conditions.leaves.exists import EXISTS, Exists, exists
from turnout.conditions.leaves.kiwi import KIWI, Kiwi, kiwi
from turnout.conditions.leaves.regex import REGEX_LEAF, Regex, regex
from turnout.conditions.leaves.subject_match import SUBJECT_MATCH, SubjectMatch, subject_match

__all__ = [
    "Cidr",
    "Compare",
    "CompareFields",
    "Element",
    "Exists",
    "FieldOperator",
    "Kiwi",
    "Operator",
    "Regex",
    "SubjectMatch",
    "any_element",
    "between",
    "cidr",
    "compare",
    "compare_fields",
    "exists",
    "kiwi",
    "regex",
    "subject_match",
]

LEAVES: Final[tuple[LeafSpec, ...]] = (
    KIWI,
    COMPARE,
    EXISTS,
    CIDR,
    REGEX_LEAF,
    SUBJECT_MATCH,
    ELEMENT_LEAF,
    COMPARE_FIELDS,
)
"""All kinds of leaves, in the order in which people are offered them."""
