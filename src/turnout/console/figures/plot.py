"""Values over time, with axes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from markupsafe import Markup

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
    for number, line in enumerate(series):
        runs = _runs(line.points, (end - begin) / 60 * _GAP)
        parts += [_polyline([(x(point.at), y(point.value)) for point in run], number) for run in runs]
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
