"""``turnout lineage STREAM:SEQ``: from a delivered message back to its record, its subscription and its route."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from turnout.cli.options import AsJson
from turnout.cli.stores import StoreTimeout, loaded_route
from turnout.errors import ConfigError, Mistake
from turnout.terminal import json_text, printable_lines

if TYPE_CHECKING:
    from turnout.history.lineage import Lineage


def register(app: typer.Typer) -> None:
    """Add the command."""

    @app.command("lineage")
    def lineage(
        message: Annotated[
            str, typer.Argument(metavar="PLACE", help="The delivered message: STREAM:SEQ or TOPIC:PARTITION:OFFSET.")
        ],
        route: Annotated[Path | None, typer.Option(help="The route that delivered it.", dir_okay=False)] = None,
        server: Annotated[
            str | None,
            typer.Option(metavar="URL", help="Where the message is, nats:// or kafka://; or the route's sinks."),
        ] = None,
        git: Annotated[bool, typer.Option("--git", help="Find the commit with the route as it was then.")] = False,
        timeout: StoreTimeout = None,
        as_json: AsJson = False,
    ) -> None:
        """Print the record, subscription and route from which a delivered message was made."""
        if route is None and server is None:
            raise ConfigError([Mistake("lineage", "give --route, --server or both: where to look for the message")])
        from turnout.history.lineage import walk

        walked = walk(message, None if route is None else loaded_route(route, timeout), server=server, git=git)
        typer.echo(json_text(walked.as_dict(), indent=1) if as_json else printable_lines(_lines(walked)))


def _lines(walked: Lineage) -> Iterator[str]:
    """Yield the lineage as text lines."""
    message, origin, route = walked.message, walked.made, walked.route
    yield f"message  {message.place}, {message.topic}, {message.timestamp}"
    if walked.subscription is not None:
        subscription = walked.subscription
        state = "unchanged" if subscription.still else "deleted or changed since"
        yield f"wanted   by {subscription.id} at revision {origin.revision}, {state}"
        yield f"    {subscription.condition} → {', '.join(subscription.destinations)}"
    yield f"route    {origin.route}, digest {origin.digest}"
    if route.same is not None:
        yield f"    {route.file} {'is as it was' if route.same else 'has changed since'}"
    if route.commit is not None:
        yield f"    as in the commit {route.commit}"
    if walked.record is None:
        yield f"record   {origin.source}"
    else:
        yield f"record   {origin.source}, {walked.record.topic}, {walked.record.timestamp}"
        yield f"    {walked.record.value}"
    yield from (f"unknown  {gap}" for gap in walked.gaps)
