"""Durations as text: a number with one unit."""

from __future__ import annotations

import re
from typing import Final

SECONDS_BY_UNIT: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}

_DURATION = re.compile(rf"([0-9]+(?:\.[0-9]+)?)({'|'.join(SECONDS_BY_UNIT)})")


def parse_duration(text: str) -> float | None:
    """Return the seconds of a duration such as ``250ms``, ``1.5m`` or ``7d``; None for other texts.

    >>> [parse_duration(text) for text in ("250ms", "1.5m", "7d", "7", "-1s")]
    [0.25, 90.0, 604800.0, None, None]
    """
    written = _DURATION.fullmatch(text)
    return float(written[1]) * SECONDS_BY_UNIT[written[2]] if written else None
