"""Commands that run until they are stopped: ``serve``, ``deliver``, ``scheduled``, those that serve subscriptions."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import sys
import threading
import time
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from turnout.base.terminal import json_text, printable_lines
from turnout.cli.exits import FAILED, INTERRUPTED, read_again, stop_on_signals, tell
from turnout.cli.options import (
    AsJson,
    LogFormat,
    StoreTimeout,
    StoreUrl,
    loaded_route,
    log_as,
    opened_store,
    store_url_of,
)
from turnout.errors import ConfigError, MissingExtraError, Mistake

if TYPE_CHECKING:
    from turnout.delivery.dispatcher import Dispatcher
    from turnout.delivery.scheduled import DelayLeader, ScheduledCounts
    from turnout.rpc.server import RpcServer


_CONFIG = "turnout.yaml"


_log = logging.getLogger(__name__)


def serve(
    paths: Annotated[list[Path], typer.Argument(help="Folders of route files, and route files.")],
    listen: Annotated[str | None, typer.Option(help="Address of HTTP. [127.0.0.1:8090]")] = None,
    config: Annotated[Path | None, typer.Option(help="A turnout.yaml; the one in the first folder.")] = None,
    store: Annotated[str | None, typer.Option(help="Subscriptions to serve. [DB_URI, none]")] = None,
    timeout: StoreTimeout = None,
    state: Annotated[Path | None, typer.Option(help="The folder of what outlives the process.")] = None,
    tokens: Annotated[Path | None, typer.Option(help="A file of bearer tokens. [API_TOKENS_FILE]")] = None,
    route_variables: Annotated[
        str | None, typer.Option(help="NAME[,NAME]: variables that route texts from callers may name. [none]")
    ] = None,
    insecure: Annotated[bool, typer.Option(help="Serve other machines without TLS or tokens.")] = False,
    ha: Annotated[
        str | None,
        typer.Option(help="Lease of several servers, of which one leads: nats://…, postgres://… or kubernetes."),
    ] = None,
    ha_folder: Annotated[
        Path | None, typer.Option(help="Folder that all these servers reach, for all that outlives a leader.")
    ] = None,
    ha_url: Annotated[str | None, typer.Option(help="Where the others reach this server. [its address]")] = None,
    log_format: LogFormat = None,
    log_level: Annotated[str | None, typer.Option(help="debug, info, warning or error. [LOG_LEVEL]")] = None,
) -> None:
    """Run every route of a folder, follow its files, and answer REST, gRPC and Prometheus."""
    from turnout.routes.values import listed

    _serve(
        paths,
        config,
        timeout,
        listen=listen,
        store=store,
        state=state,
        tokens=tokens,
        route_variables=None if route_variables is None else listed(route_variables),
        insecure=insecure or None,
        ha={name: value for name, value in (("lease", ha), ("folder", ha_folder), ("url", ha_url)) if value},
        log_format=log_format,
        log_level=log_level,
    )


def _serve(
    paths: list[Path], config_file: Path | None, timeout: float | None, *, ha: dict[str, object], **flags: object
) -> None:
    missing = [path for path in paths if not path.exists()]
    if missing:
        raise ConfigError([Mistake(str(path), "there is no such folder or file") for path in missing])
    try:
        from turnout.base.startup import block_pandas_import
        from turnout.base.terminal import set_up_logs
        from turnout.console import add_console
        from turnout.loops import compile_in_background
        from turnout.server.config import ServerConfig
        from turnout.server.serving import RouteServer
        from turnout.subscriptions.sealing import secret_keys
    except ModuleNotFoundError as absent:
        if (absent.name or "").split(".")[0] == "turnout":
            raise
        raise MissingExtraError("server", absent.name or "fastapi") from absent

    block_pandas_import()
    file = config_file or _config_in(paths[0])
    config = ServerConfig.load(file, os.environ, ha=ha or None, **flags)
    if config.store is not None:
        config = config.model_copy(update={"store": store_url_of(config.store, timeout)})
    secret_keys(os.environ)
    set_up_logs(config.log_format, config.log_level)
    # Beside the start: until then, interpreted loops answer.
    compile_in_background()
    server = RouteServer(config, paths, config_file=file, environment=os.environ, pages=add_console)
    with stop_on_signals(on_hangup=read_again) as stop, server:
        tell(f"serving on {server.url}")
        server.wait(stop)


def _config_in(path: Path) -> Path | None:
    """Return the configuration in a folder of routes."""
    file = (path if path.is_dir() else path.parent) / _CONFIG
    return file if file.is_file() else None


def serve_subscriptions(
    store: StoreUrl = None,
    timeout: StoreTimeout = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on. [API_HOST, loopback]")] = None,
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="gRPC port. [API_PORT, 8080]")] = None,
    workers: Annotated[int | None, typer.Option(help="Threads that answer calls. [API_WORKERS, 16]")] = None,
    metrics_port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Port for Prometheus. [API_METRICS_PORT, none]")
    ] = None,
    tls_cert: Annotated[Path | None, typer.Option(help="Certificate chain. [API_TLS_CERT]")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="Private key. [API_TLS_KEY]")] = None,
    tls_client_ca: Annotated[
        Path | None, typer.Option(help="Authority of the clients' certificates. [API_TLS_CLIENT_CA]")
    ] = None,
    tokens: Annotated[Path | None, typer.Option(help="tokens.yaml, or a token a line. [API_TOKENS_FILE]")] = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Serve without TLS to other machines. [API_INSECURE]")
    ] = False,
    allow_destinations: Annotated[
        list[str] | None,
        typer.Option(help="Subjects that destinations may be; give it several times. [API_ALLOW_DESTINATIONS]"),
    ] = None,
    retention: Annotated[
        str | None, typer.Option(help="Retention of deleted subscriptions: 12h, 30d, 0, forever.")
    ] = None,
    log_format: LogFormat = None,
    log_level: Annotated[str | None, typer.Option(help="debug, info, warning or error. [LOG_LEVEL]")] = None,
) -> None:
    """Serve subscriptions over gRPC until SIGTERM or SIGINT; other settings are read from the environment."""
    from turnout.loops import compile_in_background
    from turnout.rpc.server import ServerSettings, registries, subscriptions_server
    from turnout.subscriptions.sealing import secret_keys
    from turnout.subscriptions.store_url import with_retention

    token_variables = {} if tokens is None else {"API_TOKENS_FILE": str(tokens)}
    settings = ServerSettings.from_environment(
        {**os.environ, **token_variables},
        host=host,
        port=port,
        workers=workers,
        metrics_port=metrics_port,
        tls_certificate=tls_cert,
        tls_key=tls_key,
        tls_client_ca=tls_client_ca,
        insecure=insecure or None,
        log_level=log_level,
        allow_destinations=tuple(allow_destinations) if allow_destinations else None,
    )
    log_as(log_format, settings.log_level)
    secret_keys(os.environ)
    # Beside the opening of the store: until then, calls are answered by interpreted loops.
    compile_in_background()
    url = store if retention is None else with_retention(store_url_of(store), retention)
    with ExitStack() as resources:
        # Before the store, which is made if it is not there.
        trees = registries(os.environ, resources)
        opened = resources.enter_context(opened_store(url, timeout, create=True))
        serve_until_stopped(subscriptions_server(opened, settings, kiwi_trees=trees))


def serve_until_stopped(server: RpcServer) -> None:
    """Run the server until SIGTERM or SIGINT, then let its calls end."""
    # The index is there to stay: looking through it for garbage would stop every call for as long as that takes.
    gc.collect()
    gc.freeze()
    # A thread that computes gives way to the next call after a millisecond; Python's usual is five.
    sys.setswitchinterval(0.001)
    with stop_on_signals(on_hangup=read_again) as stopped, server:
        tell(f"serving on port {server.port}")
        stopped.wait()


def _group() -> None:
    """Serve the kiwi-tree registry of patterns."""


def serve_kiwi_tree(
    file: Annotated[Path | None, typer.Option(help="SQLite file to keep the pairs in; memory if not given.")] = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on. [API_HOST, loopback]")] = None,
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="gRPC port. [API_PORT, 8080]")] = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Serve without TLS to other machines. [API_INSECURE]")
    ] = False,
    log_format: LogFormat = None,
    log_level: Annotated[str | None, typer.Option(help="debug, info, warning or error. [LOG_LEVEL]")] = None,
) -> None:
    """Serve the registry over gRPC until SIGTERM or SIGINT."""
    from turnout.rpc.server import ServerSettings, kiwi_tree_server
    from turnout.subscriptions.service import KiwiTree

    settings = ServerSettings.from_environment(
        os.environ, host=host, port=port, insecure=insecure or None, log_level=log_level
    )
    log_as(log_format, settings.log_level)
    registry = KiwiTree(file)
    try:
        serve_until_stopped(kiwi_tree_server(registry, settings))
    finally:
        registry.close()


kiwi_tree = typer.Typer(help="Serve the kiwi-tree registry of patterns.", no_args_is_help=True)
# A callback keeps "serve" a word of its own although it is the only command.
kiwi_tree.callback()(_group)
kiwi_tree.command("serve")(serve_kiwi_tree)


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
        typer.Option(metavar="DESTINATION", help="Send requests again to a disabled endpoint, and end."),
    ] = None,
    timeout: StoreTimeout = None,
    log_format: LogFormat = None,
    as_json: AsJson = False,
) -> None:
    """Post the messages for webhooks, signed and with retries, until interrupted."""
    from turnout.delivery import dispatcher

    in_json = log_as(log_format)
    loaded = loaded_route(route, timeout)

    if redrive or letter or enable:
        known = asyncio.run(dispatcher.enable(loaded, enable)) if enable else []
        count = asyncio.run(dispatcher.redrive(loaded, None if redrive else letter)) if redrive or letter else 0
        text = f"dead letters moved: {count:,}, endpoints enabled: {len(known):,} of {len(enable or ()):,}"
        typer.echo(json_text({"moved": count, "enabled": known}) if as_json else text)
        if len(known) < len(enable or ()) or (not redrive and count < len({*(letter or ())})):
            raise typer.Exit(FAILED)
        return
    progress = _DeliveryProgress(in_json=in_json)
    with stop_on_signals() as stop:
        counts = asyncio.run(
            dispatcher.deliver(loaded, stop, drain=drain, ready=progress.begin, watch=lambda: progress.look(stop))
        )
    counted = asdict(counts)
    listed = ", ".join(f"{name} {number:,}" for name, number in counted.items())
    typer.echo(json_text({"counts": counted}) if as_json else listed)
    if drain and stop.is_set():
        raise typer.Exit(INTERRUPTED)


class _DeliveryProgress:
    """Lines on standard error about a dispatcher: its start, changes of endpoints and counts, and its end.

    Args:
        in_json: write them as lines of the log, which are JSON.
    """

    _TERMINAL_SECONDS = 5.0
    _LOG_SECONDS = 60.0

    def __init__(self, *, in_json: bool = False) -> None:
        self._in_json = in_json
        self._every = self._TERMINAL_SECONDS if sys.stderr.isatty() else self._LOG_SECONDS
        self._next = 0.0
        self._shown = ""
        self._states: dict[str, str] = {}
        self._dispatcher: Dispatcher | None = None

    def begin(self, dispatcher: Dispatcher) -> None:
        """Name the queue."""
        self._dispatcher = dispatcher
        self._next = time.monotonic() + self._every
        self._print(f"delivering the messages of {dispatcher.name}; Ctrl-C lets requests under way end")

    def look(self, stop: threading.Event) -> None:
        """Say what has changed."""
        dispatcher = self._dispatcher
        if dispatcher is None:
            return
        for one in dispatcher.endpoints():
            state = f"{one.state} by {one.reason}" if one.state == "disabled" else one.state
            key = f"{one.destination}{f' of {one.subscription}' if one.subscription else ''}"
            if self._states.get(key, "closed") != state:
                answer = " ".join(filter(None, [f"{one.last_status or 'no response'}", one.last_error]))
                words = {"closed": "takes messages again", "open": f"fails, and gets only probes: {answer}"}
                self._print(f"{key} {words.get(state, f'is {state}')}")
            self._states[key] = state
        if stop.is_set():
            count = dispatcher.under_way
            self._print(f"stopping; requests under way: {count:,}")
        elif time.monotonic() >= self._next:
            self._next = time.monotonic() + self._every
            counts, backlog = dispatcher.counts, dispatcher.backlog
            text = (
                f"{counts.delivered:,} delivered, {counts.failed:,} failed, {counts.not_sent:,} not sent,"
                f" {counts.retried:,} retried, {counts.dead:,} dead letters"
                f"{'' if backlog is None else f'; {backlog.waiting:,} wait'}"
            )
            if text != self._shown:
                self._shown = text
                self._print(text)

    def _print(self, text: str) -> None:
        if self._in_json:
            _log.info("%s", text)
            return
        typer.echo(printable_lines([text]), err=True)


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
    typer.echo(json_text({**asdict(counts), "late": counts.late.as_dict()}) if as_json else _line(counts))


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
