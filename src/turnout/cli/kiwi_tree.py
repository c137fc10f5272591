"""``turnout kiwi-tree serve``: the registry of patterns that the original's deployment has two of."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from turnout.cli.serve_subscriptions import serve_until_stopped


def register(app: typer.Typer) -> None:
    """Add the command."""
    commands = typer.Typer(help="Serve the kiwi-tree registry of patterns.", no_args_is_help=True)
    # A callback keeps "serve" a word of its own although it is the only command.
    commands.callback()(_group)
    commands.command("serve")(serve)
    app.add_typer(commands, name="kiwi-tree")


def _group() -> None:
    """Serve the kiwi-tree registry of patterns."""


def serve(
    file: Annotated[Path | None, typer.Option(help="SQLite file to keep the pairs in; memory if not given.")] = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on. [API_HOST, loopback]")] = None,
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="gRPC port. [API_PORT, 8080]")] = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Serve without TLS to other machines. [API_INSECURE]")
    ] = False,
    log_level: Annotated[str | None, typer.Option(help="debug, info, warning or error. [LOG_LEVEL]")] = None,
) -> None:
    """Serve the registry over gRPC until SIGTERM or SIGINT."""
    from turnout.rpc.server import kiwi_tree_server
    from turnout.rpc.settings import ServerSettings
    from turnout.subscriptions.kiwi_tree import KiwiTree

    settings = ServerSettings.from_environment(
        os.environ, host=host, port=port, insecure=insecure or None, log_level=log_level
    )
    registry = KiwiTree(file)
    try:
        serve_until_stopped(kiwi_tree_server(registry, settings))
    finally:
        registry.close()
