"""Subjects that a replay can skip."""

from __future__ import annotations

from pathlib import Path

import pytest

from turnout.conditions import evaluate, parse
from turnout.engine.subject_filters import MOST_FILTERS, SubjectFilters, subject_filters
from turnout.routes import Route
from turnout.subjects import matches

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
    in_source = [topic for topic in TOPICS if not own or any(matches(filter_, topic) for filter_ in own)]
    matching = [
        topic
        for topic in in_source
        if any(evaluate(condition, {"topic": topic, "subject": topic}) for condition in conditions)
    ]
    assert all(not filters or any(matches(filter_, topic) for filter_ in filters) for topic in matching)


FLIGHTS = Path(__file__).parents[2] / "examples" / "flights.yaml"


def _filters(text: str, *conditions: str) -> tuple[str, ...] | None:
    filters = SubjectFilters(Route.parse(text, {}), ())
    return filters.of(filters.asked(parse(condition)) for condition in conditions)


def _with(transform: str = "", rest: str = "") -> str:
    return (
        ROUTE.replace(
            "  - {name: drop", f"  - {{name: t, {transform}}}\n  - {{name: drop" if transform else "  - {name: drop"
        )
        + rest
    )


@pytest.mark.parametrize(
    ("text", "condition", "expected"),
    [
        (_with(rest='mappings: {"a.*": "b.{{wildcard(1)}}"}'), "topic:b.c", ("a.c", "b.c")),
        (_with(rest='mappings: {"a.*": "b.{{wildcard(1)}}", "b.>": "c.>"}'), "topic:b.c", ("a.c",)),
        (_with(rest='mappings: {">": "eu.>"}'), "topic:eu.a.*", ("a.>",)),
        (_with(rest='mappings: {">": "eu.>"}'), "topic:us.*", ()),
        (_with(rest='mappings: {"a.*.*": "{{wildcard(2)}}.{{partition(3,1)}}.$1"}'), "topic:x.?.y", ("a.y.x", "x.*.y")),
        (_with(rest='mappings: {"a.*": "{{split(1,-)}}.b"}'), "topic:x.b", ("a.*", "x.b")),
        (_with("type: RegexRouter, regex: 'a\\.(.*)', replacement: 'eu.$1'"), "topic:eu.x", ("a.>", "eu.x")),
        (_with("type: RegexRouter, regex: 'a\\.(.*)', replacement: 'eu.$1'"), "topic:us.x", ("us.x",)),
        (_with("type: RegexRouter, regex: '(?i)a', replacement: 'eu'"), "topic:eu", None),
        (_with("type: SubjectTransform, source: 'a.*', destination: 'b.$1'"), "topic:b.c", ("a.c", "b.c")),
        (_with("type: TimestampRouter"), "topic:a.b", None),
        (_with("type: Filter, predicate: {type: SubjectMatches, subject: 'a.>'}, negate: true"), "topic:*.b", ("a.>",)),
        (_with("type: Filter, predicate: {type: TopicNameMatches, pattern: a.b}, negate: on"), "topic:*", ("*", "*.b")),
        (_with("type: Filter, predicate: {type: TopicNameMatches, pattern: 'a\\..*'}"), "topic:a.b", ("a.b",)),
        (_with("type: Filter"), "topic:a.b", ()),
    ],
)  # fmt: skip
def test_topics_that_change_on_the_way(text: str, condition: str, expected: tuple[str, ...] | None) -> None:
    """Conditions on a topic become conditions on its original subject, as far as possible."""
    assert _filters(text, condition) == expected


def test_names_of_the_topic() -> None:
    """A path of that name says nothing of the topic, and one that leads to it has another name."""
    hidden = ROUTE.replace('"memory://"', '"memory://", metadata: {topic: value.topic}')
    renamed = ROUTE.replace('"memory://"', '"memory://", metadata: {line: topic}')

    assert _filters(hidden, "topic:a.b") is None
    assert _filters(hidden, "subject:a.b") == ("a.b",)
    assert _filters(renamed, "line:a.b") == ("a.b",)


def test_the_demo_s_flights_by_carrier() -> None:
    """Three carriers, named in mapped topics: the filters are on the subjects as they were published."""
    route = Route.load(FLIGHTS, {"SUBSCRIPTIONS": "memory://"})
    filters = SubjectFilters(route, ["flights.>"])

    chosen = filters.of(filters.asked(parse(f"topic:ops.*.???.{carrier}.?")) for carrier in ("UA", "B6", "WN"))

    assert chosen == tuple(
        f"flights.{origin}.*.{carrier}" for origin in ("EWR", "JFK", "LGA") for carrier in ("B6", "UA", "WN")
    )


def test_no_more_than_a_hundred() -> None:
    """Many subjects become wildcards where they differ most, and too many questions are not asked at all."""
    text = _with()

    many = _filters(text, *(f"topic:a.{kind}.{n}" for kind in "bc" for n in range(500)))
    few = _filters(text, *(f"topic:a.b.{n}" for n in range(MOST_FILTERS)))

    assert many == ("a.b.*", "a.c.*")
    assert few is not None
    assert len(few) == MOST_FILTERS
    assert _filters(text, *(f"topic:a.{n}" for n in range(10_001))) is None


def test_filters_that_overlap_become_one() -> None:
    """nats-server takes no two filters with a subject in common."""
    assert _filters(_with(), "topic:a.b.x OR topic:a.?.y", "topic:a.b.y") == ("a.*.y", "a.b.x")
    table = 'mappings: {"in.*.*": "o.{{wildcard(1)}}.{{wildcard(2)}}"}'
    assert _filters(_with(rest=table), "topic:o.*.a", "topic:o.a.*") == ("in.*.*", "o.>")
