"""The transform ExtractField."""

from __future__ import annotations

from turnout.records import Record
from turnout.transforms import Chain


def test_a_field_becomes_the_value() -> None:
    """A null stays null, and a field that is missing is null."""
    chain = Chain.from_route([{"name": "x", "type": "ExtractField$Value", "field": "a"}])

    records = [chain.apply(Record("t", value)) for value in ({"a": 1}, {"b": 1}, None)]

    assert [record.value for record in records if record is not None] == [1, None, None]
