"""What a replay need not read."""

from __future__ import annotations

from dataclasses import replace

import pytest

from turnout.conditions import evaluate, parse
from turnout.engine.subject_filters import subject_filters
from turnout.routes import Route
from turnout.subjects import MappingTable, matches

ROUTE = """
name: r
source: {format: nats, servers: "nats://127.0.0.1", stream: S}
value: {format: json}
transforms:
  - {name: mask, type: MaskField$Value, fields: card}
  - {name: drop, type: Filter, predicate: {type: HasHeaderKey, name: Old}}
subscriptions: {store: "memory://"}
sink: {format: nats, servers: "nats://127.0.0.1"}
"""
TOPICS = ["a.b", "a.b.c", "a.x", "a.bc", "b.c", "a", "a.b.c.d"]


@pytest.mark.parametrize(
    ("texts", "own", "expected"),
    [
        (["topic:a.b"], (), ("a.b",)),
        (["subject:a.b*"], (), ("a.>",)),
        (["topic:a.b.*"], (), ("a.b.>",)),
        (["topic:a.b.* AND town:Oulu"], (), ("a.b.>",)),
        (["topic:a.b OR topic:b.c"], (), ("a.b", "b.c")),
        (["topic:a.b", "topic:a.*"], (), ("a.>",)),
        (["topic:a.b OR town:Oulu"], (), ()),
        (["NOT topic:a.b"], (), ()),
        (["topic~a"], (), ()),
        (["topic:i:a.b"], (), ()),
        (["topic:a*"], (), ()),
        (["town:Oulu"], ("a.>",), ("a.>",)),
        (["topic:a.b.*"], ("a.*.c",), ("a.b.c",)),
        (["topic:a.b", "topic:b.c"], ("a.>",), ("a.b",)),
        (["topic:a.b"], ("b.>",), ("b.>",)),
    ],
)
def test_subjects_that_can_be_wanted(texts, own, expected) -> None:
    """Whole tokens of what a condition asks for, never less than what it can be true of."""
    route = Route.parse(ROUTE, {})
    conditions = [parse(text) for text in texts]

    filters = subject_filters(route, conditions, own)

    assert filters == expected
    in_source = [topic for topic in TOPICS if not own or any(matches(one, topic) for one in own)]
    wanted = [
        topic for topic in in_source if any(evaluate(one, {"topic": topic, "subject": topic}) for one in conditions)
    ]
    assert all(not filters or any(matches(one, topic) for one in filters) for topic in wanted)


def test_topics_that_change_on_the_way() -> None:
    """With mappings, routers, or a path of that name, a condition says nothing of what is read."""
    route = Route.parse(ROUTE, {})
    table = MappingTable.from_config({"a.*": [{"destination": "b.{{wildcard(1)}}", "weight": 100}]})
    router = "{name: route, type: RegexRouter, regex: a, replacement: b}"

    assert subject_filters(replace(route, mappings=table), [parse("topic:a.b")], ()) == ()
    for text in (
        ROUTE.replace("  - {name: drop", f"  - {router}\n  - {{name: drop"),
        ROUTE.replace('"memory://"', '"memory://", metadata: {topic: value.topic}'),
    ):
        assert subject_filters(Route.parse(text, {}), [parse("topic:a.b")], ()) == ()
