"""Positions in Kafka as texts."""

from __future__ import annotations

import pytest

from turnout.routes.endpoints import KafkaSink, KafkaSource

ENDPOINT = {"format": "kafka", "servers": "localhost:9092"}


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("out:0:17", ("out:0", 17)),
        (" out:2147483647:0 ", ("out:2147483647", 0)),
        ("out:007:1", ("out:7", 1)),
        ("out:0", None),
        ("out:0:", None),
        ("out:0:-1", None),
        ("out:0:1:2", None),
        ("out:2147483648:1", None),
        (f"out:0:{'9' * 5_000}", None),
        (":0:1", None),
        ("OUT:17", None),
    ],
)
def test_positions(text: str, position: tuple[str, int] | None) -> None:
    """TOPIC:PARTITION:OFFSET names a record of any topic in a sink, and of the source's topics in a source."""
    source = KafkaSource.model_validate({**ENDPOINT, "topicPattern": ".*"})

    assert KafkaSink.model_validate(ENDPOINT).parse_position(text) == position
    if position is not None:
        assert source.message(text) == position
        return
    with pytest.raises(ValueError, match="expected TOPIC:PARTITION:OFFSET with a topic of"):
        source.message(text)


def test_a_topic_that_is_not_read() -> None:
    """The error names the topics of the source."""
    source = KafkaSource.model_validate({**ENDPOINT, "topics": ["a", "b"]})

    with pytest.raises(ValueError, match="a topic of a, b; found 'c:0:1'"):
        source.message("c:0:1")
