"""Limits of a route's losses, beyond which it counts as unhealthy."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import BeforeValidator, WithJsonSchema

from turnout.routes.endpoints.base import Part

_PERCENT = re.compile(r"([0-9]{1,3}(?:\.[0-9]{1,6})?) ?%")


def share_of(value: object) -> object:
    """Return a share as a number from 0 to 1.

    >>> share_of("5%"), share_of(0.5), share_of(False)
    (0.05, 0.5, False)

    Raises:
        ValueError: it is no share.
    """
    if value is None or value is False or value == "off":
        return None if value is None else False
    percent = _PERCENT.fullmatch(value) if isinstance(value, str) else None
    number = float(percent[1]) / 100 if percent else value
    if isinstance(number, bool) or not isinstance(number, int | float) or not 0 <= number <= 1:
        raise ValueError(f"expected a share as 5% or 0.05, or off; found {value!r}")
    return float(number)


Share = Annotated[
    float | Literal[False] | None,
    BeforeValidator(share_of),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "number", "minimum": 0, "maximum": 1},
                {"type": "string", "pattern": r"^([0-9]{1,3}(\.[0-9]{1,6})? ?%|off)$"},
                {"enum": [False, None]},
            ]
        }
    ),
]


class HealthPart(Part):
    """Largest shares that a route may lose within 15 minutes: ``5%`` or ``0.05``; ``off`` for any.

    Attributes:
        dead_lettered: of the records read, those sent to the dead letter topic and nowhere else.
        discarded: share of the records read that failed without a dead letter.
        undeliverable: share of the deliveries that no sink accepted.
        unmatched: share of the records read that no subscription matches.
    """

    dead_lettered: Share = None
    discarded: Share = None
    undeliverable: Share = None
    unmatched: Share = None

    def over(self, base: HealthPart) -> HealthPart:
        """Return these limits, with those of *base* where none is given."""
        return base.model_copy(update={name: limit for name, limit in self if limit is not None})
