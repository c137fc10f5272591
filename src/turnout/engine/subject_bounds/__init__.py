"""Bounds on the subjects that can matter to a route: its chain and mappings applied to filters instead of records.

`form` describes a set of subjects, `chain` and `mapping` take it through the route, `narrowing`
finds what of it a pattern can match, `minimal_filters` makes few filters of many.
"""

from __future__ import annotations

from turnout.engine.subject_bounds.chain import TopicRequirement, asked_of, through_chain, through_mappings
from turnout.engine.subject_bounds.subject_form import SubjectForm, minimal_filters, narrowed

__all__ = [
    "SubjectForm",
    "TopicRequirement",
    "asked_of",
    "minimal_filters",
    "narrowed",
    "through_chain",
    "through_mappings",
]
