"""The site: built strictly, and nothing in it that a browser would fetch from elsewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import quote

import pytest
from selenium.webdriver.common.by import By

from tests.console.browser import MISSING, chromium, driver_of, until

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
    concepts = (site / "concepts.html").read_text(encoding="utf-8")
    assert concepts.count("<desc ") == 12


@pytest.mark.skipif(chromium() is None, reason=MISSING)
@pytest.mark.parametrize("words", ["dead letter", "exactly once", "webhook", "replay", "open split", "mask"])
def test_answers_are_found_before_reasons(site: Path, tmp_path, words: str) -> None:
    """The first five results of a search are neither decisions nor the changelog."""
    handler = partial(SimpleHTTPRequestHandler, directory=str(site))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server, driver_of(tmp_path / "profile") as driver:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        driver.get(f"http://127.0.0.1:{server.server_port}/index.html?q={quote(words)}")
        until(driver, lambda _: len(driver.find_elements(By.CSS_SELECTOR, ".md-search-result__link")) > 4)
        links = driver.find_elements(By.CSS_SELECTOR, ".md-search-result__item > .md-search-result__link")
        found = [str(link.get_attribute("href")) for link in links]
        server.shutdown()

    assert len(found) >= 5, found
    assert [link for link in found[:5] if "/decisions/" in link or "changelog" in link] == [], found


def test_a_publisher_gets_links_that_edit(tmp_path) -> None:
    """With the address of a repository each page has one; without it there is none."""
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", tmp_path]
    settings = {**os.environ, "TURNOUT_REPOSITORY": "https://code.example/turnout"}
    subprocess.run(command, cwd=ROOT, env=settings, capture_output=True, timeout=300, check=True)
    page = (tmp_path / "concepts.html").read_text(encoding="utf-8")

    assert 'href="https://code.example/turnout/edit/main/docs/concepts.md"' in page
