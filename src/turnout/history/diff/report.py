"""Report on the differences of two versions, as text lines and as plain values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from turnout.history.diff.differences import Differences, Example, RecordPosition, Tally
from turnout.untrusted import JsonObject

TITLES: Final = {
    "outcome": "end otherwise",
    "lost": "deliveries lost",
    "gained": "deliveries gained",
    "moved": "deliveries moved",
    "value": "values changed",
    "key": "keys changed",
    "header": "headers changed",
    "failure": "fail otherwise",
}
"""Titles of the kinds of examples, in the order of display."""

_SHOWN_PAIRS = 20


@dataclass(frozen=True, slots=True)
class DiffReport:
    """Comparison with the names, range and duration for its report.

    Attributes:
        old: name of the old version.
        new: likewise.
        range: the records that were read, as a person says it.
        differences: the differences.
        seconds: how long it took, reading included.
    """

    old: str
    new: str
    range: str
    differences: Differences
    seconds: float


def position_text(position: RecordPosition) -> str:
    """Format a position: ``FLIGHTS:17``, and with a partition other than 0 ``flights[3]:17``.

    >>> positions = ((17, "FLIGHTS", 0), (17, "flights", 3), (-1, "flights", 0))
    >>> [position_text(RecordPosition(*fields)) for fields in positions]
    ['FLIGHTS:17', 'flights[3]:17', 'flights']
    """
    partition = f"[{position.partition}]" if position.partition else ""
    return f"{position.stream}{partition}" + (f":{position.offset}" if position.offset >= 0 else "")


# Lines


def report_lines(report: DiffReport) -> Iterator[str]:
    """Yield the report for a terminal."""
    differences = report.differences
    yield f"old  {report.old}"
    yield f"new  {report.new}"
    yield f"{differences.records:,} {'record' if differences.records == 1 else 'records'} compared ({report.range})"
    if differences.empty:
        yield "no differences"
    else:
        yield f"{differences.changed:,} of them with differences"
        yield from _matrix(differences)
        yield from _numbers(differences)
        yield from _examples(differences)
    old, new = (
        differences.old_cost.per_record(differences.records),
        differences.new_cost.per_record(differences.records),
    )
    yield f"cost: old {old:.1f} µs, new {new:.1f} µs of a processor's time for each record"


def _matrix(differences: Differences) -> Iterator[str]:
    changes = differences.matrix.changes
    for old, new, number in changes[:_SHOWN_PAIRS]:
        yield f"    {old} → {new}: {number:,}"
    if len(changes) > _SHOWN_PAIRS:
        yield f"    and {len(changes) - _SHOWN_PAIRS:,} more pairs; --json has them all"


def _numbers(differences: Differences) -> Iterator[str]:
    numbers = (
        ("lost", differences.lost, differences.losers),
        ("gained", differences.gained, differences.gainers),
        ("moved", differences.moved, differences.movers),
        ("value", differences.values, differences.fields),
        ("key", differences.keys, Tally()),
        ("header", differences.headers, differences.header_names),
        ("failure", differences.failures, Tally()),
    )
    for kind, number, names in numbers:
        if number:
            yield f"{TITLES[kind]}: {number:,}{_named(names)}"


def _named(names: Tally) -> str:
    largest = names.largest
    if not largest:
        return ""
    names_shown = ", ".join(f"{name or '(the whole)'} {number:,}" for name, number in largest[:_SHOWN_PAIRS])
    return f" ({names_shown}{', …' if len(largest) > _SHOWN_PAIRS else ''})"


def _examples(differences: Differences) -> Iterator[str]:
    by_kind = sorted(differences.examples.by_kind.items(), key=_order)
    if by_kind:
        yield "examples, the first by sequence:"
    for (kind, name), examples in by_kind[:_SHOWN_PAIRS]:
        yield f"  {TITLES[kind]}{f', {name}' if name else ''}"
        yield from (f"    {_line(example)}" for example in examples)
    if len(by_kind) > _SHOWN_PAIRS:
        yield f"  and of {len(by_kind) - _SHOWN_PAIRS:,} more kinds; --json has them all"


def _order(entry: tuple[tuple[str, str], object]) -> tuple[int, str]:
    (kind, name), _ = entry
    return tuple(TITLES).index(kind), name


def _line(example: Example) -> str:
    """Return an example in one line."""
    position = f"{position_text(example.position)} {example.topic}"
    if example.old is None and example.new is None:
        return position
    return f"{position}: {_side(example.old)} → {_side(example.new)}"


def _side(text: str | None) -> str:
    return "nothing" if text is None else text


# JSON


def report_json(report: DiffReport) -> JsonObject:
    """Return the report as ``--json`` prints it."""
    differences = report.differences
    return {
        "old": report.old,
        "new": report.new,
        "range": report.range,
        "totals": {name: round(number, 3) for name, number in differences.totals.items()},
        "matrix": [
            {"old": old._asdict(), "new": new._asdict(), "records": number}
            for (old, new), number in sorted(differences.matrix.counts.items())
        ],
        "fields": _counted(differences.fields),
        "headers": _counted(differences.header_names),
        "subscriptions": {
            "lost": _counted(differences.losers),
            "gained": _counted(differences.gainers),
            "moved": _counted(differences.movers),
        },
        "examples": [
            {"kind": kind, "what": name, **example.position._asdict(), "topic": example.topic, **_sides(example)}
            for (kind, name), examples in sorted(differences.examples.by_kind.items(), key=_order)
            for example in examples
        ],
        "seconds": round(report.seconds, 3),
    }


def _sides(example: Example) -> Mapping[str, str | None]:
    return {"old": example.old, "new": example.new}


def _counted(names: Tally) -> dict[str, int]:
    return dict(names.largest)
