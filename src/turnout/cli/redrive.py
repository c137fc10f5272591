"""``turnout redrive ROUTE``: dead letters back through the route as it is now."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from turnout.cli.exits import FAILED as EXIT_FAILED
from turnout.cli.options import AsJson, RouteFile
from turnout.cli.stores import StoreTimeout, loaded_route
from turnout.terminal import json_text, printable_lines

if TYPE_CHECKING:
    from turnout.history.redrive import RedriveReport

_DID = {
    "delivered": "delivered",
    "failed": "failed again",
    "filtered": "filtered by now",
    "unmatched": "matched by no subscription now",
    "lost_by_weight": "lost by weight",
    "unverified": "not verified: --unverified redrives these too",
}
_WOULD = {
    "delivered": "would be delivered",
    "failed": "would fail again",
    "filtered": "would be filtered",
    "unmatched": "would match no subscription",
    "lost_by_weight": "would be lost by weight",
    "unverified": "not verified: --unverified redrives these too",
}

_SHOWN_REASONS = 20
"""This many reasons are shown."""


def register(app: typer.Typer) -> None:
    """Add the command."""

    @app.command("redrive")
    def redrive(
        route: RouteFile,
        stage: Annotated[str | None, typer.Option(help="Only letters that failed in this stage.")] = None,
        reason: Annotated[
            str | None, typer.Option(metavar="TEXT", help="Only letters whose reason contains this.")
        ] = None,
        where: Annotated[
            str | None, typer.Option(metavar="CONDITION", help="Only letters whose records meet this, as they came.")
        ] = None,
        start: Annotated[
            str, typer.Option("--from", metavar="PLACE", help="Where to begin among the letters: a sequence or a time.")
        ] = "earliest",
        end: Annotated[str, typer.Option("--to", metavar="PLACE", help="The place after the last letter.")] = "latest",
        dry_run: Annotated[bool, typer.Option("--dry-run", help="Deliver nothing, only report the outcomes.")] = False,
        delete: Annotated[
            bool, typer.Option("--delete", help="Delete delivered letters, instead of marking them.")
        ] = False,
        unverified: Annotated[
            bool, typer.Option("--unverified", help="Also letters that lack the seal of the route's secret.")
        ] = False,
        timeout: StoreTimeout = None,
        as_json: AsJson = False,
    ) -> None:
        """Deliver dead letters that the route can take by now."""
        from turnout.startup import block_pandas_import

        block_pandas_import()
        from turnout.history import dead_letters
        from turnout.history.dead_letters import meeting
        from turnout.history.redrive import FAILED
        from turnout.history.redrive import redrive as redriven

        loaded = loaded_route(route, timeout)
        letters = dead_letters.read(loaded, start=start, end=end, stage=stage, reason=reason)
        if where is not None:
            letters = meeting(loaded, letters, where)
        report = redriven(loaded, letters, dry_run=dry_run, delete=delete, unverified=unverified)
        typer.echo(json_text(report.as_dict(), indent=1) if as_json else printable_lines(_lines(report)))
        if report.outcomes[FAILED] and not dry_run:
            raise typer.Exit(EXIT_FAILED)


def _lines(report: RedriveReport) -> Iterator[str]:
    total = len(report.results)
    yield f"{total:,} dead {'letter' if total == 1 else 'letters'} of {report.route}"
    words = _WOULD if report.dry_run else _DID
    groups = report.groups()
    for stage, reason, outcomes in groups[:_SHOWN_REASONS]:
        cause = "matched by no subscription" if stage is None else f"{stage}: {reason}"
        ends = ", ".join(f"{count:,} {words[outcome]}" for outcome, count in outcomes.items())
        yield f"{outcomes.total():>8,}  {cause}"
        yield f"          {ends}"
    if len(groups) > _SHOWN_REASONS:
        yield f"          … {len(groups):,} reasons; --json has all of them"
    again = {
        result.reason
        for result in report.results
        if result.outcome == "failed" and result.reason != result.letter.reason
    }
    yield from (f"fails now: {reason}" for reason in sorted(filter(None, again))[:_SHOWN_REASONS])
    yield from (f"note: {note}" for note in report.notes)
    if not report.dry_run and total:
        yield f"messages stored: {report.stored:,}, known already: {report.duplicates:,}"
