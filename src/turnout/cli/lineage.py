"""``turnout lineage STREAM:SEQ``: from a delivered message back to its record, its subscription and its route."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from turnout.errors import ConfigError, Mistake, TurnoutError

if TYPE_CHECKING:
    from turnout.history.lineage import Lineage, Made, RouteThen, SourceRecord
    from turnout.routes import Route
    from turnout.subscriptions import Subscription

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the command."""

    @app.command("lineage")
    def lineage(
        message: Annotated[str, typer.Argument(metavar="STREAM:SEQ", help="The delivered message.")],
        route: Annotated[Path | None, typer.Option(help="The route that delivered it.", dir_okay=False)] = None,
        server: Annotated[
            str | None, typer.Option(metavar="URL", help="Where the message is; without it, the route's NATS sinks.")
        ] = None,
        git: Annotated[bool, typer.Option("--git", help="Find the commit that had the route as it was.")] = False,
        as_json: Annotated[bool, typer.Option("--json", help="Print JSON on standard output.")] = False,
    ) -> None:
        """Say which record, subscription and route a delivered message was made from."""
        if route is None and server is None:
            raise ConfigError([Mistake("lineage", "give --route, --server or both: where to look for the message")])
        walked = _walk(message, route, server, git)
        typer.echo(json.dumps(walked.as_dict(), indent=1, ensure_ascii=False) if as_json else "\n".join(_lines(walked)))


def _walk(place: str, file: Path | None, server: str | None, git: bool) -> Lineage:
    from turnout.history.lineage import Lineage, Made, SourceRecord
    from turnout.protocol.positions import stream_and_sequence
    from turnout.routes import Route

    message = stream_and_sequence(place)
    if message is None:
        raise ConfigError([Mistake("message", f"expected STREAM:SEQ, as in DELIVERED:17, found {place!r}")])
    stream, sequence = message
    present = None if file is None else Route.load(file)
    delivered = SourceRecord.of(stream, _read(_sinks(present, server), stream, sequence))
    walked = Lineage(delivered, Made.of(delivered))
    route = present
    if present is not None and file is not None:
        route, known = _route_then(present, file, walked.made, git)
        walked = replace(walked, route=known)
        if route is None:
            walked = walked.but("the route's file has changed since: what it made then is not known")
    try:
        record, batch = _record(walked.made, present, server)
    except TurnoutError as failure:
        return walked.but(f"the record {walked.made.source}: {failure}")
    walked = replace(walked, record=record)
    return walked if route is None else _with_subscription(walked, route, batch)


def _route_then(present: Route, file: Path, origin: Made, git: bool) -> tuple[Route | None, RouteThen]:
    """The route as it was, if that is known, and what is known of it."""
    from turnout.cli._git import versions_of
    from turnout.history.lineage import RouteThen
    from turnout.routes import Route, digest_of
    from turnout.routes.yaml_text import decoded

    same = present.digest == origin.digest
    then = present if same else None
    if not git:
        return then, RouteThen(str(file), same)
    for commit, content in versions_of(file.absolute()):
        text = decoded(content, what=f"{file} of the commit {commit}")
        if digest_of(text) == origin.digest:
            return Route.parse(text, file=file), RouteThen(str(file), same, commit)
    return then, RouteThen(str(file), same)


def _sinks(route: Route | None, server: str | None) -> list[dict[str, str]]:
    """How to reach the servers that may have the message."""
    from turnout.routes.endpoints import NatsSink

    if server is not None:
        return [{"servers": server}]
    sinks = [] if route is None else [sink for sink in route.sinks.values() if isinstance(sink, NatsSink)]
    if not sinks:
        raise ConfigError([Mistake("--route", "the route has no sink of the format nats: give --server")])
    return [sink.options() for sink in sinks]


def _read(servers: list[dict[str, str]], stream: str, sequence: int) -> Any:
    """A message from the first of some servers that has it."""
    from turnout.errors import StreamError
    from turnout.wire import Connection, ConnectionOptions, stored_message

    for number, options in enumerate(servers, start=1):
        try:
            with Connection.open(ConnectionOptions.from_mapping(options)) as connection:
                return stored_message(connection, stream, sequence)
        except StreamError:
            if number == len(servers):
                raise
    raise AssertionError("there is a server to ask")


def _record(origin: Made, route: Route | None, server: str | None) -> tuple[SourceRecord, Any]:
    """The record that the message says it was made from.

    Raises:
        TurnoutError: it is not in a stream, or not there any more, or cannot be read.
    """
    from turnout.history.lineage import SourceRecord
    from turnout.routes.endpoints import NatsSource
    from turnout.wire.rows import with_stream

    place = origin.stream_place()
    if place is None:
        raise ConfigError([Mistake("source", "it is not from a stream of NATS")], what="cannot be read")
    of_route = route is not None and isinstance(route.source, NatsSource)
    options = route.source.options() if route is not None and of_route else {"servers": server or ""}
    stream, sequence = place
    batch = _read([options], stream, sequence)
    return SourceRecord.of(stream, batch), with_stream(batch, stream)


def _with_subscription(walked: Lineage, route: Route, batch: Any) -> Lineage:
    """The same with whom the message was made for."""
    from turnout.cli._past import subscriptions_of
    from turnout.engine import Program
    from turnout.history.lineage import Wanted, cause_of

    then: tuple[Subscription, ...] = ()
    if walked.made.revision is not None:
        try:
            then = subscriptions_of(route, f"{walked.made.revision}")
        except TurnoutError as failure:
            return walked.but(f"the subscriptions at revision {walked.made.revision}: {failure}")
    makes, subscription = cause_of(Program.of(route), batch, then, walked.message)
    if not makes:
        return walked.but("the route does not make this message of the record any more")
    if subscription is None:
        return walked
    now = {one.id: one for one in subscriptions_of(route)}
    return replace(walked, subscription=Wanted.of(subscription, now.get(subscription.id)))


def _lines(walked: Lineage) -> Iterator[str]:
    """The lineage for people."""
    message, origin, route = walked.message, walked.made, walked.route
    yield f"message  {message.place}, {message.topic}, {message.timestamp}"
    if walked.subscription is not None:
        subscription = walked.subscription
        state = "there as it was" if subscription.still else "gone or another one since"
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
