"""Subjects bounded by patterns."""

from __future__ import annotations

from hypothesis import given, settings
from tests.engine.test_subject_filters_property import filters, patterns, topics

from turnout.conditions.pattern import parse_pattern, pattern_matcher
from turnout.engine.subject_bounds.narrow import glob_of, narrowed
from turnout.engine.subject_bounds.normal_form import SubjectForm
from turnout.subjects import matches
from turnout.subjects.pattern import is_subset


@settings(max_examples=400)
@given(patterns, filters, topics)
def test_narrowing_keeps_what_matches(pattern: str, source: str, topic: str) -> None:
    """A subject of a filter that a pattern matches stays; what stays is within the filter."""
    forms = narrowed(SubjectForm.read(source), glob_of(parse_pattern(pattern)))

    assert all(is_subset(form.filter, source) for form in forms)
    if matches(source, topic) and pattern_matcher(pattern)(topic):
        assert any(matches(form.filter, topic) for form in forms)
