"""Rows out of Debezium's envelopes, as far as vectors cannot say."""

from __future__ import annotations

import pytest
from tests.transforms.changes import ANNE, BOB, change, outcomes

from turnout.errors import ConfigError
from turnout.history.masking import hidden_by_stage
from turnout.records import Failure, Record
from turnout.transforms import Chain


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
