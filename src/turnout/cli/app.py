"""The command line's front: which module serves which command, and how errors end it.

A command module offers ``register(app)`` and imports what it needs inside its functions, so that
``turnout map`` does not wait for Spark.
"""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from typing import Annotated, Final

import typer

from turnout.cli.exits import OUTPUT_CLOSED, WRONG_REQUEST, exit_code_of
from turnout.errors import TurnoutError, message_of
from turnout.terminal import printable

COMMANDS: Final = (
    "ack_format", "bench", "check", "demo", "diff", "explain", "feed", "import_", "kiwi_tree", "kv", "lineage", "map",
    "new", "redrive", "replay", "run", "schema", "server", "subscriptions", "tail", "tap", "test",
)  # fmt: skip
"""The modules of commands, in the order of ``--help``; the other modules are imported where they are needed."""


def build_app() -> typer.Typer:
    """The typer application with every command registered."""
    app = typer.Typer(
        name="turnout",
        help="Route messages of NATS JetStream and Kafka, on Spark and without it.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    for name in COMMANDS:
        importlib.import_module(f"turnout.cli.{name}").register(app)
    app.callback()(_root)
    return app


def _version(requested: bool) -> None:
    if requested:
        from turnout import __version__

        typer.echo(f"turnout {__version__}")
        raise typer.Exit


def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    """Route messages of NATS JetStream and Kafka, on Spark and without it."""


def _written() -> bool:
    """Flush standard output; return False if its reader is gone, which Python would report at exit."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        with Path(os.devnull).open("wb") as nothing:
            os.dup2(nothing.fileno(), sys.stdout.fileno())
        return False
    return True


def main() -> None:
    """Run the command line and exit with the code that `turnout.cli.exits` gives."""
    try:
        build_app()()
    except SystemExit as ended:
        # typer and rich end with 1, as if the work had failed; a shell expects what SIGPIPE would have given.
        if isinstance(ended.__context__, BrokenPipeError) or not _written():
            sys.exit(OUTPUT_CLOSED)
        raise
    except TurnoutError as failure:
        # Messages are composed without secrets; the mask is for those of other libraries that they quote.
        sys.stderr.write(f"turnout: {printable(message_of(failure))}\n")
        sys.exit(exit_code_of(failure))
    except FileNotFoundError as failure:
        sys.stderr.write(f"turnout: {printable(str(failure.filename))}: no such file\n")
        sys.exit(WRONG_REQUEST)
