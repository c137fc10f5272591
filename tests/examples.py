"""Examples of Hypothesis: how many a profile has, and many at once."""

from __future__ import annotations

from typing import Final, TypeVar

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.strategies import SearchStrategy

T = TypeVar("T")

_ALL: Final = 100
"""Examples of a usual property in `make check`."""


def examples(most: int) -> int:
    """Return how many examples a property is to have that has so many in `make check`: its share of the profile's."""
    return max(1, most * min(settings().max_examples, _ALL) // _ALL)


def drawn(strategy: SearchStrategy[T], count: int) -> list[T]:
    """Return *count* values of a strategy, for a test that gives them all to one query or server.

    A list of so many as one example is thrown away again and again: an example has 8 KB of choices.
    """
    values: list[T] = []

    @settings(max_examples=count, phases=[Phase.generate], database=None, suppress_health_check=list(HealthCheck))
    @given(strategy)
    def take(value: T) -> None:
        values.append(value)

    take()
    return values
