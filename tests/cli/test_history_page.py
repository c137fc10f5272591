"""The page about history: its files, programs and sessions, run in their order against a server and Spark."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

from tests.documentation import Block, blocks
from turnout.embedded import NatsServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def in_order(page: str) -> list[Block]:
    languages = ("yaml", "python", "console")
    return sorted((block for language in languages for block in blocks(page, language)), key=lambda block: block.line)


def sessions(text: str) -> list[tuple[str, str]]:
    """Return the commands of a session, with the stated output."""
    parts = [part.partition("\n") for part in f"\n{text}".split("\n$ ")[1:]]
    return [(command, output.rstrip("\n")) for command, _, output in parts]


def test_the_page_tells_what_happens(spark: SparkSession, turnout: Any, tmp_path: Any) -> None:
    """Each command prints what the page says, and each program too."""
    with NatsServer() as server:
        names: dict[str, Any] = {"spark": spark}

        def here(text: str) -> str:
            return text.replace("nats://127.0.0.1:4222", server.url)

        for block in in_order("history.md"):
            text = here(block.text)
            if block.language == "yaml":
                (tmp_path / text.splitlines()[0].removeprefix("# ")).write_text(text, encoding="utf-8")
            elif block.language == "python":
                assert block.run(names, here) == block.told, block
            else:
                for command, expected in sessions(text):
                    _, out, err = turnout(*shlex.split(command)[1:])
                    assert (err + out).rstrip("\n") == expected, f"{block}: {command}"
