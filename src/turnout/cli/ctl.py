"""``turnout ctl …``: the routes of a running server, over its REST interface."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import quote, urlencode

import typer

from turnout.cli.options import AsJson
from turnout.cli.tap import PLACE
from turnout.errors import RunError
from turnout.terminal import json_text, printable_lines
from turnout.untrusted import JsonObject

if TYPE_CHECKING:
    from turnout.cli.server_client import ServerClient

_ON_PAGE = 1000

Names = Annotated[list[str], typer.Argument(metavar="ROUTE…", help="The routes' names.")]
Route = Annotated[str, typer.Argument(help="The route's name.")]
Url = Annotated[str, typer.Option("--url", envvar="TURNOUT_URL", help="Where the server is.")]
TokenFile = Annotated[
    Path | None,
    typer.Option(envvar="TURNOUT_TOKEN_FILE", help="File with the bearer token; or the variable TURNOUT_TOKEN."),
]
Ca = Annotated[Path | None, typer.Option("--ca", envvar="TURNOUT_CA", help="Authority of the server (PEM).")]
Insecure = Annotated[bool, typer.Option("--insecure", help="Send the token to another machine without TLS.")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    commands = typer.Typer(help="List, pause and watch the routes of a running server.", no_args_is_help=True)
    commands.callback()(_options)
    commands.command("list")(list_)
    for command in (pause, resume, restart, offsets, tap):
        commands.command(command.__name__)(command)
    app.add_typer(commands, name="ctl")


@dataclass(frozen=True, slots=True)
class _Options:
    """Options of ``turnout ctl`` that all its commands share."""

    url: str
    token_file: Path | None
    ca: Path | None
    insecure: bool

    def client(self) -> ServerClient:
        """Return a client of the server."""
        from turnout.cli.server_client import ServerClient

        return ServerClient.of(self.url, self.token_file, self.ca, insecure=self.insecure)


def _options(
    context: typer.Context,
    url: Url = "http://127.0.0.1:8090",
    token_file: TokenFile = None,
    ca: Ca = None,
    insecure: Insecure = False,
) -> None:
    """List, pause and watch the routes of a running server."""
    context.obj = _Options(url, token_file, ca, insecure)


def list_(
    context: typer.Context,
    state: Annotated[str | None, typer.Option(help="Only routes in this state: running, paused, failed …")] = None,
    as_json: AsJson = False,
) -> None:
    """Print the routes with state, lag and counts, and the reasons of failures."""
    client = context.obj.client()
    routes = list(_routes(client, state))
    if as_json:
        typer.echo(json_text(routes, indent=1))
        return
    typer.echo(printable_lines(line for route in routes for line in _lines(route)))


def _routes(client: ServerClient, state: str | None) -> Iterator[JsonObject]:
    cursor = ""
    while True:
        query = {"limit": _ON_PAGE, "cursor": cursor, **({} if state is None else {"state": state})}
        page = client.call("GET", f"/v1/routes?{urlencode(query)}")
        yield from page["items"]
        if not (cursor := page["cursor"]):
            return


def _lines(route: JsonObject) -> Iterator[str]:
    """Yield a line of a route, and one for each thing that is wrong with it."""
    counts, lag = route["counts"], route["lag"]
    lag_text = "" if lag is None else f"  {sum(lag['records'].values()):,} behind"
    numbers = (
        f"{counts['read']:,} read, {counts['delivered']:,} delivered, {counts['dead_lettered']:,} dead-lettered, "
        f"{counts['undeliverable']:,} undeliverable"
    )
    yield f"{route['name']}  {route['state']}{lag_text}  {numbers}"
    mistakes = [f"{mistake['path']}: {mistake['problem']}" for mistake in route["mistakes"]]
    for line_text in filter(None, (route["reason"], route["problem"], *route["losses"], *mistakes)):
        yield f"    {line_text}"


def pause(context: typer.Context, routes: Names, as_json: AsJson = False) -> None:
    """Pause routes, each after its current micro-batch."""
    _command(context, "pause", routes, as_json=as_json)


def resume(context: typer.Context, routes: Names, as_json: AsJson = False) -> None:
    """Resume paused routes from their checkpoints."""
    _command(context, "resume", routes, as_json=as_json)


def restart(context: typer.Context, routes: Names, as_json: AsJson = False) -> None:
    """Restart routes, each after its current micro-batch; failed ones too."""
    _command(context, "restart", routes, as_json=as_json)


def _command(context: typer.Context, command: str, names: list[str], *, as_json: bool) -> None:
    """Do the same with several routes; the first refusal ends the command."""
    from turnout.cli.server_client import route_path

    client = context.obj.client()
    for name in names:
        route = client.call("POST", route_path(name, command))
        typer.echo(json_text(route) if as_json else printable_lines([f"{route['name']}  {route['state']}"]))


def offsets(
    context: typer.Context,
    route: Route,
    reset: Annotated[
        str | None,
        typer.Option(
            "--reset",
            metavar="PLACE",
            help="Begin a paused route here: earliest, latest, a sequence, an ISO time, or JSON for each stream.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Print the committed offsets of a route, or reset them."""
    from turnout.cli.server_client import route_path

    client = context.obj.client()
    if reset is None:
        answer = client.call("GET", route_path(route, "offsets"))
    else:
        answer = client.call("PUT", route_path(route, "offsets"), {"to": _position(reset)})
    if as_json:
        typer.echo(json_text(answer, indent=1))
        return
    lines = [f"{name}  next {json.dumps(position)}" for name, position in answer["next"].items()] or [
        "nothing is committed"
    ]
    begins = [] if answer["begins_at"] is None else [f"begins at {json.dumps(answer['begins_at'])}"]
    typer.echo(printable_lines([*lines, *begins]))


def _position(text: str) -> object:
    """Parse a sequence or a JSON object; return words and times unchanged."""
    try:
        position = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return (
        position
        if isinstance(position, dict) or (isinstance(position, int) and not isinstance(position, bool))
        else text
    )


def tap(
    context: typer.Context,
    route: Route,
    stage: Annotated[str, typer.Option(help="source, the name of a transform, mapped or delivered.")] = "delivered",
    where: Annotated[str, typer.Option(metavar="CONDITION", help="Only records that match this condition.")] = "",
    rate: Annotated[float, typer.Option(min=0.01, max=50, help="Records a second at most.")] = 5.0,
    start: Annotated[
        str, typer.Option("--from", metavar="PLACE", help=f"Where to begin: {PLACE}; now if not given.")
    ] = "",
    limit: Annotated[int | None, typer.Option(min=1, help="End after this many records.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a line of JSON for each record.")] = False,
) -> None:
    """Watch the records of a route before and after a stage; the run is not disturbed."""
    query = {"stage": stage, "where": where, "rate": rate, "start": start}
    path = f"/v1/tap/{quote(route, safe='')}?{urlencode(query)}"
    shown = 0
    events = context.obj.client().events(path)
    ends_it = (KeyboardInterrupt,) if limit is None else ()
    with contextlib.suppress(*ends_it), contextlib.closing(events):
        for kind, body in events:
            if kind == "problem":
                raise RunError(body["detail"])
            typer.echo(json_text(body) if as_json else printable_lines(_tapped(body)))
            shown += 1
            if shown == limit:
                return


def _tapped(record: JsonObject) -> Iterator[str]:
    """Yield the lines of a record: its position, and the record before and after."""
    yield f"{record['stream']}:{record['sequence']} {record['before']['topic']}  {record['stage']}: {record['outcome']}"
    if record.get("reason"):
        yield f"    {record['reason']}"
    yield f"    before {json_text(record['before'])}"
    if record.get("after") is not None and record["after"] != record["before"]:
        yield f"    after  {json_text(record['after'])}"
    for message in record.get("messages") or ():
        yield f"    → {message['topic']}"
