"""Masks of fields; what Kafka's class answers is in the vectors."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from tests.transforms.chains import FOO, STRUCT, chain

from turnout.records import Batch, Failure, Int8, Moment, Record
from turnout.transforms.chain import ChainRunner
from turnout.transforms.kafka.mask_field import FieldMask


def test_masks_under_a_predicate_stay_in_their_place() -> None:
    """Records of one schema stay one block, and only those that the predicate lets through change."""
    records = [Record(topic, {"a": None, "n": 5}, value_schema=STRUCT) for topic in ("foo", "bar", "foo")]
    batch = Batch.of_records(records)

    ChainRunner(chain("MaskField$Value", fields="n", replacement="300", predicate=FOO)).apply(batch)

    assert len(batch.value) == 1
    assert batch.value[0].whole() == [{"a": "d", "n": 44}, {"a": None, "n": 5}, {"a": "d", "n": 44}]


def test_a_mask_that_fails_fails_only_where_it_applies() -> None:
    """Records that the predicate excludes cannot fail."""
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
