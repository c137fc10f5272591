"""``turnout test ROUTE…``: the tests of routes, run without Spark and without servers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from turnout.cli.exits import BAD, DOUBTFUL, FAILED, GOOD, echo_lines, tell
from turnout.cli.options import AsJson, StoreTimeout, loaded_route, route_files
from turnout.errors import ConfigError, Mistake, RouteError

if TYPE_CHECKING:
    from turnout.history import Report, Suite
    from turnout.routes import Route


_COLOURS = {
    r"^FAILED\b": BAD,
    r"\b[0-9,]+ passed, [0-9,]+ failed\b": BAD,
    r"\b[0-9,]+ passed\b": GOOD,
    r"^    no test reaches\b": DOUBTFUL,
}


def run_tests(
    routes: Annotated[
        list[Path],
        typer.Argument(
            help="Route files, and folders; their tests are in them, or beside them. NAME.test.yaml selects its route."
        ),
    ],
    matching: Annotated[
        str | None, typer.Option("-k", metavar="TEXT", help="Run only tests whose name contains this.")
    ] = None,
    update: Annotated[
        bool, typer.Option("--update", help="Accept what happens now: rewrite the expectations that differ.")
    ] = False,
    junit: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write JUnit's XML to this file.", dir_okay=False)
    ] = None,
    timeout: StoreTimeout = None,
    as_json: AsJson = False,
) -> None:
    """Run the tests of routes, and list the parts that they do not reach."""
    from turnout.base.startup import block_pandas_import
    from turnout.history.suite.suite import route_file_of

    block_pandas_import()
    # Of *.yaml the shell makes both: the route and its tests.
    files = dict.fromkeys(map(route_file_of, route_files(routes)))
    named = {route_file_of(path) for path in routes if not path.is_dir()}
    reports, unusable = _reports(list(files), named, matching, timeout, update=update)
    if not (reports or unusable):
        raise ConfigError([Mistake(", ".join(map(str, routes)), "no route there has tests")])
    if matching is not None and not unusable and not any(report.results for report in reports):
        raise ConfigError([Mistake("-k", f"no test has {matching!r} in its name")])
    if junit is not None:
        from turnout.history.suite.cases import junit_xml

        junit.write_text(junit_xml(reports), encoding="utf-8")
    if as_json:
        from turnout.history.suite.cases import report_json

        typer.echo(json.dumps({"routes": [report_json(report) for report in reports]}, indent=1))
    else:
        for report in reports:
            echo_lines(_lines(report, whole=matching is None), _COLOURS)
    for wrong in unusable[1:]:
        tell(str(wrong))
    if unusable:
        raise unusable[0]
    if not all(report.passed for report in reports):
        raise typer.Exit(FAILED)


def _reports(
    files: list[Path], named: set[Path], matching: str | None, timeout: float | None, *, update: bool
) -> tuple[list[Report], list[ConfigError | RouteError]]:
    """Return the reports of the routes that can be tested, and the reasons that others cannot.

    Raises:
        ConfigError, RouteError: of the only file; NoTestsError: of a file that was named.
    """
    from turnout.history.suite.suite import NoTestsError

    reports: list[Report] = []
    unusable: list[ConfigError | RouteError] = []
    for file in files:
        try:
            reports.append(_run(file, matching, timeout, update=update))
        except NoTestsError:
            if file in named:
                raise
            tell(f"{file} has no tests", label="note: ")
        except (ConfigError, RouteError) as wrong:
            if len(files) == 1:
                raise
            unusable.append(wrong)
    return reports, unusable


def _run(file: Path, matching: str | None, timeout: float | None, *, update: bool) -> Report:
    from turnout.history import load_suites

    route = loaded_route(file, timeout)
    report = _tested(route, load_suites(file, route), matching)
    if not (update and report.failed):
        return report
    from turnout.history.suite.accept import accept

    for suite in load_suites(file, route):
        count = accept(suite, route, report.results)
        if count:
            typer.echo(f"{suite.file}: {count} {'expectation' if count == 1 else 'expectations'} rewritten", err=True)
    return _tested(route, load_suites(file, route), matching)


def _tested(route: Route, suites: list[Suite], matching: str | None) -> Report:
    from turnout.history import run_cases

    cases = [case for suite in suites for case in suite.cases]
    if matching is None:
        return run_cases(route, cases)
    report = run_cases(route, [case for case in cases if matching.lower() in case.name.lower()])
    # The records of some tests say nothing of the names that those of the others have.
    return replace(report, coverage=replace(report.coverage, names=()))


def _lines(report: Report, *, whole: bool) -> Iterator[str]:
    from turnout.history.suite.cases import coverage_lines, difference_lines

    for result in report.failed:
        yield f"FAILED {result.case.file}:{result.case.line} {result.case.name}"
        for difference in result.differences:
            yield from (f"    {line}" for line in difference_lines(difference))
    passed = len(report.results) - len(report.failed)
    failed = f", {len(report.failed)} failed" if report.failed else ""
    yield f"{report.route}: {passed} passed{failed} in {report.seconds:.2f} s"
    if whole:
        # What part of the tests reaches says nothing of what all of them do.
        yield from coverage_lines(report)
