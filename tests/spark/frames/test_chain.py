"""Chains over frames: types, promotion, errors, streams, plug-ins. What each transform does is tested without Spark."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from turnout.errors import ConfigError
from turnout.spark.columns import ERROR_TYPE, METADATA_KEY
from turnout.spark.frames import apply_chain
from turnout.transforms import Chain, registry

RECORD = (
    "topic string, partition int, offset bigint, key binary, value binary, "
    "headers array<struct<key:string,value:binary>>, timestamp timestamp"
)
FLIGHT = {"carrier": "AA", "distance": 2475, "tail": "N1"}
DDL = "carrier string, distance int, tail string"
Records = Callable[..., DataFrame]


@pytest.fixture
def records(spark: SparkSession) -> Records:
    """Records of JSON values under a topic, typed as *ddl* says or schemaless; None is a tombstone."""

    def make(*values: Any, topic: str = "flights.JFK", headers: Any = (), ddl: str | None = None) -> DataFrame:
        rows = [
            (topic, 0, at, None, value if value is None else json.dumps(value).encode(), list(headers), None)
            for at, value in enumerate(values)
        ]
        text = F.col("value").cast("string")
        read = F.parse_json(text) if ddl is None else F.from_json(text, ddl)
        return spark.createDataFrame(rows, RECORD).withColumn("value", read)

    return make


def values(frame: DataFrame) -> list[Any]:
    """The values of records, as plain JSON, in the order of their offsets."""
    written = frame.select("offset", F.to_json("value", {"ignoreNullFields": "false"}).alias("text"))
    return [None if row["text"] is None else json.loads(row["text"]) for row in written.orderBy("offset").collect()]


def offsets(frame: DataFrame) -> list[int]:
    return sorted(row["offset"] for row in frame.select("offset").collect())


class TestTypes:
    """The type of a column is known before the chain runs."""

    TAKEN = Chain.from_route(
        [
            {
                "type": "ExtractField$Value",
                "field": "carrier",
                "predicate": {"type": "TopicNameMatches", "pattern": "my-prefix-.*"},
                "negate": True,
            }
        ]
    )

    def test_the_kips_own_example(self, records: Records) -> None:
        """ExtractField unless the topic has a prefix: some rows are text, some objects, all variants (KIP-585)."""
        kept = records(FLIGHT, topic="my-prefix-1", ddl=DDL)
        taken = records(FLIGHT, topic="other", ddl=DDL)

        applied = apply_chain(self.TAKEN, kept.union(taken)).records

        assert isinstance(applied.schema["value"].dataType, T.VariantType)
        assert {json.dumps("AA"), json.dumps(FLIGHT)} == {json.dumps(value) for value in values(applied)}

    def test_a_transform_that_keeps_the_type_keeps_the_struct(self, records: Records) -> None:
        """Masking under a predicate does not give up the schema."""
        long = {"when": {"key": "value.distance", ">": 1000}}
        chain = Chain.from_route([{"type": "MaskField$Value", "fields": "tail", "predicate": long}])

        applied = apply_chain(chain, records(FLIGHT, {**FLIGHT, "distance": 7}, None, ddl=DDL)).records

        assert applied.schema["value"].dataType == T.StructType.fromDDL(DDL)
        assert values(applied) == [{**FLIGHT, "tail": ""}, {**FLIGHT, "distance": 7}, None]

    def test_a_schemas_attributes_are_carried_in_the_columns_metadata(self, records: Records) -> None:
        """Name and version set by a transform are available to the writer of the value; inserted fields have theirs."""
        chain = Chain.from_route(
            [
                {"type": "SetSchemaMetadata$Value", "schema.name": "Flight", "schema.version": 7},
                {"type": "InsertField$Value", "timestamp.field": "at!"},
            ]
        )

        first = apply_chain(chain, records(FLIGHT, ddl=DDL)).records
        again = apply_chain(Chain(), first).records

        for frame in (first, again):
            schema = json.loads(frame.schema["value"].metadata[METADATA_KEY])
            assert (schema["name"], schema["version"]) == ("Flight", 7)
            assert schema["fields"][-1] == {
                "field": "at", "type": "int64", "optional": False,
                "name": "org.apache.kafka.connect.data.Timestamp", "version": 1,
            }  # fmt: skip

    def test_every_type_comes_through(self, spark: SparkSession) -> None:
        """Numbers of each width, decimals, dates, times, bytes, what nests; null by null; keys, and other columns."""
        fields = """cast(1 as tinyint) i8, 2S i16, 3 i32, 4L i64, 0.5F f32, 0.25D f64, true flag, 'ü' text, X'00ff' raw,
            1.50BD price, DATE'1969-12-31' day, TIMESTAMP'1969-12-31 23:59:59.999Z' at, array(1, null) list,
            map('a', named_struct('x', 1), 'b', null) map, named_struct('y', array(DATE'2020-01-02')) inner,
            parse_json('{"k": [1, null]}') any, null none"""
        full = spark.sql(f"SELECT {fields}")
        empty = full.select(*[F.lit(None).cast(field.dataType).alias(field.name) for field in full.schema])
        both = full.union(empty).select(
            F.struct("*").alias("value"), F.col("price").alias("key"), F.expr("interval 1 day").alias("more")
        )
        frame = both.union(both.limit(1).selectExpr("null", "null", "more")).withColumn("topic", F.lit("t"))

        applied = apply_chain(Chain.from_route([{"type": "InsertField$Value", "topic.field": "from"}]), frame).records
        first, second, third = applied.select("key", "value", "more").collect()

        value = first["value"].asDict(recursive=True)
        assert value["any"].toPython() == {"k": [1, None]}
        assert {name: one for name, one in value.items() if name != "any"} == {
            "i8": 1, "i16": 2, "i32": 3, "i64": 4, "f32": 0.5, "f64": 0.25, "flag": True, "text": "ü",
            "raw": b"\x00\xff", "price": Decimal("1.50"), "day": date(1969, 12, 31), "list": [1, None], "none": None,
            "at": datetime(1969, 12, 31, 23, 59, 59, 999_000, UTC).astimezone().replace(tzinfo=None),
            "map": {"a": {"x": 1}, "b": None}, "inner": {"y": [date(2020, 1, 2)]}, "from": "t",
        }  # fmt: skip
        assert set(second["value"].asDict().values()) == {None, "t"}
        assert (third["value"], third["key"], third["more"]) == (None, None, first["more"])
        assert first["key"] == Decimal("1.50")
        value_type = applied.schema["value"].dataType
        assert isinstance(value_type, T.StructType)
        types = {field.name: field.dataType for field in value_type}
        assert {name: types[name] for name in ("i8", "f32", "any")} == {
            "i8": T.ByteType(), "f32": T.FloatType(), "any": T.VariantType(),
        }  # fmt: skip

    def test_what_connect_has_no_type_for_is_refused(self, records: Records) -> None:
        """Each such column is named, before anything runs."""
        frame = records(FLIGHT, ddl=DDL).withColumn("offset", F.lit("x"))
        frame = frame.withColumn("value", F.struct(F.array(F.expr("interval 1 day")).alias("pause")))

        with pytest.raises(ConfigError) as refused:
            apply_chain(Chain(), frame)

        assert [mistake.path for mistake in refused.value.mistakes] == ["offset", "value.pause[]"]


class TestErrors:
    """One bad record never touches its neighbours under ``all``, and stops the job under ``none``."""

    CHAIN = Chain.from_route(
        [
            {"type": "RegexRouter", "regex": ".*", "replacement": "moved"},
            {"name": "number", "type": "Cast$Value", "spec": "distance:int8,carrier:int32"},
            {"name": "late", "type": "InsertHeader", "header": "seen", "value.literal": "yes"},
        ]
    )

    def test_dead_letters_are_the_consumed_records(self, records: Records) -> None:
        """Neighbours pass; the failed record is as it was consumed, with stage, class, exception and message."""
        frame = records({**FLIGHT, "carrier": "5"}, FLIGHT, {**FLIGHT, "carrier": "6"}, headers=[("h", b"1")], ddl=DDL)
        frame = frame.withColumn("other", F.col("offset") * 2)

        applied = apply_chain(self.CHAIN, frame, "all")
        good = applied.records.select("topic", "offset", "other", F.size("headers").alias("n")).orderBy("offset")
        (dead,) = applied.dead_letters.collect()
        (consumed,) = frame.where("offset = 1").collect()

        assert good.collect() == [
            Row(topic="moved", offset=0, other=0, n=2),
            Row(topic="moved", offset=2, other=4, n=2),
        ]
        assert applied.dead_letters.schema["_error"].dataType == ERROR_TYPE
        error = dead["_error"]
        assert (error["stage"], error["class_name"]) == (
            "TRANSFORMATION",
            "org.apache.kafka.connect.transforms.Cast$Value",
        )
        assert error["exception"].startswith("org.apache.kafka.connect.errors.")
        assert error["message"].startswith("number: ")
        assert {**consumed.asDict(), "_error": error} == dead.asDict()

    def test_none_stops_the_job_with_place_and_reason(self, records: Records) -> None:
        """The message says which record, which stage's class, and why; whichever of the two frames is asked for."""
        applied = apply_chain(self.CHAIN, records(FLIGHT, ddl=DDL))
        place = r"topic flights\.JFK, partition 0, offset 0: TRANSFORMATION: [a-z.]*\.Cast\$Value: number: "

        for frame in (applied.records, applied.dead_letters):
            with pytest.raises(PySparkException, match=place):
                frame.collect()

    def test_what_sparks_types_cannot_hold_fails(self, records: Records) -> None:
        """A time beyond Spark's years is one record's failure, not the job's."""
        options = {"field": "distance", "target.type": "Timestamp", "unix.precision": "seconds"}
        chain = Chain.from_route([{"type": "TimestampConverter$Value", **options}])
        frame = records({"distance": 1}, {"distance": 10**15}, ddl="distance bigint")

        applied = apply_chain(chain, frame, "all")

        assert offsets(applied.records) == [0]
        (dead,) = applied.dead_letters.collect()
        assert (dead["offset"], dead["_error"]["stage"]) == (1, "VALUE_CONVERTER")

    def test_a_failing_predicate_may_count_as_not_matched(self, records: Records, plugins: dict[str, Any]) -> None:
        """KIP-585's draft: the stage is left out, and negate does not turn that around."""
        plugins["Throwing"] = importlib.import_module("throwing").Throwing
        config = {
            "transforms": "t", "transforms.t.type": "InsertField$Value", "transforms.t.topic.field": "from",
            "transforms.t.predicate": "p", "transforms.t.negate": "true", "predicates": "p",
            "predicates.p.type": "Throwing",
        }  # fmt: skip

        failed = apply_chain(Chain.from_config(config), records(FLIGHT), "all")
        passed = apply_chain(Chain.from_config({**config, "errors.predicates": "not-matched"}), records(FLIGHT), "all")

        assert [row["_error"]["message"] for row in failed.dead_letters.collect()] == ["t: thrown"]
        assert values(passed.records) == [FLIGHT]


THROWING = """
from turnout.errors import RecordError
from turnout.transforms import Predicate


class Throwing(Predicate):
    def test(self, batch, errors):
        errors.update((row, RecordError("thrown")) for row in batch.alive.tolist())
        return batch.outcomes == 0
"""


@pytest.fixture
def plugins(spark: SparkSession, tmp_path: Path) -> Iterator[dict[str, Any]]:
    """Plug-ins by name; their modules are where workers find them."""
    (tmp_path / "throwing.py").write_text(THROWING)
    example = Path(__file__).parents[3] / "examples" / "plugin" / "upper.py"
    for file in (tmp_path / "throwing.py", example):
        spark.sparkContext.addPyFile(str(file))
    known: dict[str, Any] = {}
    with patch.object(registry, "_plugins", lambda: known):
        yield known


def test_the_plugin_of_the_documentation(records: Records, plugins: dict[str, Any]) -> None:
    """The example in examples/plugin runs as it stands, with a schema and without."""
    plugins["UpperField"] = importlib.import_module("upper").UpperField
    chain = Chain.from_route([{"type": "UpperField$Value", "field": "carrier"}])

    for ddl in (DDL, None):
        assert values(apply_chain(chain, records({**FLIGHT, "carrier": "aa"}, ddl=ddl)).records) == [FLIGHT]


class TestConditions:
    """Predicates over values, headers and topics, in the language of subscriptions."""

    def test_of_typed_and_schemaless_values(self, records: Records) -> None:
        """A condition says the same of a struct and of a variant; filtered records are in neither frame."""
        expected: list[tuple[Any, bool]] = [
            ({"key": "value.distance", ">": 1000}, True),
            ({"key": "value.missing", "exists": True}, False),
            ({"not": {"key": "value.missing", ">": 0}}, True),
            ({"key": "topic", "pattern": "flights.*"}, True),
            ({"key": "Tail", "pattern": "n?", "ignoreCase": True}, True),
            ({"xor": [{"key": "value.carrier", "equals": "AA"}, {"key": "Tail", "exists": True}]}, False),
        ]
        for ddl in (DDL, None):
            given = records(FLIGHT, headers=[("Tail", b"N1")], ddl=ddl)
            left = None
            for n, (when, _) in enumerate(expected):
                chain = Chain.from_route([{"type": "Filter", "predicate": {"when": when}}])
                applied = apply_chain(chain, given.withColumn("n", F.lit(n))).records.select("n")
                left = applied if left is None else left.union(applied)
            assert left is not None
            rest = {row["n"] for row in left.collect()}

            assert [n not in rest for n in range(len(expected))] == [dropped for _, dropped in expected]

    def test_several_predicates_must_all_hold(self, records: Records) -> None:
        """The stage's negate turns the common answer around, a predicate's own only its own."""
        both = [{"when": {"key": "value.distance", ">": 1000}}, {"type": "RecordIsTombstone", "negate": True}]
        rows = records(FLIGHT, None, {**FLIGHT, "distance": 1})

        straight = apply_chain(Chain.from_route([{"type": "Filter", "predicate": both}]), rows)
        turned = apply_chain(Chain.from_route([{"type": "Filter", "predicate": both, "negate": True}]), rows)

        assert [offsets(straight.records), offsets(turned.records)] == [[1, 2], [0]]


def test_a_frame_needs_a_topic_and_a_value(spark: SparkSession) -> None:
    """The rest of a record is null where it is missing, and there afterwards for what stages put into it."""
    chain = Chain.from_route(
        [{"type": "InsertHeader", "header": "h", "value.literal": "1"}, {"type": "ValueToKey", "fields": "a"}]
    )
    frame = spark.sql("SELECT named_struct('a', 1, 'b', 2) value, 't' topic, 7 seven")

    (row,) = apply_chain(chain, frame).records.collect()

    assert (row["topic"], row["partition"], row["timestamp"], row["seven"]) == ("t", None, None, 7)
    assert (row["key"]["a"], [tuple(header) for header in row["headers"]]) == (1, [("h", b"1")])


def test_a_stream_of_records(spark: SparkSession) -> None:
    """A streaming frame gives streaming frames."""
    chain = Chain.from_route(
        [
            {"type": "Filter", "predicate": {"when": {"key": "value.n", "equals": "2"}}},
            {"type": "SubjectTransform", "source": "t.*", "destination": "u.{{wildcard(1)}}"},
        ]
    )
    ticks = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 4).load()
    frame = ticks.selectExpr("concat('t.', value) topic", "struct(value n) value", "timestamp")
    good = apply_chain(chain, frame).records
    good.writeStream.format("memory").queryName("routed").trigger(once=True).start().awaitTermination()

    rows = spark.table("routed").select("topic", "value.n").collect()

    assert sorted(map(tuple, rows)) == [("u.0", 0), ("u.1", 1), ("u.3", 3)]


def test_rows_of_one_batch_may_have_different_fields(records: Records) -> None:
    """Schema evolution inside a batch: schemaless rows each keep what they have, under any name."""
    odd = 'it\'s "it"'
    chain = Chain.from_route([{"type": "ReplaceField$Value", "renames": f"a:b,{odd}:plain", "exclude": "gone"}])

    applied = values(
        apply_chain(chain, records({"a": 1}, {"a": {"ü": [1, None]}, "neu": "x"}, {"gone": 1}, None, {odd: 1})).records
    )

    assert applied == [{"b": 1}, {"b": {"ü": [1, None]}, "neu": "x"}, {}, None, {"plain": 1}]


def test_what_no_stage_has_changed_keeps_its_microseconds(spark: SparkSession) -> None:
    """Connect's time of a record is in milliseconds, Spark's in microseconds."""
    frame = spark.sql("SELECT 't' topic, 'v' value, TIMESTAMP'1969-12-31 23:59:59.123456' timestamp")

    applied = apply_chain(Chain.from_route([{"type": "HoistField$Value", "field": "v"}]), frame).records

    assert applied.select("timestamp").collect() == frame.select("timestamp").collect()
    assert values(applied.withColumn("offset", F.lit(0))) == [{"v": "v"}]


@pytest.fixture(params=["false", "true"])
def case_sensitive(request: pytest.FixtureRequest, spark: SparkSession) -> Iterator[bool]:
    """Return Spark's rule for names, set for the session."""
    before = spark.conf.get("spark.sql.caseSensitive")
    assert before is not None
    spark.conf.set("spark.sql.caseSensitive", request.param)
    yield request.param == "true"
    spark.conf.set("spark.sql.caseSensitive", before)


NOTHING = Chain.from_route([{"type": "InsertHeader", "header": "h", "value.literal": "1"}])


def test_names_in_another_case(spark: SparkSession, case_sensitive: bool) -> None:
    """They are those of a record where Spark takes them for the same, and otherwise no value is made up."""
    ddl = "Topic string, VALUE binary, KEY binary, Partition int, OffSet bigint, TimeStamp timestamp, _Error int"
    at = datetime(2026, 1, 1, tzinfo=UTC)
    frame = spark.createDataFrame([("orders.1", b"v", b"k", 3, 7, at, 1)], ddl)
    if case_sensitive:
        with pytest.raises(ConfigError, match="value: the column is missing"):
            apply_chain(NOTHING, frame)
        return

    applied = apply_chain(NOTHING, frame, tolerance="all")
    (row,) = applied.records.collect()

    assert (row["topic"], row["value"], row["key"], row["partition"]) == ("orders.1", b"v", b"k", 3)
    assert (row["offset"], row["_Error"]) == (7, 1)
    assert row["timestamp"] is not None
    assert [name for name in applied.dead_letters.columns if name.lower() == "_error"] == ["_error"]


def test_names_of_several_columns(spark: SparkSession, case_sensitive: bool) -> None:
    """Two columns of one name are refused while planning; names that differ by case may be two."""
    frame = spark.sql("SELECT 't' topic, binary('v') value, binary('w') VALUE")
    if case_sensitive:
        (row,) = apply_chain(NOTHING, frame).records.collect()
        assert (row[frame.columns.index("value")], row[frame.columns.index("VALUE")]) == (b"v", b"w")
    else:
        with pytest.raises(ConfigError, match="value and VALUE are one name"):
            apply_chain(NOTHING, frame)
    with pytest.raises(ConfigError, match="topic and topic are one name"):
        apply_chain(NOTHING, spark.sql("SELECT 't' topic, binary('v') value, 'u' topic"))


@pytest.mark.parametrize("missing", ["topic", "value"])
def test_frames_that_are_no_records(spark: SparkSession, missing: str) -> None:
    """A frame without topics or values is refused; the error has its columns."""
    frame = spark.sql("SELECT 't' topic, binary('v') value, 7 seven").drop(missing)

    with pytest.raises(ConfigError, match=f"{missing}: the column is missing; the frame has .*seven"):
        apply_chain(NOTHING, frame)
