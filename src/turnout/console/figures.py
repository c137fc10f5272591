"""Pictures as inline SVG: attributes and classes only, as the page allows no inline style."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple

from markupsafe import Markup

from turnout.console.formatting import number, rate

_WIDTH, _HEIGHT = 560, 170
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 8, 10, 22
_CHARACTER = 6.5
"""Width of a character of the axes, in the size that `console.css` gives them, rounded up."""
_DAY = 86_400
_GAP = 3
"""Number of steps without a value after which the line is interrupted."""


class Point(NamedTuple):
    """Value with its time, in seconds since the epoch."""

    at: float
    value: float


class Series(NamedTuple):
    """Line of a plot; its name is "" if it is the only one."""

    name: str
    points: Sequence[Point]


def plot(series: Sequence[Series], begin: float, end: float, *, title: str, shown: Callable[[float], str]) -> Markup:
    """Draw lines over time, interrupted at long gaps between points.

    The picture carries its values as text for the console's script, which shows those under the pointer.

    Args:
        series: the lines, their points in the order of time.
        begin: left end of the axis, in seconds since the epoch.
        end: right end.
        title: title of the plot, for screen readers.
        shown: a value as the axis labels it.
    """
    values = [point.value for line in series for point in line.points]
    most = _ceiling(max(values, default=0.0))
    ticks = _ticks(most, shown)
    plot_left = max(_LEFT, max(len(shown(tick)) for tick in ticks) * _CHARACTER + 8)

    def x(at: float) -> float:
        return plot_left + (at - begin) / (end - begin) * (_WIDTH - plot_left - _RIGHT)

    def y(value: float) -> float:
        return _HEIGHT - _BOTTOM - value / most * (_HEIGHT - _TOP - _BOTTOM)

    parts = [*_grid(plot_left, [(y(tick), shown(tick)) for tick in ticks]), *_times(begin, end, x)]
    for order, line in enumerate(series):
        runs = _runs(line.points, (end - begin) / 60 * _GAP)
        parts += [_polyline([(x(point.at), y(point.value)) for point in run], order) for run in runs]
    if not values:
        parts.append(Markup('<text class="none" x="{}" y="{}">nothing yet</text>').format(_WIDTH // 2, _HEIGHT // 2))
    parts.append(Markup('<line class="cursor" y1="{}" y2="{}"/>').format(_TOP, _HEIGHT - _BOTTOM))
    label = "; ".join(_label(line, shown) for line in series if line.points) or "nothing yet"
    return Markup(
        '<svg class="plot" viewBox="0 0 {} {}" role="img" aria-label="{}: {}" data-rows="{}">{}</svg>'
    ).format(_WIDTH, _HEIGHT, title, label, json.dumps(_rows(series, x, shown)), Markup("").join(parts))


def _label(line: Series, shown: Callable[[float], str]) -> str:
    """Return the text alternative of a line."""
    last, most = line.points[-1].value, max(point.value for point in line.points)
    return f"{_named(line.name, shown(last))} last, {shown(most)} at most"


def _named(name: str, text: str) -> str:
    return f"{name} {text}" if name else text


def _rows(
    series: Sequence[Series], x: Callable[[float], float], shown: Callable[[float], str]
) -> list[tuple[int, float, str]]:
    """Return for each time with a value: the time, its place on the axis, and the values as text."""
    texts: dict[float, list[str]] = {}
    for line in series:
        for point in line.points:
            texts.setdefault(point.at, []).append(_named(line.name, shown(point.value)))
    return [
        (int(at), round(x(at), 1), f"{datetime.fromtimestamp(at, UTC):%m-%d %H:%M} {', '.join(texts[at])}")
        for at in sorted(texts)
    ]


def _polyline(corners: Sequence[tuple[float, float]], number: int) -> Markup:
    if len(corners) == 1:
        return Markup('<circle class="dot s{}" cx="{:.1f}" cy="{:.1f}" r="2"/>').format(number, *corners[0])
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in corners)
    return Markup('<polyline class="line s{}" points="{}"/>').format(number, points)


def _ceiling(most: float) -> float:
    """Return a round number at or above the largest value.

    >>> _ceiling(0.0), _ceiling(17), _ceiling(0.3)
    (1.0, 20.0, 0.5)
    """
    if most <= 0:
        return 1.0
    size = 10.0 ** (len(str(int(most))) - 1) if most >= 1 else 0.1
    while most < size:
        size /= 10
    return next((step * size for step in (1, 2, 5, 10) if most <= step * size), most)


def _ticks(most: float, shown: Callable[[float], str]) -> tuple[float, ...]:
    """Return the values on the axis."""
    # Half of one record reads as none.
    return (0.0, most) if shown(most / 2) in (shown(0.0), shown(most)) else (0.0, most / 2, most)


def _grid(plot_left: float, ticks: Sequence[tuple[float, str]]) -> Iterator[Markup]:
    for y, text in ticks:
        yield Markup('<line class="grid" x1="{:.0f}" x2="{}" y1="{y:.1f}" y2="{y:.1f}"/>').format(
            plot_left, _WIDTH - _RIGHT, y=y
        )
        yield Markup('<text class="tick end" x="{:.0f}" y="{:.1f}">{}</text>').format(plot_left - 6, y + 4, text)


def _times(begin: float, end: float, x: Callable[[float], float]) -> Iterator[Markup]:
    for part in range(5):
        at = begin + (end - begin) * part / 4
        kind = "start" if part == 0 else "end" if part == 4 else "middle"
        clock = datetime.fromtimestamp(at, UTC).strftime("%H:%M" if end - begin <= _DAY else "%m-%d %H:%M")
        yield Markup('<text class="tick {}" x="{:.1f}" y="{}">{}</text>').format(kind, x(at), _HEIGHT - 6, clock)


def _runs(points: Sequence[Point], gap: float) -> Iterator[list[Point]]:
    run: list[Point] = []
    for point in points:
        if run and point.at - run[-1].at > gap:
            yield run
            run = []
        run.append(point)
    if run:
        yield run


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
