"""The transform HoistField."""

from __future__ import annotations

from turnout.records import Record
from turnout.transforms import Chain


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
