"""Output of commands: encodings that lack a letter, colours on a terminal, and notes on standard error."""

from __future__ import annotations

import codecs
import io
import logging
import os
import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final, TextIO

import typer

from turnout.base.terminal import did_you_mean, printable, printable_lines

GOOD: Final = "green"
BAD: Final = "red"
DOUBTFUL: Final = "yellow"

Colours = Mapping[str, str]
"""Colours by the pattern of what is coloured in a line; the first that is found there wins."""

_ESCAPES: Final = "turnout.escapes"


def prepare_streams() -> None:
    r"""Have letters that the encoding of standard output or error lacks written as ``\uXXXX``, which JSON has, too."""
    codecs.register_error(_ESCAPES, _escaped)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and codecs.lookup(stream.encoding).name != "utf-8":
            stream.reconfigure(errors=_ESCAPES)


def _escaped(failure: UnicodeError) -> tuple[str, int]:
    if not isinstance(failure, UnicodeEncodeError):
        raise failure
    units = failure.object[failure.start : failure.end].encode("utf-16-be", errors="surrogatepass")
    codes = (int.from_bytes(units[at : at + 2]) for at in range(0, len(units), 2))
    return "".join(f"\\u{code:04x}" for code in codes), failure.end


def has_colours(stream: TextIO) -> bool:
    """Return True for a terminal, unless NO_COLOR is set or the terminal has no colours."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def echo_lines(lines: Iterable[str], colours: Colours | None = None, *, err: bool = False) -> None:
    """Print lines without what controls a terminal, on a terminal with the parts coloured that patterns name."""
    stream = sys.stderr if err else sys.stdout
    if not colours or not has_colours(stream):
        typer.echo(printable_lines(lines), err=err)
        return
    pattern = re.compile("|".join(f"({part})" for part in colours))
    names = list(colours.values())

    def styled(found: re.Match[str]) -> str:
        assert found.lastindex is not None
        return typer.style(found[0], fg=names[found.lastindex - 1], bold=names[found.lastindex - 1] == BAD)

    for line in lines:
        typer.echo(pattern.sub(styled, printable_lines([line]), count=1), err=err)


def tell(text: str, *, level: int = logging.INFO, label: str = "") -> None:
    """Print a sentence about the command itself on standard error; a line of the log if that is JSON.

    Args:
        text: the sentence.
        level: its level in the log.
        label: the beginning of the printed line, as ``note: ``.
    """
    logs = sys.modules.get("turnout.base.terminal")
    if logs is not None and logs.logs_json():
        logging.getLogger("turnout").log(level, "%s", text)
    else:
        sys.stderr.write(f"{label}{printable(text)}\n")
        sys.stderr.flush()


def similar_file(path: Path) -> str:
    """Return ``; did you mean "x"?`` for a path that does not exist, if its folder has a file of a similar name."""
    try:
        guess = did_you_mean(path.name, (entry.name for entry in path.parent.iterdir()))
    except OSError:
        return ""
    # As it is typed: with its folder.
    return guess.replace('"', f'"{path.parent}/', 1) if guess and path.parent != Path() else guess
