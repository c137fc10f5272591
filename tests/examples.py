"""Numbers of Hypothesis's examples that follow the profile."""

from __future__ import annotations

from typing import Final

from hypothesis import settings

_ALL: Final = 100
"""Examples of a usual property in `make check`."""


def examples(most: int) -> int:
    """Return how many examples a property is to have that has so many in `make check`: its share of the profile's."""
    return max(1, most * min(settings().max_examples, _ALL) // _ALL)
