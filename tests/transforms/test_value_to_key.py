"""The transform ValueToKey."""

from __future__ import annotations

from turnout.records import Record
from turnout.transforms import Chain


def test_fields_of_the_value_become_the_key() -> None:
    """In the order of the option; the value stays."""
    chain = Chain.from_route([{"name": "k", "type": "ValueToKey", "fields": ["b", "a"]}])
    record = chain.apply(Record("t", {"a": 1, "b": 2, "c": 3}))

    assert record is not None
    assert record.key == {"b": 2, "a": 1}
    assert record.value == {"a": 1, "b": 2, "c": 3}
