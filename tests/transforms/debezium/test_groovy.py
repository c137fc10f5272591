"""Expressions in Groovy have the results that Groovy gives them, or are refused."""

from __future__ import annotations

import json
from collections import Counter
from decimal import Decimal
from typing import Any

from tests.transforms.groovy import VECTORS

from turnout.errors import ConditionError, RecordError
from turnout.records import BigInt, Float32, Header, Int8, Int32, Record
from turnout.records.batch import Batch
from turnout.records.block import rows_of
from turnout.transforms.debezium.expression import GROOVY, Script
from turnout.transforms.debezium.scripting import DebeziumFilter
from turnout.transforms.java.values import single

MAKERS: dict[str, Any] = {
    "int8": Int8, "int32": Int32, "int64": int, "float32": lambda value: Float32(single(value)), "float64": float,
    "decimal": Decimal, "bigint": BigInt, "string": str, "boolean": bool,
}  # fmt: skip


def plain(item: Any) -> Any:
    """A typed value of the vectors as a record has it."""
    if isinstance(item, dict) and len(item) == 1 and next(iter(item)) in MAKERS:
        ((kind, value),) = item.items()
        return MAKERS[kind](value)
    return {name: plain(inner) for name, inner in item.items()} if isinstance(item, dict) else item


def result_of(case: dict[str, Any]) -> dict[str, Any]:
    """The result of a vector's expression, in the form of the vectors."""
    try:
        script = Script.read(case["expression"], GROOVY)
    except ConditionError:
        return {"refused": True}
    batch = Batch.of_records([Record("t", plain(case["value"]), {"id": 3}, [Header("h", b"v")])])
    errors: dict[int, RecordError] = {}
    results = DebeziumFilter().results(script, batch, rows_of(1), errors)
    if errors:
        return {"failed": True}
    item = results[0]
    if item.value is None:
        return {"type": ""}
    return {"type": item.type or "other", **({"text": item.text} if item.type else {})}


def test_results_are_those_of_groovy() -> None:
    """Of every operator over every pair of types, and of each way to write an expression."""
    refused = Counter[str]()
    for case in json.loads(VECTORS.read_text(encoding="utf-8")):
        expected = {name: value for name, value in case.items() if name not in ("expression", "value")}
        result = result_of(case)
        if result == {"refused": True} != expected:
            refused[case["expression"]] += 1
        else:
            assert result == expected, case

    assert list(refused) == ["1_000 == 1000"]
