"""Change events in words: what was done, to which table, and where the log says so."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.engine.batches import SINK, program
from tests.engine.test_explain import explained
from turnout.cli.explain import explanation_lines
from turnout.engine.change_event import change_event
from turnout.history.masking import masked_explanation

POSTGRES = {
    "connector": "postgresql",
    "name": "inventory",
    "ts_ms": 1_700_000_000_123,
    "snapshot": "false",
    "db": "shop",
    "schema": "public",
    "table": "orders",
    "txId": 5,
    "lsn": 240,
    "xmin": None,
}
MYSQL = {
    "connector": "mysql",
    "version": "3.6.1.Final",
    "name": "m",
    "snapshot": "last",
    "db": "shop",
    "table": "item",
    "file": "b.1",
    "pos": 4,
}
ROUTE = """
name: changes
source: {format: nats, servers: "nats://127.0.0.1:4222", stream: S}
value: {format: json}
transforms: [{name: private, type: MaskField$Value, fields: card}]
"""


def lines(value: dict[str, Any]) -> list[str]:
    return list(explanation_lines(explained(program(SINK, text=ROUTE), topic="a", value=value)))


def test_an_update() -> None:
    """The fields that differ are shown, with the position in the log and both times."""
    rows = {"before": {"id": 1, "state": "new"}, "after": {"id": 1, "state": "paid"}}

    shown = lines({**rows, "source": POSTGRES, "op": "u", "ts_ms": 1_700_000_001_323})

    assert shown[1:4] == [
        "change  update of shop.public.orders",
        "    connector postgresql of inventory, lsn 240 txId 5, changed at 2023-11-14T22:13:20.123Z, read 1.2 s later",
        '    ~ row.state: "new" → "paid"',
    ]


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (
            {"op": "r", "before": None, "after": {"id": 1}, "source": MYSQL},
            [
                "read by a snapshot of shop.item",
                "connector mysql of m (Debezium 3.6.1.Final), in a snapshot, file b.1 pos 4",
                "+ row.id: 1",
            ],
        ),
        (
            {"op": "d", "before": {"id": 1}, "after": None, "source": {"connector": "mysql", "table": "item"}},
            ["delete of item", "connector mysql", "- row.id: 1"],
        ),
        (
            {"op": "u", "before": None, "after": {"id": 1}, "source": {"table": "item"}},
            [
                "update of item",
                "a connector without a name",
                "the event has no row before the change: the table's replica identity or the log leaves it out",
                "+ row.id: 1",
            ],
        ),
        (
            {"op": "t", "before": None, "after": None, "source": {"db": "shop"}},
            ["truncate of shop", "a connector without a name"],
        ),
    ],
)
def test_other_changes(event: dict[str, Any], expected: list[str]) -> None:
    """Rows that are not there are not shown, and a remark says why where there should be one."""
    shown = [line.removeprefix("change  ").strip() for line in lines(event)[1 : 1 + len(expected)]]

    assert shown == expected


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["db", "ts_ms", "name"]), inner),
    max_leaves=6,
)


@given(
    st.fixed_dictionaries(
        {},
        optional=dict.fromkeys(("before", "after", "source", "ts_ms"), VALUES)
        | {"op": st.sampled_from("cudrtm") | VALUES, "source": st.dictionaries(st.sampled_from(list(MYSQL)), VALUES)},
    )
)
def test_whatever_looks_like_one(value: dict[str, Any]) -> None:
    """Values of any type in an envelope's places are described, or are none."""
    event = change_event(value)

    assert event is None or (event.action and event.origin)


def test_masked() -> None:
    """Fields that the route masks are in no row of the change."""
    engine = program(SINK, text=ROUTE)
    rows = {"before": {"card": "4929"}, "after": {"card": "4930"}}
    explanation = explained(engine, topic="a", value={**rows, "source": POSTGRES, "op": "u"})

    masked = masked_explanation(explanation, engine.route)

    assert explanation.as_dict()["change"]["before"] == {"card": "4929"}
    assert masked.as_dict()["change"]["before"] == {"card": "***"}
    assert "4929" not in str(masked.change)
