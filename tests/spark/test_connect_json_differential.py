"""Our codec `connect-json` beside Kafka's own JsonConverter."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.spark.kafka_classes import KafkaClasses

from turnout.spark.values import decode_values, encode_values
from turnout.transforms import ValueFormat
from turnout.transforms.parity import PARITY

CONNECT = "org.apache.kafka.connect.data."


def wire(unscaled: int) -> str:
    """A decimal's bytes as JSON has them."""
    length = (unscaled + (unscaled < 0)).bit_length() // 8 + 1
    return base64.b64encode(unscaled.to_bytes(length, "big", signed=True)).decode()


def schema(type_: str, *, optional: bool = True, **more: Any) -> dict[str, Any]:
    return {"type": type_, "optional": optional, **more}


def decimal(scale: int, **more: Any) -> dict[str, Any]:
    return schema("bytes", name=CONNECT + "Decimal", version=1, parameters={"scale": str(scale)}, **more)


def struct(**fields: dict[str, Any]) -> dict[str, Any]:
    return schema("struct", fields=[{"field": name, **of} for name, of in fields.items()])


DATE = {"name": CONNECT + "Date", "version": 1}
TIME = {"name": CONNECT + "Time", "version": 1}
TIMESTAMP = {"name": CONNECT + "Timestamp", "version": 1}
INNER = struct(x=schema("int32", default=3), y=schema("string", optional=False, default="y"))
# Of everything with a default but structs, whose defaults JsonConverter cannot read itself.
SCHEMA = struct(
    tiny=schema("int8", default=-8),
    text=schema("string", default="ü"),
    real=schema("double", default=0.25),
    flag=schema("boolean", default=True),
    raw=schema("bytes", default=base64.b64encode(b"\x00\xff").decode()),
    price=decimal(2, default=wire(-1250)),
    exact=decimal(0),
    day=schema("int32", **DATE, default=19000),
    time=schema("int32", **TIME, default=1000),
    at=schema("int64", **TIMESTAMP, default=1_356_998_400_123),
    must=schema("int64", optional=False),
    list=schema("array", items=schema("int32", default=5), default=[1, 2]),
    map=schema(
        "map", keys=schema("string", optional=False), values=decimal(1, default=wire(7)), default={"k": wire(9)}
    ),
    strict=schema("array", items=schema("string", optional=False)),
    inner=INNER,
    items=schema("array", items=INNER),
)
WHOLE: dict[str, Any] = {
    "tiny": 1, "text": "", "real": 1.5, "flag": False, "raw": "AA==", "price": wire(5), "exact": wire(-(10**38) + 1),
    "day": -1, "time": 0, "at": -1, "must": 1, "list": [], "map": {}, "strict": ["a"],
    "inner": {"x": 1, "y": ""}, "items": [],
}  # fmt: skip
PAYLOADS: dict[str, Any] = {
    "whole": WHOLE,
    "nothing but what must be": {"must": 1},
    "nulls": dict.fromkeys(WHOLE) | {"must": 1},
    "null where one must not be": dict.fromkeys(WHOLE),
    "nothing": {},
    "null": None,
    "nulls in nested values": WHOLE
    | {"list": [None, 1], "map": {"a": None}, "items": [None, {}, {"x": None, "y": None}], "inner": {}},
    "a null element that must not be": WHOLE | {"strict": ["a", None]},
    "extremes": WHOLE
    | {
        "price": wire(10**38 - 1),
        "exact": wire(2**63),
        "day": -(2**31),
        "map": {"a": wire(-(2**63)), "b": wire(-(2**64)), "c": wire(1 - 10**38)},
    },
    "bytes that only repeat the sign": WHOLE | {"exact": base64.b64encode(b"\xff" * 40).decode()},
    "fields that the schema does not have": WHOLE | {"more": 1},
    "no struct": [1],
    "a text for a struct": WHOLE | {"inner": "x"},
}
NO_ENVELOPES = ['{"payload": {"must": 1}}', '{"must": 1}', "{}", "[]", "5", "{", ""]
BEYOND: dict[str, tuple[str, Any]] = {
    "39 digits": ("decimal scale", WHOLE | {"exact": wire(10**38)}),
    "39 digits below zero": ("decimal scale", WHOLE | {"exact": wire(-(10**38))}),
    "60 digits in a map": ("decimal scale", WHOLE | {"map": {"a": wire(10**60)}}),
    "a time after the last": ("range of dates", WHOLE | {"at": 2**63 - 1}),
    "a time before the first": ("range of dates", WHOLE | {"at": -(2**63)}),
    "a number beyond its type": ("value against its schema", WHOLE | {"tiny": 300}),
    "a text for a number": ("value against its schema", WHOLE | {"tiny": "x"}),
    "a fraction for an integer": ("value against its schema", WHOLE | {"must": 1.5}),
}


def enveloped(payload: Any, of: dict[str, Any] = SCHEMA) -> str:
    return json.dumps({"schema": of, "payload": payload})


def ours(spark: SparkSession, texts: list[str | None], codec: ValueFormat) -> list[Any]:
    """Each value read and written; the word ``error`` where it cannot be read."""
    rows = spark.createDataFrame(list(enumerate(texts)), "offset bigint, value string")
    done = encode_values(decode_values(rows, codec), codec).orderBy("offset").collect()
    return ["error" if row["_error"] else row["value"] and json.loads(row["value"]) for row in done]


@pytest.mark.parametrize("replace_null", [True, False], ids=["defaults", "nulls kept"])
def test_what_is_read_is_written_as_kafka_writes_it(
    spark: SparkSession, kafka: KafkaClasses, replace_null: bool
) -> None:
    """Payload and schema, defaults of every type in it, are JsonConverter's; what it refuses is refused."""
    codec = replace(
        ValueFormat.from_config({"format": "connect-json", "schema": SCHEMA}), replace_null_with_default=replace_null
    )
    texts = [enveloped(payload) for payload in PAYLOADS.values()] + NO_ENVELOPES

    found = ours(spark, [*texts, None], codec)

    wanted = [kafka.rewritten(text, replace_null=replace_null) for text in [*texts, None]]
    # The converter writes a null under its schema; a column does not tell it from a tombstone.
    wanted = [None if isinstance(one, dict) and one["payload"] is None else one for one in wanted]
    names = [*PAYLOADS, *NO_ENVELOPES, "tombstone"]
    assert dict(zip(names, found, strict=True)) == dict(zip(names, wanted, strict=True))


def test_what_spark_cannot_hold_is_refused(spark: SparkSession, kafka: KafkaClasses) -> None:
    """Each for a reason of the reviewed table, where Kafka has an answer; never a null, never a stop."""
    codec = ValueFormat.from_config({"format": "connect-json", "schema": SCHEMA})
    texts = [enveloped(payload) for _, payload in BEYOND.values()]

    found = ours(spark, [*texts, enveloped(WHOLE)], codec)

    assert found[:-1] == ["error"] * len(texts)
    assert found[-1]["payload"] == kafka.rewritten(enveloped(WHOLE))["payload"]
    assert "error" not in [kafka.rewritten(text) for text in texts]
    assert {reason for reason, _ in BEYOND.values()} <= set(PARITY)
