"""The tutorial, from its first command to its last, on a server of its own."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from tests.docs.terminal import Terminal, same
from tests.documentation import blocks

from turnout.embedded import NatsServer

PAGE = "tutorial.md"
ADDRESS = "127.0.0.1:4222"
SERVER = "nats-server --jetstream --store_dir nats --addr 127.0.0.1 --port 4222"


@pytest.fixture
def terminal(tmp_path, monkeypatch) -> Iterator[Terminal]:
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith(("DB_", "TURNOUT_"))]:
        monkeypatch.delenv(name)
    with NatsServer(tmp_path / "nats") as server:
        monkeypatch.setenv("NATS_URL", server.url)
        yield Terminal(tmp_path, {ADDRESS: f"127.0.0.1:{server.port}"}, own_session=True)


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
                assert same(terminal.type(command)) == same(expected), command

    assert typed[0] == SERVER
    assert len(typed) == 13
