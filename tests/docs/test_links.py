"""Links of the README and the pages lead somewhere."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from markdown.extensions.toc import slugify

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

_FENCE = re.compile(r"^( *)```.*?^\1```$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`[^`\n]*`")
_LINK = re.compile(r"\]\(([^()\s]+)\)")
_HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)


def links(page: Path) -> Iterator[str]:
    """The targets of a page's links that are relative."""
    text = _CODE.sub("", _FENCE.sub("", page.read_text(encoding="utf-8")))
    return (target for target in _LINK.findall(text) if "://" not in target and not target.startswith("mailto:"))


def anchors(page: Path) -> set[str]:
    """The names under which a page's headings are reached."""
    return {
        slugify(heading.replace("`", ""), "-") for heading in _HEADING.findall(_FENCE.sub("", page.read_text("utf-8")))
    }


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_to_a_file_and_a_heading(page: Path) -> None:
    """The link works in the repository and on the site."""
    for link in links(page):
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def test_links_are_seen() -> None:
    """A pattern that finds none would let every page pass."""
    assert sum(len(list(links(page))) for page in PAGES) > 50


_MOVED = re.compile(r'<a id="([^"]+)"></a>')


@pytest.mark.parametrize("page", [page for page in PAGES if "## Further pages" in page.read_text("utf-8")], ids=str)
def test_anchors_that_have_moved_lead_on(page: Path) -> None:
    """A link to a section that has moved to another page reaches the line with that page, under the former name."""
    lines = page.read_text(encoding="utf-8").partition("## Further pages")[2].strip().splitlines()
    names = [name for line in lines for name in _MOVED.findall(line)]

    assert names
    assert len(set(names)) == len(names)
    assert not set(names) & anchors(page)
    assert all(len(_LINK.findall(line)) == 1 for line in lines)


def test_no_page_is_long() -> None:
    """A page has at most 2,500 words, so that a reader finds the place; generated lists may be longer."""
    words = {page.name: len(page.read_text("utf-8").split()) for page in (ROOT / "docs").glob("*.md")}

    assert {name: count for name, count in words.items() if count > 2_500} == {}


def test_files_that_pages_name_are_there() -> None:
    """A page names a module or a test as it is called now; decisions name what there was."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False).stdout
    if not listed:
        pytest.skip("this is no clone")
    files = ["/" + path for path in listed.splitlines()]
    pages = [page for page in (ROOT / "docs").rglob("*.md") if page.parent.name != "decisions"]
    named = {(page.name, name) for page in pages for name in re.findall(r"`([\w/.-]+\.py)`", page.read_text("utf-8"))}

    assert len(named) > 50
    assert sorted((page, name) for page, name in named if not any(file.endswith("/" + name) for file in files)) == []
