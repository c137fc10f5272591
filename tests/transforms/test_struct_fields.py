"""Reading and storing fields of structs, and converting columns."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pytest

from turnout.errors import RecordError
from turnout.records import Block, Field, Moment, Schema, Struct
from turnout.records.schema import DATE, DECIMAL
from turnout.transforms.base import Errors
from turnout.transforms.struct_fields import Memo, convert, copied, default_value, read, store

OPTIONAL = Field("a", Schema("int32", optional=True, default=7))


def block(column: list[Any], field: Field, *, checked: bool = True) -> Block:
    schema = Schema("struct", fields=(field,))
    return Block(np.arange(len(column)), schema, columns={field.name: column}, checked=checked)


def test_nulls_are_read_as_defaults() -> None:
    """Nulls are replaced if the option is set."""
    values = block([1, None], OPTIONAL)

    assert read(values, OPTIONAL) == [1, 7]
    assert read(values, OPTIONAL, defaults=False) == [1, None]


def test_a_column_without_nulls_is_not_copied() -> None:
    """A column without nulls is returned as it is."""
    column = [1, 2]

    assert column is read(block(column, OPTIONAL), OPTIONAL)


def test_defaults_of_dates_are_moments() -> None:
    """A default is milliseconds in a schema, and a date object where it is read."""
    default = default_value(Schema("int32", name=DATE, default=86_400_000))

    assert (Moment, 86_400_000) == (type(default), default)


def test_a_null_in_a_required_field_is_told_by_its_place() -> None:
    """A default does not help."""
    errors: Errors = {}
    copied(block([1, None, 3], Field("a", Schema("int32", default=7))), errors, defaults=False)

    assert list(errors) == [1]


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (Schema("int8"), 128),
        (Schema("int32"), True),
        (Schema("int32", name=DATE), 5),
        (Schema("bytes", name=DECIMAL), b""),
        (Schema("string"), 1),
        (Schema("float64"), 1),
        (Schema("array", values=Schema("string")), [None]),
        (Schema("map", keys=Schema("string"), values=Schema("int32")), {"a": "b"}),
        (Schema("map", keys=Schema("string"), values=Schema("int32")), {1: 1}),
        (Schema("struct", fields=(Field("x", Schema("int32")),)), {"x": None}),
        (Schema("struct", fields=(Field("x", Schema("int32")),)), Struct(Schema("struct"), {})),
    ],
)
def test_unchecked_values_must_fit_their_schema(schema: Schema, value: Any) -> None:
    """The rules are those of ``ConnectSchema.validateValue``; values checked by a codec are not checked again."""
    errors: Errors = {}
    store(Field("a", schema), [value], errors, checked=False)
    checked: Errors = {}
    store(Field("a", schema), [value], checked)

    assert (list(errors), list(checked)) == ([0], [])


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (Schema("int8"), -128),
        (Schema("bytes", name=DECIMAL), Decimal("1.234")),
        (Schema("array"), [1, "x"]),
        (Schema("struct", fields=(Field("x", Schema("int32", default=1)),)), {"x": None}),
    ],
)
def test_what_fits_is_stored(schema: Schema, value: Any) -> None:
    """The scale of a decimal is not checked, nor is a null that was never stored."""
    errors: Errors = {}
    store(Field("a", schema), [value], errors, checked=False)

    assert not errors


def failing(value: Any) -> Any:
    if value == "bad":
        raise RecordError("bad")
    return f"{type(value).__name__} {value}"


@pytest.mark.parametrize("function", [failing, Memo(failing)])
def test_what_cannot_be_converted_is_told_by_its_place(function: Any) -> None:
    """All others are converted, and nulls stay."""
    errors: Errors = {}
    converted = convert(["x", None, "bad", "x", "bad"], function, errors)

    assert (converted, list(errors)) == (["str x", None, None, "str x", None], [2, 4])


def test_a_memo_keeps_types_apart() -> None:
    """1, 1.0 and true are three values, and so are 0.0 and -0.0."""
    memo = Memo(failing)
    columns: list[list[Any]] = [[1, 1], [1.0], [True], [Moment(1)], [0.0, -0.0, 0.0], [1, 1.0, True]]

    converted = [convert(column, memo, {}) for column in columns]

    assert [[failing(value) for value in column] for column in columns] == converted


def test_a_memo_computes_what_repeats_once() -> None:
    """Across the columns that it is asked for."""
    requested: list[str] = []
    memo = Memo(lambda value: requested.append(value) or value.upper())

    assert [convert(column, memo, {}) for column in (["a", "b", "a"], ["b"])] == [["A", "B", "A"], ["B"]]
    assert requested == ["a", "b"]


def test_a_memo_stays_small_and_gives_up() -> None:
    """The results are also correct if no value repeats."""
    memo = Memo(lambda value: value + 1)
    for start in range(0, 120_000, 10_000):
        column = list(range(start, start + 10_000))

        assert list(range(start + 1, start + 10_001)) == convert(column, memo, {})
    assert convert([None, 5], memo, {}) == [None, 6]
