"""``turnout ctl …``: the routes of a running server, over its REST interface."""

from __future__ import annotations

import contextlib
import json
import os
import ssl
import urllib.error
import urllib.request
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from http.client import HTTPResponse
from pathlib import Path
from typing import Annotated, Any, TypeAlias
from urllib.parse import quote, urlencode, urlsplit

import typer

from turnout.base.http_exchange import exchange, is_loopback
from turnout.base.terminal import json_text, plural, printable_lines
from turnout.base.untrusted import JsonObject
from turnout.cli.options import PLACE, AsJson
from turnout.errors import ConfigError, ConnectionLostError, Mistake, RunError, TurnoutError
from turnout.secrets import masked_url

_ON_PAGE = 1000

Names = Annotated[list[str], typer.Argument(metavar="ROUTE…", help="The routes' names.")]
Route = Annotated[str, typer.Argument(help="The route's name.")]


def _options(
    context: typer.Context,
    url: Annotated[
        str, typer.Option("--server", "-s", envvar="TURNOUT_URL", help="Where the server is.")
    ] = "http://127.0.0.1:8090",
    token_file: Annotated[
        Path | None,
        typer.Option(envvar="TURNOUT_TOKEN_FILE", help="File with the bearer token; or the variable TURNOUT_TOKEN."),
    ] = None,
    tls_ca: Annotated[Path | None, typer.Option(envvar="TURNOUT_CA", help="Authority of the server (PEM).")] = None,
    tls_cert: Annotated[
        Path | None, typer.Option(envvar="TURNOUT_CERT", help="Own certificate, if the server asks for one (PEM).")
    ] = None,
    tls_key: Annotated[Path | None, typer.Option(envvar="TURNOUT_KEY", help="Its private key (PEM).")] = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Send the token to another machine without TLS.")
    ] = False,
) -> None:
    """List, watch and control the routes of a running server."""
    context.obj = partial(ServerClient.of, url, token_file, (tls_ca, tls_cert, tls_key), insecure=insecure)


def list_(
    context: typer.Context,
    state: Annotated[str | None, typer.Option(help="Only routes in this state: running, paused, failed …")] = None,
    as_json: AsJson = False,
) -> None:
    """Print the routes with state, lag and counts, and the reasons of failures."""
    client = context.obj()
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
    client = context.obj()
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
    client = context.obj()
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
    events = context.obj().events(path)
    ends_it = (KeyboardInterrupt,) if limit is None else ()
    with contextlib.suppress(*ends_it), contextlib.closing(events):
        for kind, body in events:
            if kind == "problem":
                raise RunError(body["detail"])
            typer.echo(json_text(body) if as_json else printable_lines(_tapped(body)))
            shown += 1
            if shown == limit:
                return


def leader(context: typer.Context, as_json: AsJson = False) -> None:
    """Print which of several servers leads."""
    _tell_leader(context.obj().call("GET", "/v1/leader"), as_json=as_json)


def hand_over(context: typer.Context, as_json: AsJson = False) -> None:
    """Have the leader end after its current micro-batches, so that a standby leads at once."""
    _tell_leader(context.obj().call("POST", "/v1/leader/hand-over"), as_json=as_json)


def _tell_leader(leader: JsonObject, *, as_json: bool) -> None:
    seconds = f"{leader['remaining_seconds']:.1f} of {leader['lease_seconds']:g} s left"
    lines = [f"{leader['holder']}  term {leader['term']}  {leader['url']}  {seconds}"]
    typer.echo(json_text(leader) if as_json else printable_lines(lines))


def show(context: typer.Context, route: Route, as_json: AsJson = False) -> None:
    """Print a route with its file, its outcomes, mistakes and started versions."""
    client = context.obj()
    document = client.call("GET", route_path(route))
    revisions = client.call("GET", route_path(route, "revisions"))
    if as_json:
        typer.echo(json_text({**document, "revisions": revisions}, indent=1))
        return
    counts = [f"    {name.replace('_', ' ')}  {count:,}" for name, count in document["counts"].items() if count]
    waiting = [f"    waits for confirmation: {change['change']}: {change['reason']}" for change in document["pending"]]
    started = [f"{_time(one['at'])}  {one['digest']}  {one['who']}".rstrip() for one in revisions]
    versions = [f"versions, the newest first: {len(started)}", *(f"    {line}" for line in started[:_SHOWN_VERSIONS])]
    described = [f"    file {document['file']}", *([f"    {document['summary']}"] if document["summary"] else [])]
    notes = [f"    note: {note}" for note in document["notes"]]
    typer.echo(printable_lines([*_lines(document), *described, *counts, *waiting, *notes, *versions]))


_SHOWN_VERSIONS = 5


def letters(
    context: typer.Context,
    route: Route,
    limit: Annotated[int, typer.Option(min=1, max=_ON_PAGE, help="Print this many, the newest first.")] = 20,
    stage: Annotated[str | None, typer.Option(help="Only letters that failed in this stage.")] = None,
    reason: Annotated[str | None, typer.Option(metavar="TEXT", help="Only letters whose reason contains this.")] = None,
    where: Annotated[
        str | None, typer.Option(metavar="CONDITION", help="Only letters whose records meet this, as they came.")
    ] = None,
    groups: Annotated[bool, typer.Option("--groups", help="Print their numbers by stage and reason instead.")] = False,
    as_json: AsJson = False,
) -> None:
    """Print the dead letters of a route, the newest first; `turnout redrive` delivers them."""
    client = context.obj()
    if groups:
        found = client.call("GET", route_path(route, "dead-letters", "groups"))
        lines = (f"{one['count']:>8,}  {_cause(one)}" for one in found)
    else:
        chosen = {"limit": limit, "stage": stage, "reason": reason, "where": where}
        query = urlencode({name: value for name, value in chosen.items() if value is not None})
        found = client.call("GET", f"{route_path(route, 'dead-letters')}?{query}")["items"]
        lines = (line for letter in found for line in _letter(letter))
    typer.echo(json_text(found, indent=1) if as_json else printable_lines(lines) if found else "no dead letters")


def _cause(letter: JsonObject) -> str:
    return "matched by no subscription" if letter["stage"] is None else f"{letter['stage']}: {letter['reason']}"


def _letter(letter: JsonObject) -> Iterator[str]:
    """Yield the lines of a dead letter: where it is, why, and the record."""
    tries = f", redriven without success {plural(letter['tries'], 'time')}" if letter["tries"] else ""
    yield f"{_time(letter['stored'])}  {letter['stream']}:{letter['sequence']}  {_cause(letter)}{tries}"
    if letter["subscription"] is not None:
        yield f"    for {letter['subscription']} → {letter['destination']}"
    yield f"    {json_text(letter['record'])}"


def webhooks(
    context: typer.Context,
    route: Route,
    show_letters: Annotated[
        bool, typer.Option("--letters", help="Print the deliveries that were given up instead, the newest first.")
    ] = False,
    limit: Annotated[int, typer.Option(min=1, max=_ON_PAGE, help="With --letters: print this many.")] = 20,
    as_json: AsJson = False,
) -> None:
    """Print the endpoints of a route's webhooks, or the deliveries that were given up."""
    client = context.obj()
    if show_letters:
        found = client.call("GET", f"{route_path(route, 'webhooks', 'dead-letters')}?limit={limit}")
        lines = [
            f"{_time(one['at'])}  {one['position']}  {one['destination']}  {one['reason']}, "
            f"{plural(len(one['attempts']), 'attempt')}"
            for one in found
        ]
    else:
        found = client.call("GET", route_path(route, "webhooks"))
        lines = [line for one in found or () for line in _endpoint(one)]
    empty = "no dispatcher runs here" if found is None else "nothing was given up" if show_letters else "no endpoints"
    typer.echo(json_text(found, indent=1) if as_json else printable_lines(lines or [empty]))


def _endpoint(endpoint: JsonObject) -> Iterator[str]:
    owner = f" for {endpoint['subscription']}" if endpoint["subscription"] else ""
    numbers = f"{endpoint['waiting']:,} waiting, {endpoint['in_flight']:,} in flight"
    yield f"{endpoint['destination']}{owner}  {endpoint['state']}  {numbers}"
    if endpoint["last_error"]:
        yield f"    {_time(endpoint['last_at'])}  {endpoint['last_error']}"


def logs(
    context: typer.Context,
    routes: Annotated[list[str] | None, typer.Argument(metavar="[ROUTE…]", help="Only of these routes.")] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="Print the last ones, this many.")] = 50,
    follow: Annotated[bool, typer.Option("--follow", help="Wait for more until the command is interrupted.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print a line of JSON for each.")] = False,
) -> None:
    """Print what happened to the routes: states with reasons, new versions, resets, losses."""

    def printed(event: tuple[str, JsonObject]) -> None:
        kind, body = event
        typer.echo(json_text({"event": kind, **body}) if as_json else printable_lines([_event(kind, body)]))

    client = context.obj()
    wanted = (event for event in client.events("/v1/events?after=0&follow=false") if _is_of(event, routes))
    with contextlib.closing(wanted):
        for event in deque(wanted, maxlen=limit):
            printed(event)
    if not follow:
        return
    with contextlib.suppress(KeyboardInterrupt), contextlib.closing(client.events("/v1/events")) as events:
        for event in events:
            if _is_of(event, routes) and event[0] != "route.progress":
                printed(event)


def _is_of(event: tuple[str, JsonObject], routes: list[str] | None) -> bool:
    return not routes or event[1]["route"] in routes


def _event(kind: str, body: JsonObject) -> str:
    details = (
        f"{name} {value if isinstance(value, str) else json_text(value)}"
        for name, value in body.items()
        if name not in ("route", "at") and value not in (None, "", [], {})
    )
    return f"{_time(body['at'])}  {body['route']}  {kind.removeprefix('route.')}  {', '.join(details)}"


def _time(seconds: float | None) -> str:
    """Return a time in seconds as ISO 8601 in UTC; - for none."""
    return "-" if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


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


ctl = typer.Typer(help="List, watch and control the routes of a running server.", no_args_is_help=True)
ctl.callback()(_options)
ctl.command("list")(list_)
for command in (show, pause, resume, restart, offsets, tap, letters, webhooks, logs, leader):
    ctl.command(command.__name__)(command)
ctl.command("hand-over")(hand_over)


TOKEN = "TURNOUT_TOKEN"  # noqa: S105 - the name of the variable
_SECONDS = 30.0
_MOST_BYTES = 64 << 20
_WRONG = (400, 401, 403, 404, 405, 412, 413, 422)
"""Statuses that say that the request was wrong, and not that the work failed."""


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Refusal of redirects, which would take the token to another server."""

    def redirect_request(self, *_: object, **__: object) -> None:
        """Return no request: the redirect itself is the answer."""


_TlsFiles: TypeAlias = tuple[Path | None, Path | None, Path | None]


@dataclass(frozen=True, slots=True)
class ServerClient:
    """REST client of one server.

    Attributes:
        url: ``http://host:port`` or ``https://…``.
        token: a bearer token; None without one.
        tls: context of connections; None without TLS.
    """

    url: str
    token: str | None = None
    tls: ssl.SSLContext | None = None

    @classmethod
    def of(cls, url: str, token_file: Path | None, files: _TlsFiles, *, insecure: bool) -> ServerClient:
        """Return a client with the token of a file, or of the environment.

        Args:
            url: ``http://host:port`` or ``https://…``.
            token_file: file of the token.
            files: certificates to trust, those of the system if not given; the client's own; and its key (PEM).
            insecure: the token may be sent without TLS.

        Raises:
            ConfigError: the address is none, the token would go to another machine in the clear, or a certificate
                cannot be used.
        """
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.username is not None:
            problem = f"expected http://host:port or https://host:port, found {masked_url(url)!r}"
            raise ConfigError([Mistake("--server", problem)])
        token = os.environ.get(TOKEN) if token_file is None else token_file.read_text(encoding="utf-8").strip()
        if token and parts.scheme == "http" and not is_loopback(parts.hostname) and not insecure:
            problem = "a token would go to another machine in the clear: use https://, or --insecure knowingly"
            raise ConfigError([Mistake("--server", problem)])
        if token and not (token.isascii() and token.isprintable()):
            raise ConfigError([Mistake("--token-file", "expected one token, without blanks and line breaks")])
        return cls(url.rstrip("/"), token or None, _tls(*files) if parts.scheme == "https" else None)

    def call(self, method: str, path: str, body: object = None) -> Any:
        """Return the answer to a request, from its JSON; None for an empty one.

        Raises:
            ConfigError: the server says that the request was wrong.
            RunError: it cannot do it now.
            ConnectionLostError: it cannot be reached.
        """
        headers, data = self._request(method, body)
        try:
            answer = exchange(
                self.url + path,
                seconds=_SECONDS,
                max_bytes=_MOST_BYTES,
                method=method,
                headers=headers,
                body=data,
                tls=self.tls,
                proxies=False,
            )
        except OSError as failure:
            raise ConnectionLostError(f"{self.url} cannot be reached: {failure}") from None
        text = answer.body
        if answer.status >= 300:
            raise self._refusal(answer.status, answer.reason, text)
        try:
            return json.loads(text) if text else None
        except ValueError:
            raise RunError(f"{self.url} does not answer as turnout does: is it the server's HTTP address?") from None

    def events(self, path: str) -> Iterator[tuple[str, Any]]:
        """Yield the kind and the content of each event of a stream, until the server ends it.

        Raises:
            TurnoutError: as `call`.
        """
        kind = ""
        with self._opened_stream(path) as lines:
            for line in lines:
                name, _, value = line.decode().rstrip("\n").partition(": ")
                if name == "event":
                    kind = value
                elif name == "data":
                    yield kind, json.loads(value)

    def _request(self, method: str, body: object) -> tuple[dict[str, str], bytes | None]:
        headers = {"Accept": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        if method != "GET":
            # Of a browser's requests those with this type alone need the server's leave, and so do ours.
            headers["Content-Type"] = "application/json"
        if self.token is not None:
            headers["Authorization"] = f"Bearer {self.token}"
        return headers, data

    def _opened_stream(self, path: str) -> HTTPResponse:
        """Open a stream of events, which lasts as long as the server does."""
        headers, _ = self._request("GET", None)
        request = urllib.request.Request(self.url + path, None, headers)  # noqa: S310 - http(s), see `of`
        # Without proxies: the environment's are for the world, and this is a server of one's own.
        opener = urllib.request.build_opener(
            _NoRedirect, urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=self.tls)
        )
        try:
            answer: HTTPResponse = opener.open(request)
        except urllib.error.HTTPError as refused:
            with refused:
                raise self._refusal(refused.code, refused.reason, refused.read(1 << 16)) from None
        except OSError as failure:
            reason = getattr(failure, "reason", failure)
            raise ConnectionLostError(f"{self.url} cannot be reached: {reason}") from None
        return answer

    def _refusal(self, status: int, reason: str, text: bytes) -> TurnoutError:
        """Return the error of an answer, with the sentence that the server gives."""
        try:
            problem = json.loads(text)
            detail = problem["detail"] or problem["title"]
        except (ValueError, TypeError, KeyError):
            detail = reason
        if status == 401:
            detail = f"{detail}: the variable {TOKEN} or --token-file has the token"
        if status in _WRONG:
            return ConfigError([Mistake(self.url, str(detail))], what="the server refuses the request")
        return RunError(f"{self.url} answers {status}: {detail}")


def _tls(ca: Path | None, certificate: Path | None, key: Path | None) -> ssl.SSLContext:
    """Return a context that trusts *ca*, with a certificate of its own.

    Raises:
        ConfigError: a file is missing or cannot be used.
    """
    if (certificate is None) != (key is None):
        raise ConfigError([Mistake("--tls-cert", "a certificate and its key (--tls-key) belong together")])
    try:
        context = ssl.create_default_context(cafile=ca)
        if certificate is not None:
            context.load_cert_chain(certificate, key)
    except OSError as failure:
        names = ", ".join(str(file) for file in (ca, certificate, key) if file is not None)
        raise ConfigError([Mistake("--tls-ca, --tls-cert", f"{names} cannot be used: {failure}")]) from None
    return context


def route_path(name: str, *more: str) -> str:
    """Return the path of a route.

    >>> route_path("a b", "pause")
    '/v1/routes/a%20b/pause'
    """
    return "/".join(["/v1/routes", quote(name, safe=""), *more])
