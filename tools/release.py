"""Print the tag and the steps of the next release: ``python -m tools.release`` changes nothing.

Exit code 1 if the release is not ready: uncommitted changes, or no entries under "Unreleased".
"""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import dataclass
from datetime import date
from pathlib import Path

ROOT = Path(__file__).parents[1]
_HEADING = re.compile(r"## \[(?P<name>[^\]]+)\](?: - (?P<day>\d{4}-\d\d-\d\d))?")
_UNRELEASED = "Unreleased"


@dataclass(frozen=True, slots=True)
class Section:
    """One version of the changelog.

    Attributes:
        name: ``Unreleased`` or a version.
        day: date of the release, empty if there is none.
        entries: number of entries by kind: ``Added``, ``Fixed`` ….
        is_breaking: True if an entry says **Breaking**.
    """

    name: str
    day: str
    entries: dict[str, int]
    is_breaking: bool


def read_changelog(text: str) -> list[Section]:
    """Return the sections of a changelog in the form of Keep a Changelog, the newest first.

    >>> read_changelog("## [Unreleased]\\n### Fixed\\n- a\\n## [0.1.0] - 2026-11-23\\n### Added\\n- b\\n- c")[1].entries
    {'Added': 2}
    """
    sections = []
    for part in re.split(r"^(?=## )", text, flags=re.MULTILINE):
        if heading := _HEADING.match(part):
            kinds = re.split(r"^### +(.+)$", part, flags=re.MULTILINE)[1:]
            counts = {
                kind: len(re.findall("^- ", body, re.MULTILINE))
                for kind, body in zip(kinds[::2], kinds[1::2], strict=True)
            }
            sections.append(Section(heading["name"], heading["day"] or "", counts, "**Breaking**" in part))
    return sections


def next_version(last: str, unreleased: Section) -> str:
    """Return the version that the unreleased entries ask for (Semantic Versioning; before 1.0 a break is a minor).

    >>> next_version("0.1.4", Section("Unreleased", "", {"Fixed": 2}, False))
    '0.1.5'
    >>> next_version("0.1.4", Section("Unreleased", "", {"Added": 1}, True))
    '0.2.0'
    >>> next_version("1.2.3", Section("Unreleased", "", {"Changed": 1}, True))
    '2.0.0'
    """
    major, minor, patch = map(int, last.split("."))
    if unreleased.is_breaking and major:
        return f"{major + 1}.0.0"
    if unreleased.is_breaking or unreleased.entries.keys() & {"Added", "Changed", "Deprecated", "Removed"}:
        return f"{major}.{minor + 1}.0"
    return f"{major}.{minor}.{patch + 1}"


def plan(sections: list[Section], tags: set[str], today: str) -> list[str]:
    """Return the lines to print: commands for versions without a tag, then those for the next version."""
    released = [section for section in sections if section.name != _UNRELEASED]
    lines = [
        f"git tag v{section.name} COMMIT   # {section.day}, in the changelog but without a tag"
        for section in reversed(released)
        if f"v{section.name}" not in tags
    ]
    unreleased = next((section for section in sections if section.name == _UNRELEASED), None)
    if unreleased is None or not any(unreleased.entries.values()):
        return lines
    version = next_version(released[0].name if released else "0.0.0", unreleased)
    entries = ", ".join(f"{count} {kind.lower()}" for kind, count in unreleased.entries.items())
    return [
        *lines,
        f"# CHANGELOG.md: rename [Unreleased] to [{version}] - {today} ({entries}), and open a new [Unreleased]",
        f"git commit -am 'chore: release {version}'",
        f"git tag v{version}",
        "make build   # dist/: sources, wheel and bill of materials",
    ]


def _git(*arguments: str) -> str:
    return subprocess.run(
        ["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=True
    ).stdout.strip()


def main() -> int:
    """Print the plan and return the exit code."""
    sections = read_changelog((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"))
    print("\n".join(plan(sections, set(_git("tag").split()), date.today().isoformat())))
    faults = [
        fault
        for fault, is_there in (
            ("there are uncommitted changes", bool(_git("status", "--porcelain"))),
            ("no entry is under [Unreleased]", not any(sections[0].entries.values())),
        )
        if is_there
    ]
    for fault in faults:
        print(f"not ready: {fault}", file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
