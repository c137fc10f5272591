"""The plan of a release follows the changelog and the tags, and changes nothing."""

from __future__ import annotations

from tools.release import ROOT, plan, read_changelog

CHANGELOG = """# Changelog

## [Unreleased]

### Added

- A thing.

### Fixed

- **Breaking**: another.

## [0.1.0] - 2026-11-23

### Added

- Everything.
"""


def test_versions_without_a_tag_come_first() -> None:
    """Then the next version, which the entries ask for."""
    lines = plan(read_changelog(CHANGELOG), set(), "2026-12-01")

    assert lines[0].startswith("git tag v0.1.0 ")
    assert lines[1].endswith("[0.2.0] - 2026-12-01 (1 added, 1 fixed), and open a new [Unreleased]")
    assert lines[3] == "git tag v0.2.0"


def test_a_tagged_version_without_new_entries_needs_nothing() -> None:
    """An empty plan."""
    released = CHANGELOG.replace("- A thing.", "").replace("- **Breaking**: another.", "")

    assert plan(read_changelog(released), {"v0.1.0"}, "2026-12-01") == []


def test_the_changelog_of_this_repository_can_be_read() -> None:
    """An unreleased section on top and the kinds of Keep a Changelog."""
    sections = read_changelog((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"))

    assert sections[0].name == "Unreleased"
    kinds = {kind for section in sections for kind in section.entries}
    assert kinds <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
