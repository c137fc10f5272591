"""Report on the differences of two versions: as lines, as plain values, and as one HTML page without assets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from xml.etree import ElementTree as ET

from turnout.base.untrusted import JsonObject
from turnout.engine.counts import Outcome
from turnout.history.diff.differences import Differences, Example, RecordPosition, Tally

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
_DELIVERIES = frozenset({"lost", "gained", "moved"})


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
            own = number - sum(names.counts.values()) if kind in _DELIVERIES else 0
            yield f"{TITLES[kind]}: {number:,}{_named(names, own)}"


def _named(names: Tally, own: int) -> str:
    """Return the names with their counts; *own* deliveries are of records under their own topic."""
    largest = names.largest
    shown = [f"{name or '(the whole)'} {number:,}" for name, number in largest[:_SHOWN_PAIRS]]
    shown += ["…"] if len(largest) > _SHOWN_PAIRS else []
    shown += [f"under their own topic {own:,}"] if own else []
    return f" ({', '.join(shown)})" if shown else ""


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


_STYLE: Final = """
:root { color-scheme: light dark; --line: #d0d7de; --dim: #57606a; --old: #8250df; --new: #1a7f37; --bar: #0969da; }
@media (prefers-color-scheme: dark) {
  :root { --line: #3d444d; --dim: #9198a1; --old: #ab7df8; --new: #3fb950; --bar: #4493f8; }
}
body { font: 15px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem;
  background: Canvas; color: CanvasText; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2rem; }
.dim { color: var(--dim); }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; padding: .25rem .6rem; border-bottom: 1px solid var(--line); vertical-align: top; }
th { font-weight: 600; } td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; }
td.bar { width: 35%; min-width: 8rem; } td.bar div { height: .8rem; border-radius: 2px; background: var(--bar);
  min-width: 1px; }
td.bar div.old { background: var(--old); } td.bar div.new { background: var(--new); margin-top: 2px; }
code { font: .9em ui-monospace, monospace; overflow-wrap: anywhere; white-space: pre-wrap; }
h1, h2, p, td, th, code, summary, span { unicode-bidi: isolate; }
"""

_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'"


def html_page(report: DiffReport) -> str:
    """Return the whole page. Every text in it is escaped by the library that writes it."""
    differences = report.differences
    root = ET.Element("html", lang="en")
    head = ET.SubElement(root, "head")
    ET.SubElement(head, "meta", charset="utf-8")
    ET.SubElement(head, "meta", {"http-equiv": "Content-Security-Policy", "content": _POLICY})
    ET.SubElement(head, "meta", name="viewport", content="width=device-width, initial-scale=1")
    ET.SubElement(head, "title").text = _sayable(f"{report.old} and {report.new}")
    ET.SubElement(head, "style").text = _STYLE
    body = ET.SubElement(root, "body")
    _summary(body, report)
    _outcomes(body, differences)
    _changes(body, differences)
    _bars(body, "Fields of values that changed", differences.fields)
    _bars(body, "Headers that changed", differences.header_names)
    _bars(body, "Subscriptions that lose deliveries", differences.losers)
    _bars(body, "Subscriptions that gain deliveries", differences.gainers)
    _bars(body, "Subscriptions whose deliveries moved", differences.movers)
    _costs(body, differences)
    _example_table(body, differences)
    return "<!doctype html>\n" + ET.tostring(root, encoding="unicode", method="html") + "\n"


def _sayable(text: str) -> str:
    """Replace characters that UTF-8 cannot encode, and control characters."""
    encoded = text.encode("utf-8", "replace").decode()
    return "".join(char if char >= " " or char in "\t\n" else "\ufffd" for char in encoded)


# Parts


def _summary(body: ET.Element, report: DiffReport) -> None:
    differences = report.differences
    headline = (
        "No differences"
        if differences.empty
        else f"{differences.changed:,} of {differences.records:,} records with differences"
    )
    ET.SubElement(body, "h1").text = headline
    rows = [("old", report.old), ("new", report.new), ("records", f"{differences.records:,} ({report.range})")]
    ended_otherwise = differences.matrix.outcomes + differences.matrix.stages
    sent = (differences.lost, differences.gained, differences.moved, differences.values, differences.keys)
    numbers = (ended_otherwise, *sent, differences.headers, differences.failures)
    rows += [(title, f"{number:,}") for title, number in zip(TITLES.values(), numbers, strict=True) if number]
    _table(body, (), rows)


def _outcomes(body: ET.Element, differences: Differences) -> None:
    """Draw the outcomes of both versions as bars."""
    totals = differences.totals
    labels = [outcome.label for outcome in Outcome if totals[f"old_{outcome.label}"] + totals[f"new_{outcome.label}"]]
    if not labels:
        return
    ET.SubElement(body, "h2").text = "Outcomes"
    table = _table(body, ("outcome", "old", "new", ""), (), numbers=(1, 2))
    for label in labels:
        old, new = int(totals[f"old_{label}"]), int(totals[f"new_{label}"])
        row = _row(table, (label, f"{old:,}", f"{new:,}"), numbers=(1, 2))
        _bar(row, [(old / differences.records, "old"), (new / differences.records, "new")])


def _changes(body: ET.Element, differences: Differences) -> None:
    changes = differences.matrix.changes
    if not changes:
        return
    ET.SubElement(body, "h2").text = "From outcome to outcome"
    table = _table(body, ("old", "new", "records", ""), (), numbers=(2,))
    for old, new, number in changes:
        row = _row(table, (str(old), str(new), f"{number:,}"), numbers=(2,))
        _bar(row, [(number / changes[0][2], "")])


def _bars(body: ET.Element, title: str, names: Tally) -> None:
    largest = names.largest
    if not largest:
        return
    ET.SubElement(body, "h2").text = title
    table = _table(body, ("name", "number", ""), (), numbers=(1,))
    for name, number in largest:
        row = _row(table, (name or "(the whole)", f"{number:,}"), numbers=(1,))
        _bar(row, [(number / largest[0][1], "")])


def _costs(body: ET.Element, differences: Differences) -> None:
    old, new = (
        differences.old_cost.per_record(differences.records),
        differences.new_cost.per_record(differences.records),
    )
    ET.SubElement(body, "h2").text = "Cost"
    table = _table(body, ("version", "processor µs for a record", ""), (), numbers=(1,))
    for name, cost in (("old", old), ("new", new)):
        _bar(_row(table, (name, f"{cost:.1f}"), numbers=(1,)), [(cost / (max(old, new) or 1), name)])


def _example_table(body: ET.Element, differences: Differences) -> None:
    by_kind = differences.examples.by_kind
    if not by_kind:
        return
    ET.SubElement(body, "h2").text = "Examples, the first by sequence"
    table = _table(body, ("what", "record", "topic", "old", "new"), ())
    for kind, name in sorted(by_kind, key=lambda named: (tuple(TITLES).index(named[0]), named[1])):
        for example in by_kind[kind, name]:
            title = TITLES[kind] + (f", {name}" if name else "")
            row = _row(table, (title, position_text(example.position), example.topic))
            for side in (example.old, example.new):
                ET.SubElement(ET.SubElement(row, "td"), "code").text = "" if side is None else _sayable(side)


# Tables


def _table(
    body: ET.Element, names: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: Sequence[int] = ()
) -> ET.Element:
    frame = ET.SubElement(body, "div", {"class": "scroll"})
    table = ET.SubElement(frame, "table")
    if names:
        head = ET.SubElement(table, "tr")
        for at, name in enumerate(names):
            ET.SubElement(head, "th", {"class": "number"} if at in numbers else {}).text = name
    for row in rows:
        _row(table, row)
    return table


def _row(table: ET.Element, cells: Sequence[str], *, numbers: Sequence[int] = ()) -> ET.Element:
    row = ET.SubElement(table, "tr")
    for at, cell in enumerate(cells):
        ET.SubElement(row, "td", {"class": "number"} if at in numbers else {}).text = _sayable(cell)
    return row


def _bar(row: ET.Element, shares: Iterable[tuple[float, str]]) -> None:
    cell = ET.SubElement(row, "td", {"class": "bar"})
    for share, kind in shares:
        style = {"style": f"width: {100 * share:.2f}%"}
        ET.SubElement(cell, "div", {**style, **({"class": kind} if kind else {})})
