"""``turnout check ROUTE``: all mistakes of a route, and with ``--connect`` the results of checks on its servers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from turnout.cli.exits import DONE, FAILED, WRONG_REQUEST
from turnout.cli.options import AsJson, RouteFile
from turnout.cli.stores import StoreTimeout, loaded_route
from turnout.errors import RouteError
from turnout.gc_tools import paused_gc
from turnout.terminal import json_text, printable, printable_lines

if TYPE_CHECKING:
    from turnout.cli._connect_checks import Probed
    from turnout.errors import Mistake
    from turnout.routes import Route


def register(app: typer.Typer) -> None:
    """Add the command."""

    @app.command("check")
    def check(
        route: RouteFile,
        connect: Annotated[
            bool, typer.Option("--connect", help="Query servers and store, and try the route on the latest records.")
        ] = False,
        records: Annotated[
            int, typer.Option(min=0, help="With --connect: number of records of each stream to sample.")
        ] = 100,
        timeout: StoreTimeout = None,
        as_json: AsJson = False,
    ) -> None:
        """Read a route and report all its mistakes, without running it."""
        raise typer.Exit(_check(route, records if connect else None, timeout, as_json=as_json))


def _check(file: Path, records: int | None, timeout: float | None, *, as_json: bool) -> int:
    try:
        # The collector would traverse the objects of all modules that this imports several times.
        with paused_gc():
            route = loaded_route(file, timeout)
    except RouteError as wrong:
        if as_json:
            mistakes = [_as_json(mistake) for mistake in wrong.mistakes]
            typer.echo(json.dumps({"route": str(file), "valid": False, "mistakes": mistakes}, indent=1))
        else:
            typer.echo(printable(str(wrong)), err=True)
        return WRONG_REQUEST
    notes = [*route.notes, *route.errors.notes()]
    report: dict[str, object] = {
        "route": str(file),
        "valid": True,
        "name": route.name,
        "mistakes": [],
        "warnings": [_as_json(warning) for warning in route.warnings],
        "notes": notes,
    }
    if not as_json:
        typer.echo(printable_lines([f"{file}: route {route.name} is fine: {route.summary()}"]))
        lines = [*(f"warning: {warning}" for warning in route.warnings), *(f"note: {note}" for note in notes)]
        if lines:
            typer.echo(printable_lines(lines))
    checks = [] if records is None else _probe(route, records, as_json=as_json)
    if as_json:
        if records is not None:
            report["checks"] = [check.as_dict() for check in checks]
        typer.echo(json_text(report, indent=1))
    return DONE if all(check.ok for check in checks) else FAILED


def _as_json(mistake: Mistake) -> dict[str, object]:
    return {"path": mistake.path, "problem": mistake.problem, "line": mistake.line}


def _probe(route: Route, records: int, *, as_json: bool) -> list[Probed]:
    """Return the results of all checks of the servers; each is printed immediately."""
    from turnout.cli._connect_checks import probe
    from turnout.startup import block_pandas_import

    block_pandas_import()
    checks = []
    for check in probe(route, records):
        checks.append(check)
        if not as_json:
            typer.echo(printable(str(check)))
    return checks
