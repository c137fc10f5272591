"""Charts of a route over a period: throughput, errors, latencies, lag."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from markupsafe import Markup

from turnout.console.figures import Point, Series, plot
from turnout.console.flow_counts import RecentTraffic, recent_of
from turnout.console.formatting import number, rate, span
from turnout.console.period import Period
from turnout.engine.counts import Counts
from turnout.server.minutes import MinuteCounts, MinutePace
from turnout.server.state import State

_LOSSES: Final = (("dead-lettered", "dead_lettered"), ("discarded", "discarded"), ("undeliverable", "undeliverable"))
_STAGES: Final = 6
"""Stages shown, one for each colour."""
_QUANTILES: Final = (("p50", 0.5), ("p95", 0.95), ("p99", 0.99))


class Chart(NamedTuple):
    """A picture with its title, and the names of its lines in the order of their colours."""

    title: str
    lines: Sequence[str]
    picture: Markup


class Activity(NamedTuple):
    """Charts of a route, and its traffic over the same period."""

    charts: Sequence[Chart]
    traffic: RecentTraffic


def activity_of(state: State, route: str, period: Period) -> Activity:
    """Return the activity of a route over a period."""
    counts = state.counts(route, period.begin, period.end, period.step)
    pace = state.pace(route, period.begin, period.end, period.step)
    total = sum((one.counts for one in counts), Counts())
    recent, seconds = recent_of(state, route, period.now) if period.until is None else (total, float(period.seconds))
    traffic = RecentTraffic(total, recent, seconds, [], [])
    return Activity([*_of_counts(counts, total, period), *_of_pace(pace, period)], traffic)


def _of_counts(counts: Sequence[MinuteCounts], total: Counts, period: Period) -> list[Chart]:
    steps = _every_step(counts, period)
    delivery = [(one.at, one.counts.flow.delivery) for one in counts]
    waits = [_series(name, [(at, times.quantile(share)) for at, times in delivery]) for name, share in _QUANTILES]
    throughput = [_rates("in", steps, "read"), _rates("out", steps, "messages")]
    return [
        _chart("Records in, messages out", throughput, period, rate),
        _chart("Errors", [_rates(name, steps, count) for name, count in _LOSSES], period, rate),
        _chart("From publishing to acknowledged", waits, period, span),
        _chart("Time of each stage for 1,000 records", _of_stages(counts, total), period, span),
    ]


def _of_stages(counts: Sequence[MinuteCounts], total: Counts) -> list[Series]:
    """Return the stages that took most time, the largest first."""
    seconds = total.flow.seconds
    names = sorted(seconds, key=lambda name: (-seconds[name], name))[:_STAGES]
    read = [one for one in counts if one.counts.read]
    return [_series(name, [(one.at, _per_thousand(name, one.counts)) for one in read]) for name in names]


def _per_thousand(stage: str, counts: Counts) -> float | None:
    seconds = counts.flow.seconds.get(stage)
    return None if seconds is None else seconds / counts.read * 1000


def _of_pace(pace: Sequence[MinutePace], period: Period) -> list[Chart]:
    batches = [(one.at, one.seconds / one.batches if one.batches else None) for one in pace]
    lags = [(one.at, one.lag_records) for one in pace]
    ages = [(one.at, one.lag_seconds) for one in pace]
    return [
        _chart("Time of a micro-batch", [_series("", batches)], period, span),
        _chart("Records behind", [_series("", lags)], period, number),
        _chart("Age of the oldest of them", [_series("", ages)], period, span),
    ]


def _every_step(counts: Sequence[MinuteCounts], period: Period) -> list[tuple[int, float, Counts]]:
    """Return each step since the first with counts: its time, its duration so far, and its counts.

    A step that has hardly begun is left out, as its rate says little.
    """
    if not counts:
        return []
    by_time = {one.at: one.counts for one in counts}
    steps = range(counts[0].at, int(period.end) + 1, period.step)
    lasted = ((at, min(period.step, period.end - at)) for at in steps)
    return [(at, seconds, by_time.get(at, Counts())) for at, seconds in lasted if seconds >= period.step / 2]


def _rates(name: str, steps: Sequence[tuple[int, float, Counts]], count: str) -> Series:
    return Series(name, [Point(at, getattr(counts, count) / seconds) for at, seconds, counts in steps])


def _series(name: str, points: Sequence[tuple[int, float | None]]) -> Series:
    return Series(name, [Point(at, value) for at, value in points if value is not None])


def _chart(title: str, series: Sequence[Series], period: Period, shown: Callable[[float], str]) -> Chart:
    picture = plot(series, period.begin, period.end, title=title, shown=shown)
    return Chart(title, [line.name for line in series if line.name], picture)
