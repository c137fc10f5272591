"""Records that people give."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from turnout.engine.sample_records import SampleRecord, record_batch
from turnout.errors import ConfigError


def test_every_part_of_a_record() -> None:
    """Text is bytes, anything else is JSON; bytes that are no text come as base64."""
    record = SampleRecord.of(
        {
            "topic": "a",
            "partition": 2,
            "offset": 7,
            "key": "plain",
            "value": {"n": 1},
            "headers": {"one": "1", "many": ["2", 3], "none": None},
            "timestamp": "2013-01-01T10:00:00Z",
        }
    )
    (row,) = record_batch([record]).to_pylist()

    assert (row["topic"], row["partition"], row["offset"], row["key"], row["value"]) == (
        "a",
        2,
        7,
        b"plain",
        b'{"n": 1}',
    )
    assert [(header["key"], header["value"]) for header in row["headers"]] == [
        ("one", b"1"), ("many", b"2"), ("many", b"3"), ("none", None),
    ]  # fmt: skip
    assert row["timestamp"] == datetime(2013, 1, 1, 10, tzinfo=UTC)


@pytest.mark.parametrize("moment", [1_357_034_400_000, datetime(2013, 1, 1, 10), "2013-01-01T11:00:00+01:00"])
def test_the_ways_to_give_a_time(moment: object) -> None:
    """Milliseconds, what YAML reads as a time, and ISO 8601; what has no zone is UTC."""
    assert SampleRecord.of({"topic": "a", "timestamp": moment}).timestamp == 1_357_034_400_000_000


def test_bytes_and_null() -> None:
    """A missing value is null; base64 gives any bytes."""
    assert SampleRecord.of({"topic": "a"}).value is None
    assert SampleRecord.of({"topic": "a", "valueBase64": "AP8="}).value == b"\x00\xff"


def test_a_record_of_another_form_is_refused() -> None:
    """All mistakes at once, with what a record has."""
    with pytest.raises(ConfigError) as refused:
        SampleRecord.of({"valeu": 1, "offset": "x", "keyBase64": "?", "headers": 3, "timestamp": "noon"})

    assert [mistake.path for mistake in refused.value.mistakes] == [
        "valeu", "topic", "keyBase64", "headers", "offset", "timestamp",
    ]  # fmt: skip
