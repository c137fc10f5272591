"""The command line's front: which module serves which command, and how errors end it.

A module is imported when one of its commands is used, and has its imports inside
its functions, so that ``turnout map`` does not wait for Spark.
"""

from __future__ import annotations

import gc
import importlib
import logging
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup

from turnout.cli.exits import (
    INTERRUPTED,
    OUTPUT_CLOSED,
    WRONG_REQUEST,
    exit_code_of,
    prepare_streams,
    similar_file,
    tell,
)
from turnout.errors import TurnoutError, chain_of, message_of

if TYPE_CHECKING:
    from typer._click import Command, Context


class CommandEntry(NamedTuple):
    """Command as ``--help`` and completion list it, without an import of its module.

    Attributes:
        group: heading under which it is listed.
        target: the command below `turnout.cli`: a function, or the `Typer` of a group.
        help: the first paragraph of the command's own help.
    """

    group: str
    target: str
    help: str


_START: Final = "Start"
_RUN: Final = "Run"
_INVESTIGATE: Final = "Investigate"
_SUBSCRIPTIONS: Final = "Subscriptions"
_NATS_TOOLS: Final = "NATS tools"
GROUPS: Final = (_START, _RUN, _INVESTIGATE, _SUBSCRIPTIONS, _NATS_TOOLS)
"""Headings of ``--help``, in this order."""


COMMANDS: Final[Mapping[str, CommandEntry]] = {
    name: CommandEntry(group, target, help_)
    for name, group, target, help_ in (
        ("ack-format", _NATS_TOOLS, "jetstream.ack_format",
         "Explain JSAck reply subjects of version 1 and 2 (ADR-15); 2 is the exit code for other subjects."),
        ("bench", _RUN, "bench.bench", "Measure turnout on this machine, and a baseline in the same minutes."),
        ("check", _START, "check.check", "Read routes and report all their mistakes, without running them."),
        ("ctl", _RUN, "ctl.ctl", "List, watch and control the routes of a running server."),
        ("deliver", _RUN, "serve.deliver",
         "Post the messages for webhooks, signed and with retries, until interrupted."),
        ("demo", _START, "demo.demo",
         "Run the main job on real servers and real data: 336,776 flights past 10,000 subscriptions."),
        ("diff", _INVESTIGATE, "history.diff.diff",
         "Compare two versions of a route over the same stored records; nothing is published."),
        ("explain", _INVESTIGATE, "history.messages.explain",
         "Show one record's way through a route: stages, mapping, subscriptions, deliveries."),
        ("feed", _SUBSCRIPTIONS, "history.messages.feed",
         "Read the messages of a subscription; nothing is delivered, and no copy of them is stored."),
        ("import", _START, "import_.import_", "Make a route, or subscriptions, of what you have already."),
        ("kiwi-tree", _SUBSCRIPTIONS, "serve.kiwi_tree", "Serve the kiwi-tree registry of patterns."),
        ("kv", _NATS_TOOLS, "jetstream.kv", "Read, write and watch key-value buckets."),
        ("lineage", _INVESTIGATE, "history.messages.lineage",
         "Print the record, subscription and route from which a delivered message was made."),
        ("map", _INVESTIGATE, "map.map_", "Show the subjects that a subject is mapped to, and the reasons."),
        ("new", _START, "new.new", "Write NAME.yaml with a word to each part, NAME.test.yaml and compose.yaml."),
        ("redrive", _INVESTIGATE, "history.replay.redrive", "Deliver dead letters that the route can take by now."),
        ("replay", _INVESTIGATE, "history.replay.replay",
         "Deliver a route's history again; continue an interrupted replay."),
        ("run", _RUN, "run.run", "Run a route against its servers, continuing from its checkpoint."),
        ("scheduled", _RUN, "serve.scheduled", "Publish, count and cancel messages that are delivered later."),
        ("schema", _START, "check.schema",
         "Print the JSON Schema of route files, of their tests or of a server's settings, with installed plug-ins."),
        ("serve", _RUN, "serve.serve",
         "Run every route of a folder, follow its files, and answer REST, gRPC and Prometheus."),
        ("subscriptions", _SUBSCRIPTIONS, "subscriptions.subscriptions",
         "Store subscriptions, find them, and serve them over gRPC."),
        ("tail", _NATS_TOOLS, "jetstream.tail",
         "Follow a stream with an ordered consumer: every message once, in order, over faults too."),
        ("tap", _INVESTIGATE, "history.messages.tap",
         "Watch records before and after a stage; nothing is delivered, and a run is not disturbed."),
        ("test", _START, "history.test.run_tests",
         "Run the tests of routes, and list the parts that they do not reach."),
        ("warm-up", _RUN, "run.warm_up", "Compile turnout's loops once, so that no later start waits for it."),
    )
}  # fmt: skip
"""The commands by name: heading, the function or group that it is, and its help's first paragraph, as ``--help`` lists
them."""

RENAMED: Final[Mapping[str, Mapping[str, str]]] = {
    "ctl": {"--url": "--server", "--ca": "--tls-ca"},
    "kv": {"--creds": "--credentials"},
    "tail": {"--creds": "--credentials", "--count": "--limit"},
}
"""Former names of options by command: they are understood, with a note, and not listed."""


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


def all_commands() -> dict[str, Command]:
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
    prepare_streams()
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
        tell(message_of(failure), level=logging.ERROR, label="turnout: ")
        sys.exit(exit_code_of(failure))
    except (FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError) as failure:
        reason = (failure.strerror or str(failure)).lower()
        if isinstance(failure, FileNotFoundError):
            reason = f"no such file{similar_file(Path(failure.filename)) if failure.filename else ''}"
        tell(f"{failure.filename}: {reason}", level=logging.ERROR, label="turnout: ")
        sys.exit(WRONG_REQUEST)
    finally:
        # The process ends: the interpreter need not look for cycles among the objects of all modules, three times.
        gc.freeze()


def _interrupted(ended: SystemExit) -> bool:
    """Return True if Ctrl-C ended the command; older typer gives it the code of failed work."""
    return any(isinstance(cause, KeyboardInterrupt) for cause in chain_of(ended.__context__, contexts=True))


class _CommandGroup(TyperGroup):
    """The commands of `COMMANDS`; `commands` has placeholders until one is chosen."""

    def __init__(self, **attributes: Any) -> None:
        placeholders = {
            name: TyperCommand(name=name, help=entry.help, rich_help_panel=entry.group)
            for name, entry in COMMANDS.items()
        }
        super().__init__(**{**attributes, "commands": placeholders})

    def list_commands(self, ctx: object) -> list[str]:  # noqa: ARG002 - click's signature
        """Return the names by group."""
        return sorted(COMMANDS, key=lambda name: GROUPS.index(COMMANDS[name].group))

    def resolve_command(self, ctx: Context, args: list[str]) -> tuple[str | None, Command | None, list[str]]:
        """Choose a command by the first argument, and import its module."""
        if args and args[0] in COMMANDS:
            self.commands[args[0]] = loaded_command(args[0], COMMANDS[args[0]])
            args = [args[0], *_with_present_names(args[1:], RENAMED.get(args[0], {}))]
        return super().resolve_command(ctx, args)


def _with_present_names(args: list[str], renamed: Mapping[str, str]) -> Iterator[str]:
    """Yield the arguments, with the present names of options that were renamed, and a note for each."""
    options = True
    for arg in args:
        options = options and arg != "--"
        former, equals, value = arg.partition("=")
        present = renamed.get(former) if options else None
        if present is not None:
            tell(f"{former} is called {present} now", label="note: ")
        yield arg if present is None else f"{present}{equals}{value}"


def loaded_command(name: str, entry: CommandEntry) -> Command:
    """Import the module of a command, and return the command."""
    module, _, attribute = entry.target.rpartition(".")
    command = getattr(importlib.import_module(f"turnout.cli.{module}"), attribute)
    registered = typer.Typer()
    if isinstance(command, typer.Typer):
        registered.add_typer(command, name=name)
    else:
        registered.command(name)(command)
    return typer.main.get_group(registered).commands[name]
