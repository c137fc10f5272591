"""Patterns that bound a regular expression."""

from __future__ import annotations

from hypothesis import given, settings
from tests.engine.test_subject_filters_property import regexes, topics

from turnout.engine.subject_bounds.narrow import narrowed
from turnout.engine.subject_bounds.normal_form import SubjectForm
from turnout.engine.subject_bounds.regex_globs import regex_globs
from turnout.transforms.java.regex import JavaRegex


@settings(max_examples=400)
@given(regexes, topics)
def test_a_regex_is_within_its_bound(regex: str, topic: str) -> None:
    """Every text that a Java expression matches as a whole matches one of its patterns."""
    if JavaRegex.of(regex).matches(topic):
        glob = regex_globs(regex)
        assert any(narrowed(SubjectForm.of(topic.split(".")), one) for one in glob)
