"""`Chain.apply`: a chain in any Python, on one record or many."""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pytest
from tests.vectors.connect import Throwing, same_outcome

from turnout.errors import RecordError
from turnout.records import Failure, Field, Header, Int32, Record, Schema
from turnout.transforms import Chain, registry

STRUCT = Schema(
    "struct", fields=(Field("a", Schema("int64", optional=True)), Field("b", Schema("string", default="x")))
)
ROUTE: list[dict[str, object]] = [
    {"name": "drop", "type": "Filter", "predicate": {"type": "RecordIsTombstone"}},
    {"name": "mark", "type": "HoistField$Value", "field": "v"},
    {"name": "key", "type": "ValueToKey", "fields": "v"},
    {"name": "move", "type": "RegexRouter", "regex": "(.*)", "replacement": "to.$1"},
]


def test_one_record_gives_a_record_or_none() -> None:
    """None where it is filtered; headers and places are carried over."""
    chain = Chain.from_route(ROUTE)
    record = Record("t", 1, None, [Header("h", b"x")], 3, 7, 1000)

    assert chain.apply(record) == Record("to.t", {"v": 1}, {"v": 1}, [Header("h", b"x")], 3, 7, 1000)
    assert chain.apply(replace(record, value=None)) is None


def test_one_record_that_fails_raises() -> None:
    """With the stage in the message and the class that Connect would have thrown."""
    chain = Chain.from_route([{"name": "flat", "type": "Flatten$Value"}])

    with pytest.raises(RecordError, match=r"^flat: Only Map objects supported") as failure:
        chain.apply(Record("t", 1))
    assert failure.value.exception == "org.apache.kafka.connect.errors.DataException"


def test_several_records_give_a_list_in_their_order() -> None:
    """A failure stands in the place of a record that failed, None in that of one that was filtered."""
    stages: list[dict[str, object]] = [ROUTE[0], {"name": "x", "type": "ExtractField$Value", "field": "a"}]
    records = (Record("t", {"a": n}) for n in range(2))
    first, second = Chain.from_route(stages).apply(records)
    failed, filtered, third = Chain.from_route(stages).apply([Record("t", 5), Record("t"), Record("t", {"a": 3})])

    assert (first, second, filtered) == (Record("t", 0, headers=[]), Record("t", 1, headers=[]), None)
    assert isinstance(failed, Failure)
    assert (failed.stage, failed.class_name) == (
        "TRANSFORMATION",
        "org.apache.kafka.connect.transforms.ExtractField$Value",
    )
    assert third == Record("t", 3, headers=[])


def test_nothing_gives_nothing() -> None:
    """An empty list goes through every stage."""
    assert Chain.from_route(ROUTE).apply([]) == []


def test_a_chain_that_has_run_is_still_a_value() -> None:
    """It compares as before, and survives pickling, which is how it gets to a task."""
    chain = Chain.from_route([*ROUTE, {"type": "SubjectTransform", "source": "to.*", "destination": "by.$1"}])
    record = Record("t", 1)
    outcome = chain.apply(record)
    copy = pickle.loads(pickle.dumps(chain))

    assert copy == chain
    assert same_outcome(outcome, copy.apply(record))


def throwing(kind: str, **stage: Any) -> Chain:
    properties = {"transforms": "t", "transforms.t.type": kind, "predicates": "p", "predicates.p.type": "$throwing"}
    properties |= {"transforms.t.predicate": "p"} | {f"transforms.t.{name}": value for name, value in stage.items()}
    with patch.object(registry, "_plugins", lambda: {"$throwing": Throwing}):
        return Chain.from_config({**properties, "errors.predicates": "not-matched"})


@pytest.mark.parametrize("negate", ["true", "false"])
def test_a_predicate_that_fails_leaves_its_stage_out_but_filters(negate: str) -> None:
    """With errors.predicates=not-matched, as KIP-585's draft has it, whatever negate says."""
    hoist = throwing("HoistField$Value", field="v", negate=negate)
    filter_ = throwing("Filter", negate=negate)

    assert hoist.apply(Record("t", 1)) == Record("t", 1, headers=[])
    assert filter_.apply(Record("t", 1)) is None


def test_a_struct_whose_schema_is_renamed_for_some_rows_keeps_it_for_the_others() -> None:
    """SetSchemaMetadata under a predicate: each record has its own schema afterwards."""
    chain = Chain.from_route(
        [{"type": "SetSchemaMetadata$Value", "schema.name": "New", "schema.version": 2,
          "predicate": {"type": "TopicNameMatches", "pattern": "a"}}]
    )  # fmt: skip
    records = [Record(topic, {"a": 1, "b": "y"}, value_schema=STRUCT.with_(name="Old")) for topic in ("a", "b")]
    changed, kept = chain.apply(records)

    assert isinstance(changed, Record)
    assert changed.value_schema == STRUCT.with_(name="New", version=2)
    assert isinstance(kept, Record)
    assert kept.value_schema == STRUCT.with_(name="Old")


def test_the_later_entry_wins_where_flat_names_clash() -> None:
    """Of a map's entries, whether by column or one by one."""
    chain = Chain.from_route([{"type": "Flatten$Value"}])
    clash, other = chain.apply([Record("t", {"a.b": 1, "a": {"b": 2}}), Record("t", {"a.b": 1, "a": 5})])

    assert isinstance(clash, Record)
    assert clash.value == {"a.b": 2}
    assert isinstance(other, Record)
    assert other.value == {"a.b": 1, "a": 5}


def test_a_rename_whose_source_is_excluded_takes_no_part() -> None:
    """Without a schema; with one the reverse lookup goes by the order of Java's HashMap, in which id comes last."""
    stage = {"type": "ReplaceField$Value", "renames": "id:z,b:z", "exclude": "b"}
    chain = Chain.from_route([stage])
    schema = Schema("struct", fields=(Field("id", Schema("int64")), Field("b", Schema("int64"))))
    bare, typed = chain.apply([Record("t", {"id": 1, "b": 2}), Record("t", {"id": 1, "b": 2}, value_schema=schema)])

    assert isinstance(bare, Record)
    assert isinstance(typed, Record)
    assert (bare.value, typed.value) == ({"z": 1}, {"z": 1})


@pytest.mark.parametrize("stage", [{"type": "Flatten$Value"}, {"type": "ReplaceField$Value", "exclude": "a"}])
def test_a_map_with_keys_that_are_no_strings_fails_its_record(stage: dict[str, Any]) -> None:
    """Java casts the key; the other records pass."""
    failed, passed = Chain.from_route([stage]).apply([Record("t", {7: 1}), Record("t", {"b": 1})])

    assert isinstance(failed, Failure)
    assert failed.exception == "java.lang.ClassCastException"
    assert isinstance(passed, Record)


def test_such_a_map_passes_what_does_not_look_at_its_keys() -> None:
    """This includes stages with a predicate, beside records of another shape."""
    stage = {"type": "HoistField$Value", "field": "v", "predicate": {"type": "TopicNameMatches", "pattern": "a"}}
    changed, kept = Chain.from_route([stage]).apply([Record("a", {7: 1}), Record("b", {7: 1})])

    assert (changed, kept) == (Record("a", {"v": {7: 1}}, headers=[]), Record("b", {7: 1}, headers=[]))


def test_keys_of_several_types_stay_apart() -> None:
    """An int64 7 and an int32 7 are two keys to Java, and equal to Python."""
    chain = Chain.from_route([{"type": "HoistField$Value", "field": "v"}])
    outcomes = chain.apply([Record("t", {7: 1}), Record("t", {Int32(7): 1})])

    kinds = [type(next(iter(outcome.value["v"]))) for outcome in outcomes if isinstance(outcome, Record)]
    assert kinds == [int, Int32]


def test_a_random_subject_is_the_same_each_time() -> None:
    """The draw comes from partition and offset, so that a retried record goes where it went."""
    chain = Chain.from_route([{"type": "SubjectTransform", "source": "*", "destination": "x.{{random(1000)}}"}])
    records = [Record("a", partition=1, offset=offset) for offset in range(50)]
    once = [record.topic for record in chain.apply(records) if isinstance(record, Record)]
    alone = [chain.apply(record) for record in records]

    assert len(set(once)) > 25
    assert once == [record.topic for record in alone if record is not None]


def test_a_schemaless_null_passes_an_empty_path() -> None:
    """ExtractField with an empty path of KIP-821 fails for every record but a schemaless null, as Kafka's does."""
    chain = Chain.from_route([{"type": "ExtractField$Value", "field": "", "field.syntax.version": "V2"}])
    null, failed = chain.apply([Record("t", None), Record("t", {"a": 1})])

    assert isinstance(null, Record)
    assert null.value is None
    assert isinstance(failed, Failure)
