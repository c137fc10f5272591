"""The transform Flatten."""

from __future__ import annotations

from turnout.records import Record
from turnout.transforms import Chain


def test_nested_objects_become_one() -> None:
    """Names are joined by the delimiter, and lists stay."""
    chain = Chain.from_route([{"name": "f", "type": "Flatten$Value", "delimiter": "_"}])
    record = chain.apply(Record("t", {"a": {"b": 1, "c": {"d": [1]}}, "e": None}))

    assert record is not None
    assert record.value == {"a_b": 1, "a_c_d": [1], "e": None}
