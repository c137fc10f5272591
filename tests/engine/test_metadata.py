"""Metadata of a record are the same for conditions of subscriptions and of predicates."""

from __future__ import annotations

import numpy as np
import pytest

from turnout.base.multivalued import MAX_VALUES, Texts
from turnout.engine.metadata import Metadata, texts_of
from turnout.records import Batch, Field, Schema
from turnout.records.batch import Record
from turnout.records.headers import Header
from turnout.records.schema import DATE, TIMESTAMP, Moment
from turnout.transforms.community import condition

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
    assert expected == list(condition.texts_of(batch, key))


def _seen(
    paths: dict[str, str], keys: list[str], *values: object, schema: Schema | None = None
) -> list[dict[str, Texts]]:
    headers = [Header("trace", b"h"), Header("*", b"star")]
    records = [Record("t", value, "k", headers, value_schema=schema) for value in values]
    batch = Batch.of_records(records)
    columns = Metadata(paths).columns(batch, batch.alive, keys)
    return [dict(texts_of(columns, row)) for row in range(len(values))]


def test_all_values_of_a_record() -> None:
    """Those of listed paths, the topic, the key and each header, equal ones once; the header ``*`` is not lost."""
    (seen,) = _seen(
        {"city": "value.city", "tags": "value.tags[]"}, ["*", "\\*"], {"city": "Oulu", "tags": ["a", "k"], "other": 1}
    )
    assert seen == {"*": ("Oulu", "a", "k", "t", "h", "star"), "\\*": "star"}


def test_paths_below_a_prefix() -> None:
    """A name stands for the path behind the prefix; no header has such a name, and parts of the address stay."""
    value = {"detail": {"city": "Oulu", "lines": [{"sku": "A"}, {"sku": "B"}], "topic": "x"}}
    keys = ["city", "lines[].sku", "topic", "trace", "lines", "`a"]
    (seen,) = _seen({"*": "value.detail.*"}, keys, value)
    assert seen == {"city": "Oulu", "lines[].sku": ("A", "B"), "topic": "t", "lines": '[{"sku":"A"},{"sku":"B"}]'}
    (seen,) = _seen(
        {"d.*": "value.detail.*", "d.city": "value.detail.topic"}, ["d.city", "d.lines[].sku", "trace"], value
    )
    assert seen == {"d.city": "x", "d.lines[].sku": ("A", "B"), "trace": "h"}


def test_all_values_below_a_prefix() -> None:
    """Those that are neither objects nor arrays, at any depth, as many as a key may have."""
    deep: object = "bottom"
    for _ in range(3_000):
        deep = [{"in": deep}]
    first = {"a": {"b": [1, None, True]}, "deep": deep}
    (seen, many) = _seen({"*": "value.*"}, ["*"], first, {"n": list(range(5_000))})
    assert set(seen["*"]) == {"1", "true", "bottom", "t", "k"}
    assert len(many["*"]) == MAX_VALUES


def test_typed_values_below_a_prefix() -> None:
    """Their texts are those of their schemas."""
    (seen,) = _seen({"*": "value.*"}, ["*"], VALUES[0], schema=TYPED)
    assert set(seen["*"]) == {"1970-01-01T00:00:00.000Z", "1970-01-02", "7", "true", "-0.0", "t", "k"}


def test_keys_of_maps_that_are_no_texts() -> None:
    """Are found by their texts, in a map of a schema, in one without, and at the root."""
    numbers = Schema("map", keys=Schema("int32"), values=Schema("string"))
    struct = Schema("struct", fields=(Field("m", numbers),))
    (seen,) = _seen({"a": "value.m.7", "b": "value.m.8"}, ["a", "b"], {"m": {7: "x"}}, schema=struct)
    assert seen == {"a": "x"}
    value = {"m": {7: "x", True: "y", "7": "text", 1.5: {2: "z"}}, 5: "root"}
    paths = {"a": "value.m.7", "b": "value.m.true", "c": "value.m.`1.5`.2", "d": "value.5", "e": "value.m.9"}
    (seen,) = _seen(paths, list(paths), value)
    assert seen == {"a": "text", "b": "y", "c": "z", "d": "root"}
