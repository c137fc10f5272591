"""``turnout tap``, ``feed`` and ``lineage``: records at a stage, messages of a subscription, and their origins."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from turnout.base.terminal import json_text, printable_lines
from turnout.cli.exits import INTERRUPTED, stop_on_signals
from turnout.cli.options import PLACE, AsJson, RouteFile, StoreTimeout, check_places, loaded_route
from turnout.errors import ConfigError, Mistake

if TYPE_CHECKING:
    from turnout.history.feed import FeedMessage
    from turnout.history.lineage import Lineage
    from turnout.history.tap import Tapped
    from turnout.routes import Route


_RATE = 10.0
"""This many live records a second a person can follow."""


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
    from turnout.base.startup import block_pandas_import

    block_pandas_import()
    from turnout.history.tap import taps

    check_places(start, end)
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
            typer.echo(json_text(tapped.as_dict()) if as_json else printable_lines(_tap_lines(tapped)))
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


def _tap_lines(tapped: Tapped) -> Iterator[str]:
    from turnout.cli.explain import change_lines

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


_PLACE = "earliest, latest, an ISO time, an age such as 10m or a sequence of a stream"


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
    from turnout.runtime.cursors import cursor_of

    begin = None if after is None else cursor_of(after)
    if after is not None and begin is None:
        raise typer.BadParameter(f"expected the cursor of a message, found {after!r:.80}", param_hint="--after")
    with stop_on_signals() as stop, FeedReader(loaded_route(route, timeout)) as reader:
        position = int(start) if start.isdecimal() else start
        cursor = reader.start(position) if begin is None else begin
        left = limit
        for page in reader.follow(subscription, cursor, stop):
            for message in page.messages[:left]:
                typer.echo(json_text(message.as_dict()) if as_json else printable_lines(_feed_lines(message)))
            if page.removed:
                typer.echo(f"{page.removed} matched records are no longer in the stream", err=True)
            left = None if left is None else left - len(page.messages)
            if (left is not None and left <= 0) or (page.is_last and not follow):
                return
    if limit is not None or not follow:
        raise typer.Exit(INTERRUPTED)


def _feed_lines(message: FeedMessage) -> Iterator[str]:
    yield f"[{message.cursor}] {message.time_text} {message.topic}"
    for name, value in message.headers:
        yield f"  {name}: {(value or b'').decode('utf-8', 'backslashreplace')}"
    if message.value:
        yield from message.value.decode("utf-8", "backslashreplace").split("\n")


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
    typer.echo(json_text(walked.as_dict(), indent=1) if as_json else printable_lines(_lineage_lines(walked)))


def _lineage_lines(walked: Lineage) -> Iterator[str]:
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
