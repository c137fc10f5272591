"""RegexRouter and TimestampRouter."""

from __future__ import annotations

import pytest
from tests.transforms.chains import T, chain

from turnout.errors import ConfigError
from turnout.records import Failure, Record
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


def test_the_topic_gets_the_time() -> None:
    """In UTC; a record without a time fails."""
    outcomes = chain("TimestampRouter", topic_format="${timestamp}.${topic}").apply(
        [Record("t", timestamp=1_356_998_400_123), Record("t"), Record(None, timestamp=0)]
    )

    assert outcomes[0].topic == "20130101.t"  # type: ignore[union-attr]
    assert [outcome.exception if isinstance(outcome, Failure) else None for outcome in outcomes] == [
        None,
        "org.apache.kafka.connect.errors.DataException",
        "java.lang.NullPointerException",
    ]


def test_a_bad_pattern_fails_every_record() -> None:
    """A Connect worker finds it no earlier; a route's chain finds it at once."""
    config = {"transforms": "t", "transforms.t.type": T + "TimestampRouter", "transforms.t.timestamp.format": "bbb"}
    with pytest.raises(ConfigError, match=r"transforms\.t\.timestamp\.format: expected a pattern"):
        Chain.from_config(config)

    (outcome,) = Chain.from_config(config, strict=True).apply([Record("t", timestamp=0)])

    assert isinstance(outcome, Failure)
    assert outcome.exception == "java.lang.IllegalArgumentException"
