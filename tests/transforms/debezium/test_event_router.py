"""Events of an outbox table, as far as vectors cannot say."""

from __future__ import annotations

from typing import Any

import pytest
from tests.transforms.changes import change, outcomes

from turnout.history.masking import hidden_by_stage
from turnout.records import Failure, Field, Record, Schema
from turnout.transforms import Chain, unknown_fields

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


def inserted(**columns: Any) -> dict[str, Any]:
    row = {"id": "da8d", "aggregatetype": "Order", "aggregateid": "17", "type": "Made", "payload": "{}", **columns}
    return {**change("c", None, row), "ts_ms": 5}


@pytest.mark.parametrize(
    ("stage", "names"),
    [
        ({"type": "EventRouter"}, []),
        ({"type": "EventRouter", "route.by.field": "agregatetype"}, ["after.agregatetype"]),
        ({"type": "EventRouter", "table.field.event.key": "k"}, ["after.k"]),
        ({"type": "EventRouter", "table.fields.additional.placement": "typ:header:kind"}, ["after.typ"]),
        ({"type": "ExtractNewRecordState", "add.fields": "op,lsn,table:t"}, []),
        (
            {"type": "ExtractNewRecordState", "add.fields": "source.lns", "add.headers": "tabel"},
            ["source.lns", "tabel"],
        ),
        ({"type": "ExtractTopic$Value", "field": "opp", "skip.missing.or.null": "true"}, ["opp"]),
    ],
)
def test_names_of_columns_that_no_event_has(stage: dict[str, str], names: list[str]) -> None:
    """Columns of an outbox, parts of events and skipped topics are looked up as other fields are."""
    mistakes = list(unknown_fields(Chain.from_route([stage]), None, OUTBOX, {}))

    assert len(mistakes) == len(names)
    assert all(name in mistake.problem for name, mistake in zip(names, mistakes, strict=True))


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
