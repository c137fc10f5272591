"""``turnout feed ID``: the messages of one subscription, by the matches that its route has stored."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from turnout.cli.exits import INTERRUPTED
from turnout.cli.options import AsJson
from turnout.cli.signals import stop_on_signals
from turnout.cli.stores import StoreTimeout, loaded_route
from turnout.terminal import json_text, printable_lines

if TYPE_CHECKING:
    from turnout.history.feed import FeedMessage

_PLACE = "earliest, latest, an ISO time or a sequence of a stream"


def feed(
    subscription: Annotated[str, typer.Argument(metavar="ID", help="The subscription.")],
    route: Annotated[Path, typer.Option(dir_okay=False, help="The YAML file of its route, which stores feeds.")],
    start: Annotated[str, typer.Option("--from", metavar="PLACE", help=f"Where to begin: {_PLACE}.")] = "earliest",
    after: Annotated[
        str | None, typer.Option(metavar="CURSOR", help="Begin behind this cursor, which a message has.")
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="End after this many messages.")] = None,
    follow: Annotated[
        bool, typer.Option("--follow", help="Wait for messages until the command is interrupted.")
    ] = False,
    timeout: StoreTimeout = None,
    as_json: AsJson = False,
) -> None:
    """Read the messages of a subscription; nothing is delivered, and no copy of them is stored."""
    from turnout.history.feed import FeedReader
    from turnout.runtime.feeds.cursors import cursor_of

    begin = None if after is None else cursor_of(after)
    if after is not None and begin is None:
        raise typer.BadParameter(f"expected the cursor of a message, found {after!r:.80}", param_hint="--after")
    with stop_on_signals() as stop, FeedReader(loaded_route(route, timeout)) as reader:
        position = int(start) if start.isdecimal() else start
        cursor = reader.start(position) if begin is None else begin
        left = limit
        for page in reader.follow(subscription, cursor, stop):
            for message in page.messages[:left]:
                typer.echo(json_text(message.as_dict()) if as_json else printable_lines(_lines(message)))
            if page.removed:
                typer.echo(f"{page.removed} matched records are no longer in the stream", err=True)
            left = None if left is None else left - len(page.messages)
            if (left is not None and left <= 0) or (page.is_last and not follow):
                return
    if limit is not None or not follow:
        raise typer.Exit(INTERRUPTED)


def _lines(message: FeedMessage) -> Iterator[str]:
    yield f"[{message.cursor}] {message.time_text} {message.topic}"
    for name, value in message.headers:
        yield f"  {name}: {(value or b'').decode('utf-8', 'backslashreplace')}"
    if message.value:
        yield from message.value.decode("utf-8", "backslashreplace").split("\n")


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("feed")(feed)
