"""Debezium's transforms: the vectors against its classes, and what vectors cannot say."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.jvm_host import KafkaMissingError
from tests.transforms.debezium import CONFIGS, DebeziumHost, made_vectors, read_vectors

from turnout.errors import ConfigError
from turnout.history.masking import hidden_by_stage
from turnout.records import Failure, Field, Record, Schema
from turnout.transforms import Chain

ANNE, BOB = {"id": 1, "region": "eu"}, {"id": 2, "region": "us"}
_COLUMNS = ("id", "aggregatetype", "aggregateid", "type", "payload")
_ROW = Schema("struct", optional=True, fields=tuple(Field(name, Schema("string")) for name in _COLUMNS))
_SOURCE = Schema("struct", fields=(Field("table", Schema("string")), Field("lsn", Schema("int64"))))
OUTBOX = Schema(
    "struct",
    name="server.outbox.Envelope",
    fields=(
        Field("before", _ROW),
        Field("after", _ROW),
        Field("source", _SOURCE),
        Field("op", Schema("string")),
        Field("ts_ms", Schema("int64")),
    ),
)
SOURCE = {"table": "customers", "lsn": 7}


@pytest.fixture(scope="module")
def debezium() -> Iterator[DebeziumHost]:
    """Debezium's classes in a JVM of their own."""
    try:
        with DebeziumHost() as host:
            yield host
    except KafkaMissingError as reason:
        pytest.skip(str(reason))


@pytest.mark.kafka
@pytest.mark.parametrize("name", CONFIGS)
def test_the_vectors_are_debeziums_answers(debezium: DebeziumHost, name: str) -> None:
    """Field by field, with schemas and headers."""
    assert made_vectors(debezium, name) == read_vectors(name)


def change(op: str, before: Any, after: Any) -> dict[str, Any]:
    return {"before": before, "after": after, "source": SOURCE, "op": op}


def outcomes(stage: dict[str, Any], *values: Any) -> list[Record | Failure | None]:
    return Chain.from_route([stage]).apply([Record("t", value, key={"id": 1}) for value in values])


def test_events_without_schemas_are_events() -> None:
    """Of all operations, with tombstones and other records among them, in one batch."""
    stage = {"type": "ExtractNewRecordState", "delete.tombstone.handling.mode": "rewrite", "add.fields": "op,lsn"}

    made = outcomes(
        stage, change("c", None, ANNE), change("d", BOB, None), change("t", None, None), None, {"op": "c"}, "text"
    )

    assert [one.value if isinstance(one, Record) else one for one in made] == [
        {**ANNE, "__deleted": "false", "__op": "c", "__lsn": 7},
        {**BOB, "__deleted": "true", "__op": "d", "__lsn": 7},
        None,
        None,
        {"op": "c"},
        "text",
    ]
    assert [isinstance(one, Record) for one in made] == [True, True, False, False, True, True]


def test_schemaless_rows_choose_their_topic() -> None:
    """A text does; a number fails alone, and what is missing leaves the topic."""
    stage = {"type": "ExtractNewRecordState", "route.by.field": "region"}

    eu, number, missing, gone = outcomes(
        stage, change("c", None, ANNE), change("c", None, {"region": 1}), change("c", None, {}), change("d", BOB, None)
    )

    assert isinstance(number, Failure)
    assert [one.topic for one in (eu, missing, gone) if isinstance(one, Record)] == ["eu", "t", "us"]


def test_a_row_that_is_no_object_fails_alone() -> None:
    """Its neighbours do not."""
    bad, good = outcomes({"type": "ExtractNewRecordState"}, change("c", None, 5), change("c", None, ANNE))

    assert isinstance(bad, Failure)
    assert isinstance(good, Record)


def test_schemaless_keys_tell_tables() -> None:
    """By the field that has the old topic."""
    stage = {"type": "ByLogicalTableRouter", "topic.regex": ".*", "topic.replacement": "all"}

    (moved,) = outcomes(stage, change("c", None, ANNE))

    assert isinstance(moved, Record)
    assert (moved.topic, moved.key) == ("all", {"id": 1, "__dbz__physicalTableIdentifier": "t"})
    assert moved.value == change("c", None, ANNE)


def test_views_hide_a_masked_column_in_both_rows_of_the_envelope() -> None:
    """The column is hidden if a later stage masks it, also in an added field."""
    chain = Chain.from_route(
        [
            {"type": "ExtractNewRecordState", "add.fields": "source.user"},
            {"type": "MaskField$Value", "fields": "card,__source_user"},
        ]
    )

    (before, _, _) = hidden_by_stage(chain)

    assert all(before.hides(("value", *path)) for path in (("before", "card"), ("after", "card"), ("source", "user")))


def test_options_that_are_not_here_are_named() -> None:
    """The options are those that a Debezium connector may have."""
    with pytest.raises(ConfigError, match=r"drop\.fields\.header\.name: unknown option"):
        Chain.from_route([{"type": "io.debezium.transforms.ExtractNewRecordState", "drop.fields.header.name": "x"}])


def inserted(**columns: Any) -> dict[str, Any]:
    row = {"id": "da8d", "aggregatetype": "Order", "aggregateid": "17", "type": "Made", "payload": "{}", **columns}
    return {**change("c", None, row), "ts_ms": 5}


def test_an_outbox_without_schemas() -> None:
    """Its events are found by their parts; deletions, updates and tombstones are dropped in the same batch."""
    stage = {
        "type": "EventRouter",
        "table.fields.additional.placement": "type:header:kind,type:envelope",
        "table.expand.json.payload": "true",
        "route.tombstone.on.empty.payload": "true",
    }
    row = inserted()["after"]

    made = outcomes(
        stage,
        inserted(payload='{"total": 20}'),
        inserted(payload=" "),
        change("u", row, row),
        change("d", row, None),
        None,
        inserted(aggregatetype=7),
        {"op": "c"},
    )

    first, empty, updated, deleted, tombstone, number, other = made
    assert isinstance(first, Record)
    assert (first.topic, first.key, first.timestamp) == ("outbox.event.Order", "17", 5)
    assert first.value == {"payload": {"total": 20}, "type": "Made"}
    assert [(header.name, header.value) for header in first.headers] == [("id", "da8d"), ("kind", "Made")]
    assert isinstance(empty, Record)
    assert empty.value is None
    assert (updated, deleted, tombstone) == (None, None, None)
    assert isinstance(number, Failure)
    assert isinstance(other, Record)
    assert (other.topic, other.value) == ("t", {"op": "c"})


@pytest.mark.parametrize(
    "payload", ["[1, 2]", "[]", '{"a": 123456789012345678901}', '{"a": [{"x": 1}, {"y": 2}, null]}', "[" * 100_000]
)
def test_payloads_that_no_schema_describes_stay_texts(payload: str, caplog: pytest.LogCaptureFixture) -> None:
    """Debezium gives such a text the schema of a value, and its converter fails."""
    stage = {"type": "EventRouter", "table.expand.json.payload": "true"}
    record = Record("t", inserted(payload=payload), key={"id": 1}, value_schema=OUTBOX)

    one, two = Chain.from_route([stage]).apply([record, record])

    assert isinstance(one, Record)
    assert one == two
    assert (one.value, one.value_schema) == (payload, Schema("string"))
    assert [entry.message.partition(", the")[0] for entry in caplog.records] == [
        "EventRouter kept 2 payloads as they are"
    ]


def test_views_hide_a_masked_payload_in_the_event() -> None:
    """The payload is hidden if a later stage masks a part of the envelope."""
    stage = {"type": "EventRouter", "table.fields.additional.placement": "card:envelope"}
    chain = Chain.from_route([stage, {"type": "MaskField$Value", "fields": "card"}])

    (before, _, _) = hidden_by_stage(chain)

    assert before.hides(("value", "after", "card"))
