"""Files and targets named in CONTRIBUTING.md exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
_PATH = re.compile(r"`((?:[\w.]+/)+[\w.]*|[\w]+\.(?:py|md|yml|toml|txt))`")
_FOLDERS = ("", "src/turnout", "src/turnout/conditions", "src/turnout/codecs", "src/turnout/transforms", "docs")


def test_every_file_is_there() -> None:
    """Paths are relative to the root, or to the package of the section; capitals are placeholders."""
    named = {path for path in _PATH.findall(TEXT) if "NAME" not in path and path != "dist/"}
    lost = [path for path in sorted(named) if not any((ROOT / folder / path).exists() for folder in _FOLDERS)]

    assert len(named) > 15
    assert lost == []


def test_every_target_is_one_of_make() -> None:
    """Commands in the page are targets of the Makefile."""
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))

    assert set(re.findall(r"`make ([a-z-]+)", TEXT)) <= targets
    assert set(re.findall(r"^\$ make ([a-z-]+)", TEXT, re.MULTILINE)) <= targets


def test_what_can_be_added_has_a_section() -> None:
    """Each kind of addition has one, with files to touch."""
    sections = dict(re.findall(r"^## Adding an? ([^\n]+)\n(.*?)(?=^## |\Z)", TEXT, re.MULTILINE | re.DOTALL))

    added = {
        "transform",
        "leaf to conditions",
        "codec",
        "count",
        "endpoint format",
        "option to sinks",
        "store",
        "page",
        "benchmark",
    }
    assert set(sections) == added
    assert all(_PATH.search(body) for body in sections.values())
