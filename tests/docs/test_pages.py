"""Examples in the pages that need neither Spark nor a server are run and compared with the printed output."""

from __future__ import annotations

import json
import re
import shlex
import tomllib

import pytest

from tests.documentation import DOCS, blocks
from turnout.conditions import evaluate, format_condition, parse
from turnout.routes import Route
from turnout.subscriptions import Subscription
from turnout.subscriptions.validation import check

_ROUTE = re.compile(r"^(# .*\n)?name: ", re.MULTILINE)
PAGES = sorted(path.relative_to(DOCS).as_posix() for path in (*DOCS.glob("*.md"), *DOCS.glob("cookbook/*.md")))


def rows() -> list[list[str]]:
    """The table of patterns: kind, pattern, condition, what is wanted, what is not."""
    table = (DOCS / "from-eventbridge.md").read_text(encoding="utf-8").partition("## Patterns")[2]
    lines = [line.strip("| ").split(" | ") for line in table.splitlines() if line.startswith("|")][2:]
    return [[cell.strip("`") for cell in line] for line in lines]


@pytest.mark.parametrize(("kind", "pattern", "text", "matching", "other"), rows())
def test_a_pattern_and_its_condition(kind: str, pattern: str, text: str, matching: str, other: str) -> None:
    """A subscription may have the condition, which is true of one message and false of the other."""
    condition = parse(text)
    check(Subscription(["deliver.a"], condition))

    assert isinstance(json.loads(pattern), dict)
    assert format_condition(condition) == text
    assert evaluate(condition, json.loads(matching))
    assert not evaluate(condition, json.loads(other))


def test_there_are_patterns() -> None:
    """All kinds that EventBridge has, by the words of its patterns."""
    words = {word for row in rows() for word in re.findall(r'"(\$or|[a-z-]+)":', row[1])}

    assert words - {"s", "t"} == {
        "$or", "anything-but", "cidr", "equals-ignore-case", "exists", "numeric", "prefix", "suffix", "wildcard"
    }  # fmt: skip


@pytest.mark.parametrize("page", PAGES)
def test_every_route_is_a_route(page: str, tmp_path) -> None:
    """A block of YAML that begins with a name is a route without mistakes; files that the page shows lie beside it."""
    routes = [block for block in blocks(page, "yaml") if _ROUTE.match(block.text)]
    for block in blocks(page):
        if block.file_name is not None:
            (tmp_path / block.file_name).parent.mkdir(exist_ok=True)
            (tmp_path / block.file_name).write_text(block.text, encoding="utf-8")
    for block in routes:
        file = tmp_path / "page.yaml"
        file.write_text(block.text, encoding="utf-8")
        assert Route.load(file).name


def test_the_first_example() -> None:
    """The comment after each print is its output."""
    (example,) = blocks("index.md", "python")

    assert example.run({}) == example.told


def test_every_block_of_python_is_python() -> None:
    """Blocks that cannot run here, because they need Spark, a cluster or a reader's file, at least compile."""
    for page in PAGES:
        for block in blocks(page, "python"):
            block.compiled(block.text)


def test_the_sessions_are_of_commands_that_there_are() -> None:
    """A command that a page types is one of turnout's, with options that it has."""
    reference = (DOCS / "reference/cli.md").read_text(encoding="utf-8")
    typed = [command for page in PAGES for block in blocks(page, "console") for command, _ in block.commands]
    ours = [shlex.split(command.partition(" <<< ")[0])[1:] for command in typed if command.startswith("turnout ")]

    assert len(ours) > 10
    for words in ours:
        path = " ".join(words[:2]) if f"### turnout {' '.join(words[:2])}\n" in reference else words[0]
        section = reference.partition(f"# turnout {path}\n")[2].partition("\n## ")[0]
        assert section, words
        for option in (word.partition("=")[0] for word in words if word.startswith("--")):
            assert f"`{option}`" in section, (words, option)


def test_every_concept_has_a_picture_that_can_be_heard() -> None:
    """A section has one diagram, whose title and description stand in the picture for those who do not see it."""
    sections = re.split(r"^## ", (DOCS / "concepts.md").read_text(encoding="utf-8"), flags=re.MULTILINE)
    diagrams = blocks("concepts.md", "mermaid")

    assert [section.count("```mermaid") for section in sections] == [1] * len(sections)
    assert len(sections) == 12
    for diagram in diagrams:
        assert re.search(r"^  accTitle: \S.*\n  accDescr: .{40,}$", diagram.text, re.MULTILINE), diagram


@pytest.mark.parametrize("page", ["../README.md", "index.md", "tutorial.md"])
def test_installing_before_and_after_a_release(page: str) -> None:
    """Each entry page describes both, in the same way."""
    text = (DOCS / page).read_text(encoding="utf-8")

    assert re.search(r'pip install "turnout\[[a-z,]+\]"', text)
    assert re.search(r'pip install "turnout\[[a-z,]+\] @ file://', text)
    assert "nce there is a release on a package index" in text
    assert "`make wheel` builds `dist/turnout-*.whl`" in text


def test_every_extra_is_in_the_readme() -> None:
    """Extras for developers are left out."""
    project = tomllib.loads((DOCS.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    table = (
        (DOCS.parent / "README.md").read_text(encoding="utf-8").partition("| for | install |")[2].partition("\n\n")[0]
    )

    assert set(re.findall(r"`turnout\[([a-z]+)\]`", table)) == project["optional-dependencies"].keys() - {"docs", "dev"}
