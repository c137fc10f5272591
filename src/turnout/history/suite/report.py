"""Reports of tests: as text, as plain values, and as JUnit's XML, which every continuous integration reads."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from xml.etree import ElementTree as ET

from turnout.base.untrusted import JsonObject
from turnout.history.suite.cases import KINDS, CaseResult, Report
from turnout.history.suite.outcomes import ABSENT, Difference, plain


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


def junit_xml(reports: Iterable[Report]) -> str:
    """Return the reports as XML: one ``testsuite`` for each route, a ``testcase`` for each test and each idle mask."""
    root = ET.Element("testsuites")
    for report in reports:
        failed = len(report.failed) + len(report.idle_masks)
        numbers = {"tests": str(len(report.results) + len(report.idle_masks)), "failures": str(failed), "errors": "0"}
        suite = ET.SubElement(root, "testsuite", {"name": report.route, "time": f"{report.seconds:.3f}", **numbers})
        for result in report.results:
            _add(suite, report, result)
        for count in report.idle_masks:
            mask = ET.SubElement(
                suite, "testcase", {"classname": report.route, "name": _xml_text(f"mask {count.name}")}
            )
            ET.SubElement(mask, "failure", message=_xml_text(str(count)))
    ET.indent(root)
    return ET.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _add(suite: ET.Element, report: Report, result: CaseResult) -> None:
    case = result.case
    location = {} if case.file is None else {"file": str(case.file), "line": str(case.line or 1)}
    names = {"classname": report.route, "name": _xml_text(case.name)}
    element = ET.SubElement(suite, "testcase", {**names, **location})
    if not result.passed:
        lines = [_xml_text(line) for difference in result.differences for line in difference_lines(difference)]
        failure = ET.SubElement(element, "failure", message=lines[0])
        failure.text = "\n".join(lines)


def _xml_text(text: str) -> str:
    """Return the text without the characters that XML 1.0 has no way to write."""
    return "".join(char if char in "\t\n" or " " <= char <= "\ud7ff" or char >= "\ue000" else "\ufffd" for char in text)
