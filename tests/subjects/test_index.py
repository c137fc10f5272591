"""Index of mapping sources."""

from __future__ import annotations

import pickle
from typing import Any

from hypothesis import given
from tests.subjects import strategies

from turnout.subjects import (
    MappingTable,
)
from turnout.subjects.pattern import covers_tokens


@given(strategies.tables_with_subjects(), strategies.draws)
def test_the_index_finds_what_trying_one_by_one_finds(case: tuple[dict[str, Any], list[str]], draw: float) -> None:
    """Shapes and dictionaries are only a faster way to the first match in order."""
    config, subjects = case
    table = MappingTable.from_config(config)
    again = pickle.loads(pickle.dumps(table))
    for subject in [*subjects, *strategies.ODD_SUBJECTS]:
        tokens = subject.split(".")
        slow = next(
            (m for m in table.mappings if m.source == subject or covers_tokens(tokens, m.source.split("."))), None
        )
        for cluster in (None, "west", "nowhere"):
            share = slow.choose(cluster, draw) if slow else None
            expected = share.transform.apply_tokens(tokens, draw) if share else None if slow else subject

            assert table.apply(subject, cluster, draw) == expected
            assert again.apply(subject, cluster, draw) == expected
        assert table.find(subject) is slow
