"""The reference of the command line as Markdown, made of the commands themselves.

``python -m tools.reference_cli`` prints it.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from turnout.cli.app import all_commands

_HEAD = """# Command line

Every command of `turnout`, as `--help` tells it. Exit codes are 0 for done, 1 where the work failed, 2 where the
request was wrong, 130 where Ctrl-C cut the work off, and 141 where nothing reads the output any more
(`turnout tail … | head`). What has no end of its own, as `run`, `serve`, `tail`, `tap` and `kv watch`, is done by
Ctrl-C: 0; with an end (`run --once`, `tail --count`, `deliver --drain`) it is not.

With `--json` standard output is for programs; what is for people goes to standard error."""

_NAMES = {int: "integer", float: "number", bool: "true or false", Path: "file"}


def reference() -> str:
    """Every command with its arguments and options."""
    listed = [line for name, command in all_commands().items() for line in _commands(command, f"turnout {name}")]
    return "\n".join([_HEAD, *listed]) + "\n"


def _commands(command: Any, path: str) -> Iterator[str]:
    """Return a command, or the commands of a group, by name, except hidden ones."""
    children = getattr(command, "commands", None)
    if children is None:
        yield from _command(command, path)
        return
    if path.count(" "):
        yield from ("", f"## {path}", "", _one_line(command.help))
        yield from _table(command)
    for name in sorted(children):
        if not children[name].hidden:
            yield from _commands(children[name], f"{path} {name}")


def _command(command: Any, path: str) -> Iterator[str]:
    yield from (
        "",
        f"{'#' * (path.count(' ') + 1)} {path}",
        "",
        f"`{_usage(command, path)}`",
        "",
        _one_line(command.help),
    )
    yield from _table(command)


def _usage(command: Any, path: str) -> str:
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    options = ["[OPTIONS]"] if any(p.param_type_name == "option" for p in command.params) else []
    return " ".join([path, *options, *map(_argument, arguments)])


def _argument(argument: Any) -> str:
    name = argument.metavar or argument.name.upper()
    name = f"{name}…" if argument.nargs == -1 else name
    return name if argument.required else f"[{name}]"


def _table(command: Any) -> Iterator[str]:
    shown = [parameter for parameter in command.params if parameter.name != "help" and not _hidden(parameter)]
    if shown:
        yield from ("", "| | type | if not given | |", "| --- | --- | --- | --- |")
    for parameter in shown:
        yield f"| {_names(parameter)} | {_type(parameter)} | {_default(parameter)} | {_one_line(_help(parameter))} |"


def _hidden(parameter: Any) -> bool:
    return bool(getattr(parameter, "hidden", False))


def _help(parameter: Any) -> str:
    return getattr(parameter, "help", None) or ""


def _names(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return f"`{_argument(parameter)}`"
    switches = ", ".join(f"`{name}`" for name in parameter.opts)
    off = ", ".join(f"`{name}`" for name in parameter.secondary_opts)
    return f"{switches} / {off}" if off else switches


def _type(parameter: Any) -> str:
    """Return the type of a parameter, from the annotation in its command's signature."""
    if getattr(parameter, "is_flag", False):
        return "flag"
    words = ", ".join(_words(parameter.type_descriptor.annotation))
    return f"{words}, several times" if getattr(parameter, "multiple", False) else words


def _words(annotation: Any) -> list[str]:
    if get_origin(annotation) is Literal:
        return [f"`{choice}`" for choice in get_args(annotation)]
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return [f"`{choice.value}`" for choice in annotation]
    return [_NAMES.get(annotation, "text")]


def _default(parameter: Any) -> str:
    value = getattr(parameter.default, "value", parameter.default)
    if parameter.required:
        return "required"
    if value is None or isinstance(value, bool) or value in ("", (), []):
        return ""
    return f"`{value}`"


def _one_line(text: str | None) -> str:
    """A help text's first paragraph on one line, with nothing in it that a table or Markdown would take for its own."""
    plain = " ".join(inspect.cleandoc(text or "").partition("\n\n")[0].split())
    return plain.replace("|", "\\|").replace("*", "\\*").replace("{{", "&#123;&#123;").replace("<", "&lt;")


if __name__ == "__main__":
    sys.stdout.write(reference())
