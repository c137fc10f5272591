"""Parts of a condition that contradict each other."""

from __future__ import annotations

from turnout.conditions import parse
from turnout.subscriptions.analysis.candidates import clash


def test_the_clash_is_named() -> None:
    """Two leaves that exclude each other are named, and nothing beside them."""
    assert clash(parse("b:1 AND n<5 AND c:2 AND n>9")) == "n<5 and n>9"
    assert clash(parse("a:x AND NOT (b:1 OR NOT b:1)")) == "a:x AND NOT (b:1 OR NOT b:1)"
