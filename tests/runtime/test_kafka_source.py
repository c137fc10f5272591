from __future__ import annotations

from datetime import UTC, datetime

import pytest

from turnout.errors import ConfigError, StreamError
from turnout.kafka.admin import PartitionEnds, TopicInfo
from turnout.kafka.reader import PartitionRange
from turnout.routes.endpoints import KafkaSource
from turnout.runtime.kafka.source import (
    KafkaOffsets,
    KafkaSourceOptions,
    admitted,
    planned,
    position_of,
    resolved,
)
from turnout.runtime.splits import decoded, encoded

A0, A1, B0 = ("a", 0), ("a", 1), ("b", 0)
INFOS = {"a": TopicInfo("a", "x", (0, 1)), "b": TopicInfo("b", None, (0,))}
ENDS = {A0: PartitionEnds(2, 10), A1: PartitionEnds(0, 5), B0: PartitionEnds(7, 7)}


def test_offsets_in_a_checkpoint() -> None:
    """A written offset is read back; one of Spark's connector has no ids, starts and plan."""
    offsets = KafkaOffsets({"a": {0: 5, 10: 6}}, {"a": "x"}, {"a": {0: 1}}, 4, 17, frozenset("a"))

    assert KafkaOffsets.of_json(offsets.to_json()) == offsets
    assert KafkaOffsets.of_json({"a.b": {"0": 5}}) == KafkaOffsets({"a.b": {0: 5}})
    with pytest.raises(StreamError, match="is none of Kafka"):
        KafkaOffsets.of_json({"STREAM": 5})


def test_topics_whose_message_ids_are_identified() -> None:
    """All of a new checkpoint; of one that an earlier release wrote those that are new or were made anew since."""
    ids = {"a": "x", "b": "y"}
    new = KafkaOffsets({"a": {0: 5}}, {"a": "x"}, identified=frozenset("a"))

    assert new.identified_among(ids) == {"a", "b"}
    assert KafkaOffsets({"a": {0: 5}}, {"a": "x"}).identified_among(ids) == {"b"}
    assert KafkaOffsets({"a": {0: 5}}).identified_among(ids) == {"b"}
    assert KafkaOffsets({"a": {0: 5}}, {"a": "w"}).identified_among(ids) == {"a", "b"}
    assert [span.identified for span in planned({A0: 0}, new, 1)] == [True]


def test_plan_of_a_micro_batch() -> None:
    """Splits follow from both offsets and the number of tasks alone; a large partition has several."""
    end = KafkaOffsets({"a": {0: 60_000, 1: 500}, "b": {0: 7}}, {"a": "x"})
    begins = {A0: 0, A1: 100, B0: 7}

    splits = planned(begins, end, 4)

    assert splits == planned(dict(reversed(begins.items())), end, 4)
    assert [(split.start, split.end) for split in splits if split.partition == 0] == [
        (0, 20_000), (20_000, 40_000), (40_000, 60_000)
    ]  # fmt: skip
    assert splits[-1] == PartitionRange("a", 1, 100, 500, "x")


def test_limit_of_a_micro_batch() -> None:
    """Each partition has its share of the limit, at least one record; without a limit all is read."""
    next_offsets, ends = {A0: 0, A1: 10, B0: 3}, {A0: 900, A1: 11, B0: 3}

    assert admitted(next_offsets, ends, 100).next_offsets() == {A0: 99, A1: 11, B0: 3}
    assert admitted(next_offsets, ends, None).next_offsets() == ends


def test_places() -> None:
    """Names and offsets mean an offset of each partition; what is missing or foreign is named."""
    assert resolved(None, "earliest", INFOS, ENDS) == {A0: 2, A1: 0, B0: 7}  # type: ignore[arg-type]
    assert resolved(None, "latest", INFOS, ENDS) == {A0: 10, A1: 5, B0: 7}  # type: ignore[arg-type]
    given = {"a": {"0": 4, "1": -1}, "b": {0: -2}}
    assert resolved(None, given, INFOS, ENDS) == {A0: 4, A1: 5, B0: 7}  # type: ignore[arg-type]
    with pytest.raises(ConfigError) as wrong:
        resolved(None, {"a": {"0": 4, "7": 1}, "c": {"0": 1}}, INFOS, ENDS)  # type: ignore[arg-type]
    assert {mistake.path for mistake in wrong.value.mistakes} == {
        "start.a.1", "start.a.7", "start.b.0", "start.c"
    }  # fmt: skip
    assert position_of("2026-01-01") == datetime(2026, 1, 1, tzinfo=UTC)
    with pytest.raises(ConfigError, match="expected earliest"):
        position_of("soon")


def test_options_of_a_route() -> None:
    """They travel as one text, and losses are reported unless the route says otherwise."""
    source = KafkaSource.model_validate({"format": "kafka", "servers": "a:1", "topics": "x, y", "partitions": 3})

    options = KafkaSourceOptions.of(source)

    assert decoded(encoded(options)) == options
    assert (options.topics, options.partitions, options.fail_on_data_loss) == (("x", "y"), 3, True)
