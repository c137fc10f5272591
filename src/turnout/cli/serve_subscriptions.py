"""``turnout subscriptions serve``, and what every command that serves does."""

from __future__ import annotations

import gc
import os
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from turnout.cli.signals import stop_on_signals
from turnout.cli.stores import StoreTimeout, StoreUrl, opened_store, store_url_of

if TYPE_CHECKING:
    from turnout.rpc.server import RpcServer


def serve(
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
    log_level: Annotated[str | None, typer.Option(help="debug, info, warning or error. [LOG_LEVEL]")] = None,
) -> None:
    """Serve subscriptions over gRPC until SIGTERM or SIGINT; other settings are read from the environment."""
    from turnout.rpc.kiwi_tree import registries
    from turnout.rpc.server import subscriptions_server
    from turnout.rpc.settings import ServerSettings
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
    secret_keys(os.environ)
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
    with stop_on_signals() as stopped, server:
        typer.echo(f"serving on port {server.port}", err=True)
        stopped.wait()
