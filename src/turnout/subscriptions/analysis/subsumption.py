"""Subsumption of conditions, proven by their terms, never by a sample."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from turnout.conditions import Condition, evaluate
from turnout.conditions.leaf import Literal
from turnout.subscriptions.analysis.atoms import relation
from turnout.subscriptions.analysis.canonical import CanonicalForm
from turnout.subscriptions.analysis.diagram import FALSE, TRUE, Diagrams, TooLargeError
from turnout.subscriptions.analysis.witness import message_of, witness


class Verdict(StrEnum):
    """The answer to a question that may be too hard."""

    YES = "yes"
    """Proven."""

    NO = "no"
    """There is a message that shows it, or no message is common to both."""

    UNKNOWN = "unknown"


def subsumed(condition: Condition, form: CanonicalForm, other: Condition, other_form: CanonicalForm) -> Verdict:
    """Decide if every message of *condition* is also one of *other*.

    Args:
        condition: the one that may be the narrower.
        form: its normal form.
        other: the one that may be the wider.
        other_form: its normal form.
    """
    if form.digest == other_form.digest:
        return Verdict.YES
    if form.literals is not None and other_form.literals is not None:
        missing = _missing(form.literals, other_form.literals)
        if missing is None:
            return Verdict.YES
        if form.always is None and any(_follows(literal, (missing[0], not missing[1])) for literal in form.literals):
            # The two share no messages, and this one matches some, as far as can be proven.
            return Verdict.NO
        if _separates(condition, other, message_of(sorted({*form.literals, (missing[0], not missing[1])}))):
            return Verdict.NO
    try:
        diagrams = Diagrams()
        outside = diagrams.choose(diagrams.of(other), FALSE, TRUE)
        counterexamples = diagrams.reduced(diagrams.choose(diagrams.of(condition), outside, FALSE))
    except TooLargeError:
        return Verdict.UNKNOWN
    if counterexamples == FALSE:
        return Verdict.YES
    return Verdict.NO if _separates(condition, other, witness(diagrams, counterexamples)) else Verdict.UNKNOWN


def _separates(condition: Condition, other: Condition, message: Mapping[str, str] | None) -> bool:
    """Return True if the message matches the condition and not the other one."""
    return message is not None and evaluate(condition, message) and not evaluate(other, message)


def _missing(literals: tuple[Literal, ...], required: tuple[Literal, ...]) -> Literal | None:
    """Return the first of the literals that are *required* which follows from none of the others; None if all do."""
    return next(
        (needed for needed in required if not any(_follows(literal, needed) for literal in literals)),
        None,
    )


def _follows(premise: Literal, conclusion: Literal) -> bool:
    (atom, holds), (other, required) = premise, conclusion
    if atom.key != other.key:
        return False
    if holds:
        return relation(atom, other) is required
    return not required and relation(other, atom) is True
