"""The transform Filter."""

from __future__ import annotations

from turnout.records import Record
from turnout.transforms import Chain


def test_records_that_a_predicate_meets_are_dropped() -> None:
    """With negate the others are."""
    tombstones = {"name": "drop", "type": "Filter", "predicate": {"type": "RecordIsTombstone"}}
    kept, inverse = Chain.from_route([tombstones]), Chain.from_route([{**tombstones, "negate": True}])

    assert [kept.apply(Record("t", value)) is None for value in (1, None)] == [False, True]
    assert [inverse.apply(Record("t", value)) is None for value in (1, None)] == [True, False]
