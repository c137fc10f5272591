"""``turnout subscriptions analyze``: overlaps between subscriptions, their cost, and their effect on traffic."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from turnout.cli.options import AsJson, Master
from turnout.cli.run import log_beside
from turnout.cli.spark_extra import needs_spark
from turnout.cli.stores import StoreTimeout, StoreUrl, opened_store
from turnout.errors import ConfigError, Mistake
from turnout.terminal import json_text, printable_lines

if TYPE_CHECKING:
    from turnout.routes import Route
    from turnout.subscriptions import Snapshot
    from turnout.subscriptions.analysis import Analysis, AnchorTraffic, Traffic


def analyze(
    against: Annotated[
        Path | None, typer.Option(help="A route whose source's records are matched: NATS or Kafka.", dir_okay=False)
    ] = None,
    begin: Annotated[str, typer.Option("--from", help="Where to begin: a sequence or a time.")] = "earliest",
    end: Annotated[str | None, typer.Option("--to", help="Where to end, not included; default: the end.")] = None,
    server: Annotated[
        str | None, typer.Option(metavar="URL", help="A nats-server, to list destinations that no stream accepts.")
    ] = None,
    spark: Annotated[
        bool, typer.Option("--spark", help="Match the records in Spark's tasks, not in this process.")
    ] = False,
    master: Master = "local[*]",
    hottest: Annotated[int, typer.Option(min=0, help="How many anchors to name.")] = 10,
    store: StoreUrl = None,
    timeout: StoreTimeout = None,
    as_json: AsJson = False,
) -> None:
    """Find duplicate, subsumed and impossible subscriptions, and with --against ineffective ones."""
    from turnout.cli.analysis_text import analysis_lines
    from turnout.routes import Route

    route = None if against is None else Route.load(against)
    snapshot = _snapshot(store, route, timeout)
    if spark and route is None:
        raise ConfigError([Mistake("--spark", "expected --against: without records there is nothing to match")])
    count = _local_traffic if not spark else partial(_in_tasks, master)
    analysis = _analysis(snapshot, route, partial(count, begin=begin, end=end), server, hottest)
    if route is not None:
        from turnout.engine.metadata import doubtful_leaves

        paths = route.subscriptions.metadata if route.subscriptions else {}
        lines = [f"warning: {problem}" for problem in doubtful_leaves(snapshot, paths)]
        typer.echo(printable_lines(lines), err=True, nl=bool(lines))
    if as_json:
        typer.echo(json_text(analysis.as_dict(), indent=1))
    else:
        typer.echo(printable_lines(analysis_lines(analysis)))


def _snapshot(store: str | None, route: Route | None, timeout: float | None) -> Snapshot:
    """Return the content of the named store, or of the route's."""
    if store is None and route is not None:
        if route.subscriptions is None:
            raise ConfigError([Mistake("--against", "the route has no subscriptions")])
        store = route.subscriptions.store
    with opened_store(store, timeout) as opened:
        return opened.snapshot()


def _analysis(
    snapshot: Snapshot,
    route: Route | None,
    count: Callable[[Snapshot, Route, AnchorTraffic], Traffic],
    server: str | None,
    hottest: int,
) -> Analysis:
    from turnout.subscriptions.analysis import AnchorTraffic, Catalogue, analysis_of

    catalogue = Catalogue(snapshot)
    if route is None:
        unread = _unread(snapshot, None, server)
        return analysis_of(catalogue, revision=snapshot.revision, hottest=hottest, unread=unread)
    anchors = AnchorTraffic(catalogue.terms())
    traffic = count(snapshot, route, anchors)
    unread = _unread(snapshot, route, server)
    return analysis_of(
        catalogue, revision=snapshot.revision, hottest=hottest, anchors=anchors, traffic=traffic, unread=unread
    )


def _local_traffic(snapshot: Snapshot, route: Route, anchors: AnchorTraffic, *, begin: str, end: str | None) -> Traffic:
    """Count the subscriptions' traffic in this process."""
    from turnout.cli.source_range import records_between
    from turnout.engine import Program
    from turnout.history.traffic import traffic_of
    from turnout.subscriptions.index import Index

    batches = records_between(route, begin, end)
    return traffic_of(
        Program.of(route), batches, Index.of(snapshot), [subscription.id for subscription in snapshot], anchors
    )


def _in_tasks(
    master: str, snapshot: Snapshot, route: Route, anchors: AnchorTraffic, *, begin: str, end: str | None
) -> Traffic:
    """Count the subscriptions' traffic in Spark's tasks."""
    with needs_spark():
        from turnout.spark.history.traffic import traffic_in_tasks
        from turnout.spark.session.build import route_session
        from turnout.startup import block_pandas_import

    block_pandas_import()
    with route_session(route, master=master, log=log_beside(route, None)) as session:
        return traffic_in_tasks(route, session, snapshot, anchors, start=begin, end=end)


def _unread(snapshot: Snapshot, route: Route | None, server: str | None) -> Mapping[str, Sequence[str]] | None:
    """Return the destinations that no stream captures; None without a server and a route to check."""
    from turnout.cli.unreachable_destinations import unread_at, unread_of

    if server is not None:
        return unread_at(server, snapshot)
    return None if route is None else unread_of(route, snapshot)
