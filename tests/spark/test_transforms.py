"""Chains over frames: promotion, errors, conditions, plug-ins, schemas. The vectors are in test_transforms_vectors."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from turnout.spark.chain import apply_chain, compile_chain, error_headers
from turnout.spark.schemas import METADATA_KEY
from turnout.spark.values import decode_values, encode_values
from turnout.transforms import Chain, ValueFormat, registry

RECORD = (
    "topic string, partition int, offset bigint, key binary, value binary, "
    "headers array<struct<key:string,value:binary>>, timestamp timestamp"
)
Records = Callable[..., DataFrame]


@pytest.fixture
def records(spark: SparkSession) -> Records:
    """Records of JSON values under a topic, read by a codec; None is a tombstone."""

    def make(*values: Any, topic: str = "flights.JFK", headers: Any = (), **codec: Any) -> DataFrame:
        rows = [
            (
                topic,
                0,
                at,
                None,
                value if value is None or isinstance(value, bytes) else json.dumps(value).encode(),
                list(headers),
                None,
            )
            for at, value in enumerate(values)
        ]
        frame = spark.createDataFrame(rows, RECORD)
        return decode_values(frame, ValueFormat.from_config({"format": "json", **codec}))

    return make


def values(frame: DataFrame) -> list[Any]:
    """The values of records, as plain Python, in the order of their offsets."""
    written = encode_values(frame, ValueFormat.from_config({"format": "json"}))
    return [None if row["value"] is None else json.loads(row["value"]) for row in written.orderBy("offset").collect()]


DDL = {"schema": "carrier string, distance int, tail string"}
FLIGHT = {"carrier": "AA", "distance": 2475, "tail": "N1"}


class TestPromotion:
    """A conditional transform that changes a type makes variants of both."""

    CHAIN = Chain.from_route(
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
        """ExtractField unless the topic has a prefix: some rows are text, some objects (KIP-585)."""
        kept = records(FLIGHT, topic="my-prefix-1", **DDL)
        taken = records(FLIGHT, topic="other", **DDL)

        found = compile_chain(self.CHAIN, kept.union(taken), "all")

        assert isinstance(found.schema["value"].dataType, T.VariantType)
        assert {"AA", json.dumps(FLIGHT, sort_keys=True)} == {
            value if isinstance(value, str) else json.dumps(value, sort_keys=True) for value in values(found)
        }

    def test_a_transform_that_keeps_the_type_keeps_the_struct(self, records: Records) -> None:
        """Masking under a predicate does not give up the schema."""
        chain = Chain.from_route(
            [{"type": "MaskField$Value", "fields": "tail", "predicate": {"when": {"key": "value.distance", ">": 1000}}}]
        )

        found = compile_chain(chain, records(FLIGHT, {**FLIGHT, "distance": 7}, **DDL), "all")

        assert isinstance(found.schema["value"].dataType, T.StructType)
        assert values(found) == [{**FLIGHT, "tail": ""}, {**FLIGHT, "distance": 7}]


class TestErrors:
    """One bad record never touches its neighbours under ``all``, and stops the run under ``none``."""

    CHAIN = Chain.from_route(
        [
            {"name": "number", "type": "Cast$Value", "spec": "distance:int8,carrier:int32"},
            {"name": "late", "type": "InsertHeader", "header": "seen", "value.literal": "yes"},
        ]
    )

    def test_a_bad_record_is_told_with_stage_class_and_message(self, records: Records) -> None:
        """Neighbours pass; the failed record keeps its headers, because later stages leave it alone."""
        good, bad = {**FLIGHT, "carrier": "5"}, FLIGHT
        rows = compile_chain(self.CHAIN, records(good, bad, good, **DDL), "all").orderBy("offset").collect()

        assert [row["_error"] and row["_error"]["stage"] for row in rows] == [None, "TRANSFORMATION", None]
        assert rows[1]["_error"]["class_name"] == "org.apache.kafka.connect.transforms.Cast$Value"
        assert rows[1]["_error"]["message"].startswith("number: ")
        assert [len(row["headers"]) for row in rows] == [1, 0, 1]

    def test_none_stops_the_run_with_place_and_reason(self, records: Records) -> None:
        """The message says which record, which stage's class, and why."""
        rows = compile_chain(self.CHAIN, records(FLIGHT, **DDL))

        with pytest.raises(PySparkException, match=r"topic flights\.JFK, partition 0, offset 0.*Cast\$Value.*carrier"):
            rows.collect()

    def test_dead_letters_are_the_consumed_records(self, records: Records) -> None:
        """apply_chain parts the good from the failed; those are as they were consumed."""
        chain = Chain.from_route(
            [
                {"type": "RegexRouter", "regex": ".*", "replacement": "moved"},
                {"type": "Cast$Value", "spec": "carrier:int32"},
            ]
        )

        applied = apply_chain(chain, records({**FLIGHT, "carrier": "5"}, FLIGHT, **DDL), "all")

        assert [Row(topic="moved", offset=0)] == applied.records.select("topic", "offset").collect()
        assert [Row(topic="flights.JFK", offset=1)] == applied.dead_letters.select("topic", "offset").collect()
        assert values(applied.dead_letters) == [FLIGHT]

    def test_a_value_that_is_no_json_fails_at_the_converter(self, records: Records) -> None:
        """The stage is Connect's VALUE_CONVERTER, the chain is skipped, a tombstone is no error."""
        rows = compile_chain(
            Chain.from_route([{"type": "DropHeaders", "headers": "x"}]), records(b"{", None, FLIGHT), "all"
        )

        stages = [row["_error"] and row["_error"]["stage"] for row in rows.orderBy("offset").collect()]
        assert stages == ["VALUE_CONVERTER", None, None]

    def test_a_mistyped_value_fails_where_a_schema_is_given(self, records: Records) -> None:
        """A typed value must have the types that were promised."""
        rows = records({**FLIGHT, "distance": "far"}, FLIGHT, b"[]", b"null", **DDL).orderBy("offset").collect()

        assert [row["_error"] is not None for row in rows] == [True, False, True, False]
        assert rows[3]["value"] is None

    def test_context_headers_have_connects_names(self, records: Records) -> None:
        """A dead letter says where it came from and what went wrong, as text."""
        rows = compile_chain(self.CHAIN, records(FLIGHT, **DDL), "all")
        headers = error_headers(F.col("_error"), F.col("topic"), F.col("partition"), F.col("offset"), name="r")

        found = {h["key"]: bytes(h["value"]).decode() for h in rows.select(headers.alias("h")).collect()[0]["h"]}

        assert found["__connect.errors.topic"] == "flights.JFK"
        assert (found["__connect.errors.partition"], found["__connect.errors.offset"]) == ("0", "0")
        assert found["__connect.errors.stage"] == "TRANSFORMATION"
        assert found["__connect.errors.connector.name"] == "r"
        assert found["__connect.errors.class.name"].endswith("Cast$Value")
        assert found["__connect.errors.exception.class.name"].endswith("DataException")
        assert found["__connect.errors.exception.message"]

    def test_a_failing_predicate_may_count_as_not_matched(self, records: Records) -> None:
        """KIP-585's draft: the stage is left out, and negate does not turn that around."""
        from tests.vectors.connect import Throwing

        with patch.object(registry, "_plugins", lambda: {"Throwing": Throwing}):
            chain = Chain.from_route([{"type": "Filter", "predicate": {"type": "Throwing"}, "negate": True}])

        failed = compile_chain(chain, records(FLIGHT), "all").collect()[0]
        passed = compile_chain(chain, records(FLIGHT), "all", predicates="not-matched").collect()[0]

        assert failed["_error"]["class_name"].endswith(".Filter")
        assert (passed["_error"], passed["_dropped"]) == (None, False)


class TestConditions:
    """Predicates over values, headers and topics, in the language of subscriptions."""

    @pytest.mark.parametrize(
        ("when", "expected"),
        [
            ({"key": "value.distance", ">": 1000}, True),
            ({"key": "value.distance", "<=": 1000}, False),
            ({"key": "value.missing", "exists": True}, False),
            ({"not": {"key": "value.missing", ">": 0}}, True),
            ({"key": "value.carrier", "equals": "AA"}, True),
            ({"key": "topic", "pattern": "flights.*"}, True),
            ({"key": "Tail", "pattern": "n?", "ignoreCase": True}, True),
            ({"xor": [{"key": "value.carrier", "equals": "AA"}, {"key": "Tail", "exists": True}]}, False),
            ({"any": [{"key": "value.carrier", "equals": "BB"}, {"key": "Tail", "exists": True}]}, True),
            ({"groupCondition": {"logic": "And", "group": [{"existsCondition": {"key": "subject"}}]}}, True),
        ],
    )
    def test_of_typed_and_schemaless_values(self, records: Records, when: Any, expected: bool) -> None:
        """A condition says the same of a struct and of a variant."""
        chain = Chain.from_route([{"type": "Filter", "predicate": {"when": when}}])
        header = [("Tail", b"N1")]

        found = [
            compile_chain(chain, records(FLIGHT, headers=header, **codec), "all").collect()[0]["_dropped"]
            for codec in (DDL, {})
        ]

        assert [expected, expected] == found

    def test_subjects_match_as_in_nats(self, records: Records) -> None:
        """SubjectMatches knows * and >."""
        chain = Chain.from_route([{"type": "Filter", "predicate": {"type": "SubjectMatches", "subject": "flights.*"}}])

        assert compile_chain(chain, records(FLIGHT), "all").collect()[0]["_dropped"]
        assert not compile_chain(chain, records(FLIGHT, topic="a.b.c"), "all").collect()[0]["_dropped"]

    def test_several_predicates_must_all_hold(self, records: Records) -> None:
        """The stage's negate turns the common answer around, a predicate's own only its own."""
        both = [{"when": {"key": "value.distance", ">": 1000}}, {"type": "RecordIsTombstone", "negate": True}]
        rows = records(FLIGHT, None, {**FLIGHT, "distance": 1})

        straight = compile_chain(Chain.from_route([{"type": "Filter", "predicate": both}]), rows, "all")
        turned = compile_chain(Chain.from_route([{"type": "Filter", "predicate": both, "negate": True}]), rows, "all")

        dropped = [[r["_dropped"] for r in frame.orderBy("offset").collect()] for frame in (straight, turned)]
        assert dropped == [[True, False, False], [False, True, True]]


def test_a_subject_transform_in_a_chain(records: Records) -> None:
    """ADR-30 as a transform; other topics stay."""
    chain = Chain.from_route(
        [{"type": "SubjectTransform", "source": "flights.*", "destination": "eu.{{wildcard(1)}}.{{partition(10,1)}}"}]
    )

    assert compile_chain(chain, records(FLIGHT), "all").collect()[0]["topic"].startswith("eu.JFK.")
    assert compile_chain(chain, records(FLIGHT, topic="a.b"), "all").collect()[0]["topic"] == "a.b"


def test_the_plugin_of_the_documentation(records: Records) -> None:
    """The example in examples/plugin runs as it stands."""
    file = Path(__file__).parents[2] / "examples" / "plugin" / "upper.py"
    spec = importlib.util.spec_from_file_location("upper", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with patch.dict(sys.modules, {"upper": module}):
        spec.loader.exec_module(module)
    with patch.object(registry, "_plugins", lambda: {"UpperField": module.UpperField}):
        chain = Chain.from_route([{"type": "UpperField", "field": "carrier"}])

    assert values(compile_chain(chain, records({**FLIGHT, "carrier": "aa"}, **DDL), "all")) == [FLIGHT]


def test_a_schemas_attributes_are_carried_in_the_columns_metadata(records: Records) -> None:
    """Name and version set by a transform are there for whoever writes the value; inserted fields have theirs."""
    chain = Chain.from_route(
        [
            {"type": "SetSchemaMetadata$Value", "schema.name": "Flight", "schema.version": 7},
            {"type": "InsertField$Value", "timestamp.field": "at!"},
        ]
    )

    schema = json.loads(compile_chain(chain, records(FLIGHT, **DDL), "all").schema["value"].metadata[METADATA_KEY])

    assert (schema["name"], schema["version"]) == ("Flight", 7)
    assert schema["fields"][-1] == {
        "field": "at", "type": "int64", "optional": False,
        "name": "org.apache.kafka.connect.data.Timestamp", "version": 1,
    }  # fmt: skip


def test_the_json_is_parsed_once(records: Records) -> None:
    """However many stages and filters read the value, the plan has one parse."""
    chain = Chain.from_route(
        [
            {"type": "Filter", "predicate": {"when": {"key": "value.carrier", "equals": "XX"}}},
            {"type": "InsertField$Value", "topic.field": "route"},
            {"type": "ReplaceField$Value", "renames": "distance:miles"},
            {"type": "MaskField$Value", "fields": "tail", "predicate": {"when": {"key": "value.miles", ">": 5}}},
        ]
    )
    written = encode_values(
        compile_chain(chain, records(FLIGHT, **DDL), "all").where(~F.col("_dropped")),
        ValueFormat.from_config({"format": "json"}),
    )

    plan = written._jdf.queryExecution().optimizedPlan().toString()

    assert plan.count("from_json") == 1


def test_rows_of_one_batch_may_have_different_fields(records: Records) -> None:
    """Schema evolution inside a batch: schemaless rows each keep what they have."""
    chain = Chain.from_route([{"type": "ReplaceField$Value", "renames": "a:b", "exclude": "gone"}])

    found = values(
        compile_chain(chain, records({"a": 1}, {"a": {"ü": [1, None]}, "neu": "x"}, {"gone": 1}, None), "all")
    )

    assert found == [{"b": 1}, {"b": {"ü": [1, None]}, "neu": "x"}, {}, None]


def test_a_name_with_both_kinds_of_quotes(records: Records) -> None:
    """Spark's paths cannot say it, a schemaless object may have it."""
    odd = 'it\'s "it"'
    chain = Chain.from_route(
        [
            {"type": "ReplaceField$Value", "renames": f"{odd}:plain,other:{odd}"},
            {"type": "InsertField$Value", "topic.field": "here"},
        ]
    )

    found = values(compile_chain(chain, records({odd: 1, "other": None}, {"other": [2]}, {}, None), "all"))

    topic = {"here": "flights.JFK"}
    assert found == [{"plain": 1, odd: None, **topic}, {odd: [2], **topic}, topic, None]


def test_what_a_tombstone_lacks_is_lacking_for_later_stages(records: Records) -> None:
    """A field that a stage inserts is not there where there is no value to insert it in."""
    chain = Chain.from_route(
        [
            {"type": "InsertField$Value", "topic.field": "route", "static.field": "s", "static.value": "x"},
            {"type": "Filter", "predicate": {"when": {"key": "value.route", "exists": True}}},
        ]
    )

    for codec in (DDL, {}):
        rows = compile_chain(chain, records(FLIGHT, None, **codec), "all").orderBy("offset").collect()

        assert [(row["_dropped"], row["value"] is None) for row in rows] == [(True, False), (False, True)]


def test_a_record_that_has_failed_or_was_not_matched_keeps_its_value(records: Records) -> None:
    """In parts as a whole: what a stage has not done to a record, nobody sees in it."""
    chain = Chain.from_route(
        [
            {"type": "InsertField$Value", "static.field": "one", "static.value": "1"},
            {"type": "Cast$Value", "spec": "carrier:int32", "predicate": {"when": {"key": "value.distance", ">": 9}}},
            {"type": "ReplaceField$Value", "include": "carrier,one", "renames": "one:two"},
            {"type": "HoistField$Value", "field": "in", "predicate": {"when": {"key": "value.carrier", "equals": "7"}}},
        ]
    )
    given = [{**FLIGHT, "carrier": "7"}, {**FLIGHT, "carrier": "7", "distance": 1}, FLIGHT]

    rows = compile_chain(chain, records(*given), "all")

    failed = {**FLIGHT, "one": "1"}
    assert values(rows) == [{"in": {"carrier": 7, "two": "1"}}, {"in": {"carrier": "7", "two": "1"}}, failed]
    assert [row["_error"] is None for row in rows.orderBy("offset").collect()] == [True, True, False]
