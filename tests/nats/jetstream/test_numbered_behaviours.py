"""ADR-15's subscribe workflow: every numbered behaviour of docs/jetstream-behaviours.md has a test of its number."""

from __future__ import annotations

import re
from pathlib import Path


def test_every_behaviour_has_a_test_and_a_line_in_the_docs() -> None:
    """B1 to B50: each is tested here by its number, and has its row in docs/jetstream-behaviours.md."""
    texts = [path.read_text(encoding="utf-8") for path in Path(__file__).parent.glob("test_*.py")]
    tested = {
        int(number) for text in texts for number in re.findall(r"^(?:async )?def test_b(\d\d)_", text, re.MULTILINE)
    }
    rows = Path(__file__).parents[3].joinpath("docs", "jetstream-behaviours.md").read_text(encoding="utf-8")
    documented = {int(number) for number in re.findall(r"^\| B(\d+) \|", rows, re.MULTILINE)}

    assert set(range(1, 51)) == tested
    assert set(range(1, 51)) == documented
