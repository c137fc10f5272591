"""The examples of docs/subscriptions.md do what the page says."""

from __future__ import annotations

import shlex

import pytest
from typer.testing import CliRunner

from tests.documentation import blocks
from turnout.cli.app import build_app

PAGE = "subscriptions.md"
PAGES = (PAGE, "stores.md", "subscriptions-service.md", "analysis.md")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DB_URI", raising=False)


@pytest.mark.parametrize("example", [block for page in PAGES for block in blocks(page, "python")], ids=str)
def test_example(example):
    """The comment after each print is its output."""
    assert example.told
    assert example.run({}) == example.told


def test_session():
    """The terminal session prints what the page shows, but for the id, which is another one each time."""
    example = blocks(PAGE, "console")[0]
    shown = [part.partition("\n") for part in example.text.split("$ ")[1:]]
    id_on_page = shown[0][2].strip()
    id_here = id_on_page
    for command, _, printed in shown:
        words = shlex.split(command.replace(id_on_page, id_here))
        done = CliRunner().invoke(build_app(), words[1:])
        if words[2] == "create":
            id_here = done.stdout.strip()

        assert done.stdout.strip() == printed.strip().replace(id_on_page, id_here)
    assert len(shown) == 3


def test_analysis(tmp_path):
    """The subscriptions of the page are analysed as it says."""
    (lines,) = blocks("analysis.md", "jsonl")
    (tmp_path / "airport.jsonl").write_text(lines.text, encoding="utf-8")
    for part in blocks("analysis.md", "console")[0].text.split("$ ")[1:]:
        command, _, printed = part.partition("\n")

        assert CliRunner().invoke(build_app(), shlex.split(command)[1:]).output == printed
