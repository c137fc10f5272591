from __future__ import annotations

from pathlib import Path

from tests.vector_examples import with_examples
from tools.reference_transforms import debezium_transforms, kafka_transforms, more_transforms, predicates

DOCS = Path(__file__).parents[2] / "docs" / "reference"


def test_the_documentation_is_what_the_registry_says() -> None:
    """The pages are the generated ones, with an example of the vectors for nearly every transform."""
    made = {
        "transforms": kafka_transforms(),
        "debezium-transforms": debezium_transforms(),
        "more-transforms": more_transforms(),
        "predicates": predicates(),
    }
    texts = {name: with_examples(text) for name, text in made.items()}
    page = "".join(texts.values())

    for name, text in texts.items():
        assert (DOCS / f"{name}.md").read_text(encoding="utf-8") == text, f"{name}.md is stale: run `make reference`"
    assert page.count("\n  → ") >= 14
    assert page.count("→ true") == page.count("→ false") == 3
