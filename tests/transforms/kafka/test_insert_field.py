"""Fields that are inserted; what Kafka's class answers is in the vectors."""

from __future__ import annotations

from typing import Any

import numpy as np
from tests.transforms.chains import STRUCT, chain, values

from turnout.base.clocks import Milliseconds
from turnout.records import Batch, Block, Failure, Headers, Int32, Moment, Record
from turnout.transforms.chain import ChainRunner


def test_a_null_partition_leaves_schemaless_objects_as_they_are() -> None:
    """Some of a batch have the field, others do not, and each keeps its row."""
    records = [Record("t", {"a": at}, partition=part, timestamp=time) for at, (part, time) in
               enumerate([(1, 5), (None, 5), (2, None), (3, 6)])]  # fmt: skip

    outcomes = values(chain("InsertField$Value", partition_field="p", timestamp_field="ts").apply(records))

    assert outcomes == [{"a": 0, "p": 1, "ts": 5}, {"a": 1, "ts": 5}, {"a": 2, "p": 2}, {"a": 3, "p": 3, "ts": 6}]
    assert Int32 is type(outcomes[0]["p"])


def test_numpy_columns_are_inserted_as_numbers() -> None:
    """A batch off the wire has arrays for partitions and offsets."""
    block = Block(np.arange(2), STRUCT, columns={"a": ["x", "y"], "n": [1, 2]})
    partitions: Any = np.array([0, 1])
    offsets: Any = np.array([7, 8])
    batch = Batch(["t"] * 2, partitions, offsets, [Milliseconds(1), Milliseconds(2)], [], [block], Headers(2))

    ChainRunner(chain("InsertField$Value", offset_field="o", partition_field="p", timestamp_field="ts")).apply(batch)

    columns = batch.value[0].columns
    assert [("o", [7, 8], int), ("p", [0, 1], int), ("ts", [1, 2], Moment)] == [
        (name, list(columns[name]), type(columns[name][0])) for name in ("o", "p", "ts")
    ]


def test_a_source_record_has_no_offset_to_insert() -> None:
    """It fails, with a schema and without."""
    records = [Record("t", {"a": 1}), Record("t", {"a": "x", "n": 1}, value_schema=STRUCT)]

    assert all(isinstance(one, Failure) for one in chain("InsertField$Value", offset_field="o").apply(records))
