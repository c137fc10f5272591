"""A line without axes, as wide as a word."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

_WIDTH, _HEIGHT = 120.0, 28.0


def sparkline(lines: Sequence[Sequence[float]], label: str) -> Markup:
    """Draw lines of equal length on one scale from 0, with *label* for screen readers.

    >>> str(sparkline([[0, 5, 10]], "rising"))[:74]
    '<svg class="spark" viewBox="0 0 120 28" role="img" aria-label="rising"><po'
    """
    most = max((value for line in lines for value in line), default=0.0) or 1.0
    marks = Markup("").join(
        Markup('<polyline class="line s{}" points="{}"/>').format(number, _points(line, most))
        for number, line in enumerate(lines)
    )
    return Markup('<svg class="spark" viewBox="0 0 120 28" role="img" aria-label="{}">{}</svg>').format(label, marks)


def _points(line: Sequence[float], most: float) -> str:
    step = _WIDTH / max(1, len(line) - 1)
    return " ".join(f"{x * step:.1f},{_HEIGHT - 1 - value / most * (_HEIGHT - 2):.1f}" for x, value in enumerate(line))
