"""``turnout serve DIR|FILE…``: routes, subscriptions and HTTP in one process."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from turnout.cli.signals import stop_on_signals
from turnout.cli.stores import StoreTimeout, store_url_of
from turnout.errors import ConfigError, MissingExtraError, Mistake

_CONFIG = "turnout.yaml"


def register(app: typer.Typer) -> None:
    """Add the command."""

    @app.command("serve")
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
        log_format: Annotated[str | None, typer.Option(help="text or json.")] = None,
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
            log_format=log_format,
            log_level=log_level,
        )


def _serve(paths: list[Path], config_file: Path | None, timeout: float | None, **flags: object) -> None:
    missing = [path for path in paths if not path.exists()]
    if missing:
        raise ConfigError([Mistake(str(path), "there is no such folder or file") for path in missing])
    try:
        from turnout.console import add_console
        from turnout.server.config import ServerConfig
        from turnout.server.logs import set_up_logs
        from turnout.server.serving import RouteServer
        from turnout.startup import block_pandas_import
        from turnout.subscriptions.sealing import secret_keys
    except ModuleNotFoundError as absent:
        if (absent.name or "").split(".")[0] == "turnout":
            raise
        raise MissingExtraError("server", absent.name or "fastapi") from absent

    block_pandas_import()
    file = config_file or _config_in(paths[0])
    config = ServerConfig.load(file, os.environ, **flags)
    if config.store is not None:
        config = config.model_copy(update={"store": store_url_of(config.store, timeout)})
    secret_keys(os.environ)
    set_up_logs(config.log_format, config.log_level)
    server = RouteServer(config, paths, config_file=file, environment=os.environ, pages=add_console)
    with stop_on_signals() as stop, server:
        typer.echo(f"serving on {server.url}", err=True)
        server.wait(stop)


def _config_in(path: Path) -> Path | None:
    """Return the configuration in a folder of routes."""
    file = (path if path.is_dir() else path.parent) / _CONFIG
    return file if file.is_file() else None
