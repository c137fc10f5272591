"""Every value of a route that has another type, or another size, than expected: a RouteError, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from turnout.errors import RouteError
from turnout.routes import Route

NATS = {"format": "nats", "servers": "nats://127.0.0.1:4222"}
ROUTES: tuple[dict[str, Any], ...] = (
    {
        "name": "a",
        "source": NATS
        | {
            "stream": "S", "start": {"S": 5}, "filterSubject": ["a.>"], "timeout": 1.5, "domain": "hub", "tls": True,
            "token": "t", "tlsCa": "ca.pem", "partitions": 2, "maxRecordsPerTrigger": 10, "inboxPrefix": "_IN",
        },
        "key": {"format": "string"},
        "value": {"format": "json", "schema": "city STRING, spot STRUCT<x: INT>"},
        "transforms": [
            {"name": "no-tests", "type": "Filter", "predicate": {"type": "HasHeaderKey", "name": "Test"}},
            {"name": "dear", "type": "Filter", "predicate": {"type": "Condition", "condition": "{key: x, '>': 5}"}},
            {"name": "town", "type": "ReplaceField$Value", "renames": "city:town"},
            {"name": "day", "type": "TimestampRouter", "topic.format": "${topic}.x", "timestamp.format": "yyyy"},
            {"name": "again", "type": "RegexRouter", "regex": "a(.*)", "replacement": "$1"},
            {"name": "amount", "type": "Cast$Value", "spec": "amount:float64"},
        ],
        "mappings": {"a.*": [{"destination": "b.{{wildcard(1)}}", "weight": "50%", "cluster": "c"}], "x": "y"},
        "cluster": "c",
        "subscriptions": {"store": "sqlite:///s.db?timeout=5", "metadata": {"town": "value.town"}},
        "unmatched": "drop",
        "sinks": {"out": NATS | {"window": 5, "allow": ["b.>"], "forwardHeaders": ["Nats-TTL"]}},
        "deadLetter": {"topic": "out:dead", "contextHeaders": False},
        "errors": {"tolerance": "all", "log": True},
        "trigger": {"processingTime": "1 second"},
        "checkpoint": "progress",
        "spark": {"spark.sql.shuffle.partitions": 4},
        "tests": [],
    },
    {
        "name": "b",
        "source": {
            "format": "kafka", "servers": ["a:9092"], "topicPattern": "a.*", "start": {"t": {"0": 5}},
            "end": "latest", "options": {"kafka.client.id": "x"},
        },
        "value": {"format": "connect-json", "schema": {"type": "struct", "fields": [{"type": "int32", "field": "x"}]},
                  "decimalFormat": "NUMERIC"},
        "transforms": {"transforms": "a", "transforms.a.type": "HoistField$Value", "transforms.a.field": "x"},
        "mappings": {"file": "nats.conf", "account": "A"},
        "sink": {"format": "csv", "path": "out", "options": {"header": True}, "partitionBy": ["topic"]},
    },
)  # fmt: skip

WRONG: tuple[Any, ...] = (
    None, True, 0, -1, 1.5, float("nan"), 10**300, "", " ", "x", "x" * 100_000, "(" * 3000, "[" * 3000, "{" * 3000,
    "a\0b", "~nobody-of-this-name/x", "/dev/null", "/dev/zero", "${X", "${X:-" * 30, "${file:a\0b}",
    "\u2028\N{PILE OF POO}",
    "ARRAY<" * 3000, "9" * 5000, "a.>.*..b", "{{wildcard(99999999999999999999)}}", "x://[", "nats://a:99999999",
    "a:b:c",
    [], [None], [[]], [{}], ["x" * 300], [1.5, "x"], {}, {"": ""}, {"x": None}, {"x": []}, {"format": []},
    {"format": {}}, {"file": 5}, {"type": []}, {"type": {"type": "struct"}}, {"a": {"b": {"c": [{"d": []}]}}},
)  # fmt: skip


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of every value below one."""
    steps = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, below in steps:
        yield (*path, step)
        yield from places(below, (*path, step))


def with_value(document: dict[str, Any], path: tuple[Any, ...], value: Any) -> dict[str, Any]:
    """The document with another value at *path*."""
    changed = deepcopy(document)
    here: Any = changed
    for step in path[:-1]:
        here = here[step]
    here[path[-1]] = value
    return changed


def problems_of(document: Any, folder: Path) -> list[str]:
    """Return the problems of a document; any exception other than RouteError fails the test."""
    try:
        Route.parse(json.dumps(document), {}, file=folder / "route.yaml")
    except RouteError as wrong:
        str(wrong).encode()
        return [str(mistake) for mistake in wrong.mistakes]
    return []


PLACES = [(route, path) for route in ROUTES for path in places(route)]


@pytest.mark.parametrize("value", [None, True, 0, [], [None], {}, {"format": []}], ids=json.dumps)
def test_a_value_of_another_type_is_a_route_error(value: Any, tmp_path: Path) -> None:
    """At each place of two routes that use nearly everything."""
    for route, path in PLACES:
        problems_of(with_value(route, path, value), tmp_path)


@settings(max_examples=examples(200))
@given(place=st.sampled_from(PLACES), value=st.sampled_from(WRONG))
def test_a_value_beyond_all_sizes_is_a_route_error(place: tuple[dict[str, Any], tuple[Any, ...]], value: Any) -> None:
    """Endless brackets, invalid file names, numbers of thousands of digits: each has a short error."""
    route, path = place
    problems = problems_of(with_value(route, path, value), Path("/nowhere"))

    assert all(len(problem) < 3000 for problem in problems)


@pytest.mark.parametrize(
    ("more", "place"),
    [
        ({"mappings": []}, "mappings"),
        ({"value": {"format": []}}, "value.format"),
        ({"sink": NATS | {"tlsCa": "x" * 5000}}, "sink.tlsCa"),
        ({"sink": NATS | {"tlsCa": "~nobody-of-this-name/x"}}, "sink.tlsCa"),
        ({"mappings": {"a": [{"destination": "b", "weight": "9" * 5000}]}}, '"a"[0]'),
        ({"transforms": [{"type": "RegexRouter", "regex": "a", "replacement": None}]}, "transforms[0].replacement"),
        ({"transforms": [{"type": "TimestampRouter", "topic.format": None}]}, "transforms[0].topic.format"),
        ({"transforms": "a\0b"}, "transforms"),
    ],
)  # fmt: skip
def test_one_wrong_value_is_one_mistake(more: dict[str, Any], place: str) -> None:
    """It is named by its place."""
    route = {"name": "a", "source": NATS | {"stream": "S"}, "sink": NATS} | more

    (problem,) = problems_of(route, Path("/nowhere"))

    assert problem.startswith(place) or f".{place}" in problem or place in problem.partition(": ")[0]


def test_of_a_thousand_mistakes_the_first_are_listed() -> None:
    """The first fifty, and a line with the number of the others."""
    problems = problems_of({f"unknown{number}": 1 for number in range(1000)}, Path("/nowhere"))

    assert len(problems) == 51
    assert "more mistakes" in str(problems[-1])
