"""The predicate ``Condition`` over batches."""

from __future__ import annotations

from typing import Any

import pytest

from turnout.errors import ConfigError
from turnout.records import Batch, Header, Record
from turnout.transforms import Chain
from turnout.transforms.base import Errors

RECORDS = [
    Record("orders.eu", {"n": 5, "at": {"x.y": "home"}}, "k1", [Header("h", b"one"), Header("h", b"two")]),
    Record("orders", None, None, [Header("other", b"\xff")]),
    Record("orders.us", {"n": 50}, {"id": 1}),
    Record(None, "plain", b"bytes"),
]


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ({"key": "value.n", ">": 10}, [False, False, True, False]),
        ({"key": "value.at.`x.y`", "equals": "home"}, [True, False, False, False]),
        ({"key": "key", "exists": True}, [True, False, True, True]),
        ({"key": "key", "equals": "bytes"}, [False, False, False, True]),
        ({"key": "key.id", "equals": "1"}, [False, False, True, False]),
        ({"key": "value", "equals": "plain"}, [False, False, False, True]),
        ({"key": "subject", "pattern": "orders.?s"}, [False, False, True, False]),
        ({"key": "h", "equals": "two"}, [True, False, False, False]),
        ({"key": "h", "equals": "one"}, [False, False, False, False]),
        ({"key": "other", "exists": True}, [False, False, False, False]),
        ({"not": {"key": "value.n", "exists": True}}, [False, True, False, True]),
        ({"all": [{"key": "topic", "exists": True}, {"key": "value.n", "<": 10}]}, [True, False, False, False]),
        ({"any": [{"key": "topic", "equals": "orders"}, {"key": "h", "exists": True}]}, [True, True, False, False]),
        ({"xor": [{"key": "value.n", "exists": True}, {"key": "h", "exists": True}]}, [False, False, True, False]),
    ],
)
def test_a_condition_sees_topic_headers_key_and_value(condition: dict[str, Any], expected: list[bool]) -> None:
    """The last header of a name, bytes that are UTF-8, numbers as text; what is not there is missing."""
    chain = Chain.from_route([{"type": "Filter", "predicate": {"when": condition}}])

    errors: Errors = {}
    assert expected == chain.stages[0].guards[0].predicate.test(Batch.of_records(RECORDS), errors).tolist()
    assert errors == {}


def test_a_path_that_cannot_be_read_is_refused_with_the_chain() -> None:
    """It is refused when the chain is built, not at the first record."""
    with pytest.raises(ConfigError, match="backtick"):
        Chain.from_route([{"type": "Filter", "predicate": {"when": {"key": "value.`a", "exists": True}}}])
