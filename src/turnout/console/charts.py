"""Numbers and times for people, charts of a route over a period, and the picture of its flow, as inline SVG.

Pictures have attributes and classes only, as the page allows no inline style.
"""

from __future__ import annotations

import difflib
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Final, Literal, NamedTuple
from urllib.parse import quote, urlencode

from fastapi import Depends, Query
from markupsafe import Markup

from turnout.base.terminal import plural
from turnout.engine.counts import KEY, MAPPING, MATCH, SINK, SOURCE, VALUE, Counts, Stages
from turnout.routes import Route
from turnout.server.routes.state import MinuteCounts, MinutePace, State


def number(value: float | None) -> str:
    """Return a number with separators, shortened from a million on.

    >>> number(12345), number(2_500_000), number(None)
    ('12,345', '2.5 M', '–')
    """
    if value is None:
        return "–"
    for size, unit in ((1e9, "G"), (1e6, "M")):
        if abs(value) >= size:
            return f"{value / size:.1f} {unit}"
    return f"{value:,.0f}"


def rate(value: float | None) -> str:
    """Records a second.

    >>> rate(0), rate(0.25), rate(12.5), rate(1234.5)
    ('0/s', '0.25/s', '12.5/s', '1,234/s')
    """
    if value is None:
        return "–"
    if value == 0:
        return "0/s"
    if value < 0.01:
        return "<0.01/s"
    return f"{value:.2f}/s" if value < 1 else f"{value:.1f}/s" if value < 100 else f"{number(value)}/s"


def span(seconds: float | None) -> str:
    """Return a span of time in its two largest units.

    >>> span(0.0034), span(0.25), span(59), span(3700), span(200000), span(None)
    ('3.4 ms', '0.2 s', '59 s', '1 h 1 min', '2 d 7 h', '–')
    """
    if seconds is None:
        return "–"
    if 0 < seconds < 0.1:
        return f"{seconds * 1000:.2g} ms"
    if seconds < 10:
        return f"{seconds:.1f} s" if seconds else "0 s"
    if seconds < 60:
        return f"{seconds:.0f} s"
    for size, unit, below, smaller in ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if seconds >= size:
            return f"{int(seconds // size)} {unit} {int(seconds % size // below)} {smaller}"
    return ""


def ago(at: float | None) -> str:
    """Render the time since a moment."""
    return "–" if not at else f"{span(max(0.0, time.time() - at))} ago"


def moment(at: float | None) -> str:
    """Return a moment in UTC.

    >>> moment(0.0), moment(None)
    ('1970-01-01 00:00:00 UTC', '–')
    """
    return "–" if at is None else f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%S} UTC"


def minute(at: float) -> str:
    """Return month, day and time of a moment in UTC.

    >>> minute(0.0)
    '01-01 00:00'
    """
    return f"{datetime.fromtimestamp(at, UTC):%m-%d %H:%M}"


def in_unit(value: float | None, unit: str) -> str:
    """Render a value by the name of its unit, ``number``, ``rate`` or ``span``.

    >>> in_unit(12.5, "rate"), in_unit(None, "span")
    ('12.5/s', '–')
    """
    return {"number": number, "rate": rate, "span": span}[unit](value)


def pretty(value: object) -> str:
    """Return a value as indented JSON, and a text unchanged."""
    return value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False)


def share(part: int, whole: int) -> str:
    """Render a share of a whole; tiny shares are not shown as 0 %, nor nearly all as 100 %.

    >>> share(37, 10_000), share(1, 3), share(1, 100_000), share(99_999, 100_000), share(5, 5), share(0, 0)
    ('0.37 %', '33.3 %', '<0.01 %', '>99.99 %', '100 %', '0 %')
    """
    percent = 100 * part / whole if whole else 0.0
    if 0 < percent < 0.01:
        return "<0.01 %"
    if 99.99 < percent < 100:
        return ">99.99 %"
    text = f"{percent:.2f}" if percent < 1 or percent > 99 else f"{percent:.1f}"
    return f"{text.rstrip('0').rstrip('.') if '.' in text else text} %"


def segment(text: str) -> str:
    """Quote a text as one segment of a path; slashes are escaped.

    >>> segment("@acme/desk 7")
    '%40acme%2Fdesk%207'
    """
    return quote(text, safe="")


def subscription_path(id_: str, of: str = "") -> str:
    """Return the path of a subscription's page; *of* is the route that has its store, "" for the server's.

    >>> subscription_path("desk 7"), subscription_path("a", "orders")
    ('/subscriptions/desk%207', '/subscriptions/a?of=orders')
    """
    return f"/subscriptions/{segment(id_)}" + (f"?{urlencode({'of': of})}" if of else "")


FILTERS = {
    "ago": ago, "in_unit": in_unit, "minute": minute, "moment": moment, "number": number, "pretty": pretty,
    "rate": rate, "segment": segment, "share": share, "span": span, "subscription_path": subscription_path,
}  # fmt: skip
"""Filters by their names in templates."""


@dataclass(frozen=True, slots=True)
class Line:
    """Line of a difference: ``added``, ``removed``, ``same``, or ``place`` for its position."""

    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class Pair:
    """Pair of lines shown side by side; None for a missing line."""

    left: str | None
    right: str | None
    changed: bool


_KINDS = {"+": "added", "-": "removed", "@": "place"}


def difference(before: str, after: str) -> list[Line]:
    r"""Return the added and removed lines, with three lines of context.

    >>> [(line.kind, line.text) for line in difference("a\nb", "a\nc")]
    [('place', '@@ -1,2 +1,2 @@'), ('same', ' a'), ('removed', '-b'), ('added', '+c')]
    """
    lines = list(difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm=""))[2:]
    return [Line(_KINDS.get(line[:1], "same"), line) for line in lines]


def side_by_side(before: str, after: str) -> list[Pair]:
    r"""Return both texts as pairs of lines, with equal lines aligned.

    >>> [(pair.left, pair.right, pair.changed) for pair in side_by_side("a\nb", "a\nc\nd")]
    [('a', 'a', False), ('b', 'c', True), (None, 'd', True)]
    """
    return list(_pairs(before.splitlines(), after.splitlines()))


def _pairs(left: list[str], right: list[str]) -> Iterator[Pair]:
    for kind, a, b, c, d in difflib.SequenceMatcher(None, left, right, autojunk=False).get_opcodes():
        for offset in range(max(b - a, d - c)):
            yield Pair(
                left[a + offset] if a + offset < b else None,
                right[c + offset] if c + offset < d else None,
                kind != "equal",
            )


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
