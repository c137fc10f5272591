"""Paths of fields and of elements of arrays, and their steps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from turnout.records import Batch, Field, Int8, Moment, Record, Schema, Struct
from turnout.records.field_paths import (
    EACH,
    PathError,
    element_texts_at,
    has_elements,
    parse_elements,
    parse_path,
    texts_at,
)
from turnout.records.schema import DATE


@pytest.mark.parametrize(
    ("text", "steps"),
    [("a", ("a",)), ("a.b", ("a", "b")), ("a.`b.c`.d", ("a", "b.c", "d")), ("", ()), ("a.", ("a", "")),
     ("`a\\`.b`", ("a`.b",)), ("a`b", ("a`b",))],
)  # fmt: skip
def test_a_path_is_cut_at_its_dots(text: str, steps: tuple[str, ...]) -> None:
    """Dots between backticks do not separate steps."""
    assert steps == parse_path(text)


def test_brackets_in_backticks_are_a_name() -> None:
    """Without backticks they select each element, also twice."""
    assert parse_elements("a[][].`b[]`.`[]`.c[]") == ("a", EACH, EACH, "b[]", "[]", "c", EACH)
    assert [has_elements(parse_elements(path)) for path in ("a.b", "`a[]`.`[]`", "a[].b")] == [False, False, True]


def test_a_backtick_has_to_be_closed() -> None:
    """The message says where it was opened."""
    with pytest.raises(PathError, match="position 2"):
        parse_path("a.`b")


STRING = Schema("string", optional=True)
DAY = Schema("int32", optional=True, name=DATE, version=1)
INNER = Schema("struct", optional=True, fields=(Field("x.y", Schema("int64", default=7)),))
SCHEMA = Schema(
    "struct",
    fields=(
        Field("name", STRING),
        Field("day", DAY),
        Field("inner", INNER),
        Field("map", Schema("map", True, keys=Schema("string"), values=DAY)),
    ),
)
TYPED = {"name": "n", "day": Moment(86_400_000), "inner": {"x.y": None}, "map": {"k": Moment(0)}}


def texts(path: str, *values: tuple[Schema | None, Any]) -> list[str | None]:
    batch = Batch.of_records([Record("t", value, value_schema=schema) for schema, value in values])
    return texts_at(batch.value, parse_path(path), len(batch))


ITEM = Schema(
    "struct",
    optional=True,
    fields=(Field("sku", STRING), Field("day", DAY), Field("tags", Schema("array", True, values=STRING))),
)
ITEMS = Schema("struct", fields=(Field("items", Schema("array", True, values=ITEM)), Field("name", STRING)))
TYPED_ITEMS = {
    "items": [
        {"sku": "A1", "day": Moment(86_400_000), "tags": ["x", "y"]},
        None,
        {"sku": None, "day": Moment(0), "tags": ["y", None, "z"]},
    ],
    "name": "n",
}  # fmt: skip
PLAIN_ITEMS = {
    "items": [{"sku": "A1", "n": 1}, {"sku": "B2", "n": [2, 2.5]}, 7, {"sku": "A1"}, {"deep": {"a": [[1], [2, 3]]}}]
}


def elements(path: str, *values: tuple[Schema | None, Any]) -> list[Any]:
    batch = Batch.of_records([Record("t", value, value_schema=schema) for schema, value in values])
    return element_texts_at(batch.value, parse_elements(path), len(batch))


@pytest.mark.parametrize(
    ("path", "typed", "plain"),
    [("items[].sku", "A1", ("A1", "B2")), ("items[].day", ("1970-01-02", "1970-01-01"), None),
     ("items[].tags[]", ("x", "y", "z"), None), ("items[].n[]", None, ("1", "2", "2.5")),
     ("items[].n", None, ("1", "[2,2.5]")),
     ("name[]", "n", None), ("items[].deep.a[]", None, ("1", "2", "3")), ("items[].deep.a[][]", None, ("1", "2", "3")),
     ("nothing[].sku", None, None), ("items[].sku[].more", None, None)],
)  # fmt: skip
def test_elements_are_several_values(path: str, typed: Any, plain: Any) -> None:
    """Nulls are left out, equal values count once, and a value that is not an array is its own only element."""
    wanted = [typed, None, plain, None]
    found = elements(path, (ITEMS, TYPED_ITEMS), (ITEMS, {"items": None}), (None, PLAIN_ITEMS), (None, {"items": []}))
    assert wanted == found


@pytest.mark.parametrize(
    ("path", "kind", "typed", "plain"),
    [
        ("n", "null", None, "null"), ("n", "scalar", None, "null"), ("n", "json", None, "null"),
        ("missing", "scalar", None, None), ("missing", "json", None, None),
        ("a", "scalar", None, None), ("a", "json", '["x",null]', '["x",null]'),
        ("a[]", "scalar", ("x", "null"), ("x", "null")), ("a[]", "null", "null", "null"),
        ("a[]", "json", ('"x"', "null"), ('"x"', "null")),
        ("o.b", "scalar", "1.5", "1.5"), ("o", "scalar", None, None), ("o.c", "null", None, "null"),
    ],
)  # fmt: skip
def test_kinds_that_tell_null_from_a_missing_value(path: str, kind: str, typed: Any, plain: Any) -> None:
    """Null is a value of schemaless objects; a struct has all fields of its schema, and null ones count as missing."""
    value = {"n": None, "a": ["x", None], "o": {"b": 1.5, "c": None}}
    inner = Schema("struct", fields=(Field("b", Schema("float64")), Field("c", STRING)))
    schema = Schema(
        "struct", fields=(Field("n", STRING), Field("a", Schema("array", values=STRING)), Field("o", inner))
    )
    batch = Batch.of_records([Record("t", value, value_schema=schema), Record("t", value), Record("t", {"z": 1})])
    steps = parse_elements(path)
    read = element_texts_at if "[]" in steps else texts_at
    assert read(batch.value, steps, 3, kind) == [typed, plain, None]


def test_elements_of_a_struct_without_schema_around_it() -> None:
    """Its own schema says what its elements are."""
    assert elements("inner.items[].day", (None, {"inner": Struct(ITEMS, TYPED_ITEMS)})) == [
        ("1970-01-02", "1970-01-01")
    ]


def test_elements_of_a_name_in_backticks() -> None:
    """The brackets follow the backtick."""
    assert elements("`a.b`[].c", (None, {"a.b": [{"c": 1}, {"c": 2}]})) == [("1", "2")]


@pytest.mark.parametrize(
    ("path", "text"),
    [("name", "n"), ("day", "1970-01-02"), ("inner.`x.y`", None), ("map.k", "1970-01-01"), ("map.z", None),
     ("nothing", None), ("name.deeper", None), ("inner", '{"x.y":null}')],
)  # fmt: skip
def test_a_typed_value_is_seen_by_its_schema(path: str, text: str | None) -> None:
    """Nulls are seen as they are stored, without their defaults."""
    assert [text, None] == texts(path, (SCHEMA, TYPED), (SCHEMA.with_(optional=True), None))


@pytest.mark.parametrize(
    ("path", "text"),
    [("a", "1"), ("b.c", "true"), ("d", "5"), ("e", '["x",null]'), ("f", "text"), ("a.b", None), ("g.name", "n"),
     ("g.inner.`x.y`", None), ("b", '{"c":true}')],
)  # fmt: skip
def test_a_schemaless_value_is_seen_by_its_types(path: str, text: str | None) -> None:
    """Nested maps are opened, a struct inside them too; everything else has nothing inside."""
    value = {"a": 1, "b": {"c": True}, "d": Int8(5), "e": ["x", None], "f": b"text", "g": Struct(SCHEMA, TYPED)}

    assert [text] == texts(path, (None, value))


def test_every_row_gets_its_own_text() -> None:
    """Rows of several shapes, of plain values and of nulls keep their positions."""
    values = [(None, {"a": "1"}), (None, None), (None, {"b": 2, "a": "2"}), (None, "plain"), (SCHEMA, TYPED)]

    assert texts("a", *values) == ["1", None, "2", None, None]
    assert texts("", *values)[:4] == ['{"a":"1"}', None, '{"b":2,"a":"2"}', "plain"]


def test_rows_without_a_value_have_no_text() -> None:
    """Keys and values of records that are no longer alive are gone."""
    batch = Batch.of_records([Record("t", {"a": "1"}), Record("t", {"a": "2"})])
    batch.filter(np.array([0]))

    assert texts_at(batch.value, ("a",), 2) == [None, "2"]
