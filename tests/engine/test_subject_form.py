"""Sets of subjects: bounded by patterns and regular expressions, and covered by few filters."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.engine.test_subject_filters_property import _covered, filters, patterns, regexes, topics
from tests.examples import examples
from turnout.conditions.pattern import parse_pattern, pattern_matcher
from turnout.engine.subject_form import SubjectForm, glob_of, minimal_filters, narrowed, regex_globs
from turnout.subjects import matches
from turnout.subjects.pattern import collide, is_subset
from turnout.transforms.java.regex import JavaRegex


@settings(max_examples=examples(400))
@given(patterns, filters, topics)
def test_narrowing_keeps_what_matches(pattern: str, source: str, topic: str) -> None:
    """A subject of a filter that a pattern matches stays; what stays is within the filter."""
    forms = narrowed(SubjectForm.read(source), glob_of(parse_pattern(pattern)))

    assert all(is_subset(form.filter, source) for form in forms)
    if matches(source, topic) and pattern_matcher(pattern)(topic):
        assert any(matches(form.filter, topic) for form in forms)


@settings(max_examples=examples(400))
@given(regexes, topics)
def test_a_regex_is_within_its_bound(regex: str, topic: str) -> None:
    """Every text that a Java expression matches as a whole matches one of its patterns."""
    if JavaRegex.of(regex).matches(topic):
        glob = regex_globs(regex)
        assert any(narrowed(SubjectForm.of(topic.split(".")), one) for one in glob)


@given(st.lists(filters, min_size=1, max_size=40, unique=True), st.integers(1, 5), st.lists(topics, max_size=8))
def test_few_filters_cover_many(many: list[str], most: int, some: list[str]) -> None:
    """However few they are to be, what one of the filters has is still covered, and no two overlap."""
    chosen = minimal_filters(many, [">"], most)

    assert len(chosen) <= most
    assert not any(collide(one, other) for at, one in enumerate(chosen) for other in chosen[:at])
    assert all(_covered(topic, chosen) for topic in some if _covered(topic, tuple(many)))
