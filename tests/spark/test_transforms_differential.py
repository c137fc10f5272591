"""Our chains beside Kafka's own classes, over generated records."""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.settings import interpreted
from tests.spark.kafka_classes import KafkaClasses

from turnout.spark.chain import compile_chain
from turnout.spark.values import decode_values, encode_values
from turnout.transforms import Chain, ValueFormat
from turnout.transforms.parity import PARITY

T = "org.apache.kafka.connect.transforms."
MILLIS = 1_356_998_400_123
RECORD = (
    "topic string, partition int, offset bigint, key binary, value string, "
    "headers array<struct<key:string,value:binary>>, timestamp timestamp"
)
CONFIGS: list[dict[str, str]] = [
    {"type": T + "Cast$Value", "spec": "a:string,b:float64,c:boolean"},
    {"type": T + "Cast$Value", "spec": "a:int8,c:int32"},
    {"type": T + "Flatten$Value", "delimiter": "_"},
    {"type": T + "HoistField$Value", "field": "wrapped"},
    {
        "type": T + "InsertField$Value",
        "topic.field": "t",
        "offset.field": "o",
        "static.field": "s!",
        "static.value": "x",
    },
    {"type": T + "MaskField$Value", "fields": "a,b,c"},
    {"type": T + "MaskField$Value", "fields": "a,c", "replacement": "12"},
    {"type": T + "RegexRouter", "regex": "(\\w+)\\.(.*)", "replacement": "$2-$1"},
    {"type": T + "ReplaceField$Value", "include": "a,b,when", "renames": "a:alpha,b:beta"},
    {"type": T + "TimestampConverter$Value", "field": "when", "target.type": "unix", "format": "yyyy-MM-dd HH:mm:ss"},
    {"type": T + "TimestampRouter"},
    {"type": T + "HeaderFrom$Value", "fields": "a,b", "headers": "x,y", "operation": "move"},
]
SCHEMA: dict[str, Any] = {
    "type": "struct",
    "optional": False,
    "fields": [
        {"field": "a", "type": "int64", "optional": True},
        {"field": "b", "type": "double", "optional": True},
        {"field": "c", "type": "string", "optional": True},
        {"field": "when", "type": "string", "optional": False},
        {"field": "inner", "type": "struct", "optional": False,
         "fields": [{"field": "d", "type": "boolean", "optional": True}]},
    ],
}  # fmt: skip


CONNECT = "org.apache.kafka.connect.data."
RICH: dict[str, Any] = {
    "type": "struct", "optional": True, "name": "Rich", "version": 3, "doc": "with everything",
    "fields": [
        {"field": "ünï çødé.名", "type": "string", "optional": True},
        {"field": "price", "type": "bytes", "optional": True, "name": CONNECT + "Decimal", "version": 1,
         "parameters": {"scale": "2"}},
        {"field": "day", "type": "int32", "optional": True, "name": CONNECT + "Date", "version": 1},
        {"field": "at", "type": "int64", "optional": True, "name": CONNECT + "Timestamp", "version": 1},
        {"field": "level", "type": "int32", "optional": True, "default": 7},
        {"field": "list", "type": "array", "optional": True, "items":
            {"type": "struct", "optional": True, "fields": [
                {"field": "x", "type": "int32", "optional": True},
                {"field": "tags", "type": "map", "optional": True, "keys": {"type": "string", "optional": False},
                 "values": {"type": "int64", "optional": True}}]}},
        {"field": "map", "type": "map", "optional": True, "keys": {"type": "string", "optional": False},
         "values": {"type": "string", "optional": True}},
        {"field": "empty", "type": "struct", "optional": True, "fields": []},
    ],
}  # fmt: skip
RICH_CONFIGS: list[dict[str, str]] = [
    {"type": T + "Cast$Value", "spec": "price:string,day:int64,at:string,level:float32"},
    {"type": T + "Cast$Value", "spec": "price:int32,list:string"},
    {"type": T + "Flatten$Value"},
    {"type": T + "InsertField$Value", "timestamp.field": "seen", "static.field": "ß?", "static.value": "ü"},
    {"type": T + "HoistField$Value", "field": "wrapped"},
    *[
        {"type": T + "MaskField$Value", "fields": field}
        for field in ("price", "list", "map", "at,day", "ünï çødé.名", "empty", "level")
    ],
    {"type": T + "MaskField$Value", "fields": "level", "replacement": "300"},
    *[
        {"type": T + "MaskField$Value", "fields": "price", "replacement": replacement}
        for replacement in ("7", "-7.25", "1e3", "7.123", "9" * 36, "9" * 37, "x")
    ],
    *[
        {"type": T + "MaskField$Value", "fields": field, "replacement": "7"}
        for field in ("list", "map", "at", "day", "ünï çødé.名", "empty")
    ],
    {"type": T + "ReplaceField$Value", "exclude": "map,price", "renames": "ünï çødé.名:plain,list:ungewöhnlich"},
    {"type": T + "ReplaceField$Value", "include": "empty"},
    {"type": T + "ReplaceField$Value", "exclude": "map", "replace.null.with.default": "false"},
    {"type": T + "ExtractField$Value", "field": "list"},
    {"type": T + "ExtractField$Value", "field": "empty"},
    {"type": T + "ExtractField$Value", "field": "`ünï çødé.名`", "field.syntax.version": "V2"},
    {"type": T + "SetSchemaMetadata$Value", "schema.name": "Näme", "schema.version": "9"},
    {"type": T + "TimestampConverter$Value", "field": "at", "target.type": "string", "format": "YYYY-'W'ww-u HH"},
    {"type": T + "TimestampConverter$Value", "field": "day", "target.type": "unix", "unix.precision": "seconds"},
    {"type": T + "HeaderFrom$Value", "fields": "level", "headers": "x", "operation": "move"},
]


KEEPING_NULLS: list[dict[str, str]] = [
    {"type": T + "Cast$Value", "spec": "day:int64"},
    {"type": T + "ExtractField$Value", "field": "level"},
    {"type": T + "HeaderFrom$Value", "fields": "map", "headers": "x", "operation": "move"},
    {"type": T + "HoistField$Value", "field": "wrapped"},
    {"type": T + "InsertField$Value", "topic.field": "t"},
    {"type": T + "MaskField$Value", "fields": "level"},
    {"type": T + "ReplaceField$Value", "exclude": "map"},
    {"type": T + "SetSchemaMetadata$Value", "schema.name": "N"},
    {"type": T + "TimestampConverter$Value", "field": "at", "target.type": "unix"},
]


def rich(seed: int) -> list[dict[str, Any] | None]:
    """Records with nested arrays and maps, decimals, dates, empty structs and nulls; tombstones among them."""
    draw = random.Random(seed)
    prices = [0, 5, -1250, 12345678901234567890123, None]

    def price() -> str | None:
        cents = draw.choice(prices)
        return None if cents is None else base64.b64encode(cents.to_bytes(12, "big", signed=True)).decode()

    def item() -> dict[str, Any] | None:
        tags = draw.choice([None, {}, {"a": 1, "ä": None}])
        return draw.choice([None, {"x": draw.choice([None, 1]), "tags": tags}])

    return [
        None if n % 8 == 7 else {
            "ünï çødé.名": draw.choice([None, "", "日本", "\U0001f680"]),
            "price": price(),
            "day": draw.choice([None, 0, -1, 19000]),
            "at": draw.choice([None, 0, -1, MILLIS]),
            "level": draw.choice([None, 1]),
            "list": draw.choice([None, [], [item(), item()]]),
            "map": draw.choice([None, {}, {"k": None, "ü": "v"}]),
            "empty": draw.choice([None, {}]),
        }
        for n in range(16)
    ]  # fmt: skip


def generated(seed: int) -> list[dict[str, Any]]:
    """Records of the schema, nulls and odd texts among them."""
    draw = random.Random(seed)
    numbers = [None, 0, 5, -1, 127, 128, 2**31, 2**63 - 1, -(2**63)]
    reals = [None, 0.5, -3.75, 1e10, 1e-7, 123456.789]
    texts = [None, "", "12", "-7", "true", "TRUE", "x", " 5", "ünïcode"]
    times = [
        "2013-01-01 05:00:00",
        "1969-12-31 23:59:59",
        "2013-13-45 25:61:61",
        "no time",
        "2013-01-01 05:00:00 and more",
    ]
    return [
        {
            "a": draw.choice(numbers),
            "b": draw.choice(reals),
            "c": draw.choice(texts),
            "when": draw.choice(times),
            "inner": {"d": draw.choice([None, True, False])},
        }
        for _ in range(25)
    ]


def ours(spark: SparkSession, config: dict[str, str], texts: Sequence[str | None], codec: ValueFormat) -> list[Any]:
    stage = {f"transforms.t.{name}": value for name, value in config.items()}
    chain = Chain.from_config({"transforms": "t", **stage}, strict=True)
    rows = spark.createDataFrame(
        [("some.topic", 0, n, None, text, [], None) for n, text in enumerate(texts)], RECORD
    ).selectExpr("* except (timestamp)", f"timestamp_millis({MILLIS}) as timestamp")
    done = encode_values(compile_chain(chain, decode_values(rows, codec), "all"), codec)
    return [
        "error" if row["_error"] else (row["topic"], None if row["value"] is None else json.loads(row["value"]))
        for row in sorted(done.collect(), key=lambda row: row["offset"])
    ]


@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("schemas", [True, False], ids=["with schema", "schemaless"])
def test_the_same_records_come_out(
    spark: SparkSession, kafka: KafkaClasses, config: dict[str, str], schemas: bool
) -> None:
    """Topic and value, schema included, are those of Kafka's class; what fails there fails here."""
    records = generated(len(config))
    bodies = [{"schema": SCHEMA, "payload": record} if schemas else record for record in records]
    texts = [json.dumps(body, ensure_ascii=False) for body in bodies]
    format_ = {"format": "connect-json", "schema": SCHEMA} if schemas else {"format": "json"}

    found = ours(spark, config, texts, ValueFormat.from_config(format_))

    wanted = [kafka.run(config, "some.topic", text, n, MILLIS, schemas=schemas) for n, text in enumerate(texts)]
    assert [_plain(one) for one in wanted] == [_plain(one) for one in found]


@pytest.mark.parametrize("schemas", [True, False], ids=["with schema", "schemaless"])
@pytest.mark.parametrize("config", RICH_CONFIGS)
def test_nested_and_odd_records_too(
    spark: SparkSession, kafka: KafkaClasses, config: dict[str, str], schemas: bool
) -> None:
    """Arrays of structs, maps, decimals, dates, empty structs, names in other scripts, nulls and tombstones."""
    _compare_rich(spark, kafka, config, schemas=schemas)


@pytest.mark.parametrize("config", KEEPING_NULLS, ids=lambda config: config["type"].removeprefix(T))
def test_nulls_that_have_a_default_are_kept_where_both_say_so(
    spark: SparkSession, kafka: KafkaClasses, config: dict[str, str]
) -> None:
    """The converter fills them in unless it is told not to; only then is there one for the transform to look at."""
    for replaces in ("true", "false"):
        stage = {**config, "replace.null.with.default": replaces}
        _compare_rich(spark, kafka, stage, schemas=True, replace_null=False)


def test_a_tombstone_cannot_be_wrapped_under_a_schema_that_is_not_optional(
    spark: SparkSession, kafka: KafkaClasses
) -> None:
    """Kafka's tombstone has no schema and the column has one: the reason ``schema of a null``."""
    assert "schema of a null" in PARITY
    config = {"type": T + "HoistField$Value", "field": "wrapped"}
    codec = ValueFormat.from_config({"format": "connect-json", "schema": {**RICH, "optional": False}})

    wanted = kafka.run(config, "some.topic", None, 0, MILLIS, schemas=True)

    assert wanted == ("some.topic", {"schema": None, "payload": {"wrapped": None}})
    assert ours(spark, config, [None], codec) == ["error"]


def _compare_rich(
    spark: SparkSession, kafka: KafkaClasses, config: dict[str, str], *, schemas: bool, replace_null: bool = True
) -> None:
    records = rich(len(config))
    bodies = [{"schema": RICH, "payload": record} if schemas else record for record in records]
    texts = [
        None if record is None else json.dumps(body, ensure_ascii=False)
        for record, body in zip(records, bodies, strict=True)
    ]
    format_ = {"format": "connect-json", "schema": RICH} if schemas else {"format": "json"}
    codec = replace(ValueFormat.from_config(format_), replace_null_with_default=replace_null)

    with interpreted(spark):
        found = ours(spark, config, texts, codec)

    wanted = [
        kafka.run(config, "some.topic", text, n, MILLIS, schemas=schemas, replace_null=replace_null)
        for n, text in enumerate(texts)
    ]
    assert [_value(one, text) for one, text in zip(wanted, texts, strict=True)] == [
        _value(one, text) for one, text in zip(found, texts, strict=True)
    ]


def _value(outcome: Any, text: str | None) -> Any:
    """What is compared: of tombstones and of null no schema, because a column has one for all its rows."""
    found = _plain(outcome)
    if isinstance(found, list) and isinstance(found[1], dict) and found[1].keys() == {"schema", "payload"}:
        payload = found[1]["payload"]
        return [found[0], payload] if text is None or payload is None else found
    return found


def _plain(outcome: Any) -> Any:
    """JSON without what means nothing: absent and default attributes of a schema."""
    if isinstance(outcome, dict):
        kept = {name: _plain(value) for name, value in outcome.items()}
        return {name: value for name, value in kept.items() if not (name in ("name", "version") and value is None)}
    return [_plain(item) for item in outcome] if isinstance(outcome, (list, tuple)) else outcome
