"""The transform DropHeaders."""

from __future__ import annotations

from turnout.records import Header, Record
from turnout.transforms import Chain


def test_headers_of_these_names_are_dropped() -> None:
    """All of a name; others keep their order."""
    chain = Chain.from_route([{"name": "d", "type": "DropHeaders", "headers": "a"}])
    headers = [Header("a", b"1"), Header("b", b"2"), Header("a", b"3"), Header("c", b"4")]
    record = chain.apply(Record("t", 1, headers=headers))

    assert record is not None
    assert [header.name for header in record.headers] == ["b", "c"]
