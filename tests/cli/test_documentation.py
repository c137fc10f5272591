"""The pages about tests and explanations: their files, sessions and programs, run as they stand."""

from __future__ import annotations

import re
import shlex

import pytest

from tests.documentation import blocks

SECONDS = re.compile(r"in \d+\.\d\d s")


PAGES = ["testing.md", "explain.md", "from-connect.md", "from-nats-mappings.md", "from-redpanda-connect.md"]


def files(page: str) -> dict[str, str]:
    """The files that a page shows: a block names its own in its first line."""
    named = {block.file_name: block.text for block in blocks(page) if block.file_name is not None}
    lines = "".join(block.text for block in blocks(page, "jsonl"))
    return {**named, "subscriptions.jsonl": lines} if lines else named


def commands(page: str) -> list[tuple[str, str]]:
    """What is typed, and what is said to be printed."""
    return [command for block in blocks(page, "console") for command in block.commands]


@pytest.mark.parametrize("page", PAGES)
def test_the_page_tells_what_happens(page, turnout, tmp_path) -> None:
    """Each command prints what the page says, and each program too."""
    for name, text in files(page).items():
        (tmp_path / name).write_text(text, encoding="utf-8")

    for command, expected in commands(page):
        words, _, given = command.partition(" <<< ")
        _, out, err = turnout(*shlex.split(words)[1:], stdin="".join(shlex.split(given)))
        assert SECONDS.sub("in … s", err + out) == SECONDS.sub("in … s", expected)
    for block in blocks(page, "python"):
        assert block.run({}) == block.told
