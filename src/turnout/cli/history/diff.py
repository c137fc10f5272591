"""``turnout diff OLD NEW``: effects of a new version of a route on stored records."""

from __future__ import annotations

import json
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from turnout.cli.exits import BAD, DOUBTFUL, FAILED, GOOD, echo_lines
from turnout.cli.options import (
    AsJson,
    Master,
    SparkLog,
    StoreTimeout,
    check_places,
    check_store,
    in_time,
    moments_of,
    needs_spark,
)
from turnout.errors import ConfigError, Mistake

if TYPE_CHECKING:
    from turnout.cli.run import Details
    from turnout.history.diff.report import DiffReport
    from turnout.history.lineage import Version
    from turnout.subscriptions.past import Moment

    Moments: TypeAlias = tuple[Moment | None, Moment | None]


_COLOURS = {
    r"^no differences$": GOOD,
    r"^(deliveries lost|fail otherwise): .*": BAD,
    r"^deliveries gained: .*": GOOD,
    r"^(deliveries moved|(values|keys|headers) changed): .*": DOUBTFUL,
}


def diff(
    versions: Annotated[
        list[str], typer.Argument(metavar="OLD NEW", help="Route files, or REV:path as git writes it.")
    ],
    start: Annotated[
        str,
        typer.Option("--from", metavar="PLACE", help="The first record: a time, an age (10m), a sequence."),
    ] = "earliest",
    end: Annotated[
        str, typer.Option("--to", metavar="PLACE", help="The record to stop before: likewise, or latest.")
    ] = "latest",
    git: Annotated[
        str | None, typer.Option(metavar="REV1..REV2", help="Two revisions of the one file that is named.")
    ] = None,
    old_subscriptions: Annotated[
        str | None, typer.Option(metavar="URL|FILE", help="The old version's: a store, or exported lines.")
    ] = None,
    new_subscriptions: Annotated[
        str | None, typer.Option(metavar="URL|FILE", help="The new version's, likewise.")
    ] = None,
    as_of: Annotated[
        str,
        typer.Option(
            "--subscriptions-as-of",
            metavar="MOMENT[..MOMENT]",
            help="Match with the stores' subscriptions at a time or revision; two: for the old and the new version.",
        ),
    ] = "now",
    fail_on: Annotated[
        str | None, typer.Option(metavar="CONDITION", help="Exit with 1 if this is true: 'lost > 0 or moved > 9'.")
    ] = None,
    examples: Annotated[int, typer.Option(min=0, help="How many are shown of each kind.")] = 5,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the report as a page to this file.", dir_okay=False)
    ] = None,
    as_json: AsJson = False,
    master: Master = "local[*]",
    spark_log: SparkLog = None,
    timeout: StoreTimeout = None,
) -> None:
    """Compare two versions of a route over the same stored records; nothing is published."""
    from turnout.cli.run import working
    from turnout.history.diff.differences import TOTALS, Threshold
    from turnout.history.diff.report import html_page, report_json, report_lines

    # Read before anything else: a mistyped name should not be noticed after an hour.
    threshold = None if fail_on is None else Threshold.parse(fail_on, TOTALS)
    check_places(start, end)
    moments = _moments(as_of, (old_subscriptions, new_subscriptions))
    with ExitStack() as resources:
        old, new = _versions(versions, git, (old_subscriptions, new_subscriptions), resources, moments)
        old, new = (replace(version, route=in_time(version.route, timeout)) for version in (old, new))
        with working("comparing", quiet=as_json) as details:
            report = _compared(
                old, new, (start, end), moments, examples=examples, master=master, log=spark_log, details=details
            )
    if html is not None:
        html.write_text(html_page(report), encoding="utf-8")
    if as_json:
        typer.echo(json.dumps(report_json(report), indent=1))
    else:
        echo_lines(report_lines(report), _COLOURS)
    if threshold is not None and threshold.holds(report.differences.totals):
        echo_lines([f"turnout: {threshold.text} holds"], {"^.*$": BAD}, err=True)
        raise typer.Exit(FAILED)


def _moments(text: str, subscriptions: tuple[str | None, str | None]) -> Moments:
    """Return the moments of the two versions' stores.

    Raises:
        ConfigError: one is of exported lines, which have no past.
    """
    moments = moments_of(text, "--subscriptions-as-of")
    for moment, store in zip(moments, subscriptions, strict=True):
        if moment is not None and store is not None and "://" not in store:
            raise ConfigError([Mistake("--subscriptions-as-of", f"{store} has no past: name a store in its place")])
    return moments


def _versions(
    written: list[str],
    git: str | None,
    subscriptions: tuple[str | None, str | None],
    resources: ExitStack,
    moments: Moments,
) -> tuple[Version, Version]:
    from turnout.history.lineage import load_versions

    if len(written) == 1 and git is None and subscriptions == (None, None) and moments[0] == moments[1]:
        problem = "one version alone: name another, or give --git, --old-subscriptions or --subscriptions-as-of A..B"
        raise ConfigError([Mistake(written[0], problem)])
    old, new = load_versions(written, git, resources)
    return _with_subscriptions(old, subscriptions[0], resources), _with_subscriptions(new, subscriptions[1], resources)


def _with_subscriptions(version: Version, store: str | None, resources: ExitStack) -> Version:
    """Return a version with the subscriptions of a store or of a ``turnout subscriptions export`` file."""
    if store is None:
        return version
    from turnout.history.lineage import snapshot_store

    return version.with_subscriptions(snapshot_store(store, resources))


def _compared(
    old: Version,
    new: Version,
    bounds: tuple[str, str],
    moments: Moments,
    *,
    examples: int,
    master: str,
    log: Path | None,
    details: Details,
) -> DiffReport:
    with needs_spark():
        from turnout.base.startup import block_pandas_import
        from turnout.cli.run import log_beside
        from turnout.spark.history.diff import RecordSpan, check_source, diff, same_source, tasks_done
        from turnout.spark.session.build import route_session

    block_pandas_import()
    # Before Spark is started, which takes seconds.
    span = RecordSpan.parse(*bounds)
    same_source(old.route.source, new.route.source)
    for version in (old, new):
        check_store(version.route)
    check_source(new.route)
    details(lambda: "starting Spark")
    with route_session(new.route, master=master, log=log or log_beside(new.route, None)) as spark:
        details(partial(tasks_done, spark))
        names = old.name, new.name
        return diff(
            old.route,
            new.route,
            spark,
            start=span.start,
            end=span.end,
            examples=examples,
            names=names,
            subscriptions_as_of=moments,
        ).report
