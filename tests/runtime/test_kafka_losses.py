"""Where a Kafka source continues, and what was lost before it."""

from __future__ import annotations

import pytest

from turnout.kafka.admin import PartitionEnds, TopicInfo
from turnout.kafka.options import KafkaOptions
from turnout.runtime.kafka_losses import next_offsets_after
from turnout.runtime.kafka_source import KafkaOffsets, KafkaSourceOptions

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


def test_topics() -> None:
    """A topic that is not there is a loss; one with brokers that have no ids is not."""
    assert after({}, {})[1].startswith("there is no topic 'a' at localhost:9092: records that were not read are lost")
    assert after({"a": TopicInfo("a", None, (0,))}, {("a", 0): (0, 9)})[0] == {"a:0": 0}
