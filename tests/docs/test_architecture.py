"""The page about the architecture names modules that exist, by names that can be guessed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "src" / "turnout"
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
MODULES = (ROOT / "docs" / "modules.md").read_text(encoding="utf-8")
THINGS = re.findall(r"^\| ([^|]+) \| `([\w/]+\.py)` \|$", MODULES, re.MULTILINE)


def words(text: str) -> set[str]:
    """The words of a text in lower case, without endings."""
    return {re.sub(r"(ing|ed|es|s|e)$", "", word) for word in re.findall(r"[a-z]{2,}", text.lower().replace("_", " "))}


@pytest.mark.parametrize("path", sorted(set(re.findall(r"`([\w/]+\.py)`", PAGE + MODULES))))
def test_each_module_exists(path: str) -> None:
    """Below the package, wherever on the page it is named."""
    assert (SOURCES / path).is_file()


def test_a_record_passes_twelve_steps() -> None:
    """The path of a record is a list of twelve steps, each of which names a module."""
    section = PAGE.partition("## Path of a record")[2].partition("\n## ")[0]
    steps = re.split(r"^\d+\. ", section, flags=re.MULTILINE)[1:]

    assert len(steps) == 12
    assert all(re.search(r"`[\w/]+\.py`", step) for step in steps)


def test_things_are_found_by_the_name_of_their_file() -> None:
    """Of forty things and more, all but two at most have a word in common with the path of their module."""
    unlike = [thing for thing, path in THINGS if not words(thing) & words(path.removesuffix(".py"))]

    assert len(THINGS) >= 40
    assert len(unlike) <= 2, unlike
