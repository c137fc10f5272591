"""Origins of records."""

from __future__ import annotations

import pyarrow as pa
import pytest

from turnout.engine.message_ids import dead_suffix, origins, suffix


@pytest.mark.parametrize("count", [3, 100])
def test_few_and_many_records_have_the_same_origins(count: int) -> None:
    """A stream's sequence, a topic's partition and offset; null where the offset is unknown."""
    offsets = pa.array([None, *range(1, count)], pa.int64())
    of_stream = pa.RecordBatch.from_pydict({"stream": pa.array(["S"] * count), "offset": offsets})
    of_topic = pa.RecordBatch.from_pydict(
        {"topic": pa.array(["t"] * count), "partition": pa.array([2] * count, pa.int32()), "offset": offsets}
    )

    assert origins(of_stream).to_pylist() == [None, *(f"S:{number}" for number in range(1, count))]
    assert origins(of_topic).to_pylist() == [None, *(f"t:2:{number}" for number in range(1, count))]


def test_suffixes_of_different_parts_differ() -> None:
    """This holds even if the joined parts are the same text, and between a delivery and its dead letter."""
    assert len({suffix("ab", "c"), suffix("a", "bc"), suffix("abc"), dead_suffix("ab", "c"), dead_suffix("ab")}) == 5
    assert suffix("ab", "c") == suffix("ab", "c")
