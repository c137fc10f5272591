from __future__ import annotations

from pathlib import Path

from turnout.transforms.reference import reference

DOCS = Path(__file__).parents[2] / "docs" / "transforms.md"


def test_the_documentation_is_what_the_registry_says() -> None:
    """docs/transforms.md ends in the generated reference; `python -m turnout.transforms.reference` prints it."""
    assert DOCS.read_text(encoding="utf-8").endswith(reference())
