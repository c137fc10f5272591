"""Commands whose output is read no further (``turnout … | head``)."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from turnout.embedded import NatsServer
from turnout.nats.wire import Connection, Publisher, create_stream

Cut = Callable[..., tuple[int, str]]


@pytest.fixture
def cut(tmp_path: Path) -> Cut:
    """Run a command, close its output after some lines, and return its exit code and what it wrote on errors."""

    def run(*arguments: str, lines: int = 0) -> tuple[int, str]:
        command = [sys.executable, "-m", "turnout", *arguments]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path
        ) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            try:
                for _ in range(lines):
                    assert process.stdout.readline()
                process.stdout.close()
                errors = process.stderr.read()
                return process.wait(120), errors
            finally:
                process.kill()

    return run


@pytest.mark.parametrize("form", [[], ["--json"]], ids=["text", "json"])
def test_a_stream_that_is_followed(nats_server: NatsServer, cut: Cut, form: list[str]) -> None:
    """`turnout tail | head` ends as a program that SIGPIPE ends, without a word."""
    with Connection.open(nats_server.url) as connection:
        create_stream(connection, {"name": "CUT", "subjects": ["cut.>"], "storage": "memory"})
        publisher = Publisher(connection)
        for _ in range(5000):
            publisher.publish("cut.a", bytes(100))
        publisher.flush()
    try:
        ended = cut("tail", "cut.>", "--from", "all", "--server", nats_server.url, *form, lines=1)
    finally:
        with Connection.open(nats_server.url) as connection:
            connection.api("STREAM.DELETE.CUT")

    assert ended == (141, "")


@pytest.mark.parametrize("arguments", [["--help"], ["schema", "route"], ["map", "--help"]])
def test_commands_that_print_once(cut: Cut, arguments: list[str]) -> None:
    """Output that is not read is no failure of a command, also if it is written only at the end."""
    assert cut(*arguments) == (141, "")


def test_subscriptions_that_are_exported(cut: Cut, tmp_path: Path) -> None:
    """A store that is written to standard output in one piece at the end is no exception that Python prints."""
    store = f"sqlite:///{tmp_path / 's.db'}"
    created = [sys.executable, "-m", "turnout", "subscriptions", "create", "town:Oulu", "--to", "x", "--store", store]
    subprocess.run(created, check=True, capture_output=True)

    code, errors = cut("subscriptions", "export", "--store", store)
    assert code == 141
    assert "Exception" not in errors
