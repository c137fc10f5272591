from __future__ import annotations

import io
import json
import struct
from decimal import Decimal
from typing import Any

import fastavro
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.codecs.avro.strategies import batches, without_logical

from turnout.codecs.avro.codec import Plan
from turnout.codecs.avro.reading import MalformedError, read_value, reader_of
from turnout.codecs.avro.types import AvroType, parse_schema
from turnout.records import Block, Moment
from turnout.records.block import rows_of
from turnout.records.spans import EncodedColumn, NumberColumn, PatchedColumn, replaced

_EMPTY = {"type": "record", "name": "Empty", "fields": []}


def plan_of(*types: Any) -> Plan:
    fields = [{"name": f"f{index}", "type": one} for index, one in enumerate(types)]
    return Plan(parse_schema(json.dumps({"type": "record", "name": "R", "fields": fields})))


def read(plan: Plan, texts: list[bytes]) -> tuple[dict[int, Any], dict[int, str]]:
    blocks, errors = plan.decode(rows_of(len(texts)), texts)
    values = {row: value for block in blocks for row, value in zip(block.rows.tolist(), block.whole(), strict=True)}
    assert sorted([*values, *errors]) == list(range(len(texts)))
    return values, {row: str(error) for row, error in errors.items()}


def reference(type_: AvroType, text: bytes) -> Any:
    try:
        return read_value(reader_of(type_), text, 0)
    except MalformedError:
        return MalformedError


@settings(max_examples=60, deadline=None)
@given(batches())
def test_bytes_round_trip_and_columns_equal_the_reference(batch: tuple[AvroType, Any, list[bytes]]) -> None:
    type_, _, texts = batch
    plan = Plan(type_)
    values, errors = read(plan, texts)
    assert not errors
    assert [values[row] for row in range(len(texts))] == [reference(type_, text) for text in texts]
    blocks, _ = plan.decode(rows_of(len(texts)), texts)
    encoded = {row: text for block in blocks for row, text in zip(block.rows.tolist(), plan.encode(block), strict=True)}
    assert [encoded[row] for row in range(len(texts))] == texts
    for block in blocks:
        if block.kind == "object":
            # Values that somebody has made new are written by themselves, and not as the bytes that they came as.
            made = block.with_columns(block.schema, {name: list(column) for name, column in block.columns.items()})
            assert plan.encode(made) == plan.encode(block)


@settings(max_examples=60, deadline=None)
@given(batches(), st.data())
def test_damaged_bytes_spoil_no_other_value(batch: tuple[AvroType, Any, list[bytes]], data: st.DataObject) -> None:
    type_, _, texts = batch
    damaged = list(texts)
    for row in data.draw(st.sets(st.integers(0, len(texts) - 1), max_size=4)):
        damaged[row] = data.draw(st.binary(max_size=20) | _cut(texts[row]))
    values, errors = read(Plan(type_), damaged)
    for row, text in enumerate(damaged):
        expected = reference(type_, text)
        assert row in errors if expected is MalformedError else _same(values[row], expected)


def _cut(text: bytes) -> st.SearchStrategy[bytes]:
    return st.integers(0, len(text)).map(lambda at: text[:at])


def _same(one: Any, other: Any) -> bool:
    """Compare values in which a number may be none."""
    return repr(one) == repr(other)


def test_equals_fastavro() -> None:
    schema = {
        "type": "record",
        "name": "R",
        "fields": [
            {"name": "n", "type": ["null", "long"]},
            {"name": "tags", "type": {"type": "map", "values": {"type": "array", "items": "string"}}},
            {"name": "x", "type": "double"},
        ],
    }
    given_values = [
        {"n": index if index % 3 else None, "tags": {"a": ["b"] * index}, "x": index / 3} for index in range(20)
    ]
    texts = []
    for value in given_values:
        file = io.BytesIO()
        fastavro.schemaless_writer(file, fastavro.parse_schema(without_logical(schema)), value)
        texts.append(file.getvalue())
    values, _ = read(Plan(parse_schema(json.dumps(schema))), texts)
    assert list(values.values()) == given_values


def test_logical_types() -> None:
    plan = plan_of(
        {"type": "int", "logicalType": "date"},
        {"type": "int", "logicalType": "time-millis"},
        {"type": "long", "logicalType": "timestamp-millis"},
        {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2},
        {"type": "fixed", "name": "D", "size": 3, "logicalType": "decimal", "precision": 6, "scale": 1},
        {"type": "string", "logicalType": "uuid"},
    )
    text = bytes([2, 20, 8, 4, 0x00, 0xFF, 0xFF, 0xFF, 0xFE, 2]) + b"u"
    value = {
        "f0": Moment(86_400_000),
        "f1": Moment(10),
        "f2": Moment(4),
        "f3": Decimal("2.55"),
        "f4": Decimal("-0.2"),
        "f5": "u",
    }
    for times in (1, 20):
        values, _ = read(plan, [text] * times)
        assert values[0] == value
        (block,), _ = plan.decode(rows_of(times), [text] * times)
        assert plan.encode(block) == [text] * times


@pytest.mark.parametrize(
    ("type_", "text", "problem"),
    [
        ("long", b"", "expected a number at byte 0, found the end"),
        ("long", b"\xff" * 12, "expected a number of at most 64 bits at byte 0"),
        ("long", b"\xff" * 9 + b"\x02", "expected a number of at most 64 bits"),
        ("int", b"\xff" * 5 + b"\x01", "expected a number of 32 bits"),
        ("string", b"\x01", "expected a length of at most 0 at byte 0, found -1"),
        ("string", b"\x80\x80\x80\x80\x10ab", "expected a length of at most 2"),
        ("string", b"\x02\xff", "expected text in UTF-8"),
        ("bytes", b"\x04a", "expected a length"),
        ("boolean", b"\x02", "expected 0 or 1"),
        ("double", b"1234567", "expected 8 bytes at byte 0, found 7"),
        ("long", b"\x02\x02", "expected the end after byte 1, found 1 bytes more"),
        (["null", "long"], b"\x04", "expected one of 2 branches"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, b"\x02", "expected one of 1 symbols"),
        ({"type": "array", "items": "long"}, b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01", "expected at most 0 items"),
        ({"type": "array", "items": _EMPTY}, b"\x80\x80\x80\x80\x10\x00", "expected at most 1024 items"),
        ({"type": "array", "items": _EMPTY}, b"\x80\x10" * 5 + b"\x00", "expected at most 0 items"),
        ({"type": "map", "values": _EMPTY}, b"\x08\x00", "expected at most 1 items"),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2},
            b"\xc0\x0c" + b"\x01" * 800,
            "expected a decimal of at most 400 bytes",
        ),
    ],
)
def test_malformed_values(type_: Any, text: bytes, problem: str) -> None:
    plan = plan_of(type_)
    for texts in ([text], [text] * 20):
        values, errors = read(plan, texts)
        assert not values
        assert problem in errors[0]


def test_block_with_its_size() -> None:
    plan = plan_of({"type": "array", "items": "long"})
    values, _ = read(plan, [b"\x03\x04\x02\x04\x00"])
    assert values[0] == {"f0": [1, 2]}


def test_map_with_other_keys_than_strings() -> None:
    entry = {
        "type": "record",
        "name": "io.confluent.connect.avro.MapEntry",
        "connect.internal.type": "MapEntry",
        "fields": [{"name": "key", "type": "long"}, {"name": "value", "type": "string"}],
    }
    plan = plan_of({"type": "array", "items": entry})
    text = bytes([4, 2, 2]) + b"a" + bytes([4, 2]) + b"b" + b"\0"
    values, _ = read(plan, [text])
    assert values[0] == {"f0": {1: "a", 2: "b"}}
    (block,), _ = plan.decode(rows_of(1), [text])
    assert plan.encode(block) == [text]


def test_not_a_number_keeps_its_bits() -> None:
    plan = plan_of("double", "float")
    text = struct.pack("<Qf", 0x7FF8000000000000, float("inf"))
    for times in (1, 20):
        (block,), _ = plan.decode(rows_of(times), [text] * times)
        assert plan.encode(block) == [text] * times


def test_values_in_rows_of_a_batch() -> None:
    plan = plan_of("long")
    texts = [b"\x02"] * 10
    texts[3] = b""
    blocks, errors = plan.decode(np.arange(100, 110), texts)
    assert list(errors) == [103]
    assert sorted(row for block in blocks for row in block.rows.tolist()) == [100, 101, 102, *range(104, 110)]


_FIELDS = (["null", "int"], "string", ["long", "null"], "double", ["null", "string"], "boolean", "bytes")


def _written(plan: Plan, values: list[dict[str, Any]]) -> list[bytes]:
    columns = {name: [value[name] for value in values] for name in values[0]}
    return list(plan.encode(Block(rows_of(len(values)), plan.schema, columns=columns)))


def _some_values(count: int) -> list[dict[str, Any]]:
    texts = ("Oulu", "Jyväskylä", "", "x" * 100)
    return [
        {
            "f0": None if index % 3 else -(2**31) + index,
            "f1": texts[index % 4],
            "f2": None if index % 5 == 0 else 2**62 - index,
            "f3": index / 3,
            "f4": None if index % 7 else texts[index % 4],
            "f5": index % 2 == 0,
            "f6": b"\xff" * index,
        }
        for index in range(count)
    ]


def test_fields_that_nobody_looks_at_are_never_read() -> None:
    """They go from what was read to what is written as bytes, of the records that are left and in any order."""
    plan, other = plan_of(*_FIELDS), plan_of(*reversed(_FIELDS))
    values = _some_values(80)
    (block,), _ = plan.decode(rows_of(80), _written(plan, values))
    kept = np.flatnonzero(np.arange(80) % 4)
    part = block.take(kept)
    names = list(part.columns)
    turned = part.with_columns(other.schema, dict(zip(names, reversed(list(part.columns.values())), strict=True)))

    written = other.encode(turned)

    assert all(isinstance(one, EncodedColumn) and one._values is None for one in part.columns.values())
    expected = [dict(zip(names, reversed(values[index].values()), strict=True)) for index in kept.tolist()]
    assert written == _written(other, expected)
    assert part.whole() == [values[index] for index in kept.tolist()]


def test_other_type_takes_the_values() -> None:
    """Of an int that is written as a long which may be null, the number counts and not its bytes."""
    plan, other = plan_of("int"), plan_of(["null", "long"])
    (block,), _ = plan.decode(rows_of(20), _written(plan, [{"f0": index} for index in range(20)]))

    assert other.encode(block) == _written(other, [{"f0": index} for index in range(20)])


@pytest.mark.parametrize("count", [2, 40])
def test_columns_are_written_as_their_values(count: int) -> None:
    """Patched ones, among them all rows and none, numbers as arrays, and one text for all rows."""
    plan = plan_of("string", ["null", "string"], "long", ["long", "null"], ["null", "string"], "string")
    names = [f"f{at}" for at in range(6)]
    values = [dict(zip(names, (str(row), None, row, None, "x", "é"), strict=True)) for row in range(count)]
    texts = _written(plan, values)
    (block,), _ = plan.decode(rows_of(count), texts)
    columns = dict(block.columns)
    masks = [np.arange(count) % 2 == 0, np.ones(count, np.bool_), np.zeros(count, np.bool_)]
    for name, value, mask in zip(("f0", "f1", "f4"), ("new", "é" * 100, "none"), masks, strict=True):
        columns[name] = replaced(columns[name], [value] * int(mask.sum()), mask)
    columns["f2"] = NumberColumn(np.arange(count) * 2**57 - 2**60, int)
    columns["f3"] = NumberColumn(np.arange(count) - 100, Moment)
    columns["f5"] = ["same"] * count

    written = plan.encode(block.with_columns(block.schema, columns))

    assert isinstance(columns["f0"], PatchedColumn)
    assert columns["f0"]._values is None
    listed = {name: list(column) for name, column in columns.items()}
    assert listed["f0"] == ["new" if row % 2 == 0 else str(row) for row in range(count)]
    assert (listed["f1"], listed["f4"]) == (["é" * 100] * count, ["x"] * count)
    rows = [{name: column[row] for name, column in listed.items()} for row in range(count)]
    assert list(written) == [_written(plan, [row])[0] for row in rows]
    parsed = fastavro.parse_schema(json.loads(_TEXTS_AND_LONGS))
    assert [fastavro.schemaless_reader(io.BytesIO(text), parsed, None) for text in written] == rows


_TEXTS_AND_LONGS = """{"type": "record", "name": "R", "fields": [
    {"name": "f0", "type": "string"}, {"name": "f1", "type": ["null", "string"]}, {"name": "f2", "type": "long"},
    {"name": "f3", "type": ["long", "null"]}, {"name": "f4", "type": ["null", "string"]},
    {"name": "f5", "type": "string"}
]}"""
