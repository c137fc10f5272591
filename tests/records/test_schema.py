"""Schemaless scalars."""

from __future__ import annotations

import pickle

import pytest

from turnout.records import Field, Schema
from turnout.records.schema import BigInt, Float32, Int8, Int16, Int32, Moment, Struct


@pytest.mark.parametrize("kind", [Int8, Int16, Int32, BigInt, Float32, Moment])
def test_a_scalar_is_a_number_of_its_kind(kind: type) -> None:
    """It compares as a number, and keeps its kind through a pickle, as on the way to a task."""
    again = pickle.loads(pickle.dumps(kind(3)))

    assert again == 3
    assert type(again) is kind


def test_a_struct_knows_its_schema() -> None:
    """Equal fields of another schema are another struct."""
    one, other = (Schema("struct", fields=(Field("a", Schema(kind)),)) for kind in ("int8", "int16"))

    assert Struct(one, {"a": 1}) == Struct(one, {"a": 1})
    assert Struct(one, {"a": 1}) != Struct(other, {"a": 1})
