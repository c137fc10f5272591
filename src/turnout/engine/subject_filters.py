"""Server-side filtering: the subjects of a stream that some subscriptions can match.

The filters of a route's source pass its chain and mappings as forms (`turnout.engine.subject_bounds`); the conditions'
requirements on the resulting topics narrow them again. In doubt more is read, never less.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from functools import reduce
from typing import Final

from turnout.base.multivalued import leaf_key
from turnout.conditions import Condition
from turnout.conditions.pattern import parse_pattern
from turnout.engine.subject_bounds import (
    SubjectForm,
    TopicRequirement,
    asked_of,
    minimal_filters,
    narrowed,
    through_chain,
    through_mappings,
)
from turnout.engine.subject_bounds.subject_form import glob_of
from turnout.records.field_paths import parse_path
from turnout.routes import Route
from turnout.subjects.pattern import FULL, common

MOST_FILTERS: Final = 100
"""More filters than this cost the server more than they save."""

_MOST_QUESTIONS: Final = 10_000
"""Maximum number of distinct requirements: more would take seconds."""

_MOST_FORMS: Final = 1000
_TOPIC: Final = frozenset({"topic", "subject"})
_RULES: Final = "1"
"""To be changed when the same route and conditions give other filters."""


class SubjectFilters:
    """Subjects that a route can need for any subscriptions.

    Args:
        route: route with the chain and the mappings of topics.
        own: the filters of its source; none for the whole stream.

    Attributes:
        own: likewise.
        digest: the same for routes that give the same filters for the same subscriptions.
    """

    def __init__(self, route: Route, own: Sequence[str]) -> None:
        self.own = tuple(own)
        paths = route.subscriptions.metadata if route.subscriptions else {}
        renamed = {name for name, path in paths.items() if parse_path(path)[0] in _TOPIC}
        self.keys = frozenset(map(leaf_key, (_TOPIC - paths.keys()) | renamed))
        forms = through_chain(map(SubjectForm.read, self.own or (FULL,)), route.chain)
        self._forms = through_mappings(forms, route.mappings, route.cluster)
        facts = repr((_RULES, self.own, sorted(self.keys), self._forms))
        self.digest = hashlib.sha256(facts.encode(errors="surrogatepass")).hexdigest()
        self._known: dict[str, frozenset[str]] = {}

    def asked(self, condition: Condition) -> TopicRequirement | None:
        """Return a condition's requirement on topics; None if it can be true for any."""
        return asked_of(condition, self.keys)

    def of(self, questions: Iterable[TopicRequirement | None]) -> tuple[str, ...] | None:
        """Return the fewest filters that miss no record whose topic meets one of the requirements.

        Returns:
            At most `MOST_FILTERS`, or as many as the source has, no two of which have a subject in common; none at all
            if no record can match. None if they are no narrower than the source's own.
        """
        filters: set[str] = set()
        different = set(questions)
        if None in different or len(different) > _MOST_QUESTIONS or len(self._forms) > _MOST_FORMS:
            return None
        own = set(self.own or (FULL,))
        for question in different:
            assert question is not None
            filters |= self._filters(question)
            if own <= filters:
                return None
        chosen = minimal_filters(filters, own, MOST_FILTERS)
        return None if own <= set(chosen) else chosen

    def _filters(self, question: TopicRequirement) -> frozenset[str]:
        if isinstance(question, str):
            if question not in self._known:
                glob = glob_of(parse_pattern(question))
                self._known[question] = frozenset(
                    narrower.filter for form in self._forms for narrower in narrowed(form, glob)
                )
            return self._known[question]
        kind, parts = question
        filters = [self._filters(part) for part in parts]
        return frozenset().union(*filters) if kind == "any" else reduce(_intersection, filters)


def _intersection(ones: frozenset[str], others: frozenset[str]) -> frozenset[str]:
    """Return filters of the subjects common to both; of many filters, the smaller set: it covers more, but is fast."""
    if len(ones) * len(others) > MOST_FILTERS**2:
        return min(ones, others, key=len)
    return frozenset(shared for a in ones for b in others if (shared := common(a, b)) is not None)


def subject_filters(route: Route, conditions: Iterable[Condition], own: Sequence[str]) -> tuple[str, ...]:
    """Return filters for a consumer that miss no record for which one of *conditions* can be true.

    Args:
        route: route with the chain and the mappings of topics.
        conditions: conditions of the subscriptions.
        own: the filters of the route's source; none for the whole stream.

    Returns:
        The filters, no two of which have a subject in common; those of the source if nothing is known, or no record can
        match.
    """
    filters = SubjectFilters(route, own)
    return filters.of(filters.asked(condition) for condition in conditions) or tuple(own)


def topics_after(route: Route, read: Iterable[str]) -> list[str | None]:
    """Return the possible topics of records of some filters behind the chain and the mappings, as filters.

    One is None if nothing is known of it.
    """
    forms = through_mappings(through_chain(map(SubjectForm.read, read), route.chain), route.mappings, route.cluster)
    return [form.topic_filter for form in forms if not form.is_empty]
