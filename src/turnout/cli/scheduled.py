"""``turnout scheduled …``: messages of a route that are delivered later."""

from __future__ import annotations

import asyncio
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from turnout.base.terminal import json_text
from turnout.cli.exits import FAILED, stop_on_signals
from turnout.cli.options import AsJson, LogFormat, loaded_route, log_as

if TYPE_CHECKING:
    from turnout.delivery.scheduled import DelayLeader, ScheduledCounts

RouteFile = Annotated[Path, typer.Argument(dir_okay=False, help="The YAML file of the route.")]

scheduled = typer.Typer(help="Publish, count and cancel messages that are delivered later.", no_args_is_help=True)


@scheduled.command("run")
def run(route: RouteFile, log_format: LogFormat = None, as_json: AsJson = False) -> None:
    """Publish the messages of the delay stream at their times, until interrupted. One of several processes does it."""
    from turnout.delivery.scheduled import publish_scheduled

    log_as(log_format)
    loaded = loaded_route(route, None)

    def begin(leader: DelayLeader) -> None:
        typer.echo(f"publishing the scheduled messages of {leader.route.name}; Ctrl-C ends it", err=True)

    with stop_on_signals() as stop:
        counts = asyncio.run(publish_scheduled(loaded, stop, begin))
    typer.echo(json_text(_document(counts)) if as_json else _line(counts))


def _document(counts: ScheduledCounts) -> dict[str, object]:
    return {**asdict(counts), "late": counts.late.as_dict()}


def _line(counts: ScheduledCounts) -> str:
    late = counts.late.quantile(0.99)
    text = "" if late is None else f"; 99 % were stored within {late * 1000:.0f} ms of their times"
    return (
        f"{counts.published:,} published, {counts.cancelled:,} cancelled or replaced, {counts.refused:,} refused{text}"
    )


@scheduled.command("pending")
def pending(route: RouteFile, as_json: AsJson = False) -> None:
    """Print how many messages of the route wait."""
    from turnout.delivery import scheduled as service

    count = asyncio.run(service.pending(loaded_route(route, None)))
    typer.echo(json_text({"pending": count, "time": time.time()}) if as_json else f"{count:,}")


@scheduled.command("cancel")
def cancel(
    route: RouteFile,
    identity: Annotated[
        list[str], typer.Argument(metavar="ID...", help="Ids of messages, as scheduled.id reads them.")
    ],
    as_json: AsJson = False,
) -> None:
    """Remove waiting messages by their ids. It fails if nothing waits under one of them."""
    from turnout.delivery import scheduled as service

    removed = asyncio.run(service.cancel(loaded_route(route, None), identity))
    typer.echo(json_text({"cancelled": removed}) if as_json else f"{sum(removed.values()):,} cancelled")
    missing = [name for name, count in removed.items() if not count]
    if missing:
        typer.echo(f"nothing waits under {', '.join(missing)}", err=True)
        raise typer.Exit(FAILED)
