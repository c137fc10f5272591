"""Tests of a route file from Python."""

from __future__ import annotations

from pathlib import Path

from turnout.history.cases import Report, run_cases
from turnout.history.suite import load_suites
from turnout.routes import Route


def test(route_file: str | Path) -> Report:
    """Run the tests of a route file, as ``turnout test`` does, without Spark and servers.

    Args:
        route_file: the route, with ``tests`` in it or ``NAME.test.yaml`` beside it.

    Raises:
        RouteError: the route has mistakes.
        ConfigError: its tests have, or there are none.
    """
    file = Path(route_file)
    route = Route.load(file)
    return run_cases(route, [case for suite in load_suites(file, route) for case in suite.cases])


test.__test__ = False  # type: ignore[attr-defined]  # pytest takes it for one of its own where it is imported
