"""Small pictures as inline SVG: attributes and classes only, as the page allows no inline style."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from turnout.console.formatting import number, rate

_BARS_WIDTH, _BARS_HEIGHT, _BARS_GAP = 240.0, 32.0, 1.0


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
    wide = _BARS_WIDTH / max(1, len(counts))
    marks = Markup("").join(
        Markup('<rect class="bar" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}"/>').format(
            index * wide, _BARS_HEIGHT - high, wide - _BARS_GAP, high
        )
        for index, count in enumerate(counts)
        if (high := max(2.0, _BARS_HEIGHT * count / max(1, most)) if count else 0.0)
    )
    ground = Markup('<line class="grid" x1="0" y1="32" x2="240" y2="32"/>')
    return Markup('<svg class="bars" viewBox="0 0 240 33" role="img" aria-label="{}">{}{}</svg>').format(
        label, ground, marks
    )


_LINE_WIDTH, _LINE_HEIGHT = 120.0, 28.0


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
    step = _LINE_WIDTH / max(1, len(line) - 1)
    return " ".join(
        f"{x * step:.1f},{_LINE_HEIGHT - 1 - value / most * (_LINE_HEIGHT - 2):.1f}" for x, value in enumerate(line)
    )


_STEP, _BOX = 168, 96
_FLOW_TOP, _THICK, _THIN = 40, 56, 1.5
_DOWN = 214
_FLOW_HEIGHT, _FLOW_HEIGHT_BARE = 290, 150
"""Of a picture, and of one that nothing leaves on the way."""
_READABLE = 760
"""A picture that is wider is not made narrower than this, but scrolled."""
_LABEL = 15
_APART = 80


@dataclass(frozen=True, slots=True)
class Branch:
    """Records that leave the trunk behind a step.

    Attributes:
        kind: ``filtered``, ``lost``, ``unmatched`` or ``failed``; chooses the colour.
        name: label below the branch.
    """

    kind: str
    name: str
    count: int
    rate: float


@dataclass(frozen=True, slots=True)
class FlowStep:
    """A part of the trunk.

    Attributes:
        name: above the box.
        kind: below the name.
        onward: number of records that continue to the next step.
        rate: their current number per second.
        branches: records that leave behind the step.
    """

    name: str
    kind: str
    onward: int = 0
    rate: float = 0.0
    branches: Sequence[Branch] = ()


def flow(steps: Sequence[FlowStep], read: int, title: str) -> Markup:
    """Draw the diagram.

    Args:
        steps: from the source to the sinks, at least two.
        read: number of records from the source.
        title: is read aloud in its place.
    """
    width = _STEP * (len(steps) - 1) + _BOX + 24
    parts: list[Markup] = []
    for index, step in enumerate(steps):
        x = 12 + index * _STEP
        if index < len(steps) - 1:
            remaining = step.onward + sum(branch.count for branch in step.branches)
            for order, branch in enumerate(step.branches):
                remaining -= branch.count
                parts.extend(_branch(x + _BOX, order, remaining, branch, read))
            parts.extend(_trunk(x + _BOX, step.onward, step.rate, read))
        parts.extend(_box(x, step))
    height = _FLOW_HEIGHT if any(step.branches for step in steps) else _FLOW_HEIGHT_BARE
    size = Markup('viewBox="0 0 {w} {h}" width="{w}" height="{h}"').format(w=width, h=height)
    kind = "flow long" if width > _READABLE else "flow"
    return Markup('<svg class="{}" {} role="img" aria-label="{}">{}</svg>').format(
        kind, size, title, Markup("").join(parts)
    )


def _thickness(count: int, read: int) -> float:
    return max(_THIN, _THICK * count / read) if read and count > 0 else _THIN


def _trunk(x: float, count: int, now: float, read: int) -> Iterator[Markup]:
    yield Markup('<rect class="trunk" x="{}" y="{}" width="{}" height="{:.1f}"/>').format(
        x, _FLOW_TOP + 34, _STEP - _BOX, _thickness(count, read)
    )
    middle = x + (_STEP - _BOX) / 2
    yield Markup('<text class="count" x="{}" y="{}">{}</text>').format(middle, _FLOW_TOP + 16, number(count))
    yield Markup('<text class="rate" x="{}" y="{}">{}</text>').format(middle, _FLOW_TOP + 29, rate(now))


def _branch(x: float, order: int, left: int, branch: Branch, read: int) -> Iterator[Markup]:
    """Yield the elements of a band: from the trunk's lower side, round a corner, down to its name."""
    thick = _thickness(branch.count, read)
    top = _FLOW_TOP + 34 + (_thickness(left, read) if left > 0 else 0)
    middle = x + 16 + order * _APART
    right = middle + thick / 2
    yield Markup('<path class="branch {}" d="M{x:.1f},{t:.1f} H{r:.1f} V{d} H{i:.1f} V{b:.1f} H{x:.1f} Z"/>').format(
        branch.kind, x=x, t=top, r=right, d=_DOWN, i=right - thick, b=top + thick
    )
    for line, (kind, text) in enumerate(
        (("count", number(branch.count)), ("rate", rate(branch.rate)), ("kind", branch.name))
    ):
        yield Markup('<text class="{}" x="{}" y="{}">{}</text>').format(kind, middle, _DOWN + 16 + 15 * line, text)


def _box(x: float, step: FlowStep) -> Iterator[Markup]:
    yield Markup('<g><title>{}: {}</title><rect class="box" x="{}" y="{}" width="{}" height="{}" rx="6"/>').format(
        step.name, step.kind, x, _FLOW_TOP + 26, _BOX, _THICK + 16
    )
    middle, y = x + _BOX / 2, _FLOW_TOP + 26 + (_THICK + 16) / 2
    yield Markup('<text class="name" x="{}" y="{}">{}</text>').format(middle, y - 2, _short(step.name))
    yield Markup('<text class="kind" x="{}" y="{}">{}</text></g>').format(middle, y + 14, _short(step.kind))


def _short(text: str) -> str:
    return text if len(text) <= _LABEL else f"{text[: _LABEL - 1]}…"
