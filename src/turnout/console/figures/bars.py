"""Bar chart of counts over time."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

_WIDTH, _HEIGHT, _GAP = 240.0, 32.0, 1.0


def counted(moments: Sequence[float], begin: float, end: float, pieces: int = 40) -> list[int]:
    """Count the moments in each of *pieces* equal parts of a time span.

    >>> counted([0.0, 1.0, 9.5, 10.0], 0.0, 10.0, 2)
    [2, 2]
    """
    counts = [0] * pieces
    long = max(end - begin, 1e-9)
    for moment in moments:
        counts[min(pieces - 1, max(0, int((moment - begin) / long * pieces)))] += 1
    return counts


def bars(counts: Sequence[int], most: int, label: str) -> Markup:
    """Draw the bars on a scale up to *most*, with *label* for screen readers. Every count above 0 is visible."""
    wide = _WIDTH / max(1, len(counts))
    marks = Markup("").join(
        Markup('<rect class="bar" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}"/>').format(
            index * wide, _HEIGHT - high, wide - _GAP, high
        )
        for index, count in enumerate(counts)
        if (high := max(2.0, _HEIGHT * count / max(1, most)) if count else 0.0)
    )
    ground = Markup('<line class="grid" x1="0" y1="32" x2="240" y2="32"/>')
    return Markup('<svg class="bars" viewBox="0 0 240 33" role="img" aria-label="{}">{}{}</svg>').format(
        label, ground, marks
    )
