"""``turnout deliver --route FILE``: post the deliveries of a route's webhooks."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from turnout.cli.exits import FAILED, INTERRUPTED
from turnout.cli.options import AsJson
from turnout.cli.signals import stop_on_signals
from turnout.cli.stores import StoreTimeout, loaded_route
from turnout.terminal import json_text


def deliver(
    route: Annotated[Path, typer.Option(dir_okay=False, help="The YAML file of the route, with a webhooks block.")],
    drain: Annotated[bool, typer.Option("--drain", help="End when nothing waits, failed deliveries included.")] = False,
    redrive: Annotated[
        bool, typer.Option("--redrive", help="Move the dead letters back among the deliveries, and end.")
    ] = False,
    letter: Annotated[
        list[str] | None,
        typer.Option(metavar="POSITION", help="Move one dead letter back among the deliveries, and end; repeatable."),
    ] = None,
    enable: Annotated[
        list[str] | None,
        typer.Option(metavar="DESTINATION", help="Send requests again to an endpoint that answered 410, and end."),
    ] = None,
    timeout: StoreTimeout = None,
    as_json: AsJson = False,
) -> None:
    """Post the messages for webhooks, signed and with retries, until interrupted."""
    from turnout.delivery import service

    loaded = loaded_route(route, timeout)

    if redrive or letter or enable:
        known = asyncio.run(service.enable(loaded, enable)) if enable else []
        count = asyncio.run(service.redrive(loaded, None if redrive else letter)) if redrive or letter else 0
        text = f"dead letters moved: {count:,}, endpoints enabled: {len(known):,} of {len(enable or ()):,}"
        typer.echo(json_text({"moved": count, "enabled": known}) if as_json else text)
        if len(known) < len(enable or ()) or (not redrive and count < len({*(letter or ())})):
            raise typer.Exit(FAILED)
        return
    with stop_on_signals() as stop:
        counts = asyncio.run(service.deliver(loaded, stop, drain=drain))
    numbers = asdict(counts)
    text = ", ".join(f"{name} {number:,}" for name, number in numbers.items())
    typer.echo(json_text({"counts": numbers}) if as_json else text)
    if drain and stop.is_set():
        raise typer.Exit(INTERRUPTED)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("deliver")(deliver)
