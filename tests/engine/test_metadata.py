"""What a subscription's condition sees of a record is what a predicate's condition sees of it."""

from __future__ import annotations

import numpy as np
import pytest

from turnout.engine.metadata import Metadata, texts_of
from turnout.records import Batch, Field, Schema
from turnout.records.batch import Record
from turnout.records.headers import Header
from turnout.records.scalars import Moment
from turnout.records.schema import DATE, TIMESTAMP
from turnout.transforms import predicates

DAY = 86_400_000
TYPED = Schema(
    "struct",
    fields=(
        Field("at", Schema("int64", name=TIMESTAMP)),
        Field("on", Schema("int32", name=DATE)),
        Field("a.b", Schema("int32", optional=True)),
        Field("flag", Schema("boolean")),
        Field("ratio", Schema("float64")),
    ),
)
VALUES = [
    {"at": Moment(0), "on": Moment(DAY), "a.b": 7, "flag": True, "ratio": -0.0},
    {"at": Moment(1_500), "on": Moment(0), "a.b": None, "flag": False, "ratio": 0.0},
]
SCHEMALESS = [{"a.b": 1, "deep": {"a.b": [1, None]}}, {"a.b": True, "deep": {"a.b": "text"}}]
SEEN = {
    "value.at": ["1970-01-01T00:00:00.000Z", "1970-01-01T00:00:01.500Z"],
    "value.on": ["1970-01-02", "1970-01-01"],
    "value.`a.b`": ["7", None],
    "value.flag": ["true", "false"],
    "value.ratio": ["-0.0", "0.0"],
    "value.missing": [None, None],
    "topic": ["t.0", "t.1"],
    "subject": ["t.0", "t.1"],
    "key": ["0", "1"],
    "Name": ["last", None],
    "Bytes": [None, "text"],
}
SEEN_SCHEMALESS = {
    "value.`a.b`": ["1", "true"],
    "value.deep.`a.b`": ["[1,null]", "text"],
    "value.deep": ['{"a.b":[1,null]}', '{"a.b":"text"}'],
}
HEADERS = (
    [Header("Name", b"first"), Header("Name", b"last"), Header("Bytes", b"\xff")],
    [Header("Bytes", b"text")],
)


def _batch(values: list[dict[str, object]], schema: Schema | None) -> Batch:
    return Batch.of_records(
        [
            Record(f"t.{row}", value, str(row), HEADERS[row], offset=row, value_schema=schema)
            for row, value in enumerate(values)
        ]
    )


@pytest.mark.parametrize(
    ("values", "schema", "key", "expected"),
    [(VALUES, TYPED, key, texts) for key, texts in SEEN.items()]
    + [(SCHEMALESS, None, key, texts) for key, texts in SEEN_SCHEMALESS.items()],
)
def test_both_see_the_same(values, schema, key, expected) -> None:
    """Times are ISO 8601 with a Z, backticks keep a dot in a step, and the last header of a name counts."""
    batch = _batch(values, schema)
    paths = {key: key} if key.startswith("value") else {}
    columns = Metadata(paths).columns(batch, np.arange(2), [key])

    assert expected == [texts_of(columns, row).get(key) for row in range(2)]
    assert expected == list(predicates.texts_of(batch, key))
