"""Single subject transform as a column."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column
from pyspark.sql import functions as F

from turnout.spark.subjects.functions import CUTS, split
from turnout.spark.subjects.matching import is_literal, tokens_fit
from turnout.spark.subjects.partition import fnv1a
from turnout.spark.subjects.random_numbers import draw_bits, random_below
from turnout.spark.subjects.text import join, literal, split_tokens
from turnout.subjects.pattern import shape_of
from turnout.subjects.tokens import FULL, PARTIAL
from turnout.subjects.transform import SubjectTransform, TokenStep


def transform_subject(
    transform: SubjectTransform,
    column: Column | str,
    *,
    seed: Sequence[Column | str] = (),
    unmatched: Column | None = None,
) -> Column:
    """Transform the column's subjects.

    Args:
        transform: the transform.
        column: the subjects, strings. Their bytes are kept as they are, UTF-8 or not.
        seed: columns that identify a record; needed where the destination has ``random(n)``.
        unmatched: the value where the source does not match or the subject is no literal subject; null if not
            given. ``F.raise_error(…)`` fails the query there, the column itself keeps the subject.

    Returns:
        A string column; null where the subject is null. A cut through a character gives bytes that are not
        UTF-8, as in the server: see `subject_is_publishable`.

    Raises:
        ConfigError: when the destination has ``random(n)`` and there is no seed.
    """
    subject = F.col(column) if isinstance(column, str) else column
    if transform.is_identity or (transform.source == FULL and transform.destination == FULL):
        return subject
    tokens = split_tokens(subject)
    bits = draw_bits(seed, what=f"the transform to {transform.destination!r}") if transform.is_random else F.lit(0)
    parts: list[Column | str] = [
        step.literal if step.literal is not None else _value(step, index, subject, tokens, bits)
        for index, step in enumerate(transform.steps)
    ]
    if transform.tail is not None:
        parts.append(tail_of(subject, tokens, F.lit(transform.tail)))
    # Not CASE WHEN matches THEN parts: Spark shares repeated parts of an expression only outside branches.
    head, *others = join(parts)
    matches = _matches(transform.source, subject, tokens)
    if isinstance(head, str):
        head = F.when(matches, literal(head))
    else:
        others = [head, *others]
        head = F.when(matches, F.lit(""))
    result = F.concat(head, *[literal(part) if isinstance(part, str) else part for part in others]) if others else head
    return result if unmatched is None else F.coalesce(result, F.when(subject.isNotNull(), unmatched))


def _matches(source: str, subject: Column, tokens: Column) -> Column:
    """Return a column that is true if a literal subject matches the source."""
    if shape_of(source).is_literal:
        return subject == literal(source)
    pattern_tokens = source.split(".")
    fits = tokens_fit(tokens, pattern_tokens)
    if pattern_tokens[-1] == FULL:
        return fits & is_literal(tokens)
    # Tokens equal to one of the source are literal: only the others are left to compare.
    for index, pattern_token in enumerate(pattern_tokens):
        if pattern_token == PARTIAL:
            fits = fits & ~F.get(tokens, F.lit(index)).isin("", PARTIAL, FULL)
    return fits


def tail_of(subject: Column, tokens: Column, skipped: Column) -> Column:
    """Return the tokens that ``>`` matches, joined: all but the first *skipped*; at least one token is left."""
    return F.call_function("substring_index", subject, F.lit("."), skipped - F.size(tokens))


def _value(step: TokenStep, index: int, subject: Column, tokens: Column, bits: Column) -> Column | str:
    """Return the value of one placeholder."""
    call = step.call
    assert call is not None
    number = call.number or 0
    named = [F.get(tokens, F.lit(token)) for token in step.tokens]
    if call.function == "wildcard":
        return named[0]
    if call.function == "partition":
        buckets = number % 2**32
        key = F.concat(*named) if len(named) > 1 else named[0] if named else subject
        return (fnv1a(key) % F.lit(buckets).cast("long")).cast("string") if buckets else "0"
    if call.function == "random":
        return random_below(bits, index, F.lit(abs(number))).cast("string") if number else "0"
    if call.function == "split":
        return split(named[0], literal(call.delimiter) if call.delimiter else None)
    return CUTS[call.function](named[0], F.lit(number)) if number > 0 else named[0]
