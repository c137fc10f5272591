"""ExtractField, HoistField and ValueToKey."""

from __future__ import annotations

from turnout.records import Record
from turnout.transforms import Chain


def test_a_field_becomes_the_value() -> None:
    """A null stays null, and a field that is missing is null."""
    chain = Chain.from_route([{"name": "x", "type": "ExtractField$Value", "field": "a"}])

    records = [chain.apply(Record("t", value)) for value in ({"a": 1}, {"b": 1}, None)]

    assert [record.value for record in records if record is not None] == [1, None, None]


def test_a_value_becomes_a_field() -> None:
    """Of the value or of the key; null too."""
    chain = Chain.from_route(
        [
            {"name": "v", "type": "HoistField$Value", "field": "v"},
            {"name": "k", "type": "HoistField$Key", "field": "k"},
        ]
    )

    assert chain.apply(Record("t", 1, "a")) == Record("t", {"v": 1}, {"k": "a"}, headers=[])
    assert chain.apply(Record("t", None, None)) == Record("t", {"v": None}, {"k": None}, headers=[])


def test_fields_of_the_value_become_the_key() -> None:
    """In the order of the option; the value stays."""
    chain = Chain.from_route([{"name": "k", "type": "ValueToKey", "fields": ["b", "a"]}])
    record = chain.apply(Record("t", {"a": 1, "b": 2, "c": 3}))

    assert record is not None
    assert record.key == {"b": 2, "a": 1}
    assert record.value == {"a": 1, "b": 2, "c": 3}
