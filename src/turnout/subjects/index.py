"""Index of mapping sources: one dictionary lookup per shape instead of one comparison per source.

The *shape* of a source says how many tokens it has and which of them are fixed. All sources of one shape
differ in their fixed tokens alone, so they are one dictionary, and a subject is looked up once in
each. The Spark form (``turnout.spark.subjects``) uses the same shapes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

from turnout.subjects.pattern import covers_tokens
from turnout.subjects.tokens import FULL, PARTIAL

FIXED, STAR = "fixed", "*"


@dataclass(frozen=True, slots=True)
class SourceShape:
    """Common shape of the sources in one dictionary.

    Attributes:
        kinds: per token, not counting a final ``>``: "fixed"; "*", a wildcard.
        full: whether ``>`` follows.
    """

    kinds: tuple[str, ...]
    full: bool

    @property
    def fixed(self) -> tuple[int, ...]:
        """Indices of the fixed tokens."""
        return tuple(index for index, kind in enumerate(self.kinds) if kind == FIXED)

    @property
    def is_literal(self) -> bool:
        """True if every token is fixed: the sources match subjects equal to them."""
        return not self.full and all(kind == FIXED for kind in self.kinds)

    def takes(self, count: int) -> bool:
        """Return True if a subject of *count* tokens can match."""
        return count > len(self.kinds) if self.full else count == len(self.kinds)

    def key(self, tokens: Sequence[str]) -> str:
        """Return the fixed tokens of a source or a subject, joined."""
        return ".".join(tokens[index] for index in self.fixed)


def shape_of(source: str) -> SourceShape:
    """Return the shape of a source."""
    tokens = source.split(".")
    full = tokens[-1] == FULL
    kinds = (STAR if token == PARTIAL else FIXED for token in (tokens[:-1] if full else tokens))
    return SourceShape(tuple(kinds), full)


_Probe = tuple[int, Callable[[Sequence[str]], Any], dict[Any, int]]
"""The smallest number in a shape's dictionary, what picks its key from a subject's tokens, and the dictionary."""


@dataclass(frozen=True, slots=True)
class SourceIndex:
    """Index of mapping sources that finds the first match of a subject.

    Attributes:
        literals: subject to the number of its source.
        shapes: for each shape of a source with wildcards, its fixed tokens to the number of the first source.
    """

    sources: tuple[str, ...]
    literals: dict[str, int]
    shapes: dict[SourceShape, dict[str, int]]
    # By the number of a subject's tokens, the last entry for all that have more.
    _probes: tuple[tuple[_Probe, ...], ...] = field(default=((),), repr=False, compare=False)

    @classmethod
    def build(cls, sources: Iterable[str]) -> SourceIndex:
        """Index *sources*; an earlier one wins over a later one."""
        ordered = tuple(sources)
        literals: dict[str, int] = {}
        shapes: dict[SourceShape, dict[str, int]] = {}
        for number, source in enumerate(ordered):
            shape = shape_of(source)
            if shape.is_literal:
                literals.setdefault(source, number)
            else:
                shapes.setdefault(shape, {}).setdefault(shape.key(source.split(".")), number)
        probes = [(shape, _probe(ordered, shape, numbers)) for shape, numbers in shapes.items()]
        # A search that finds a number smaller than all that follow can stop.
        probes.sort(key=lambda item: item[1][0])
        longest = max((len(shape.kinds) for shape in shapes), default=0)
        by_count = [tuple(probe for shape, probe in probes if shape.takes(count)) for count in range(longest + 2)]
        return cls(ordered, literals, shapes, tuple(by_count))

    def first(self, subject: str, tokens: Sequence[str]) -> int | None:
        """Return the number of the first source that matches; None where none does."""
        lowest = self.literals.get(subject)
        literal: bool | None = None
        by_count = self._probes
        count = len(tokens)
        for smallest, pick, numbers in by_count[count] if count < len(by_count) else by_count[-1]:
            if lowest is not None and lowest < smallest:
                return lowest
            number = numbers.get(pick(tokens))
            if number is None or (lowest is not None and lowest < number):
                continue
            if literal is None:
                literal = "" not in tokens and PARTIAL not in tokens and FULL not in tokens
            # The fixed tokens are equal; only a subject that is not literal can still fail at a wildcard.
            if literal or covers_tokens(tokens, self.sources[number].split(".")):
                lowest = number
        return lowest


def _probe(sources: tuple[str, ...], shape: SourceShape, numbers: dict[str, int]) -> _Probe:
    """Build the probe of a shape: its dictionary keyed by the fixed tokens that an itemgetter picks."""
    fixed = shape.fixed
    if not fixed:
        (only,) = numbers.values()
        return only, lambda _tokens: None, {None: only}
    pick = itemgetter(*fixed)
    return min(numbers.values()), pick, {pick(sources[n].split(".")): n for n in numbers.values()}
