"""The tutorial, from its first command to its last, on a server of its own."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.documentation import blocks
from typer.testing import CliRunner

from turnout.cli.app import build_app
from turnout.embedded import NatsServer

PAGE = "tutorial.md"
ADDRESS = "127.0.0.1:4222"
SERVER = "nats-server --jetstream --store_dir nats --addr 127.0.0.1 --port 4222"

OTHERS = (
    (re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"), "ID"),
    (re.compile(r"(?<=:)[0-9A-F]{8,16}\b"), "HASH"),  # a number in hex: one in sixteen begins with a zero, not written
    (re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+"), "TIME"),
    (re.compile(r"nats-server \d+\.\d+\.\d+"), "nats-server N"),
    (re.compile(r"in \d+\.\d\d s"), "in N s"),
    (re.compile(r"\([\d,]+ records/s\)"), "(N records/s)"),
    (re.compile(r"(seconds|records/s) +│ +[\d.,]+ │"), r"\1 │ N │"),
    (re.compile(r"[─┬┼┴]+| +(?=\n|│)|(?<=│) +"), ""),
)
"""Parts of the output that differ between runs or machines, and so the width of a table."""


def shown(text: str) -> str:
    """A command's output without what differs."""
    for pattern, same in OTHERS:
        text = pattern.sub(same, text)
    return text.strip()


class Terminal:
    """A reader's second terminal: a folder, and the address at which the server really is."""

    def __init__(self, folder: Path, address: str) -> None:
        self.folder = folder
        self.address = address

    def write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text.replace(ADDRESS, self.address), encoding="utf-8")

    def type(self, command: str) -> str:
        """Return the output of a command, standard output and standard error."""
        program, *words = shlex.split(command)
        if (program, words[0]) == ("turnout", "run") or program == "python":
            start = [sys.executable, *(["-m", "turnout"] if program == "turnout" else []), *words]
            done = subprocess.run(start, cwd=self.folder, capture_output=True, text=True, timeout=300, check=False)
            printed = done.stderr + done.stdout
        else:
            if words[0] == "tail":
                words += ["--server", f"nats://{self.address}"]
            printed = CliRunner().invoke(build_app(), words).output
        return printed.replace(self.address, ADDRESS)


@pytest.fixture
def terminal(tmp_path, monkeypatch) -> Iterator[Terminal]:
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith(("DB_", "TURNOUT_"))]:
        monkeypatch.delenv(name)
    with NatsServer(tmp_path / "nats") as server:
        yield Terminal(tmp_path, f"127.0.0.1:{server.port}")


@pytest.mark.heavy
def test_every_command_prints_what_the_tutorial_says(terminal: Terminal) -> None:
    """Files are written and commands typed in the page's order; the server is the one that its first command starts."""
    typed = []
    for block in blocks(PAGE):
        if block.file_name is not None:
            terminal.write(block.file_name, block.text)
        for command, expected in block.commands if block.language == "console" else ():
            typed.append(command)
            if command != SERVER:
                assert shown(terminal.type(command)) == shown(expected), command

    assert typed[0] == SERVER
    assert len(typed) == 10
