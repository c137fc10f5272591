"""A reader's terminals: a folder with the files of a page, its commands, and the programs that it leaves running."""

from __future__ import annotations

import io
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

from tests.cli.conftest import root_log_kept
from turnout.cli import main

__all__ = ["Terminal", "same"]

_DIFFERS = (
    (re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"), "ID"),
    (re.compile(r"\.[0-9a-f]{15,16}(?=:)"), ".IDENTITY"),
    (re.compile(r"(?<=:)[\w/+-]{22}(?=:\d{16}:)"), "TOPIC"),
    (re.compile(r"(?<=:)[0-9A-F]{8,16}\b"), "HASH"),  # a number in hex: one in sixteen begins with a zero, not written
    (re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d+)?(Z|\+00:00)?"), "TIME"),
    (re.compile(r"^\[\d+\](?= )", re.MULTILINE), "[N]"),  # of several routes that run at the same time
    (re.compile(r"^replay [0-9a-f]{12} of", re.MULTILINE), "replay ID of"),
    (re.compile(r"hidden:[0-9a-f]{8}"), "hidden:MARKER"),
    (re.compile(r"nats-server \d+\.\d+\.\d+"), "nats-server N"),
    (re.compile(r"in \d+\.\d\d s"), "in N s"),
    (re.compile(r"\([\d,]+ records/s\)"), "(N records/s)"),
    (re.compile(r"(seconds|records/s) +│ +[\d.,]+ │"), r"\1 │ N │"),
    (re.compile(r"old [\d.]+ µs, new [\d.]+ µs"), "old N µs, new N µs"),
    (re.compile(r"(\d+ behind +)?\d+ read, \d+ delivered"), "N read, N delivered"),
    (re.compile(r"[─┬┼┴]+| +(?=\n|│)|(?<=│) +"), ""),
)
"""Parts of an output that differ between runs or machines, and so the width of a table."""


def same(text: str) -> str:
    """Return a command's output without what differs."""
    for pattern, replacement in _DIFFERS:
        text = pattern.sub(replacement, text)
    return text.strip()


class Terminal:
    """A folder, and where the servers really are that the pages name.

    Args:
        folder: the reader's folder.
        addresses: an address as pages write it, and the one to use in its place.
        own_session: whether each ``turnout run`` is a process of its own, with a Spark session of its own.
    """

    def __init__(self, folder: Path, addresses: Mapping[str, str], *, own_session: bool = False) -> None:
        self.folder = folder
        self.addresses = addresses
        self.own_session = own_session
        self.variables = {**os.environ, "PYTHONUNBUFFERED": "1"}
        self.left_running: dict[subprocess.Popen[str], threading.Thread | None] = {}

    def here(self, text: str) -> str:
        for written, real in self.addresses.items():
            text = text.replace(written, real)
        return text

    def as_written(self, text: str) -> str:
        for written, real in self.addresses.items():
            text = text.replace(real, written)
        return text

    def write(self, name: str, text: str) -> None:
        """Save a block of the page as the file that it names."""
        (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
        (self.folder / name).write_text(self.here(text), encoding="utf-8")

    def type(self, command: str) -> str:
        """Return the output of a command, standard output and standard error.

        Those of turnout alone run in this process, so that all of them share a Spark session.
        """
        command = self.here(command)
        if command.startswith("turnout tail "):
            command += " --wait 60"  # a message that never comes would hang the test
        if self.own_session and command.startswith("turnout run "):
            return self.as_written(self._shell(command))
        if command.startswith("turnout ") and not re.search(r"[<>|]|\$\(", re.sub(r"'[^']*'", "", command)):
            return self.as_written(_run_here(shlex.split(command)[1:]))
        if command.startswith("turnout ") and "<<<" not in command and not re.search(r"[>|]", command):
            done = self._shell(f"printf '%s\\0' {command}")
            return self.as_written(_run_here(done.split("\0")[1:-1]))
        return self.as_written(self._shell(command))

    def _shell(self, command: str) -> str:
        done = subprocess.run(
            ["bash", "-c", self._as_programs(command)],
            cwd=self.folder,
            env=self.variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=300,
            check=False,
        )
        return done.stdout

    def _as_programs(self, command: str) -> str:
        python = shlex.quote(sys.executable)
        return f'python() {{ {python} "$@"; }}; turnout() {{ {python} -m turnout "$@"; }}; {command}'

    def leave_running(self, command: str, first_line: str) -> None:
        """Start a program that does not end, and wait for its first line."""
        if "turnout serve" in command:
            command += " --listen 127.0.0.1:8090"  # the default, which is taken perhaps
        process = subprocess.Popen(
            ["bash", "-c", self._as_programs(self.here(command))],
            cwd=self.folder,
            env=self.variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.left_running[process] = None
        assert process.stdout is not None
        seen = []
        for line in process.stdout:
            seen.append(line)
            if first_line.strip() in self.as_written(line):
                reader = threading.Thread(target=process.stdout.read, daemon=True)
                reader.start()
                self.left_running[process] = reader
                return
        raise AssertionError("".join(seen))

    def close(self) -> None:
        """End what was left running, with its children."""
        for process in self.left_running:
            os.killpg(process.pid, signal.SIGTERM)
        for process, reader in self.left_running.items():
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
            if reader is not None:
                reader.join(10)
            if process.stdout is not None:
                process.stdout.close()


def _run_here(words: list[str]) -> str:
    output = io.StringIO()
    before = sys.argv
    sys.argv = ["turnout", *words]
    try:
        with redirect_stdout(output), redirect_stderr(output), root_log_kept():
            main()
    except SystemExit:
        pass
    finally:
        sys.argv = before
    return output.getvalue()
