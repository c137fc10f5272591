"""``turnout replay`` and ``redrive``: history, or dead letters, delivered again through the route as it is now."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from turnout.base.terminal import json_text, plural, printable_lines
from turnout.base.untrusted import JsonObject
from turnout.cli.exits import FAILED, INTERRUPTED, stop_on_signals
from turnout.cli.exits import FAILED as EXIT_FAILED
from turnout.cli.options import (
    AsJson,
    AsOf,
    Master,
    RouteFile,
    StoreTimeout,
    check_places,
    loaded_route,
    moment_of,
    needs_spark,
)
from turnout.cli.run import console, counts_table, log_beside, run_display

if TYPE_CHECKING:
    from turnout.history.redrive import RedriveReport
    from turnout.history.replay import ReplayPlan
    from turnout.routes import Route
    from turnout.spark.history.replay import ReplayResult


_SHOWN_SUBSCRIPTIONS = 20
"""This many subscriptions are shown with their numbers."""

_PLACE = (
    "a sequence, an ISO time, an age such as 10m, earliest, latest or {stream: sequence}, {topic:partition: offset}"
)


def replay(
    route: RouteFile,
    start: Annotated[str, typer.Option("--from", metavar="PLACE", help=f"Where to begin: {_PLACE}.")],
    end: Annotated[str, typer.Option("--to", metavar="PLACE", help="The place after the last record.")] = "latest",
    subscription: Annotated[
        list[str] | None, typer.Option(metavar="ID", help="Deliver to this subscription only; may be repeated.")
    ] = None,
    as_of: AsOf = "now",
    where: Annotated[
        str | None, typer.Option(metavar="CONDITION", help="Deliver only records that match this condition.")
    ] = None,
    sink: Annotated[
        str | None, typer.Option(help="Deliver to this sink: a name of the route's, or a block in YAML.")
    ] = None,
    id: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The replay's name; made from the others if not given."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Deliver nothing, only count the messages.")] = False,
    part: Annotated[
        int, typer.Option(min=1, metavar="N", help="How many sequences to deliver before progress is noted.")
    ] = 500_000,
    master: Master = "local[*]",
    timeout: StoreTimeout = None,
    as_json: AsJson = False,
) -> None:
    """Deliver a route's history again; continue an interrupted replay."""
    from turnout.history.replay import plan_replay

    check_places(start, end)
    loaded = loaded_route(route, timeout)
    moment = moment_of(as_of, "--subscriptions-as-of")
    selection: JsonObject = {"start": start, "end": end, "where": where, "sink": sink, "id": id}
    plan = plan_replay(loaded, subscriptions=subscription, subscriptions_as_of=moment, **selection)
    screen = console(quiet=as_json)
    lines = plan.lines() if dry_run else _begun(plan)
    screen.print("\n".join(lines), soft_wrap=True, markup=False)
    result = _carried_out(plan, master, part, dry_run=dry_run, quiet=as_json)
    counts, notes = result.counts, list(_notes(result, loaded))
    if as_json:
        typer.echo(json.dumps({**_as_json(result), "notes": notes}, indent=1))
    else:
        _show(result, notes)
    if not counts.conserved or (counts.discarded and not counts.delivered):
        raise typer.Exit(FAILED)
    if result.stopped:
        raise typer.Exit(INTERRUPTED)


def _begun(plan: ReplayPlan) -> Iterator[str]:
    """Yield the plan in words; the rest of it, if the same replay was interrupted."""
    from turnout.history.replay import ReplayState

    state = ReplayState.of(plan)
    yield from replace(plan, ranges=state.ranges).lines()
    if state.begun:
        positions = ", ".join(f"{stream} before {sequence:,}" for stream, sequence in state.next.items())
        yield f"continues: {state.counts.read:,} records are done, {positions}"


def _carried_out(plan: ReplayPlan, master: str, part: int, *, dry_run: bool, quiet: bool) -> ReplayResult:
    with needs_spark():
        from turnout.base.startup import block_pandas_import
        from turnout.spark.history.replay import carry_out, rehearse
        from turnout.spark.session.build import route_session

    block_pandas_import()
    screen = console(quiet=quiet)
    session = partial(route_session, plan.route, master=master, log=log_beside(plan.route, None))
    if dry_run:
        # Nothing is to be resumed: the first signal ends it.
        with session() as spark:
            return rehearse(plan, spark)
    with (
        run_display(screen, plan.route.name) as display,
        stop_on_signals(display.says_stopping) as stop,
        session() as spark,
    ):
        return carry_out(plan, spark, stop=stop, on_progress=display, at_once=part)


def _as_json(result: ReplayResult) -> JsonObject:
    answer = {
        "replay": result.plan.as_dict(),
        "counts": result.counts.as_dict(),
        "conserved": result.counts.conserved,
        "seconds": round(result.seconds, 3),
        "resumed": result.resumed,
        "skipped": result.skipped,
        "stopped": result.stopped,
    }
    if result.by_subscription is None:
        return answer
    would = {id_ or "": n for id_, n in result.by_subscription.items()}
    return answer | {"dryRun": True, "bySubscription": would}


def _notes(result: ReplayResult, route: Route) -> Iterator[str]:
    """Yield what a run of the route would do otherwise, and the notes of a dry run."""
    yield from result.notes
    if result.counts.discarded or result.counts.undeliverable:
        yield "a replay writes no dead letters: what fails is discarded"
    if result.counts.unmatched and route.unmatched != "drop":
        yield f"{plural(result.counts.unmatched, 'record')} without a subscription that matches: not replayed"


def _show(result: ReplayResult, notes: Iterable[str]) -> None:
    console().print(counts_table(result.plan.route.name, result.counts))
    if result.by_subscription is not None:
        typer.echo(printable_lines(_expected_counts(result.by_subscription)))
    for note in notes:
        typer.echo(printable_lines([f"note: {note}"]))
    if result.by_subscription is None and result.stopped:
        typer.echo(f"stopped: the same command continues it, as does --id {result.plan.replay.id}", err=True)


def _expected_counts(by_subscription: Mapping[str | None, int]) -> Iterator[str]:
    """Yield the expected numbers of messages, for the subscriptions with most."""
    total = sum(by_subscription.values())
    yield f"would deliver {plural(total, 'message')}"
    for subscription, count in list(by_subscription.items())[:_SHOWN_SUBSCRIPTIONS]:
        yield f"    {count:>12,} {'under their own topic' if subscription is None else subscription}"
    if len(by_subscription) > _SHOWN_SUBSCRIPTIONS:
        yield f"    … {len(by_subscription):,} subscriptions; --json has all of them"


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


def redrive(
    route: RouteFile,
    stage: Annotated[str | None, typer.Option(help="Only letters that failed in this stage.")] = None,
    reason: Annotated[str | None, typer.Option(metavar="TEXT", help="Only letters whose reason contains this.")] = None,
    where: Annotated[
        str | None, typer.Option(metavar="CONDITION", help="Only letters whose records meet this, as they came.")
    ] = None,
    start: Annotated[
        str,
        typer.Option("--from", metavar="PLACE", help="The first letter: a sequence, a time or an age (10m)."),
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
    from turnout.base.startup import block_pandas_import

    block_pandas_import()
    from turnout.history import dead_letters
    from turnout.history.dead_letters import meeting
    from turnout.history.redrive import FAILED
    from turnout.history.redrive import redrive as redriven

    check_places(start, end)
    loaded = loaded_route(route, timeout)
    letters = dead_letters.read(loaded, start=start, end=end, stage=stage, reason=reason)
    if where is not None:
        letters = meeting(loaded, letters, where)
    report = redriven(loaded, letters, dry_run=dry_run, delete=delete, unverified=unverified)
    typer.echo(json_text(report.as_dict(), indent=1) if as_json else printable_lines(_redrive_lines(report)))
    if report.outcomes[FAILED] and not dry_run:
        raise typer.Exit(EXIT_FAILED)


def _redrive_lines(report: RedriveReport) -> Iterator[str]:
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
