"""Server-side filtering: the subjects of a stream that some subscriptions can match.

The filters of a route's source pass its chain and mappings as forms (`turnout.engine.subject_form`); the conditions'
requirements on the resulting topics narrow them again. In doubt more is read, never less.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import reduce
from typing import Final, TypeAlias

from turnout.base.multivalued import leaf_key
from turnout.conditions import Condition, Group, Logic
from turnout.conditions.pattern import ANY, parse_pattern
from turnout.engine.subject_form import (
    REST,
    Element,
    SubjectForm,
    Token,
    glob_of,
    joined,
    minimal_filters,
    narrowed,
    regex_globs,
    replacement_glob,
)
from turnout.records.field_paths import parse_path
from turnout.routes import Route
from turnout.subjects.mapping import MappingTable
from turnout.subjects.pattern import FULL, PARTIAL, common
from turnout.subjects.transform import SubjectTransform, TokenStep
from turnout.transforms.chain import Chain, Filter, Stage
from turnout.transforms.community import topics
from turnout.transforms.community.set import Set
from turnout.transforms.kafka.routers import RegexRouter
from turnout.transforms.predicates import SubjectMatches, TopicNameMatches

_NEVER_EMPTY = frozenset({"partition", "random"})


def matching(form: SubjectForm, source: str) -> list[SubjectForm]:
    """Return the forms of the subjects whose topic a filter matches; *form* itself if it matches all of them."""
    return [matched for matched, _ in _matching(form, source)]


def through_transform(form: SubjectForm, transform: SubjectTransform) -> list[SubjectForm]:
    """Apply a transform to the topic form; topics that its source does not match are unchanged."""
    if transform.is_identity:
        return [form]
    matched = _matching(form, transform.source)
    mapped = [SubjectForm(matching.source, _rendered(transform, tokens)) for matching, tokens in matched]
    return mapped if _all_of(form, matched) else [*mapped, form]


def through_mappings(forms: Iterable[SubjectForm], table: MappingTable, cluster: str | None) -> list[SubjectForm]:
    """Apply a mapping table to the topic forms: every destination that a draw may choose."""
    if not len(table):
        return list(forms)
    return list(dict.fromkeys(mapped for form in forms for mapped in _mapped(form, table, cluster)))


def _mapped(form: SubjectForm, table: MappingTable, cluster: str | None) -> Iterator[SubjectForm]:
    for mapping in table.mappings:
        matched = _matching(form, mapping.source)
        for share in mapping.group(cluster):
            yield from (
                SubjectForm(matching.source, _rendered(share.transform, tokens)) for matching, tokens in matched
            )
        if _all_of(form, matched):
            # The first source that matches decides: nothing is left for the others.
            return
    # For a known topic, any remainder after a condition's bound may be mapped.
    yield SubjectForm(form.source, form.topic, tuple(mapping.source for mapping in table.mappings))


_Matched = tuple[SubjectForm, list[Element] | None]


def _all_of(form: SubjectForm, matched: Sequence[_Matched]) -> bool:
    """Return True if the source is known to match every topic of the form."""
    return any(matching == form and tokens is not None for matching, tokens in matched)


def _matching(form: SubjectForm, source: str) -> list[_Matched]:
    """Return the forms that a source matches, each with its topic's tokens; None for unknown tokens."""
    if form.tokens() is None:
        return [(form, None)]
    return list(_unified(form, source.split(".")))


def _unified(form: SubjectForm, filter_tokens: Sequence[str]) -> Iterator[tuple[SubjectForm, list[Element]]]:
    tokens = form.tokens() or []
    for position, filter_token in enumerate(filter_tokens):
        if position >= len(tokens):
            return
        token = tokens[position]
        if filter_token == FULL:
            yield form, tokens
            return
        if token is REST:
            # One token more, or several.
            for rest in ([PARTIAL], [PARTIAL, FULL]):
                yield from _unified(form.bound({}, rest), filter_tokens)
            return
        # As the server does: a token that only begins with a star matches any.
        if filter_token.startswith(PARTIAL):
            continue
        if isinstance(token, Token) and token.position is not None:
            bound = form.bound({token.position: filter_token})
            if bound != form:
                yield from _unified(bound, filter_tokens)
                return
        elif isinstance(token, str) and token != filter_token:
            return
    if len(tokens) == len(filter_tokens):
        yield form, tokens


def _rendered(transform: SubjectTransform, tokens: list[Element] | None) -> tuple[Element, ...]:
    """Render the destination for a topic form."""
    elements: list[Element] = []
    for number, step in enumerate(transform.steps):
        elements += [*(["."] if number else []), _part(step, tokens)]
    if transform.tail is not None:
        elements += ["."] if transform.steps else []
        for number, token in enumerate([ANY] if tokens is None else tokens[transform.tail :]):
            elements += [*(["."] if number else []), token]
    return joined(elements)


def _part(step: TokenStep, tokens: list[Element] | None) -> Element:
    if step.call is None:
        return step.literal or ""
    if step.call.function in _NEVER_EMPTY:
        return Token(None)
    if step.call.function != "wildcard" or tokens is None:
        # A part of a token may be empty, and several where it is split.
        return ANY
    token = tokens[step.tokens[0]]
    return ANY if token is REST else token


TopicRequirement: TypeAlias = str | tuple[str, tuple["TopicRequirement", ...]]
"""A pattern that the whole topic has to match; ("all", …) or ("any", …) of such questions."""


def asked_of(condition: Condition, keys: Collection[str]) -> TopicRequirement | None:
    """Return the requirement on topics that each topic meets for which the condition can be true; None if any can.

    Args:
        condition: condition of a subscription.
        keys: under which a condition sees the topic.
    """
    if not isinstance(condition, Group):
        return condition.value_pattern() if condition.key in keys else None
    if condition.negated:
        return None
    parts = [asked_of(child, keys) for child in condition.children]
    patterns = tuple(dict.fromkeys(part for part in parts if part is not None))
    # In a group that requires one or exactly one, one is true.
    if not patterns or (condition.logic is not Logic.AND and len(patterns) < len(set(parts))):
        return None
    if len(patterns) == 1:
        return patterns[0]
    return ("all" if condition.logic is Logic.AND else "any", patterns)


def through_chain(forms: Iterable[SubjectForm], chain: Chain) -> list[SubjectForm]:
    """Apply the stages to the topic forms; forms whose records are always dropped are left out."""
    forms_so_far = list(forms)
    for stage in chain.stages:
        forms_so_far = list(dict.fromkeys(after for form in forms_so_far for after in _after(form, stage)))
    return forms_so_far


def _after(form: SubjectForm, stage: Stage) -> list[SubjectForm]:
    transform = stage.transform
    if transform.keeps_topic and not isinstance(transform, Filter):
        return [form]
    applied, passed_by = _split(form, stage)
    if isinstance(transform, Filter):
        return passed_by
    if isinstance(transform, RegexRouter):
        changed = [after for before in applied for after in _routed(before, transform)]
    elif isinstance(transform, topics.SubjectTransform) and transform.mapping is not None:
        changed = [after for before in applied for after in through_transform(before, transform.mapping)]
    else:
        topic = transform.constant_topic if isinstance(transform, Set) else None
        changed = [SubjectForm(before.source, (topic or ANY,)) for before in applied]
    return [*changed, *passed_by]


def _split(form: SubjectForm, stage: Stage) -> tuple[list[SubjectForm], list[SubjectForm]]:
    """Return the forms that a stage may apply to, and the forms that may skip it."""
    if not stage.guards:
        return ([], [form]) if stage.negate else ([form], [])
    if len(stage.guards) > 1:
        return [form], [form]
    (guard,) = stage.guards
    predicate = guard.predicate
    if isinstance(predicate, TopicNameMatches):
        holds = [narrower for glob in regex_globs(predicate.pattern) for narrower in narrowed(form, glob)]
    elif isinstance(predicate, SubjectMatches):
        holds = matching(form, predicate.subject)
    else:
        return [form], [form]
    fails = [] if isinstance(predicate, SubjectMatches) and form in holds and form.tokens() else [form]
    return (holds, fails) if guard.negate == stage.negate else (fails, holds)


def _routed(form: SubjectForm, router: RegexRouter) -> list[SubjectForm]:
    """Return the forms that the expression may match, with their new topics, and the form with its old topic."""
    matched = [narrower for glob in regex_globs(router.regex) for narrower in narrowed(form, glob)]
    topic = joined(replacement_glob(router.replacement))
    return [form, *(SubjectForm(narrower.source, topic) for narrower in matched)]


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
