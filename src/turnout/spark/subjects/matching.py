"""Subject filters as columns."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column
from pyspark.sql import functions as F

from turnout.spark.subjects.text import literal, split_tokens
from turnout.subjects.tokens import BLANKS, FULL, PARTIAL


def subject_matches(pattern: str, column: Column | str) -> Column:
    """Return a column that is true if a subscription on *pattern* receives the subject; never null.

    As `turnout.subjects.matches`: a pattern or a subject with an empty token matches nothing.
    """
    subject = F.col(column) if isinstance(column, str) else column
    pattern_tokens = pattern.split(".")
    if "" in pattern_tokens or FULL in pattern_tokens[:-1]:
        return F.lit(False) & subject.isNotNull()
    if PARTIAL not in pattern_tokens and FULL not in pattern_tokens:
        return F.coalesce(subject == literal(pattern), F.lit(False))
    tokens = split_tokens(subject)
    fits = tokens_fit(tokens, pattern_tokens) & ~F.array_contains(tokens, "")
    return F.coalesce(fits, F.lit(False))


def tokens_fit(tokens: Column, pattern_tokens: Sequence[str]) -> Column:
    """Return a column that is true if the number of tokens fits and the fixed ones are equal."""
    full = pattern_tokens[-1] == FULL
    fits = F.size(tokens) >= len(pattern_tokens) if full else F.size(tokens) == len(pattern_tokens)
    for index, pattern_token in enumerate(pattern_tokens):
        if pattern_token not in (PARTIAL, FULL):
            fits = fits & (F.get(tokens, F.lit(index)) == literal(pattern_token))
    return fits


def is_literal(tokens: Column) -> Column:
    """Return a column that is true if no token is empty or a wildcard, as in every published subject."""
    return ~(F.array_contains(tokens, "") | F.array_contains(tokens, PARTIAL) | F.array_contains(tokens, FULL))


def subject_is_publishable(column: Column | str) -> Column:
    """Return a column that is true if a message with this subject can reach a subscriber; never null, false for null.

    False for an empty token, a wildcard, a blank, and for bytes that are not UTF-8: a server delivers the last,
    but most clients (and Kafka) cannot name such a subject.
    """
    subject = F.col(column) if isinstance(column, str) else column
    blank = F.lit(False)
    for character in BLANKS:
        blank = blank | F.contains(subject, F.lit(character))
    return F.coalesce(F.is_valid_utf8(subject) & ~blank & is_literal(split_tokens(subject)), F.lit(False))
