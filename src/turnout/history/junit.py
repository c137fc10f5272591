"""Reports as JUnit's XML, which every continuous integration reads."""

from __future__ import annotations

from collections.abc import Iterable
from xml.etree import ElementTree as ET

from turnout.history.cases import CaseResult, Report
from turnout.history.text_report import difference_lines


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
