"""The command line's front: which module serves which command, and how errors end it.

A module is imported when one of its commands is used, and has its imports inside
its functions, so that ``turnout map`` does not wait for Spark.
"""

from __future__ import annotations

import gc
import importlib
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup

from turnout.base.terminal import printable
from turnout.cli.exits import INTERRUPTED, OUTPUT_CLOSED, WRONG_REQUEST, exit_code_of
from turnout.errors import TurnoutError, message_of


class CommandEntry(NamedTuple):
    """Command as ``--help`` and completion list it, without an import of its module.

    Attributes:
        target: the command below `turnout.cli`: a function, or the `Typer` of a group.
        help: the first paragraph of the command's own help.
    """

    target: str
    help: str


COMMANDS: Final[Mapping[str, CommandEntry]] = {
    name: CommandEntry(target, help_)
    for name, target, help_ in (
        ("ack-format", "jetstream.ack_format",
         "Explain JSAck reply subjects of version 1 and 2 (ADR-15); 2 is the exit code for other subjects."),
        ("bench", "bench.bench", "Measure turnout on this machine, and a baseline in the same minutes."),
        ("check", "check.check", "Read a route and report all its mistakes, without running it."),
        ("ctl", "ctl.ctl", "List, pause and watch the routes of a running server."),
        ("deliver", "serve.deliver", "Post the messages for webhooks, signed and with retries, until interrupted."),
        ("demo", "demo.demo",
         "Run the main job on real servers and real data: 336,776 flights past 10,000 subscriptions."),
        ("diff", "history.diff.diff",
         "Compare two versions of a route over the same stored records; nothing is published."),
        ("explain", "explain.explain",
         "Show one record's way through a route: stages, mapping, subscriptions, deliveries."),
        ("feed", "history.messages.feed",
         "Read the messages of a subscription; nothing is delivered, and no copy of them is stored."),
        ("import", "import_.import_", "Make a route, or subscriptions, of what you have already."),
        ("kiwi-tree", "serve.kiwi_tree", "Serve the kiwi-tree registry of patterns."),
        ("kv", "jetstream.kv", "Read, write and watch key-value buckets."),
        ("lineage", "history.messages.lineage",
         "Print the record, subscription and route from which a delivered message was made."),
        ("map", "map.map_", "Show the subjects that a subject is mapped to, and the reasons."),
        ("new", "new.new", "Write NAME.yaml with a word to each part, NAME.test.yaml and compose.yaml."),
        ("redrive", "history.replay.redrive", "Deliver dead letters that the route can take by now."),
        ("replay", "history.replay.replay", "Deliver a route's history again; continue an interrupted replay."),
        ("run", "run.run", "Run a route against its servers, continuing from its checkpoint."),
        ("schema", "check.schema",
         "Print the JSON Schema of route files, of their tests or of a server's settings, with installed plug-ins."),
        ("serve", "serve.serve",
         "Run every route of a folder, follow its files, and answer REST, gRPC and Prometheus."),
        ("subscriptions", "subscriptions.subscriptions", "Store subscriptions, find them, and serve them over gRPC."),
        ("tail", "jetstream.tail",
         "Follow a stream with an ordered consumer: every message once, in order, over faults too."),
        ("tap", "history.messages.tap",
         "Watch records before and after a stage; nothing is delivered, and a run is not disturbed."),
        ("test", "history.test.run_tests", "Run the tests of routes, and list the parts that they do not reach."),
        ("warm-up", "run.warm_up", "Compile turnout's loops once, so that no later start waits for it."),
    )
}  # fmt: skip
"""The commands by name: the function or group that it is, and its help's first paragraph, as ``--help`` lists them."""

_OBJECTS_PER_COLLECTION: Final = 50_000


def build_app() -> typer.Typer:
    """Return the typer application; a command's module is imported when the command is used."""
    app = typer.Typer(
        name="turnout",
        cls=_CommandGroup,
        help="Route messages of NATS JetStream and Kafka, on Spark and without it.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_root)
    return app


def all_commands() -> dict[str, Any]:
    """Import every command's module; return the commands by name, groups with their own."""
    return {name: loaded_command(name, entry) for name, entry in COMMANDS.items()}


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
    """Flush standard output; return False if its reader has ended, which Python would report at exit."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        with Path(os.devnull).open("wb") as null_file:
            os.dup2(null_file.fileno(), sys.stdout.fileno())
        return False
    return True


def main() -> None:
    """Run the command line and exit with the code that `turnout.cli.exits` gives."""
    # NumPy's BLAS, which no command uses, would start a thread per core on import and spin: 0.1 s of processor time.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # A collection for each 700 objects, while modules load, costs 0.05 s and finds nothing.
    gc.set_threshold(_OBJECTS_PER_COLLECTION)
    try:
        build_app()()
    except SystemExit as ended:
        # typer and rich end with 1, as if the work had failed; a shell expects what SIGPIPE would have given.
        if isinstance(ended.__context__, BrokenPipeError) or not _written():
            sys.exit(OUTPUT_CLOSED)
        if _interrupted(ended):
            sys.exit(INTERRUPTED)
        raise
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except TurnoutError as failure:
        # Messages are composed without secrets; the mask is for those of other libraries that they quote.
        sys.stderr.write(f"turnout: {printable(message_of(failure))}\n")
        sys.exit(exit_code_of(failure))
    except (FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError) as failure:
        reason = (
            "no such file" if isinstance(failure, FileNotFoundError) else (failure.strerror or str(failure)).lower()
        )
        sys.stderr.write(f"turnout: {printable(str(failure.filename))}: {reason}\n")
        sys.exit(WRONG_REQUEST)
    finally:
        # The process ends: the interpreter need not look for cycles among the objects of all modules, three times.
        gc.freeze()


def _interrupted(ended: SystemExit) -> bool:
    """Return True if Ctrl-C ended the command; older typer gives it the code of failed work."""
    cause: BaseException | None = ended.__context__
    while cause is not None and not isinstance(cause, KeyboardInterrupt):
        cause = cause.__cause__ or cause.__context__
    return cause is not None


class _CommandGroup(TyperGroup):
    """The commands of `COMMANDS`; `commands` has placeholders until one is chosen."""

    def __init__(self, **attributes: Any) -> None:
        placeholders = {name: TyperCommand(name=name, help=entry.help) for name, entry in COMMANDS.items()}
        super().__init__(**{**attributes, "commands": placeholders})

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Choose a command by the first argument, and import its module."""
        if args and args[0] in COMMANDS:
            self.commands[args[0]] = loaded_command(args[0], COMMANDS[args[0]])
        return super().resolve_command(ctx, args)


def loaded_command(name: str, entry: CommandEntry) -> Any:
    """Import the module of a command, and return the command."""
    module, _, attribute = entry.target.rpartition(".")
    command = getattr(importlib.import_module(f"turnout.cli.{module}"), attribute)
    registered = typer.Typer()
    if isinstance(command, typer.Typer):
        registered.add_typer(command, name=name)
    else:
        registered.command(name)(command)
    return typer.main.get_group(registered).commands[name]
