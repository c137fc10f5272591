"""``turnout tap ROUTE``: records at one stage of a route, without disturbing a run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from turnout.cli.exits import INTERRUPTED
from turnout.cli.options import RouteFile
from turnout.cli.signals import stop_on_signals
from turnout.cli.stores import StoreTimeout, loaded_route
from turnout.terminal import json_text, printable_lines

if TYPE_CHECKING:
    from turnout.history.tap import Tapped
    from turnout.routes import Route

_RATE = 10.0
"""This many live records a second a person can follow."""

PLACE = "a sequence, an ISO time, earliest, or {topic:partition: offset}"


def register(app: typer.Typer) -> None:
    """Add the command."""

    @app.command("tap")
    def tap(
        route: RouteFile,
        stage: Annotated[str, typer.Option(help="source, the name of a transform, mapped or delivered.")] = "delivered",
        where: Annotated[
            str | None, typer.Option(metavar="CONDITION", help="Only records that match this condition.")
        ] = None,
        start: Annotated[
            str | None, typer.Option("--from", metavar="PLACE", help=f"Where to begin: {PLACE}; now if not given.")
        ] = None,
        end: Annotated[
            str | None,
            typer.Option("--to", metavar="PLACE", help="The place after the last record; without it there is no end."),
        ] = None,
        rate: Annotated[
            float | None, typer.Option(min=0.01, help=f"Maximum records per second; {_RATE:.0f} for live ones.")
        ] = None,
        limit: Annotated[int | None, typer.Option(min=1, help="End after this many records.")] = None,
        unmasked: Annotated[bool, typer.Option("--unmasked", help="Show parts that the route masks later.")] = False,
        timeout: StoreTimeout = None,
        as_json: Annotated[bool, typer.Option("--json", help="Print a line of JSON for each record.")] = False,
    ) -> None:
        """Watch records before and after a stage; nothing is delivered, and a run is not disturbed."""
        from turnout.startup import block_pandas_import

        block_pandas_import()
        from turnout.history.tap import taps

        loaded = loaded_route(route, timeout)
        pace = _RATE if rate is None and start is None else rate
        with stop_on_signals() as stop:
            records = taps(
                loaded,
                stage,
                where=where,
                start=start,
                end=end,
                rate=pace,
                limit=limit,
                unmasked=unmasked,
                stop=stop,
                warn=_warn,
            )
            if where is not None and end is None:
                _warn_of_headers(loaded, where)
            count = 0
            for tapped in records:
                count += 1
                typer.echo(json_text(tapped.as_dict()) if as_json else printable_lines(_lines(tapped)))
            has_end = end is not None or limit is not None
            if stop.is_set() and has_end and count != limit:
                raise typer.Exit(INTERRUPTED)


def _warn_of_headers(route: Route, where: str) -> None:
    """Say which names of a condition no record may ever have; behind a range that is found at its end."""
    from turnout.conditions import parse
    from turnout.engine.replay import Where

    paths = route.subscriptions.metadata if route.subscriptions else {}
    for name in Where(parse(where), paths).headers:
        _warn(f"{name!r} is not listed under metadata: only records with a header of that name can match")


def _warn(problem: str) -> None:
    typer.echo(printable_lines([f"warning: {problem}"]), err=True)


def _lines(tapped: Tapped) -> Iterator[str]:
    from turnout.cli.explanation_text import change_lines

    yield f"{tapped.stream}:{tapped.sequence} {tapped.before['topic']}  {tapped.stage}: {tapped.outcome}"
    if tapped.reason is not None:
        yield f"    {tapped.reason}"
    if tapped.outcome == "changed" and tapped.after is not None:
        for name, before in tapped.before.items():
            if before != tapped.after[name]:
                yield from change_lines(name, before, tapped.after[name])
    else:
        shown = {name: tapped.before[name] for name in ("key", "value", "headers") if tapped.before[name]}
        yield f"    {json_text(shown)}"
    for message in tapped.messages:
        subscription_text = f" for {message.subscription}" if message.subscription else ""
        yield f"    → {message.topic}{subscription_text}{', set aside' if message.dead_letter else ''}"
