"""Change events without schemas, and what vectors of Debezium's classes do not say."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnout.errors import ConfigError, RecordError
from turnout.records import Failure, Header, Record, Schema
from turnout.transforms import Chain
from turnout.transforms.debezium.extract_new_document_state import parse_document
from turnout.transforms.debezium.partition_routing import java_hash, murmur_hash


def event(**parts: Any) -> dict[str, Any]:
    return {"before": None, "after": {"id": 1, "name": "Anne"}, "source": {"table": "t"}, "op": "c", **parts}


def applied(record: Record, **stage: object) -> Record:
    (outcome,) = Chain.from_route([stage]).apply([record])
    assert isinstance(outcome, Record), outcome
    return outcome


def test_events_without_schemas_are_compared() -> None:
    """Numbers of other types differ, and NaN equals itself."""
    value = event(before={"id": 1.0, "name": "Anne", "x": float("nan")}, op="u")
    value["after"] |= {"x": float("nan"), "new": 1}
    stage = {"type": "ExtractChangedRecordState", "header.changed.name": "C", "header.unchanged.name": "U"}

    made = applied(Record("t", value), **stage)

    assert [(header.name, header.value) for header in made.headers] == [("C", ["id", "new"]), ("U", ["name", "x"])]


def test_headers_off_the_wire_become_texts_or_bytes() -> None:
    """In schemaless objects as in structs; each record gets those that it has."""
    chain = Chain.from_route(
        [{"type": "HeaderToValue", "headers": "a,b", "fields": "x.y,b", "operation": "move"}],
    )
    records = [
        Record("t", {"n": 1}, headers=[Header("a", b"1"), Header("c", b"2")]),
        Record("t", {"n": 2}, headers=[Header("b", b"\xff"), Header("b", b"last")]),
        Record("t", {"n": 3, "x": {"z": 1}}, headers=[Header("a", b"\xff")]),
        Record("t", {"n": 4}),
        Record("t", {"n": 5, "x": 1}, headers=[Header("a", b"1")]),
        Record("t", {"n": 6}, headers=[Header("a", [1])]),
    ]

    made = chain.apply(records)

    assert [one.value for one in made[:4] if isinstance(one, Record)] == [
        {"n": 1, "x": {"y": "1"}},
        {"n": 2, "b": "last"},
        {"n": 3, "x": {"z": 1, "y": b"\xff"}},
        {"n": 4},
    ]
    assert [header.name for one in made[:4] if isinstance(one, Record) for header in one.headers] == ["c"]
    assert all(isinstance(one, Failure) for one in made[4:])


def test_a_row_that_gets_a_field_may_still_be_null() -> None:
    """Debezium's class makes it required, and a deletion could not be written then."""
    row = Schema("struct", optional=True, fields=())
    schema = Schema.from_json(
        {
            "type": "struct",
            "name": "t.Envelope",
            "fields": [{"field": "after", "type": "struct", "optional": True, "fields": []}],
        }
    )
    stage = {"type": "HeaderToValue", "headers": "a", "fields": "after.a", "operation": "copy"}

    made = applied(Record("t", {"after": None}, headers=[Header("a", b"1")], value_schema=schema), **stage)

    assert made.value == {"after": None}
    assert made.value_schema is not None
    assert made.value_schema.field("after") == row.with_(
        fields=made.value_schema.fields[0].schema.fields
    )  # still optional


def test_schema_changes_without_schemas_are_filtered() -> None:
    """By their fields; an unknown type fails its record."""
    chain = Chain.from_route([{"type": "SchemaChangeEventFilter", "schema.change.event.exclude.list": "DROP"}])
    made = chain.apply([Record("t", {"ddl": "…", "tableChanges": [{"type": kind}]}) for kind in ("DROP", "ALTER", "X")])

    assert made[0] is None
    assert isinstance(made[1], Record)
    assert isinstance(made[2], Failure)


def test_times_without_a_schema_are_not_left_in_silence() -> None:
    """Debezium passes such events; here they fail, as nothing says what is a time."""
    (made,) = Chain.from_route([{"type": "TimezoneConverter", "converted.timezone": "+02:00"}]).apply(
        [Record("t", event())]
    )

    assert isinstance(made, Failure)
    assert "no schema" in made.message


def test_the_hypertable_of_a_chunk_has_to_be_known() -> None:
    """Its number is named; other tables of the schema pass."""
    chain = Chain.from_route([{"type": "TimescaleDb", "hypertables": "1:public.metrics"}])
    sources = [
        {"schema": "_timescaledb_internal", "table": table} for table in ("_hyper_1_9_chunk", "_hyper_3_1_chunk")
    ]
    made = chain.apply([Record("x", event(source=source)) for source in (*sources, {"schema": "public", "table": "t"})])

    assert isinstance(made[0], Record)
    assert (made[0].topic, made[0].value["source"]) == (
        "timescaledb.public.metrics",
        {"schema": "public", "table": "metrics"},
    )
    assert isinstance(made[1], Failure)
    assert "add 3:schema.table to hypertables" in made[1].message
    assert isinstance(made[2], Record)
    assert made[2].topic == "x"


@pytest.mark.parametrize("options", [{"hypertables": "public.metrics"}, {"hypertables": "1:metrics"}, {}])
def test_hypertables_are_needed_with_their_schemas(options: dict[str, str]) -> None:
    """The message has the form."""
    with pytest.raises(ConfigError, match=r"schema\.table|is missing"):
        Chain.from_route([{"type": "TimescaleDb", **options}])


def test_documents_without_schemas_become_objects() -> None:
    """Dates are date objects, and whole numbers have their widths."""
    value = event(after='{"_id": {"$oid": "5"}, "n": 1, "l": [1, "x"], "d": {"$date": 7}}', op="c")

    made = applied(Record("t", value, key={"id": '{"$oid": "5"}'}), type="ExtractNewDocumentState")

    assert (made.key, made.value) == ({"id": "5"}, {"_id": "5", "n": 1, "l": [1, "x"], "d": 7})


@pytest.mark.parametrize(
    "text", ["[" * 100_000, '{"a": ' * 5000 + "1" + "}" * 5000, '{"a": 99999999999999999999}', "x"]
)
def test_documents_that_are_none_are_record_errors(text: str) -> None:
    """Whatever depth and size they have."""
    with pytest.raises(RecordError):
        parse_document(text)


@given(st.text() | st.integers(-(2**63), 2**63 - 1) | st.floats() | st.booleans() | st.decimals(allow_nan=False))
def test_hashes_are_of_32_bits(value: Any) -> None:
    """Of every value that has one."""
    try:
        hashes = java_hash(value), murmur_hash(value)
    except RecordError:
        hashes = 0, 0

    assert all(0 <= code < 1 << 32 for code in hashes)


@pytest.mark.parametrize(("value", "code"), [("hello", 99162322), (-5, 4), (1.5, 1073217536), (True, 1231)])
def test_hashes_are_javas(value: Any, code: int) -> None:
    """As the JDK documents them: "hello", a Long, a Double, a Boolean."""
    assert java_hash(value) == code
