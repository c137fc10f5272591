"""Subject transforms and mapping tables applied to subject forms: matched forms, and their new topics."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from turnout.conditions.pattern import ANY
from turnout.engine.subject_bounds.normal_form import REST, Element, SubjectForm, Token, joined
from turnout.subjects.mapping import MappingTable
from turnout.subjects.pattern import FULL, PARTIAL
from turnout.subjects.transform import SubjectTransform, TokenStep

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
