"""Group of commands whose modules are imported when their command is used."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup


class CommandEntry(NamedTuple):
    """Command as ``--help`` and completion list it, without an import of its module.

    Attributes:
        module: the module in `turnout.cli` that registers the command.
        help: the first paragraph of the command's own help.
    """

    module: str
    help: str


def lazy_group(entries: Mapping[str, CommandEntry]) -> type[TyperGroup]:
    """Return a class of groups with these commands."""

    class LazyGroup(TyperGroup):
        """The commands of a table; `commands` has placeholders until one is chosen."""

        def __init__(self, **attributes: Any) -> None:
            placeholders = {name: TyperCommand(name=name, help=entry.help) for name, entry in entries.items()}
            super().__init__(**{**attributes, "commands": placeholders})

        def resolve_command(self, ctx: Any, args: list[str]) -> Any:
            """Choose a command by the first argument, and import its module."""
            if args and args[0] in entries:
                self.commands[args[0]] = loaded_command(args[0], entries[args[0]])
            return super().resolve_command(ctx, args)

    return LazyGroup


def loaded_command(name: str, entry: CommandEntry) -> Any:
    """Import the module of a command, and return the command."""
    registered = typer.Typer()
    importlib.import_module(f"turnout.cli.{entry.module}").register(registered)
    return typer.main.get_group(registered).commands[name]
