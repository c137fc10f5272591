from __future__ import annotations

from pathlib import Path

from tests.vector_examples import with_examples
from tools.reference_transforms import reference

DOCS = Path(__file__).parents[2] / "docs" / "transforms.md"


def test_the_documentation_is_what_the_registry_says() -> None:
    """docs/transforms.md ends in the generated reference, with an example of the vectors for nearly every transform."""
    page = with_examples(reference())

    assert DOCS.read_text(encoding="utf-8").endswith(page), "docs/transforms.md is stale: run `make reference`"
    assert page.count("\n  → ") >= 14
    assert page.count("→ true") == page.count("→ false") == 3
