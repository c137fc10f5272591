"""``turnout subscriptions …``: the service, and commands on stored subscriptions."""

from collections.abc import Callable

import typer

from turnout.cli.serve import serve_subscriptions
from turnout.cli.subscriptions.changes import (
    create,
    delete,
    history,
    import_,
    label,
    pause,
    reseal,
    resume,
    secret_key,
    token,
    update,
)
from turnout.cli.subscriptions.queries import analyze, explain, export, match, read, search, stats

__all__ = ["subscriptions"]

subscriptions = typer.Typer(help="Store subscriptions, find them, and serve them over gRPC.", no_args_is_help=True)
subscriptions.command("serve")(serve_subscriptions)
subscriptions.command("import")(import_)
subscriptions.command("secret-key")(secret_key)
_COMMANDS: tuple[Callable[..., None], ...] = (
    *(token, create, read, update, pause, resume, label, delete, history),
    *(search, match, explain, stats, analyze, reseal, export),
)
for _command in _COMMANDS:
    subscriptions.command(_command.__name__)(_command)
