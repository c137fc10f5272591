"""Two versions of a route over the same records, held against a comparison of one record after the other."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from functools import cache, reduce
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.engine.batches import batch
from tests.history.routes import TEXT
from turnout.conditions import parse
from turnout.engine import Program, pieces
from turnout.history.diff.diff import Diff
from turnout.history.diff.differences import Cost, Differences, EndedRecord, RecordPosition
from turnout.history.suite.outcomes import CaseOutcome, ending_of
from turnout.routes import Route
from turnout.subscriptions import Subscription
from turnout.subscriptions.index import Index
from turnout.subscriptions.past import Snapshot

SUBSCRIPTIONS = (
    Subscription(["out.oulu"], parse("town:Oulu"), id="oulu"),
    Subscription(["out.many", "out.more"], parse("n>5 AND NOT Kind:odd"), id="many"),
)
ROUTES = {
    "same": TEXT,
    "filters more": TEXT.replace("name: Old}", 'name: "Kind"}'),
    "filters by another name": TEXT.replace("{name: old,", "{name: stale,"),
    "masks more": TEXT.replace('">": 5', '">": 2'),
    "renames": TEXT.replace('"city:town"', '"city:place"'),
    "maps": TEXT.replace("mapped.{{wildcard(1)}}", "other.{{wildcard(1)}}"),
    "loses": TEXT.replace("weight: 50%", "weight: 10%"),
    "passes": TEXT + "unmatched: pass\n",
    "sets aside": TEXT + "unmatched: deadLetter\n",
    "dead elsewhere": TEXT.replace("{topic: dead}", "{topic: graves}"),
    "stops": TEXT.replace("tolerance: all", "tolerance: none"),
    "drops headers": TEXT.replace("mappings:", "  - {name: kind, type: DropHeaders, headers: Kind}\nmappings:"),
    "casts": TEXT.replace("mappings:", '  - {name: cast, type: Cast$Value, spec: "n:int8"}\nmappings:'),
}
SNAPSHOTS = {
    "same": SUBSCRIPTIONS,
    "one goes": SUBSCRIPTIONS[:1],
    "one comes": (*SUBSCRIPTIONS, Subscription(["out.all"], parse("subject:*"), id="all")),
    "one moves": (replace(SUBSCRIPTIONS[0], destinations=("out.elsewhere",)), SUBSCRIPTIONS[1]),
    "one moves and grows": (replace(SUBSCRIPTIONS[0], destinations=("out.a", "out.b")), SUBSCRIPTIONS[1]),
    "one wants less": (SUBSCRIPTIONS[0], replace(SUBSCRIPTIONS[1], condition=parse("n>6"))),
    "two of them": (replace(SUBSCRIPTIONS[0], destinations=("out.oulu", "a b", "c d")), SUBSCRIPTIONS[1]),
    "a bad destination": (replace(SUBSCRIPTIONS[0], destinations=("out.oulu", "a b")), SUBSCRIPTIONS[1]),
}

values = st.fixed_dictionaries(
    {}, optional={"n": st.integers(0, 300), "city": st.sampled_from(["Oulu", "Turku"]), "secret": st.text(max_size=3)}
)
records = st.fixed_dictionaries(
    {
        "topic": st.sampled_from(["in.a", "in.b", "half.x", "split.x", "plain"]),
        "value": st.one_of(values, st.sampled_from([b"{", b'{"n": "seven"}', None])),
        "headers": st.lists(
            st.tuples(st.sampled_from(["Kind", "Old", "X"]), st.sampled_from(["odd", "even"])), max_size=3
        ),
    }
)
lists = st.lists(records, max_size=25)


def differences(old: str, new: str, rows: Any, before: str = "same", after: str = "same") -> Differences:
    """The comparison without its costs, which no two runs have in common."""
    parts = [versions(old, new).of(piece, index(before), index(after)) for piece in pieces(rows)]
    return costless(reduce(Differences.__add__, parts, Differences()))


@cache
def versions(old: str, new: str) -> Diff:
    return Diff(Route.parse(ROUTES[old], {}), Route.parse(ROUTES[new], {}))


@cache
def program(route: str) -> Program:
    return Program.of(Route.parse(ROUTES[route], {}))


@cache
def index(snapshot: str) -> Index:
    return Index.of(SNAPSHOTS[snapshot])


def costless(compared_batch: Differences) -> Differences:
    return replace(compared_batch, old_cost=Cost(), new_cost=Cost())


def endings(route: str, rows: Any, snapshot: str) -> list[CaseOutcome]:
    trace = program(route).trace(rows, index(snapshot))
    return [ending_of(trace, row, program(route).route) for row in range(len(trace))]


def by_hand(old: Sequence[CaseOutcome], new: Sequence[CaseOutcome], *, letters_moved: bool) -> dict[str, int]:
    """The totals of two lists of endings, worked out record by record."""
    totals: dict[str, int] = defaultdict(int)
    for one, other in zip(old, new, strict=True):
        record: dict[str, int] = defaultdict(int)
        record["outcomes"] += one.outcome != other.outcome
        before, after = Counter(one.deliveries), Counter(other.deliveries)
        for subscription in {whose for whose, _ in (*before, *after)}:
            gone = sum(count for (whose, _), count in (before - after).items() if whose == subscription)
            come = sum(count for (whose, _), count in (after - before).items() if whose == subscription)
            record["moved"] += min(gone, come)
            record["lost"] += max(0, gone - come)
            record["gained"] += max(0, come - gone)
        if one.deliveries and other.deliveries:
            record["values"] += one.value != other.value
            record["headers"] += named(one) != named(other)
        if one.reason is not None and other.reason is not None:
            record["failures"] += letters_moved or (one.stage, one.reason) != (other.stage, other.reason)
        elif one.outcome == other.outcome:
            record["failures"] += one.reason != other.reason
        for name, number in record.items():
            totals[name] += number
        totals["changed"] += any(record.values())
    return {name: number for name, number in totals.items() if number}


def named(ending: CaseOutcome) -> dict[str, list[str | None]]:
    headers: dict[str, list[str | None]] = defaultdict(list)
    for name, text in ending.headers:
        headers[name].append(text)
    return headers


@given(lists, st.sampled_from(sorted(ROUTES)))
def test_a_route_is_not_other_than_itself(given_records: list[dict[str, Any]], route: str) -> None:
    """For any records only the outcomes are counted, and no example is shown."""
    compared = differences(route, route, batch(given_records))

    assert compared.empty
    assert compared == Differences(records=len(given_records), matrix=compared.matrix)
    assert compared.matrix.changes == []


@given(lists, st.sampled_from(sorted(set(ROUTES) - {"filters by another name"})), st.sampled_from(sorted(SNAPSHOTS)))
def test_what_is_counted_is_what_single_records_show(
    given_records: list[dict[str, Any]], route: str, snapshot: str
) -> None:
    """Each total is that of a comparison record by record, which shares no code with it."""
    rows = batch(given_records)

    compared = differences("same", route, rows, after=snapshot)

    old, new = endings("same", rows, "same"), endings(route, rows, snapshot)
    expected = by_hand(old, new, letters_moved=route == "dead elsewhere")
    names = ("outcomes", "moved", "lost", "gained", "values", "headers", "failures", "changed")
    assert {name: compared.totals[name] for name in names if compared.totals[name]} == expected
    assert compared.empty == (not expected)
    shown = Counter(kind for kind, _ in compared.examples.by_kind)
    assert {"lost", "gained", "moved"} & set(shown) == {"lost", "gained", "moved"} & set(expected)


@given(lists, st.integers(1, 7), st.randoms(use_true_random=False), st.sampled_from(sorted(ROUTES)))
def test_parts_add_up_to_the_whole(given_records: list[dict[str, Any]], size: int, random: Any, route: str) -> None:
    """In any order, examples included: how the records were split among tasks shows nowhere."""
    rows = batch(given_records)
    parts = [rows.slice(start, size) for start in range(0, len(given_records), size)]
    random.shuffle(parts)

    compared = [differences("same", route, part, after="one moves and grows") for part in parts]

    whole = differences("same", route, rows, after="one moves and grows")
    together = reduce(Differences.__add__, compared, Differences())
    assert together == whole


def test_one_record_in_ten_thousand() -> None:
    """A change that concerns it alone is found with exact counts, and with its sequence."""
    given_records = [{"topic": "in.a", "value": {"n": n % 5, "city": "Oulu"}} for n in range(20_000)]
    for position in (4_999, 14_999):
        given_records[position]["value"] = {"n": 7, "city": "Oulu", "secret": "s"}
    new = TEXT.replace("secret, predicate", 'secret, replacement: "*", predicate')
    assert new != TEXT
    diff = Diff(Route.parse(TEXT, {}), Route.parse(new, {}))
    subscriptions = index("same")

    compared = sum(
        (diff.of(piece, subscriptions, subscriptions) for piece in pieces(batch(given_records))), Differences()
    )

    totals = {name: number for name, number in compared.totals.items() if number and name not in ("old_us", "new_us")}
    assert totals == {
        "records": 20_000, "changed": 2, "values": 2, "old_delivered": 20_000, "new_delivered": 20_000
    }  # fmt: skip
    assert compared.fields.counts == {"secret": 2}
    ((kind, what), examples), *others = compared.examples.by_kind.items()
    assert (kind, what, others) == ("value", "secret", [])
    assert [(example.position, example.topic, example.old, example.new) for example in examples] == [
        (RecordPosition(5_000, "S", 0), "in.a", '""', '"*"'),
        (RecordPosition(15_000, "S", 0), "in.a", '""', '"*"'),
    ]
    assert compared.old_cost.nanoseconds > 0 < compared.new_cost.nanoseconds


def test_who_filtered_a_record() -> None:
    """The matrix has the stage: a different stage is reported, but is not a different outcome."""
    rows = batch([{"topic": "in.a", "value": {}, "headers": [("Old", "yes")]}, {"topic": "in.a", "value": b"{"}])

    compared = differences("same", "filters by another name", rows)

    failed = EndedRecord("dead_lettered", "VALUE_CONVERTER")
    assert compared.matrix.counts == {
        (EndedRecord("filtered", "old"), EndedRecord("filtered", "stale")): 1,
        (failed, failed): 1,
    }
    assert (compared.matrix.outcomes, compared.matrix.stages, compared.changed) == (0, 1, 1)
    assert list(compared.examples.by_kind) == [("outcome", "filtered (old) → filtered (stale)")]


def test_where_deliveries_went() -> None:
    """Those of one subscription are paired by the order of their addresses; what is more is gained or lost."""
    rows = batch([{"topic": "in.a", "value": {"city": "Oulu"}}] * 2)

    compared = differences("same", "same", rows, after="one moves and grows")

    assert (compared.moved, compared.gained, compared.lost) == (2, 2, 0)
    assert (compared.movers.counts, compared.gainers.counts) == ({"oulu": 2}, {"oulu": 2})
    (moved,) = {(one.old, one.new) for one in compared.examples.by_kind["moved", ""]}
    assert [json.loads(str(side)) for side in moved] == [
        {"subscription": "oulu", "to": "out.oulu"},
        {"subscription": "oulu", "to": "out.a"},
    ]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("sink: {format: json, path: a}", "sinks: {x: {format: json, path: a}}", 0),
        ("sink: {format: json, path: a}", "sinks: {x: {format: json, path: a}, y: {format: json, path: b}}", 0),
        (
            "sinks: {x: {format: json, path: a}, y: {format: json, path: b}}",
            "sinks: {y: {format: json, path: b}, x: {format: json, path: a}}",
            1,
        ),
    ],
)
def test_sinks_by_their_names(old: str, new: str, expected: int) -> None:
    """Of several the name counts; a single one is the first of those that follow it."""
    text = "name: r\nsource: {format: json, path: in}\nvalue: {format: json}\n"
    diff = Diff(Route.parse(text + old, {}), Route.parse(text + new, {}))

    compared = diff.of(batch([{"topic": "t", "value": {}}], stream=None))

    assert compared.moved == expected


@pytest.mark.parametrize(("before", "after"), [("same", "a bad destination"), ("a bad destination", "two of them")])
def test_deliveries_that_nobody_can_take(before: str, after: str) -> None:
    """They are a difference of records that are delivered with both versions, and so are more of them."""
    compared = differences("same", "same", batch([{"topic": "in.a", "value": {"city": "Oulu"}}]), before, after)

    assert (compared.failures, compared.changed, compared.lost, compared.gained) == (1, 1, 0, 0)
    ((kind, _), (example,)), *others = compared.examples.by_kind.items()
    assert (kind, others) == ("failure", [])
    assert "'a b'" in str(example.new)


def test_lineage_in_headers_is_no_change() -> None:
    """Two versions and two snapshots differ in it for every message, which would hide what else has changed."""
    text = TEXT.replace("sink: {", "sink: {lineage: true, ")
    diff = Diff(Route.parse(text, {}), Route.parse(f"{text}# another version\n", {}))
    rows = batch([{"topic": "in.a", "value": {"city": "Oulu"}}])

    compared = diff.of(rows, *(Index.of(Snapshot(SUBSCRIPTIONS, revision)) for revision in (1, 2)))

    assert (compared.records, compared.empty) == (1, True)


def test_no_examples() -> None:
    """If no examples are requested, there are none, and the numbers are the same."""
    diff = Diff(Route.parse(TEXT, {}), Route.parse(TEXT, {}), examples=0)

    compared = diff.of(batch([{"topic": "in.a", "value": {"city": "Oulu"}}] * 3), index("same"), index("one moves"))

    assert (compared.moved, compared.examples.by_kind) == (3, {})


def test_examples_are_bounded_and_the_first() -> None:
    """Of each kind as many as requested, by sequence, for any order of the records."""
    rows = batch([{"topic": "in.a", "value": {"city": "Oulu"}, "offset": 100 - n} for n in range(50)])
    diff = Diff(Route.parse(TEXT, {}), Route.parse(ROUTES["maps"], {}), examples=3)

    compared = diff.of(rows, Index.of(SUBSCRIPTIONS), Index.of(()))

    assert compared.lost == 50
    assert {kind: [one.position.offset for one in some] for kind, some in compared.examples.by_kind.items()} == {
        ("outcome", "delivered → unmatched"): [51, 52, 53],
        ("lost", ""): [51, 52, 53],
    }
