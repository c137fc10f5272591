"""Runs the examples of a page in docs/: Python blocks line for line, and terminal sessions."""

from __future__ import annotations

import ast
import asyncio
import inspect
import io
import re
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from types import CodeType
from typing import Any

DOCS = Path(__file__).parents[1] / "docs"

_FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_NAME = re.compile(r"(?:#|//) (\S+\.\w+)\n")
_TOLD = re.compile(r"\bprint\(.*  # (.*)$")


@dataclass(frozen=True)
class Block:
    """A fenced block.

    Attributes:
        page: the page's file name.
        line: the number of its first line, so that a failure points into the page.
        language: what stands behind the fence.
        text: what is inside.
    """

    page: str
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def told(self) -> list[str]:
        """Return the output that the page states: the comment after each print."""
        return [match[1] for match in map(_TOLD.search, self.text.splitlines()) if match]

    def run(self, names: dict[str, Any], edit: Callable[[str], str] = lambda text: text) -> list[str]:
        """Run it as a program that may ``await``; the lines that it prints.

        Args:
            names: what it finds defined, and where it leaves what it defines.
            edit: what to change first, as the address of a server.
        """
        code = self.compiled(edit(self.text))
        printed = io.StringIO()
        with redirect_stdout(printed):
            outcome = eval(code, names)
            if inspect.iscoroutine(outcome):
                asyncio.run(asyncio.wait_for(outcome, 30))
        return printed.getvalue().splitlines()

    def compiled(self, text: str) -> CodeType:
        """A text in the block's place, with empty lines in front: a traceback has the page's own line numbers."""
        source = "\n" * (self.line - 1) + text
        return compile(source, str(DOCS / self.page), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)

    @property
    def file_name(self) -> str | None:
        """The name of the file that the block is, if its first line says one: ``# orders.yaml``."""
        named = _NAME.match(self.text)
        return named[1] if named else None

    @property
    def commands(self) -> list[tuple[str, str]]:
        """Return the commands of a terminal session, with the stated output."""
        parts = [part.partition("\n") for part in re.split(r"^\$ ", self.text, flags=re.MULTILINE) if part]
        return [(command, output) for command, _, output in parts]


def blocks(page: str, language: str | None = None) -> list[Block]:
    """The page's blocks of a language, or of all of them, in order."""
    text = (DOCS / page).read_text(encoding="utf-8")
    return [
        Block(page, text.count("\n", 0, fence.start(2)) + 1, fence[1], fence[2])
        for fence in _FENCED.finditer(text)
        if language in (None, fence[1])
    ]
