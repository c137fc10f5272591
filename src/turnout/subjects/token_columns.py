"""Rendering of a transform's destination for many subjects at once, by columns of tokens.

Subjects with equal numbers of tokens become one column for each token, split in a single call; each token of the
destination is a function from columns to a column. What cannot be split this way is left to `SubjectTransform.apply`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat

from turnout.subjects._fnv import fnv1a_many
from turnout.subjects.errors import InvalidSubjectError
from turnout.subjects.functions import Call, cut_column
from turnout.subjects.plan import TokenStep, bucket_namer, buckets_of
from turnout.subjects.random_numbers import check_draw, random_below
from turnout.subjects.tokens import FULL, PARTIAL, encode


@dataclass(frozen=True, slots=True)
class TokenColumns:
    """Literal subjects with equal numbers of tokens.

    Attributes:
        subjects: the subjects.
        columns: for each token index, the tokens of all subjects.
        draws: a draw for each subject; None if each call makes its own.
    """

    subjects: Sequence[str]
    columns: list[list[str]]
    draws: Sequence[float] | None

    @classmethod
    def split(cls, subjects: Sequence[str], draws: Sequence[float] | None) -> TokenColumns | None:
        """Split *subjects*, of which there is at least one.

        None if their numbers of tokens differ, or if one is not literal, has a line feed or cannot be encoded.
        """
        text = ".\n.".join(subjects)
        if (
            text.count("\n") != len(subjects) - 1
            or not text
            or text[0] == "."
            or text[-1] == "."
            or ".." in text
            # Inside a longer token they are plain characters, which is rare.
            or PARTIAL in text
            or FULL in text
            or not _is_encodable(text)
        ):
            return None
        tokens = text.split(".")
        width = subjects[0].count(".") + 2
        # As many line feeds as there are gaps between subjects: if each is where one is expected, none is elsewhere.
        if len(tokens) != width * len(subjects) - 1 or tokens[width - 1 :: width].count("\n") != len(subjects) - 1:
            return None
        return cls(subjects, [tokens[index::width] for index in range(width - 1)], draws)

    def take(self, rows: Sequence[int]) -> TokenColumns:
        """Return the subjects of these *rows*."""
        return TokenColumns(
            [self.subjects[row] for row in rows],
            [[column[row] for row in rows] for column in self.columns],
            None if self.draws is None else [self.draws[row] for row in rows],
        )

    def matching(self, source: Sequence[str]) -> Sequence[int]:
        """Return the rows of the subjects that match the tokens of *source*, in order."""
        rows: Sequence[int] = range(len(self.subjects))
        full = source[-1] == FULL
        if len(self.columns) < len(source) if full else len(self.columns) != len(source):
            return ()
        for token, column in zip(source, self.columns, strict=False):
            if token not in (FULL, PARTIAL) and column.count(token) != len(column):
                rows = [row for row in rows if column[row] == token]
        return rows


def _is_encodable(text: str) -> bool:
    if text.isascii():
        return True
    try:
        encode(text)
    except InvalidSubjectError:
        return False
    return True


def render_columns(steps: Sequence[TokenStep], tail: int | None, subjects: TokenColumns) -> list[str]:
    """Return the mapped subjects.

    Args:
        steps: the destination's tokens, without a final ``>``.
        tail: number of tokens of the subject before those that ``>`` matches; None without ``>``.
        subjects: subjects that match the source.

    Raises:
        ValueError: when a draw that decides ``random(n)`` is not in [0, 1).
    """
    parts: list[Iterable[str]] = []
    for literal, index in _merged(steps):
        parts.append(
            repeat(literal, len(subjects.subjects)) if index is None else _column(steps[index], index, subjects)
        )
    if tail is not None:
        parts += subjects.columns[tail:]
    if len(parts) == 1:
        return list(parts[0])
    if len(parts) == 2 and steps and steps[0].literal is not None:
        # The usual form: a concatenation is faster than a join of two.
        prefix = f"{next(iter(parts[0]))}."
        return [prefix + text for text in parts[1]]
    return list(map(".".join, zip(*parts, strict=True)))


def _merged(steps: Sequence[TokenStep]) -> Iterator[tuple[str, int | None]]:
    """Yield successive literals as one text, and the index of each placeholder."""
    literals: list[str] = []
    for index, step in enumerate(steps):
        if step.literal is not None:
            literals.append(step.literal)
            continue
        if literals:
            yield ".".join(literals), None
            literals = []
        yield "", index
    if literals:
        yield ".".join(literals), None


def _column(step: TokenStep, index: int, subjects: TokenColumns) -> list[str]:
    """Return the texts of the placeholder that is token *index* of a destination."""
    call = step.call
    assert call is not None
    if call.function == "random":
        return _random(call.number or 0, index, subjects)
    if call.function == "partition":
        return _partition(call, step.tokens, subjects)
    (token,) = step.tokens
    column = subjects.columns[token]
    return column if call.function == "wildcard" else cut_column(call, column)


def _random(number: int, index: int, subjects: TokenColumns) -> list[str]:
    draws = repeat(None, len(subjects.subjects)) if subjects.draws is None else map(check_draw, subjects.draws)
    return [str(random_below(draw, index, number)) for draw in draws]


def _partition(call: Call, reads: Sequence[int], subjects: TokenColumns) -> list[str]:
    buckets = buckets_of(call.number or 0)
    if buckets == 0:
        return ["0"] * len(subjects.subjects)
    if not reads:
        keys = subjects.subjects
    elif len(reads) == 1:
        keys = subjects.columns[reads[0]]
    else:
        keys = list(map("".join, zip(*(subjects.columns[token] for token in reads), strict=True)))
    return list(map(bucket_namer(buckets), (fnv1a_many(encode("\n".join(keys))) % buckets).tolist()))
