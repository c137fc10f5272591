"""Counts of tasks as rows of Spark."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa

from turnout.engine.counts import Counts
from turnout.engine.failures import IN_FULL
from turnout.engine.flow import Flow
from turnout.engine.messages import Messages
from turnout.engine.result import Result
from turnout.runtime.publishing import TALLY_SCHEMA, TaskTally, sum_of

COUNTS = Counts(read=3, delivered=2, discarded=1, flow=Flow({"source": 3}, {"value": 1}))


def result(failures: list[dict[str, Any]]) -> Result:
    return Result(COUNTS, Messages.none(), failures=failures)


def test_the_sum_of_all_rows() -> None:
    """Of several tasks; rows of further failures add nothing, and no rows are zeros."""
    tally = TaskTally()
    tally.add(result([{"offset": str(n)} for n in range(2)]), result([]))
    rows = tally.rows()

    total = sum_of(2 * rows.column("counts").to_pylist())

    assert total == Counts(read=12, delivered=8, discarded=4)
    assert total.flow.taken["source"] == 12
    assert sum_of([]) == Counts()


def test_the_first_failures_have_rows() -> None:
    """Each is a JSON object, as far as it is shown; all are counted once."""
    tally = TaskTally()
    tally.add(result([{"offset": str(n), "message": "näin"} for n in range(IN_FULL)] + [{}]))

    rows = tally.rows()

    assert rows.schema.equals(TALLY_SCHEMA)
    assert [json.loads(text)["offset"] for text in rows.column("failure").to_pylist()] == [*map(str, range(IN_FULL))]
    assert rows.column("failures").to_pylist() == [IN_FULL + 1, *[0] * (IN_FULL - 1)]
    assert (
        TaskTally()
        .rows()
        .equals(
            pa.RecordBatch.from_pydict(
                {"counts": [json.dumps(Counts().to_json())], "failures": [0], "failure": [None]}, schema=TALLY_SCHEMA
            )
        )
    )
