"""What masks, inserts and moves values, over batches; what Kafka's classes answer is in the vectors."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pytest

from turnout.errors import ConfigError
from turnout.records import Batch, Block, Failure, Field, Headers, Int8, Int32, Moment, Record, Schema
from turnout.transforms import Chain
from turnout.transforms.apply import ChainRunner
from turnout.transforms.mask_field import FieldMask

T = "org.apache.kafka.connect.transforms."


def chain(type_: str, *, predicate: dict[str, str] | None = None, **options: str) -> Chain:
    config = {f"transforms.t.{name.replace('_', '.')}": value for name, value in options.items()}
    if predicate is not None:
        config |= {"transforms.t.predicate": "p", "predicates": "p"}
        config |= {f"predicates.p.{name}": value for name, value in predicate.items()}
    return Chain.from_config({"transforms": "t", "transforms.t.type": T + type_, **config})


def values(outcomes: list[Any]) -> list[Any]:
    return [outcome.value if isinstance(outcome, Record) else None for outcome in outcomes]


# --- MaskField --------------------------------------------------------------------------------------------------------

STRUCT = Schema("struct", fields=(Field("a", Schema("string", optional=True, default="d")), Field("n", Schema("int8"))))
FOO = {"type": T + "predicates.TopicNameMatches", "pattern": "foo"}


def test_masks_under_a_predicate_stay_in_their_place() -> None:
    """Records of one schema stay one block, and only those that the predicate lets through change."""
    records = [Record(topic, {"a": None, "n": 5}, value_schema=STRUCT) for topic in ("foo", "bar", "foo")]
    batch = Batch.of_records(records)

    ChainRunner(chain("MaskField$Value", fields="n", replacement="300", predicate=FOO)).apply(batch)

    assert len(batch.value) == 1
    assert batch.value[0].whole() == [{"a": "d", "n": 44}, {"a": None, "n": 5}, {"a": "d", "n": 44}]


def test_a_mask_that_fails_fails_only_where_it_applies() -> None:
    """What the predicate leaves out cannot fail."""
    records = [Record(topic, {"a": b"x"}) for topic in ("foo", "bar")]

    outcomes = chain("MaskField$Value", fields="a", predicate=FOO).apply(records)

    assert [isinstance(outcome, Failure) for outcome in outcomes] == [True, False]


@pytest.mark.parametrize(
    ("value", "replacement", "masked"),
    [
        (Int8(5), "300", Int8(44)),
        (7, "1.29e2", 129),
        (1.5, "2", 2.0),
        ("x", "y", "y"),
        (Decimal("1.5"), "1.50", Decimal("1.50")),
        (Moment(5), None, Moment(0)),
        ([1], None, []),
        ({"a": 1}, None, {}),
        (Decimal("1.50"), None, Decimal(0)),
        (None, "x", None),
    ],
)
def test_a_mask_has_the_type_of_what_it_hides(value: Any, replacement: str | None, masked: Any) -> None:
    """The zero, or the replacement."""
    (actual,) = FieldMask(replacement).of_any([value], {})

    assert (type(masked), str(masked)) == (type(actual), str(actual))


# --- InsertField ------------------------------------------------------------------------------------------------------


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
    batch = Batch(["t"] * 2, np.array([0, 1]), np.array([7, 8]), [1, 2], [], [block], Headers(2))  # type: ignore[arg-type]

    ChainRunner(chain("InsertField$Value", offset_field="o", partition_field="p", timestamp_field="ts")).apply(batch)

    columns = batch.value[0].columns
    assert [("o", [7, 8], int), ("p", [0, 1], int), ("ts", [1, 2], Moment)] == [
        (name, list(columns[name]), type(columns[name][0])) for name in ("o", "p", "ts")
    ]


def test_a_source_record_has_no_offset_to_insert() -> None:
    """It fails, with a schema and without."""
    records = [Record("t", {"a": 1}), Record("t", {"a": "x", "n": 1}, value_schema=STRUCT)]

    assert all(isinstance(one, Failure) for one in chain("InsertField$Value", offset_field="o").apply(records))


# --- HeaderFrom, InsertHeader, TimestampRouter ------------------------------------------------------------------------


def test_headers_under_a_predicate_go_to_the_right_records() -> None:
    """A copy leaves the values in their block."""
    records = [Record(topic, {"a": topic}) for topic in ("foo", "bar", "foo")]

    outcomes = chain("HeaderFrom$Value", fields="a", headers="h", operation="copy", predicate=FOO).apply(records)

    assert [[header.value for header in outcome.headers] for outcome in outcomes] == [["foo"], [], ["foo"]]  # type: ignore[union-attr]


def test_a_null_needs_an_optional_schema_in_a_header() -> None:
    """What was never stored cannot become a header."""
    records = [Record("t", {"a": "x", "n": n}, value_schema=STRUCT) for n in (1, None)]

    outcomes = chain("HeaderFrom$Value", fields="n", headers="h", operation="copy").apply(records)

    assert [isinstance(outcome, Failure) for outcome in outcomes] == [False, True]


def test_every_record_gets_the_header() -> None:
    """The literal is read once."""
    outcomes = chain("InsertHeader", header="h", value_literal="5").apply([Record("t", 1), Record("t", None)])

    assert [[header.value for header in outcome.headers] for outcome in outcomes] == [[5], [5]]  # type: ignore[union-attr]


def test_the_topic_gets_the_time() -> None:
    """In UTC; a record without a time fails."""
    outcomes = chain("TimestampRouter", topic_format="${timestamp}.${topic}").apply(
        [Record("t", timestamp=1_356_998_400_123), Record("t"), Record(None, timestamp=0)]
    )

    assert outcomes[0].topic == "20130101.t"  # type: ignore[union-attr]
    assert [outcome.exception if isinstance(outcome, Failure) else None for outcome in outcomes] == [
        None,
        "org.apache.kafka.connect.errors.DataException",
        "java.lang.NullPointerException",
    ]


def test_a_bad_pattern_fails_every_record() -> None:
    """A Connect worker finds it no earlier; a route's chain finds it at once."""
    config = {"transforms": "t", "transforms.t.type": T + "TimestampRouter", "transforms.t.timestamp.format": "bbb"}
    with pytest.raises(ConfigError, match=r"transforms\.t\.timestamp\.format: expected a pattern"):
        Chain.from_config(config)

    (outcome,) = Chain.from_config(config, strict=True).apply([Record("t", timestamp=0)])

    assert isinstance(outcome, Failure)
    assert outcome.exception == "java.lang.IllegalArgumentException"
