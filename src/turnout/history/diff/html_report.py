"""Comparison report as one HTML page: no external assets, no script, light and dark."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final
from xml.etree import ElementTree as ET

from turnout.engine.outcome import Outcome
from turnout.history.diff.differences import Differences, Tally
from turnout.history.diff.report import TITLES, DiffReport, position_text

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


def page(report: DiffReport) -> str:
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
    for title, names in _tallies(differences):
        _bars(body, title, names)
    _costs(body, differences)
    _examples(body, differences)
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
    rows += [(TITLES[kind], f"{number:,}") for kind, number in _numbers(differences) if number]
    _table(body, (), rows)


def _numbers(differences: Differences) -> list[tuple[str, int]]:
    counts = (
        differences.matrix.outcomes + differences.matrix.stages,
        differences.lost,
        differences.gained,
        differences.moved,
    )
    return list(
        zip(
            TITLES,
            (*counts, differences.values, differences.keys, differences.headers, differences.failures),
            strict=True,
        )
    )


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


def _tallies(differences: Differences) -> list[tuple[str, Tally]]:
    return [
        ("Fields of values that changed", differences.fields),
        ("Headers that changed", differences.header_names),
        ("Subscriptions that lose deliveries", differences.losers),
        ("Subscriptions that gain deliveries", differences.gainers),
        ("Subscriptions whose deliveries moved", differences.movers),
    ]


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


def _examples(body: ET.Element, differences: Differences) -> None:
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
