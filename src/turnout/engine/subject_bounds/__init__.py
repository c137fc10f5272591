"""Bounds on the subjects that can matter to a route: its chain and mappings applied to filters instead of records.

`form` describes a set of subjects, `chain` and `mapping` take it through the route, `narrowing`
finds what of it a pattern can match, `minimal_filters` makes few filters of many.
"""

from __future__ import annotations

from turnout.engine.subject_bounds.chain import through_chain
from turnout.engine.subject_bounds.mapping import through_mappings
from turnout.engine.subject_bounds.minimal_filters import minimal_filters
from turnout.engine.subject_bounds.narrow import narrowed
from turnout.engine.subject_bounds.normal_form import SubjectForm
from turnout.engine.subject_bounds.topic_patterns import TopicRequirement, asked_of

__all__ = [
    "SubjectForm",
    "TopicRequirement",
    "asked_of",
    "minimal_filters",
    "narrowed",
    "through_chain",
    "through_mappings",
]
