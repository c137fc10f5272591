"""Values read and written by each codec."""

from __future__ import annotations

import base64
import json
from decimal import Context, Decimal
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from turnout.errors import ConfigError
from turnout.spark.values import decode_values, encode_values
from turnout.transforms import ValueFormat

CONNECT = "org.apache.kafka.connect.data."
SCHEMA = {
    "type": "struct",
    "optional": False,
    "name": "Order",
    "fields": [
        {"field": "id", "type": "int64", "optional": False},
        {"field": "price", "type": "bytes", "optional": True, "name": CONNECT + "Decimal", "version": 1,
         "parameters": {"scale": "2"}},
        {"field": "at", "type": "int64", "optional": True, "name": CONNECT + "Timestamp", "version": 1},
        {"field": "day", "type": "int32", "optional": True, "name": CONNECT + "Date", "version": 1},
    ],
}  # fmt: skip


NUMBERED = {"type": "map", "keys": {"type": "int32"}, "values": {"type": "string"}}


def decimal(scale: str) -> dict[str, Any]:
    return {"type": "bytes", "name": CONNECT + "Decimal", "version": 1, "parameters": {"scale": scale}}


def frame(spark: SparkSession, *values: bytes | None) -> DataFrame:
    return spark.createDataFrame([(n, value) for n, value in enumerate(values)], "offset bigint, value binary")


def encoded(rows: DataFrame, codec: ValueFormat) -> list[Any]:
    found = encode_values(rows, codec).orderBy("offset").collect()
    return [None if row["value"] is None else json.loads(row["value"]) for row in found]


def price(cents: int) -> str:
    return base64.b64encode(cents.to_bytes(2, "big", signed=True)).decode()


def test_a_value_with_its_schema_is_read_and_written(spark: SparkSession) -> None:
    """JsonConverter's envelope: logical types become Spark's, and go back as the numbers that carry them."""
    codec = ValueFormat.from_config({"format": "connect-json", "schema": SCHEMA})
    payload = {"id": 7, "price": price(-1250), "at": 1_000, "day": 1}
    text = json.dumps({"schema": SCHEMA, "payload": payload}).encode()

    rows = decode_values(frame(spark, text, None, b'{"schema": null, "payload": null}', b"{"), codec)
    row = rows.orderBy("offset").collect()[0]["value"]

    assert isinstance(rows.schema["value"].dataType, T.StructType)
    assert (7, Decimal("-12.50"), 1970) == (row["id"], row["price"], row["at"].year)
    assert [r["_error"] is not None for r in rows.orderBy("offset").collect()] == [False, False, True, True]
    again = encoded(rows, codec)[0]
    assert again["schema"] == SCHEMA
    assert (again["payload"]["id"], again["payload"]["at"], again["payload"]["day"]) == (7, 1_000, 1)
    assert int.from_bytes(base64.b64decode(again["payload"]["price"]), "big", signed=True) == -1250


def test_decimals_of_any_size_keep_their_bytes(spark: SparkSession) -> None:
    """BigInteger's own bytes, as short as can be, of up to 38 digits; beyond that there is no Spark decimal."""
    schema = decimal("3") | {"optional": True}
    codec = ValueFormat.from_config({"format": "connect-json", "schema": schema})
    held = [0, 1, -1, 127, 128, -128, -129, 32768, 2**63 - 1, 2**63, -(2**63), -(2**64), 10**38 - 1, 1 - 10**38]
    wide = [10**38, -(10**38), -(2**127), 2**127, 2**200]
    payloads = [
        base64.b64encode(n.to_bytes((8 + (n + (n < 0)).bit_length()) // 8, "big", signed=True)).decode()
        for n in held + wide
    ]
    padded = [base64.b64encode(n.to_bytes(24, "big", signed=True)).decode() for n in held]

    rows = decode_values(
        frame(spark, *[json.dumps({"schema": schema, "payload": p}).encode() for p in payloads + padded]), codec
    )

    found = rows.orderBy("offset").collect()
    numbers = [Decimal(n).scaleb(-3, Context(prec=40)) for n in held]
    assert [row["value"] for row in found] == [*numbers, *[None] * len(wide), *numbers]
    assert [row["offset"] for row in found if row["_error"]] == list(range(len(held), len(payloads)))
    kept = payloads[: len(held)]
    assert [one and one["payload"] for one in encoded(rows, codec)] == [*kept, *[None] * len(wide), *kept]


def test_an_envelope_of_unknown_schema_gives_its_payload(spark: SparkSession) -> None:
    """Without an expected schema the payload is schemaless."""
    codec = ValueFormat.from_config({"format": "connect-json"})
    rows = decode_values(frame(spark, b'{"schema": {}, "payload": {"a": 1}}', b'{"a": 1}'), codec)

    assert isinstance(rows.schema["value"].dataType, T.VariantType)
    assert [r["_error"] is not None for r in rows.orderBy("offset").collect()] == [False, True]
    assert encoded(rows, ValueFormat("json")) == [{"a": 1}, None]


def test_json_of_any_shape_goes_through(spark: SparkSession) -> None:
    """Schemaless JSON keeps its numbers, its nulls and its names."""
    values = [b'{"a": [1, null, {"\xc3\xbc": 1.5}], "b": null}', b'"text"', b"5", b"null", None]
    rows = decode_values(frame(spark, *values), ValueFormat.from_config({"format": "json"}))

    assert encoded(rows, ValueFormat("json")) == [{"a": [1, None, {"ü": 1.5}], "b": None}, "text", 5, None, None]
    assert not any(row["_error"] for row in rows.collect())


def test_raw_values_are_left_alone(spark: SparkSession) -> None:
    """Bytes in, the same bytes out."""
    codec = ValueFormat.from_config({"format": "raw"})
    rows = frame(spark, b"\x00\xff")

    assert bytes(encode_values(decode_values(rows, codec), codec).collect()[0]["value"]) == b"\x00\xff"


@pytest.mark.parametrize(
    ("config", "place"),
    [
        ({"format": "avro"}, "value.format"),
        ({"format": "json", "schema": {"type": "struct"}}, "value.schema"),
        ({"format": "connect-json", "schema": {"type": "int7"}}, "value.schema"),
        ({"format": "raw", "schema": "a int"}, "value.schema"),
        ({"format": "json", "shema": "a int"}, "value.shema"),
        ({"format": "connect-json", "replace.null.with.default": "maybe"}, "value.replace.null.with.default"),
        ({"format": "connect-json", "schema": decimal("39")}, "value.schema"),
        ({"format": "connect-json", "schema": decimal("-1")}, "value.schema"),
        ({"format": "connect-json", "schema": NUMBERED}, "value.schema"),
        ({"format": "connect-json", "schema": decimal("2") | {"default": "7.00"}}, "value.schema"),
    ],
)
def test_a_wrong_format_is_refused_with_its_place(config: dict[str, Any], place: str) -> None:
    """The mistake names the setting."""
    with pytest.raises(ConfigError) as refused:
        ValueFormat.from_config(config)

    assert [place] == [mistake.path for mistake in refused.value.mistakes]
