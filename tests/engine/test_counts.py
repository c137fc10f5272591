"""Counts of outcomes, and what derives from their declarations."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.engine.batches import DEAD, SINK, WANTED, batch, program
from turnout.base.histogram import Histogram
from turnout.conditions import kiwi
from turnout.engine.counts import COUNTS, OUTCOMES, Counts, Flow, Outcome, Stages, numbers_of_outcomes
from turnout.routes import Route
from turnout.subscriptions import Subscription
from turnout.subscriptions.index import Index

_CHAIN = """
name: test
source: {format: nats, servers: "nats://127.0.0.1:4222", stream: S}
key: {format: json}
value: {format: json}
transforms:
  - {name: old, type: Filter, predicate: {type: HasHeaderKey, name: Old}}
  - {name: sink, type: Cast$Value, spec: "n:int32"}
mappings:
  "in.*.*": "mapped.{{wildcard(2)}}.{{wildcard(1)}}"
  "half.x": [{destination: "half.x", weight: 50%}]
"""
_TOLERANT = "errors: {tolerance: all}\n"


def record(**changes: Any) -> dict[str, Any]:
    return {"value": {"n": 1, "town": "Oulu"}} | changes


RECORDS = [
    record(),
    record(headers=[("Old", "yes")]),
    record(key=b"{"),
    record(value=b"{"),
    record(value={"n": "many", "town": "Oulu"}),
    record(value={"n": 2, "town": "Rauma"}),
    *[record(topic="half.x") for _ in range(8)],
]


def towns(*names: str) -> Index:
    return Index.of(
        [Subscription(destinations=(f"out.{name}",), condition=kiwi("town", name), id=name) for name in names]
    )


def test_each_stage_counts_what_came_to_it_and_what_failed_in_it() -> None:
    """From the source to the sink; a transform with the name of another part of the route has a longer one."""
    result = program(SINK, DEAD, WANTED, text=_CHAIN).run(batch(RECORDS), towns("Oulu"))

    flow, counts = result.counts.flow, result.counts
    assert counts.lost_by_weight > 0
    assert dict(flow.taken) == {
        "source": 14,
        "key": 14,
        "value": 13,
        "old": 12,
        "transforms.sink": 11,
        "mapping": 10,
        "match": 10 - counts.lost_by_weight,
        "sink": 9 - counts.lost_by_weight,
        "deadLetter": 3,
    }
    assert dict(flow.failed) == {"key": 1, "value": 1, "transforms.sink": 1}
    assert list(flow.taken) == list(Stages.of(Route.parse(_CHAIN + SINK + DEAD + WANTED, {})).names)


def test_parts_that_a_route_lacks_are_not_counted() -> None:
    """A route without mappings, subscriptions and dead letters has no such stages."""
    bare = 'name: bare\nsource: {format: nats, servers: "nats://127.0.0.1:4222", stream: S}\n'

    result = program(SINK, text=bare).run(batch([record()] * 3))

    assert dict(result.counts.flow.taken) == {"source": 3, "key": 3, "value": 3, "sink": 3}


def test_what_nobody_wants_fails_where_that_makes_a_dead_letter() -> None:
    """It leaves at the match in any case."""
    records = batch([record(), record(value={"n": 2, "town": "Rauma"})])

    for policy, failed in (("drop", {}), ("deadLetter", {"match": 1})):
        result = program(SINK, DEAD, WANTED, f"unmatched: {policy}\n", text=_CHAIN).run(records, towns("Oulu"))

        assert (result.counts.flow.taken["sink"], dict(result.counts.flow.failed)) == (1, failed)


def test_a_refused_record_failed_at_the_sink() -> None:
    """Records that a server refuses are counted there, and in the dead letters, when the refusal is known."""
    result = program(SINK, DEAD, WANTED, text=_CHAIN).run(batch([record()]), towns("Oulu"))

    flow = (result.counts + result.refused({0: "no stream takes it"}).counts).flow

    assert (flow.taken["sink"], flow.failed["sink"], flow.taken["deadLetter"]) == (1, 1, 1)


@given(
    st.lists(st.sampled_from(RECORDS), max_size=12),
    st.sets(st.sampled_from(["Oulu", "Rauma"])),
    st.sampled_from(["drop", "pass", "deadLetter"]),
    st.booleans(),
    st.booleans(),
)
def test_stages_add_up_to_the_outcomes(
    records: list[dict[str, Any]], subscribed_towns: set[str], policy: str, has_topic: bool, refuse: bool
) -> None:
    """Failures of all stages equal the dead letters; the losses equal filters, weights and unmatched records."""
    if policy == "deadLetter" and not has_topic:
        policy = "drop"
    engine = program(SINK, DEAD if has_topic else _TOLERANT, WANTED, f"unmatched: {policy}\n", text=_CHAIN)
    result = engine.run(batch(records), towns(*subscribed_towns))
    counts = result.counts
    if refuse and counts.messages:
        counts += result.refused(dict.fromkeys(range(counts.messages), "is gone")).counts
    taken, failed = counts.flow.taken, counts.flow.failed

    assert counts.conserved
    assert sum(failed.values()) == counts.dead_lettered + counts.discarded
    assert taken["sink"] - failed.get("sink", 0) == counts.delivered
    assert taken.get("deadLetter", 0) == counts.dead_lettered
    dropped = {
        name: taken[name] - failed.get(name, 0) - taken[after]
        for name, after in zip(list(taken), list(taken)[1:], strict=False)
        if after != "deadLetter"
    }
    assert dropped.pop("old") == counts.filtered
    assert dropped.pop("mapping") == counts.lost_by_weight
    assert dropped.pop("match") == counts.unmatched
    assert set(dropped.values()) <= {0}


def test_flows_are_added_up_and_read_back() -> None:
    """Of several tasks, of several routes, and from a file that an earlier version wrote with other bounds."""
    one = Flow({"source": 2, "old": 1}, {"old": 1}, Histogram.of(0.004, 3))
    other = Flow({"source": 1, "new": 1}, {}, Histogram.of(60.0))

    both = one + other

    assert dict(both.taken) == {"source": 3, "old": 1, "new": 1}
    assert dict((both - other).taken) == {"source": 2, "old": 1, "new": 0}
    assert (both - other).delivery.counts == one.delivery.counts
    assert Flow.from_dict(json.loads(json.dumps(both.as_dict()))) == both
    assert Histogram.from_dict({"buckets": {"0.003": 2}, "seconds": 0.005}).counts == Histogram.of(0.004, 2).counts
    assert Counts(read=1, flow=one) == Counts(read=1)


def test_stages_tell_how_long_they_took() -> None:
    """Each that the records passed, decoding as one; times add up, and old files have none."""
    engine = program(SINK, DEAD, WANTED, text=_CHAIN)
    seconds = engine.run(batch(RECORDS), towns("Oulu")).counts.flow.seconds

    assert set(seconds) == {"value", "old", "transforms.sink", "mapping", "match", "sink"}
    assert all(took > 0 for took in seconds.values())
    both = Flow(seconds={"old": 0.5}) + Flow(seconds={"old": 0.25, "new": 1.0})
    assert dict(both.seconds) == {"old": 0.75, "new": 1.0}
    assert Flow.from_dict(json.loads(json.dumps(both.as_dict()))).seconds == both.seconds
    before = {name: part for name, part in both.as_dict().items() if name != "seconds"}
    assert Flow.from_dict(before).seconds == {}


ROUTES_PAGE = Path(__file__).parents[2] / "docs" / "outcomes.md"


def outcomes(*labels: str) -> np.ndarray[tuple[int], np.dtype[np.int8]]:
    return np.array([Outcome[label.upper()] for label in labels], np.int8)


def test_counts_of_outcomes() -> None:
    counts = Counts.of(numbers_of_outcomes(outcomes("delivered", "filtered", "delivered", "discarded")))

    assert counts == Counts(read=4, delivered=2, filtered=1, discarded=1)
    assert counts.conserved


def test_a_record_without_an_outcome_is_missed() -> None:
    """Its run says that the counts do not add up."""
    counts = Counts.of(numbers_of_outcomes(np.array([Outcome.DELIVERED, -1], np.int8)))

    assert counts.read == 2
    assert counts.accounted == 1
    assert not counts.conserved


def test_each_outcome_is_a_count() -> None:
    assert set(OUTCOMES) < set(COUNTS)


def test_the_table_in_the_docs_is_that_of_the_declarations() -> None:
    """Copy the expected lines into docs/outcomes.md if they differ."""
    expected = "".join(f"| `{name}` | {info.unit} {info.meaning} |\n" for name, info in COUNTS.items())

    assert expected in ROUTES_PAGE.read_text(encoding="utf-8")


def test_counts_as_json() -> None:
    """Nothing is lost on the way, the flow neither; an object without counts has zeros."""
    counts = Counts(read=3, delivered=2, discarded=1, flow=Flow({"source": 3}, {"value": 1}))

    read = Counts.of_json(json.loads(json.dumps(counts.to_json())))

    assert (read, read.flow) == (counts, counts.flow)
    assert Counts.of_json({}) == Counts()
