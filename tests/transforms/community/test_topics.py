"""The transform SubjectTransform."""

from __future__ import annotations

from turnout.records import Record
from turnout.transforms import Chain


def test_a_topic_is_mapped_as_a_subject() -> None:
    """ADR-30; a topic that does not match stays."""
    chain = Chain.from_route(
        [
            {"name": "s", "type": "SubjectTransform", "source": "in.*.*", "destination": "out.$2.$1"},
        ]
    )

    records = [chain.apply(Record(topic, 1)) for topic in ("in.a.b", "in.a")]

    assert [record.topic for record in records if record is not None] == ["out.b.a", "in.a"]
