"""Where a Kafka source continues, and what was lost before it."""

from __future__ import annotations

from typing import Any

import pytest

from turnout.errors import StreamError
from turnout.kafka.admin import PartitionEnds, TopicInfo
from turnout.kafka.options import KafkaOptions
from turnout.kafka.reader import LastRecord
from turnout.runtime.kafka.source import KafkaOffsets, KafkaSourceOptions, next_offsets_after, records_to_compare

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
