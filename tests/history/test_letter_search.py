"""Search of dead letters by a condition: over what the record is, decoded or not."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnout.conditions import evaluate, parse
from turnout.engine.sample_records import SampleRecord
from turnout.epoch import Microseconds
from turnout.errors import ConditionError, ConfigError
from turnout.history.dead_letters import DeadLetter
from turnout.history.letter_search import meeting
from turnout.routes import Route

ROUTE = Route.parse(
    """
name: orders
source: {format: nats, servers: "nats://127.0.0.1:4222", stream: ORDERS}
value: {format: json}
transforms:
  - {type: MaskField$Value, fields: card}
subscriptions: {store: "memory://", metadata: {city: value.city, card: value.card}}
sink: {format: nats, servers: "nats://127.0.0.1:4222"}
deadLetter: {topic: dead.orders}
""",
    {},
)


def letter(value: object, number: int = 1, topic: str = "orders.1", **headers: str) -> DeadLetter:
    raw = value if isinstance(value, bytes) else json.dumps(value).encode()
    record = SampleRecord(topic, raw, headers=tuple((name, text.encode()) for name, text in headers.items()))
    return DeadLetter("DEAD", number, "", Microseconds(0), record, True, "TRANSFORMATION", None, "no number")


OULU, TURKU, BROKEN = letter({"city": "Oulu"}), letter({"city": "Turku"}, 2, tag="a"), letter(b"\xff{", 3, tag="a")


@pytest.mark.parametrize(
    ("where", "found"),
    [
        ("city:Oulu", [OULU]),
        ("NOT city:Oulu", [TURKU, BROKEN]),
        ("tag:a", [TURKU, BROKEN]),
        ("value.city:Turku OR value.n>3", [TURKU]),
        ("topic:orders* AND tag:*", [TURKU, BROKEN]),
        ("city:*", [OULU, TURKU]),
        ("city:Kemi", []),
    ],
)
def test_letters_meet_a_condition(where: str, found: list[DeadLetter]) -> None:
    """By listed paths, topic and headers, in their order; what cannot be decoded has no paths."""
    assert meeting(ROUTE, [OULU, TURKU, BROKEN], where) == found


@given(st.lists(st.tuples(st.sampled_from(["Oulu", "Turku", None]), st.sampled_from(["a", "b"])), max_size=12))
def test_the_search_is_the_reference(drawn: list[tuple[str | None, str]]) -> None:
    """As the evaluator says of each record alone, whatever stands beside it."""
    letters = [
        letter(b"{" if city is None else {"city": city}, number, tag=tag) for number, (city, tag) in enumerate(drawn)
    ]
    condition = parse("city:Oulu OR NOT tag:a")
    seen = [{"tag": tag} | ({} if city is None else {"city": city}) for city, tag in drawn]
    expected = [one for one, texts in zip(letters, seen, strict=True) if evaluate(condition, texts)]

    assert meeting(ROUTE, letters, condition) == expected


def test_more_letters_than_a_batch_keep_their_order() -> None:
    """Of several thousand."""
    letters = [replace(OULU if number % 3 else TURKU, sequence=number) for number in range(2500)]

    found = meeting(ROUTE, letters, "city:Turku")

    assert [one.sequence for one in found] == list(range(0, 2500, 3))


def test_what_is_masked_is_not_searched() -> None:
    """A strict search refuses it, as it would tell what it is; what cannot be read is refused as well."""
    assert meeting(ROUTE, [letter({"card": "17"})], "card:17") != []
    with pytest.raises(ConfigError, match="where: card: the route masks"):
        meeting(ROUTE, [], "card:17", strict=True)
    with pytest.raises(ConfigError, match=r"where: value\.card: the route masks"):
        meeting(ROUTE, [], "value.city:Oulu AND value.card:1*", strict=True)
    assert meeting(ROUTE, [OULU], "value.city:Oulu", strict=True) == [OULU]
    with pytest.raises(ConditionError):
        meeting(ROUTE, [], "city:")
