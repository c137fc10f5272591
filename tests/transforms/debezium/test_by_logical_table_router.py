"""Keys of tables that share a topic, as far as vectors cannot say."""

from __future__ import annotations

from tests.transforms.changes import ANNE, change, outcomes

from turnout.records import Record


def test_schemaless_keys_tell_tables() -> None:
    """By the field that has the old topic."""
    stage = {"type": "ByLogicalTableRouter", "topic.regex": ".*", "topic.replacement": "all"}

    (moved,) = outcomes(stage, change("c", None, ANNE))

    assert isinstance(moved, Record)
    assert (moved.topic, moved.key) == ("all", {"id": 1, "__dbz__physicalTableIdentifier": "t"})
    assert moved.value == change("c", None, ANNE)
