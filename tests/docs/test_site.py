"""The site: built strictly, and nothing in it that a browser would fetch from elsewhere."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.heavy

ROOT = Path(__file__).parents[2]

pytest.importorskip("mkdocs", reason='pip install "turnout[docs]"')

_FETCHED = re.compile(
    r'<(?:script|img|iframe)[^>]+src="(?:https?:)?//|<link(?![^>]+rel="canonical")[^>]+href="(?:https?:)?//'
)


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """The site as `make docs` builds it, in a folder of its own."""
    folder = tmp_path_factory.mktemp("site")
    # Not --quiet: it would silence the warnings that strict mode counts.
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", folder]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return folder


def test_every_page_is_on_the_site(site: Path) -> None:
    """Each Markdown file is a page, and the navigation has it: strict mode warns of those that it leaves out."""
    pages = [path.relative_to(ROOT / "docs").with_suffix(".html") for path in (ROOT / "docs").rglob("*.md")]

    assert [page for page in pages if not (site / page).is_file()] == []
    assert "Keep a Changelog" in (site / "changelog.html").read_text(encoding="utf-8")


def test_nothing_is_fetched_from_elsewhere(site: Path) -> None:
    """No script, style, font or picture of another address."""
    pages = {path: path.read_text(encoding="utf-8") for path in site.rglob("*.html")}

    assert len(pages) > 20
    assert [path for path, text in pages.items() if _FETCHED.search(text)] == []
    assert not any("fonts.g" in text for text in pages.values())


def test_diagrams_are_drawn(site: Path) -> None:
    """They are pictures in the page, each with its own styles."""
    page = (site / "architecture.html").read_text(encoding="utf-8")

    assert len(set(re.findall(r'<svg[^>]* id="(diagram-\w+)"', page))) == 2
    assert 'class="mermaid"' not in page
