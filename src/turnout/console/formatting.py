"""Numbers, durations and timestamps as readable text."""

from __future__ import annotations

import difflib
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from urllib.parse import quote, urlencode


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
