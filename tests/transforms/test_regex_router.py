"""The transform RegexRouter."""

from __future__ import annotations

from turnout.records import Record
from turnout.transforms import Chain


def test_a_topic_that_matches_whole_is_renamed() -> None:
    """Groups are inserted; others keep their topic."""
    chain = Chain.from_route(
        [
            {"name": "r", "type": "RegexRouter", "regex": "in-(.*)", "replacement": "out-$1"},
        ]
    )

    records = [chain.apply(Record(topic, 1)) for topic in ("in-a", "x-in-a", "in")]

    assert [record.topic for record in records if record is not None] == ["out-a", "x-in-a", "in"]
