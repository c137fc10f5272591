"""Chain applied to subject forms: the possible topics after it, and the forms that its filters drop by topic alone."""

from __future__ import annotations

from collections.abc import Iterable

from turnout.conditions.pattern import ANY
from turnout.engine.subject_bounds.mapping import matching, through_transform
from turnout.engine.subject_bounds.narrow import narrowed
from turnout.engine.subject_bounds.normal_form import SubjectForm, joined
from turnout.engine.subject_bounds.regex_globs import regex_globs, replacement_glob
from turnout.transforms.chain import Chain, Filter, Stage
from turnout.transforms.community.topics import SubjectTransform
from turnout.transforms.kafka.routers import RegexRouter
from turnout.transforms.predicates import SubjectMatches, TopicNameMatches


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
    elif isinstance(transform, SubjectTransform) and transform.mapping is not None:
        changed = [after for before in applied for after in through_transform(before, transform.mapping)]
    else:
        changed = [SubjectForm(before.source, (ANY,)) for before in applied]
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
