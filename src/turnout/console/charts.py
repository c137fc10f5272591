"""Charts of a route over a period, and the picture of its flow: throughput, errors, latencies, lag."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Final, Literal, NamedTuple
from urllib.parse import urlencode

from fastapi import Depends, Query
from markupsafe import Markup

from turnout.base.terminal import plural
from turnout.console.figures import Branch, FlowStep, flow, in_unit
from turnout.engine.counts import KEY, MAPPING, MATCH, SINK, SOURCE, VALUE, Counts, Stages
from turnout.routes import Route
from turnout.server.routes.state import MinuteCounts, MinutePace, State

Length = Literal["15m", "1h", "6h", "24h", "7d", "30d"]

LENGTHS: Final[dict[Length, tuple[str, int, int]]] = {
    "15m": ("15 minutes", 900, 60),
    "1h": ("hour", 3600, 60),
    "6h": ("6 hours", 6 * 3600, 300),
    "24h": ("24 hours", 86_400, 900),
    "7d": ("7 days", 7 * 86_400, 7200),
    "30d": ("30 days", 30 * 86_400, 21_600),
}
"""Name, duration, and distance of the points in a chart, in seconds."""
_LATEST = 1 << 40


@dataclass(frozen=True, slots=True)
class Period:
    """Period of time, in seconds since the epoch.

    Attributes:
        length: one of `LENGTHS`.
        until: its end; None for the present.
        now: time of the request.
    """

    length: Length
    until: int | None
    now: float

    @property
    def name(self) -> str:
        """Name of its length."""
        return LENGTHS[self.length][0]

    @property
    def seconds(self) -> int:
        """Its duration."""
        return LENGTHS[self.length][1]

    @property
    def step(self) -> int:
        """Distance of the points in a chart."""
        return LENGTHS[self.length][2]

    @property
    def end(self) -> float:
        """Its end."""
        return self.now if self.until is None else self.until

    @property
    def begin(self) -> int:
        """Its begin, at a multiple of the step: the first point covers a whole step."""
        return int(self.end) // self.step * self.step - self.seconds + self.step

    @property
    def query(self) -> str:
        """The query of an address that keeps it."""
        return self.linked(self.length, self.until)

    @property
    def fixed(self) -> str:
        """The query of an address that shows this same period later on."""
        return self.linked(self.length, int(self.end))

    @property
    def earlier(self) -> str:
        """The query of the period before."""
        return self.linked(self.length, max(0, int(self.end) - self.seconds))

    @property
    def later(self) -> str:
        """The query of the period after a fixed one."""
        end = int(self.end) + self.seconds
        return self.linked(self.length, end if end < self.now else None)

    @staticmethod
    def linked(length: Length, until: int | None) -> str:
        """Return the query of an address with a period."""
        return urlencode({"range": length} | ({} if until is None else {"until": until}))


def _period(
    length: Annotated[Length, Query(alias="range")] = "1h", until: Annotated[int | None, Query(ge=0, le=_LATEST)] = None
) -> Period:
    return Period(length, until, time.time())


PeriodDep = Annotated[Period, Depends(_period)]
"""The requested period: ``range`` (one hour if not given) and ``until``."""


HOUR = 3600
_RECENT_SECONDS = 60
"""The rate is that of the last minute that is over and of the one that has begun."""


@dataclass(frozen=True, slots=True)
class RecentTraffic:
    """Counts of some minutes.

    Attributes:
        total: all of them.
        recent: those of the last one to two minutes.
        recent_seconds: duration of that period.
        read: records read a second, minute by minute, the oldest first.
        sent: messages sent a second, likewise.
    """

    total: Counts
    recent: Counts
    recent_seconds: float
    read: Sequence[float]
    sent: Sequence[float]

    def rate(self, count: str) -> float:
        """Return the recent rate a second of a count, by its name."""
        value: int = getattr(self.recent, count)
        return value / self.recent_seconds

    def taken(self, stage: str) -> tuple[int, float]:
        """Return the number of records that entered a stage, and their current rate per second."""
        return self.total.flow.taken.get(stage, 0), self.recent.flow.taken.get(stage, 0) / self.recent_seconds

    def failed(self, *stages: str) -> tuple[int, float]:
        """Return the number of records that failed in some stages, and their current rate per second."""
        total, recent = (
            sum(period.flow.failed.get(name, 0) for name in stages) for period in (self.total, self.recent)
        )
        return total, recent / self.recent_seconds


def recent_of(state: State, route: str, now: float) -> tuple[Counts, float]:
    """Return the counts of a route in the minute that is over and the one that has begun, and their duration."""
    since = int(now // 60) * 60 - _RECENT_SECONDS
    return sum((minute.counts for minute in state.counts(route, since)), Counts()), now - since


def traffic_of(state: State, route: str) -> RecentTraffic:
    """Return the traffic of a route in the last hour."""
    now = time.time()
    this_minute = int(now // 60) * 60
    first = this_minute - HOUR + 60
    minutes = {minute.at: minute for minute in state.counts(route, first)}
    by_minute = [minutes.get(at, MinuteCounts(at, Counts())) for at in range(first, this_minute + 60, 60)]
    recent = [minute for minute in by_minute if minute.at >= this_minute - _RECENT_SECONDS]
    return RecentTraffic(
        total=sum((minute.counts for minute in by_minute), Counts()),
        recent=sum((minute.counts for minute in recent), Counts()),
        recent_seconds=_RECENT_SECONDS + now - this_minute,
        read=[minute.counts.read / 60 for minute in by_minute],
        sent=[minute.counts.messages / 60 for minute in by_minute],
    )


_LOSSES: Final = (("dead-lettered", "dead_lettered"), ("discarded", "discarded"), ("undeliverable", "undeliverable"))
_STAGES: Final = 6
"""Stages shown, one for each colour."""
_QUANTILES: Final = (("p50", 0.5), ("p95", 0.95), ("p99", 0.99))


class Series(NamedTuple):
    """Line of a chart: its name, and its values by time in seconds since the epoch."""

    name: str
    values: Mapping[int, float]


@dataclass(frozen=True, slots=True)
class Chart:
    """Lines over time, as a table that the page's script draws.

    Attributes:
        title: what its values are.
        unit: ``number``, ``rate`` or ``span``, as the filters of templates.
        series: its lines, in the order of their colours.
    """

    title: str
    unit: Literal["number", "rate", "span"]
    series: Sequence[Series]

    @property
    def id(self) -> str:
        """Its title as an identifier."""
        return "-".join(self.title.lower().replace(",", "").split())

    @property
    def is_empty(self) -> bool:
        """True if no value is above 0."""
        return not any(value for line in self.series for value in line.values.values())

    def rows(self) -> list[tuple[int, list[float | None]]]:
        """Return for each time with a value the values of all lines, in the order of time."""
        times = sorted({at for line in self.series for at in line.values})
        return [(at, [line.values.get(at) for line in self.series]) for at in times]

    def label(self) -> str:
        """Return the text alternative of the picture."""
        parts = [(line.name, [*line.values.values()]) for line in self.series if line.values]
        texts = (
            f"{name} {in_unit(values[-1], self.unit)} last, {in_unit(max(values), self.unit)} at most".strip()
            for name, values in parts
        )
        return f"{self.title}: {'; '.join(texts)}"


class Activity(NamedTuple):
    """Charts of a route, the titles of those without a value, and its traffic over the same period."""

    charts: Sequence[Chart]
    empty: Sequence[str]
    traffic: RecentTraffic


def activity_of(state: State, route: str, period: Period) -> Activity:
    """Return the activity of a route over a period."""
    counts = state.counts(route, period.begin, period.end, period.step)
    pace = state.pace(route, period.begin, period.end, period.step)
    total = sum((one.counts for one in counts), Counts())
    recent, seconds = recent_of(state, route, period.now) if period.until is None else (total, float(period.seconds))
    traffic = RecentTraffic(total, recent, seconds, [], [])
    charts = [*_of_counts(counts, total, period), *_of_pace(pace)]
    empty = [chart.title for chart in charts if chart.is_empty]
    return Activity([chart for chart in charts if not chart.is_empty], empty, traffic)


def _of_counts(counts: Sequence[MinuteCounts], total: Counts, period: Period) -> list[Chart]:
    steps = _every_step(counts, period)
    delivery = [(one.at, one.counts.flow.delivery) for one in counts]
    waits = [_series(name, [(at, times.quantile(share)) for at, times in delivery]) for name, share in _QUANTILES]
    throughput = [_rates("in", steps, "read"), _rates("out", steps, "messages")]
    return [
        Chart("Records in, messages out", "rate", throughput),
        Chart("Errors", "rate", [_rates(name, steps, count) for name, count in _LOSSES]),
        Chart("From publishing to acknowledged", "span", waits),
        Chart("Time of each stage for 1,000 records", "span", _of_stages(counts, total)),
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


def _of_pace(pace: Sequence[MinutePace]) -> list[Chart]:
    batches = [(one.at, one.seconds / one.batches if one.batches else None) for one in pace]
    lags = [(one.at, one.lag_records) for one in pace]
    ages = [(one.at, one.lag_seconds) for one in pace]
    return [
        Chart("Time of a micro-batch", "span", [_series("", batches)]),
        Chart("Records behind", "number", [_series("", lags)]),
        Chart("Age of the oldest of them", "span", [_series("", ages)]),
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
    return Series(name, {at: getattr(counts, count) / seconds for at, seconds, counts in steps})


def _series(name: str, points: Sequence[tuple[int, float | None]]) -> Series:
    return Series(name, {at: value for at, value in points if value is not None})


_DROPS = {MAPPING: ("lost", "lost by weight"), MATCH: ("unmatched", "unmatched")}
"""Records dropped by parts other than transforms: the kind of the branch, and its label."""


def picture_of(route: Route, traffic: RecentTraffic) -> Markup:
    """Return the picture of a route's flow over the time of *traffic*."""
    total = traffic.total
    outcomes = (
        f"{total.read:,} read, {total.filtered:,} filtered,"
        f" {total.dead_lettered:,} dead-lettered, {total.discarded:,} discarded,"
        f" {total.lost_by_weight:,} lost by weight, {total.unmatched:,} unmatched, {total.delivered:,} delivered"
    )
    if total.not_read:
        outcomes += f", {total.not_read:,} not read"
    return flow(steps_of(route, traffic), total.read, f"The flow of {route.name}: {outcomes}")


def steps_of(route: Route, traffic: RecentTraffic) -> list[FlowStep]:
    """Return the steps from source to sinks.

    Keys and values are decoded in one step. What fails at the sinks leaves in front of them, so that what reaches them
    is what was delivered.
    """
    steps = list(_parts(route))
    return [_step(index, steps, route, traffic) for index in range(len(steps))]


def _parts(route: Route) -> Iterator[tuple[tuple[str, ...], str, str]]:
    """Yield each step of the flow: its stages, its name, and its description."""
    stages = Stages.of(route)
    yield (SOURCE,), "source", route.source.format
    yield (KEY, VALUE), "decode", route.value.format
    for name, stage in zip(stages.transforms, route.chain.stages, strict=True):
        yield (name,), stage.name, stage.transform.label.partition("$")[0]
    if MAPPING in stages.others:
        yield (MAPPING,), "mapping", plural(len(route.mappings), "mapping")
    if MATCH in stages.others:
        yield (MATCH,), "match", "subscriptions"
    yield (SINK,), _sinks(route), ", ".join(dict.fromkeys(sink.format for sink in route.sinks.values()))


def _step(index: int, parts: list[tuple[tuple[str, ...], str, str]], route: Route, traffic: RecentTraffic) -> FlowStep:
    stages, name, kind = parts[index]
    if index == len(parts) - 1:
        return FlowStep(name, kind)
    following = parts[index + 1][0][0]
    failed, failed_rate = traffic.failed(*stages)
    taken, taken_rate = traffic.taken(stages[0])
    onward, rate = traffic.taken(following)
    # A version of the route that lacked a stage has counted nothing there.
    dropped, dropped_rate = max(0, taken - failed - onward), max(0.0, taken_rate - failed_rate - rate)
    branches = list(_dropped(stages[0], kind, dropped, dropped_rate))
    if failed:
        branches.append(Branch("failed", "dead letters" if route.dead_letter else "discarded", failed, failed_rate))
    if following == SINK:
        unsent, unsent_rate = traffic.failed(SINK)
        onward, rate = onward - unsent, max(0.0, rate - unsent_rate)
        if unsent:
            branches.append(Branch("failed", "not sent", unsent, unsent_rate))
    return FlowStep(name, kind, onward, rate, branches)


def _dropped(stage: str, kind: str, count: int, rate: float) -> Iterator[Branch]:
    """Yield the branch of records that the step dropped; shown as 0 only for steps that can drop."""
    if count or kind == "Filter" or stage in _DROPS:
        yield Branch(*_DROPS.get(stage, ("filtered", "filtered")), count, rate)


def _sinks(route: Route) -> str:
    names = [name for name in route.sinks if name]
    return ", ".join(names) if len(names) > 1 else "sink"
