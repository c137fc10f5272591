"""Where a Kafka source continues, and what was lost before it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from turnout.errors import ConfigError, StreamError
from turnout.kafka.admin import PartitionEnds, TopicInfo
from turnout.kafka.options import KafkaOptions
from turnout.kafka.reader import LastRecord, PartitionRange
from turnout.routes.endpoints import KafkaSource
from turnout.runtime.kafka.source import (
    KafkaOffsets,
    KafkaSourceOptions,
    admitted,
    next_offsets_after,
    planned,
    position_of,
    records_to_compare,
    resolved,
)
from turnout.runtime.offsets import decoded, encoded

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


BEFORE = KafkaOffsets({"a": {0: 5, 1: 5}}, {"a": "x"})


def after(infos: dict[str, TopicInfo], ends: dict[tuple[str, int], tuple[int, int]]) -> tuple[dict[str, int], str]:
    options = KafkaSourceOptions(KafkaOptions.of("localhost:9092"), ("a",))
    bounds = {name: PartitionEnds(first, following) for name, (first, following) in ends.items()}

    next_offsets, losses = next_offsets_after(BEFORE, options, infos, bounds)

    return {f"{topic}:{number}": offset for (topic, number), offset in next_offsets.items()}, " / ".join(
        map(str, losses)
    )


@pytest.mark.parametrize(
    ("id_", "ends", "next_offsets", "losses"),
    [
        ("x", {0: (0, 9), 1: (5, 5)}, {"a:0": 5, "a:1": 5}, ""),
        ("x", {0: (0, 9), 1: (0, 5), 2: (3, 9)}, {"a:0": 5, "a:1": 5, "a:2": 3}, ""),
        ("x", {0: (7, 9), 1: (0, 5)}, {"a:0": 7, "a:1": 5},
         "partition 0 of the topic 'a' no longer has the offsets 5 to 6"),
        ("x", {0: (0, 9), 1: (0, 3)}, {"a:0": 5, "a:1": 3},
         "partition 1 of the topic 'a' no longer has the offsets 3 to 4"),
        ("y", {0: (2, 9), 1: (0, 3)}, {"a:0": 2, "a:1": 0},
         "the topic 'a' was deleted and made anew (its id was x and is y)"),
    ],
)  # fmt: skip
def test_partitions(id_: str, ends: dict[int, tuple[int, int]], next_offsets: dict[str, int], losses: str) -> None:
    """A new partition, and each of a recreated topic, begins with its first record; removed records are a loss."""
    infos = {"a": TopicInfo("a", id_, tuple(ends))}

    found = after(infos, {("a", number): bounds for number, bounds in ends.items()})

    assert found[0] == next_offsets
    assert found[1].startswith(losses)
    assert bool(found[1]) == bool(losses)


@pytest.mark.parametrize(
    ("first", "following", "id_", "found", "at", "loss"),
    [
        (0, 9, "x", None, 0, "has no record 4 any more, which was read"),
        (2, 9, "x", LastRecord(4, 8, 3), 2, "has another record 4 than the one that was read (of 1970-01-01T00:00:00"),
        (2, 9, "y", LastRecord(4, 8, 3), 2, "made anew"),
        (0, 5, "x", ..., 5, ""),
        (5, 9, "x", ..., 5, ""),
        (7, 9, "x", ..., 7, "no longer has the offsets 5 to 6"),
        (0, 3, "x", ..., 3, "no longer has the offsets 3 to 4"),
    ],
)  # fmt: skip
def test_the_last_record(first: int, following: int, id_: str, found: Any, at: int, loss: str) -> None:
    """A partition with another record before the position, or none, is read from its first one; the record is asked
    for only if the partition has it, and something to read."""
    read = LastRecord(4, 7, 3)
    before = KafkaOffsets({"a": {0: 5}}, {"a": "x"}, last={("a", 0): read})
    infos, bounds = {"a": TopicInfo("a", id_, (0,))}, {("a", 0): PartitionEnds(first, following)}
    options = KafkaSourceOptions(KafkaOptions.of("localhost:9092"), ("a",))
    asked = records_to_compare(before, infos, bounds)

    next_offsets, losses = next_offsets_after(before, options, infos, bounds, dict.fromkeys(asked, found))

    assert asked == ({} if found is ... or id_ == "y" else {("a", 0): read})
    assert next_offsets == {("a", 0): at}
    assert [loss in str(one) for one in losses] == [True] * bool(loss)


def test_offsets_with_last_records() -> None:
    """They are in the text of a checkpoint, and none in that of an earlier release."""
    offsets = KafkaOffsets({"a": {0: 5}}, {"a": "x"}, last={("a", 1): LastRecord(4, 7, 3), ("a", 0): LastRecord(3, -1)})
    document = offsets.to_json()

    assert document[":last"] == {"a": {"0": [3, -1, -1], "1": [4, 7, 3]}}
    assert KafkaOffsets.of_json(document) == offsets
    assert KafkaOffsets.of_json({"a": {"0": 5}}).last == {}
    with pytest.raises(StreamError, match="the checkpoint's offset is none of Kafka"):
        KafkaOffsets.of_json({"a": {"0": 5}, ":last": {"a": {"0": 5}}})


@pytest.mark.parametrize(
    ("other", "same"),
    [((4, 7, 3), True), ((4, 7, -1), True), ((4, 7, 4), False), ((4, 8, 3), False), ((3, 7, 3), False)],
)
def test_same_records(other: tuple[int, int, int], same: bool) -> None:
    """A record is known by offset, time and, where both brokers say it, leader epoch."""
    assert LastRecord(4, 7, 3).is_same(LastRecord(*other)) is same


def test_topics() -> None:
    """A topic that is not there is a loss; one with brokers that have no ids is not."""
    assert after({}, {})[1].startswith("there is no topic 'a' at localhost:9092: records that were not read are lost")
    assert after({"a": TopicInfo("a", None, (0,))}, {("a", 0): (0, 9)})[0] == {"a:0": 0}


def test_open_splits_share_the_partitions() -> None:
    """Each has every n-th, with the ids and the last records of its own; the positions that they reach are joined."""
    last = {("a", 0): LastRecord(4, 1, 0), ("b", 1): LastRecord(8, 2, 0)}
    whole = KafkaOffsets(
        {"a": {0: 5, 1: 6}, "b": {0: 7, 1: 9}},
        {"a": "x", "b": "y"},
        splits=3,
        identified=frozenset({"b"}),
        last=last,
        open=7,
    )
    assert KafkaOffsets.of_json(whole.to_json()) == whole

    parts = [whole.of_split(index) for index in range(3)]

    assert [part.next for part in parts] == [{"a": {0: 5}, "b": {1: 9}}, {"a": {1: 6}}, {"b": {0: 7}}]
    assert [part.ids for part in parts] == [{"a": "x", "b": "y"}, {"a": "x"}, {"b": "y"}]
    assert parts[0].last == last
    assert not parts[1].last
    reached = replace(parts[1], next={"a": {1: 60}}, last={("a", 1): LastRecord(59, 3, 0)})
    joined = whole.reached(reached.to_json()).reached(None)
    assert joined.next == {"a": {0: 5, 1: 60}, "b": {0: 7, 1: 9}}
    assert joined.last == {**last, ("a", 1): LastRecord(59, 3, 0)}
