"""Differences and reports as text and as plain values."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator

from turnout.history.cases import CaseResult, Report
from turnout.history.coverage import KINDS
from turnout.history.outcome_comparison import ABSENT, Difference
from turnout.untrusted import JsonObject


def plain(value: object) -> object:
    """Return a value of a difference as JSON takes it: bytes that are no text as base64, absent values as null."""
    if value is ABSENT:
        return None
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value


def difference_lines(difference: Difference) -> list[str]:
    """Return the path with the expected and the actual value, one below the other."""
    expected, actual = _as_json(difference.expected), _as_json(difference.actual)
    lines = [f"{difference.path}: expected {expected}", f"{' ' * len(difference.path)}  found    {actual}"]
    return [*lines, f"    {difference.note}"] if difference.note else lines


def _as_json(value: object) -> str:
    if value is ABSENT:
        return "nothing"
    return json.dumps(plain(value), ensure_ascii=False, default=str)


def coverage_lines(report: Report) -> Iterator[str]:
    """Yield the coverage of each kind, the parts not reached, and the records that have what the route names."""
    counts = []
    for kind in KINDS:
        items = report.coverage.of_kind(kind)
        if items:
            counts.append(f"{sum(item.reached for item in items)} of {len(items)} {kind}s")
    if counts:
        yield f"reached {', '.join(counts)}"
    missed = list(report.coverage.missed)
    yield from (f"    no test reaches {item.kind} {item.name}" for item in missed[:_SHOWN_IDS])
    if len(missed) > _SHOWN_IDS:
        yield f"    and {len(missed) - _SHOWN_IDS:,} more; --json has them all"
    yield from (f"FAILED mask {count}" for count in report.idle_masks)
    yield from (f"    name {count}" for count in report.coverage.names if not count.masks_nothing)


_SHOWN_IDS = 30


def report_json(report: Report) -> JsonObject:
    """Return the report as ``--json`` prints it."""
    items = report.coverage.items
    return {
        "route": report.route,
        "tests": len(report.results),
        "failed": len(report.failed),
        "seconds": round(report.seconds, 3),
        "cases": [_result_json(result) for result in report.results],
        "names": [
            {
                "path": count.path,
                "name": count.name,
                "found": count.found,
                "records": count.records,
                "mask": count.is_mask,
                "hint": count.hint.removeprefix("; ") or None,
            }
            for count in report.coverage.names
        ],
        "coverage": [{"kind": item.kind, "name": item.name, "reached": item.reached} for item in items],
    }


def _result_json(result: CaseResult) -> JsonObject:
    return {
        "name": result.case.name,
        "file": None if result.case.file is None else str(result.case.file),
        "line": result.case.line,
        "passed": result.passed,
        "outcome": result.ending.outcome,
        "differences": [
            {
                "path": difference.path,
                "expected": plain(difference.expected),
                "found": plain(difference.actual),
                "note": difference.note or None,
            }
            for difference in result.differences
        ],
    }
