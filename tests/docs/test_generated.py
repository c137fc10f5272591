"""Pages that are made of the code say what the code says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tools.layers_picture import drawn, rooms
from tools.reference_pages import PAGES, Generated

from tests.documentation import DOCS
from turnout.routes.document import RouteDocument

SOURCE = Path(__file__).parents[2] / "src" / "turnout"


@pytest.mark.parametrize("generated", PAGES, ids=str)
def test_the_page_is_what_the_code_says(generated: Generated) -> None:
    """Otherwise the error names the command that writes it, and the first lines that differ."""
    assert generated.staleness() == ""


def test_a_stale_page_names_the_command() -> None:
    """It shows the differing lines of both, instead of the whole page."""
    page = Generated("index.md", lambda now: now + "more\n")

    assert "docs/index.md is stale: run `make reference`" in page.staleness()
    assert "+more" in page.staleness()


def test_the_reference_has_every_key_of_a_route() -> None:
    """In the first table, under the name that a file has."""
    table = (DOCS / "reference/route.md").read_text(encoding="utf-8").partition("## The route")[2].partition("\n## ")[0]

    assert re.findall(r"^\| `(\w+)`", table, re.MULTILINE) == [
        field.alias for field in RouteDocument.model_fields.values()
    ]


def test_arrows_that_follow_from_others_are_left_out() -> None:
    """a → c follows from a → b → c, but not where b imports a as well: b → c could follow from it just so."""
    assert sorted(drawn({"a": {"b", "c"}, "b": {"c"}, "c": set()})) == [("a", "b"), ("b", "c")]
    assert sorted(drawn({"a": {"b", "c"}, "b": {"a", "c"}, "c": set()})) == [
        ("a", "b"), ("a", "c"), ("b", "a"), ("b", "c")
    ]  # fmt: skip


def test_every_room_has_a_row() -> None:
    """In the table of the page on architecture."""
    page = (DOCS / "architecture.md").read_text(encoding="utf-8")
    rows = {
        name for first in re.findall(r"^\| (`[^|]*) \|", page, re.MULTILINE) for name in re.findall(r"`(\w+)`", first)
    }

    assert rooms() - rows == set()


def test_every_stop_of_the_walks_is_a_file() -> None:
    """The page names files below the package's folder, at most twelve stops a walk."""
    page = (DOCS / "architecture.md").read_text(encoding="utf-8")
    named = re.findall(r"`([\w/]+\.py)`", page)

    assert [name for name in named if not (SOURCE / name).is_file()] == []
    assert re.findall(r"^(\d+)\. ", page, re.MULTILINE).count("12") == 2
    assert "13" not in re.findall(r"^(\d+)\. ", page, re.MULTILINE)
