"""Durations as settings of a server."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import BeforeValidator, WithJsonSchema

from turnout.base.clocks import SECONDS_BY_UNIT

_MAX_SECONDS = 1e9
"""Some thirty years, which every clock and every lock can wait."""

_SPAN = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d|)")


def seconds_of(written: object) -> float:
    """Return the seconds of ``90``, ``"90s"``, ``"1.5m"``, ``"2h"`` or ``"7d"``.

    >>> seconds_of("10m")
    600.0

    Raises:
        ValueError: it is none of these.
    """
    match = _SPAN.fullmatch(str(written).strip())
    seconds = (
        float("nan")
        if isinstance(written, bool) or match is None
        else float(match[1]) * SECONDS_BY_UNIT[match[2] or "s"]
    )
    if not seconds <= _MAX_SECONDS:
        raise ValueError('expected a span like 30, "30s", "10m", "2h" or "7d"')
    return seconds


_TEXT = {"type": "string", "pattern": f"^\\s*{_SPAN.pattern}\\s*$"}

Seconds = Annotated[
    float,
    BeforeValidator(seconds_of),
    WithJsonSchema({"anyOf": [{"type": "number", "minimum": 0}, _TEXT]}),
]
"""A field of a configuration that holds a span of time."""
