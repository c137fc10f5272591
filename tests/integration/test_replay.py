"""Replays of history: recipients, messages, repetitions, and interruptions."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.integration.routes import Streams, command, turnout, wait_for, write_route

from turnout import spark as ts
from turnout.conditions import parse
from turnout.errors import ConfigError, HistoryForgottenError, SubscriptionNotFoundError
from turnout.history.replay import ReplayPlan, plan_replay
from turnout.routes import Route
from turnout.runtime.offsets import Progress
from turnout.spark.history.replay import carry_out
from turnout.subscriptions import Subscription, open_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COUNT = 300
MANY = 15_000
ROUTE = """
name: replayed
source: {{format: nats, servers: "{url}", stream: {source}, partitions: 1}}
value: {{format: json}}
transforms:
  - {{name: old, type: Filter, predicate: {{type: HasHeaderKey, name: Old}}}}
subscriptions: {{store: "sqlite:///{folder}/subscriptions.db", metadata: {{n: value.n}}}}
unmatched: deadLetter
sink: {{format: nats, servers: "{url}", stream: {sink}}}
deadLetter: {{topic: "out-{name}.dead"}}
errors: {{tolerance: all}}
checkpoint: {folder}/checkpoint
"""


@pytest.fixture
def text(streams: Streams, tmp_path: Path) -> str:
    """A route over 300 records in turns about a and b, every hundredth no JSON and every seventh old, and two
    subscriptions."""
    store = open_store(f"sqlite:///{tmp_path}/subscriptions.db")
    store.create(Subscription([streams.out("small")], parse("n<=100"), id="small"))
    store.create(Subscription([streams.out("late")], parse(f"topic:{streams.subject('a')}"), id="late"))
    store.close()
    values = [b"{" if n % 100 == 0 else json.dumps({"n": n}).encode() for n in range(1, COUNT + 1)]
    streams.publish(
        [("ab"[n % 2], value, [("Old", "1")] if n % 7 == 0 else []) for n, value in enumerate(values, start=1)]
    )
    names = {"url": streams.url, "source": streams.source, "sink": streams.sink, "name": streams.name}
    return ROUTE.format(**names, folder=tmp_path)


def wanted_by_late(first: int = 1, last: int = COUNT) -> list[int]:
    """The numbers of the records that a subscription to "a" gets."""
    return [n for n in range(first, last + 1) if n % 2 == 0 and n % 7 and n % 100]


def delivered(streams: Streams, rest: str) -> list[int]:
    return [json.loads(row["value"])["n"] for row in streams.delivered() if row["rest"] == rest]


def test_who_came_late_gets_what_would_have_matched(spark: SparkSession, streams: Streams, text: str) -> None:
    """A range for one subscription: all it wants in order, only its subjects are read, and a second time stores
    nothing twice; what fails and what nobody wants is counted, and not set aside."""
    route = Route.parse(text, {})

    result = ts.replay(route, spark, start=51, end=251, subscriptions=["late"])

    assert delivered(streams, "late") == wanted_by_late(51, 250)
    rows = streams.delivered()
    assert {row["rest"] for row in rows} == {"late"}
    assert {row["headers"]["Turnout-Replay"] for row in rows} == {result.plan.replay.id}
    assert all(row["headers"]["Nats-Msg-Id"].endswith(f":{result.plan.replay.id}") for row in rows)
    assert result.plan.filters == (streams.subject("a"),)
    assert (result.counts.read, result.counts.delivered, result.counts.discarded) == (100, len(rows), 2)
    assert result.counts.conserved
    again = ts.replay(route, spark, start=51, end=251, subscriptions=["late"])
    assert (replace(again.counts, duplicates=0), again.resumed) == (result.counts, False)
    assert again.counts.duplicates == len(streams.delivered()) == len(rows)


def test_a_dry_run_says_what_would_be_delivered(spark: SparkSession, streams: Streams, text: str) -> None:
    """Counts by subscription and the deliveries as rows, for all subscriptions and a condition; nothing is sent."""
    result = ts.replay(Route.parse(text, {}), spark, where="n>50", dry_run=True)

    small = [n for n in range(51, 100) if n % 7]
    late = wanted_by_late(51)
    assert result.by_subscription == {"late": len(late), "small": len(small)}
    assert result.counts.conserved
    failing = ts.replay(Route.parse(text, {}), spark, dry_run=True)
    assert failing.counts.discarded == 3
    assert failing.notes[0].startswith("3 failed at VALUE_CONVERTER: the value is not JSON")
    assert result.counts.messages == len(late) + len(small)
    assert result.deliveries is not None
    rows = result.deliveries.where("subscription = 'late'").orderBy("offset").collect()
    assert [json.loads(row["value"])["n"] for row in rows] == late
    assert {(row["stream"], row["destination"]) for row in rows} == {(streams.source, streams.out("late"))}
    assert [row["offset"] for row in rows] == late
    assert streams.stored(streams.sink) == 0


def test_an_interrupted_replay_goes_on(spark: SparkSession, streams: Streams, text: str) -> None:
    """Killed behind its first part, and once more in the middle of one: each record is counted once and stored once."""
    route = Route.parse(text, {})

    def planned() -> ReplayPlan:
        return plan_replay(route, subscriptions=["late", "small"], end=COUNT + 1)

    def die(progress: Progress) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        carry_out(planned(), spark, at_once=100, on_progress=die)
    # What a kill between the acknowledgements and the note leaves: the part is delivered, and is done again.
    state = planned().folder / "state.json"
    noted = state.read_text()
    with pytest.raises(KeyboardInterrupt):
        carry_out(planned(), spark, at_once=100, on_progress=die)
    state.write_text(noted)
    before = len(streams.delivered())
    streams.publish([("a", b'{"n": 4}', [])])
    parts: list[Progress] = []

    result = carry_out(planned(), spark, at_once=100, on_progress=parts.append)

    assert (result.resumed, result.skipped) == (True, 100)
    assert [part.counts.read for part in parts] == [200, 300]
    assert Counter(delivered(streams, "late")) == Counter(wanted_by_late())
    assert 0 < before < len(streams.delivered())
    assert result.counts.conserved
    assert (result.counts.read, result.counts.messages) == (COUNT, len(streams.delivered()))
    stopped = threading.Event()
    stopped.set()
    assert carry_out(planned(), spark, stop=stopped).stopped


def change_late(streams: Streams, folder: Path) -> int:
    """Have "late" want other records from now on, and one subscription more; the revision before."""
    with open_store(f"sqlite:///{folder}/subscriptions.db") as store:
        before = store.revision()
        store.delete("late")
        store.create(Subscription([streams.out("late")], parse(f"topic:{streams.subject('b')}"), id="late"))
        store.create(Subscription([streams.out("new")], parse("n:*"), id="new"))
    return before


def test_an_interrupted_replay_keeps_its_subscriptions(
    spark: SparkSession, streams: Streams, text: str, tmp_path: Path
) -> None:
    """Changes of the store between two starts have no effect: the rest is delivered to the original subscriptions."""
    route = Route.parse(text, {})

    def die(progress: Progress) -> None:
        raise KeyboardInterrupt

    for chosen in (None, ["late"]):
        with pytest.raises(KeyboardInterrupt):
            carry_out(
                plan_replay(route, subscriptions=chosen, id=f"r{chosen is None}"), spark, at_once=100, on_progress=die
            )
    change_late(streams, tmp_path)

    for chosen in (None, ["late"]):
        result = carry_out(plan_replay(route, subscriptions=chosen, id=f"r{chosen is None}"), spark, at_once=100)
        assert result.resumed

    assert Counter(delivered(streams, "late")) == Counter(wanted_by_late() * 2)
    assert delivered(streams, "new") == []
    # One that is begun from now on is for those of now.
    again = plan_replay(route, id="rTrue")
    assert again.subscriptions is not None
    assert {subscription.id for subscription in again.subscriptions} == {"late", "small", "new"}


def test_a_route_that_has_changed_since(spark: SparkSession, streams: Streams, text: str) -> None:
    """The rest is not delivered by another version: that is refused until the replay is finished."""
    route = Route.parse(text, {})
    other = Route.parse(text.replace("name: Old}", "name: Older}"), {})

    def die(progress: Progress) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        carry_out(plan_replay(route), spark, at_once=100, on_progress=die)
    with pytest.raises(ConfigError, match="the route replayed has changed since it was begun"):
        plan_replay(other)
    # A route that changes between the plan and the start is seen as well.
    with pytest.raises(ConfigError, match="finish it with the route as it was, or give this one another id"):
        carry_out(replace(plan_replay(route), route=other), spark)

    assert plan_replay(other, id="another").replay.id == "another"
    assert carry_out(plan_replay(route), spark).skipped == 100
    assert plan_replay(other).replay.id == plan_replay(route).replay.id


def test_a_store_that_has_forgotten_what_a_replay_was_begun_with(
    spark: SparkSession, streams: Streams, text: str, tmp_path: Path
) -> None:
    """The replay does not go on with others, and says why; while nothing has changed, no memory is needed."""
    route = Route.parse(text.replace("subscriptions.db", "subscriptions.db?retention=0"), {})

    def die(progress: Progress) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        carry_out(plan_replay(route), spark, at_once=100, on_progress=die)
    plan_replay(route)
    with open_store(f"sqlite:///{tmp_path}/subscriptions.db?retention=0") as store:
        store.delete("small")

    with pytest.raises(HistoryForgottenError, match="does not know what it held at revision 2"):
        plan_replay(route)


def test_subscriptions_as_they_were(spark: SparkSession, streams: Streams, text: str, tmp_path: Path) -> None:
    """A replay for those of then, whose messages say by which revision they were made; and both sides of a diff."""
    route = Route.parse(text.replace("stream: OUT", "lineage: true, stream: OUT"), {})
    before = change_late(streams, tmp_path)

    result = ts.replay(route, spark, subscriptions_as_of=before, subscriptions=["late"])

    rows = streams.delivered()
    assert [json.loads(row["value"])["n"] for row in rows] == wanted_by_late()
    assert {row["headers"]["Turnout-Revision"] for row in rows} == {str(before)}
    assert f"as they were at revision {before} of their store" in list(result.plan.lines())
    with pytest.raises(SubscriptionNotFoundError):
        plan_replay(route, subscriptions_as_of=before, subscriptions=["new"])
    compared = ts.diff(route, route, spark, subscriptions_as_of=(before, None)).differences
    usable = [n for n in range(1, COUNT + 1) if n % 7 and n % 100]
    assert compared.lost == sum(n % 2 == 0 for n in usable)
    assert compared.gained == sum(n % 2 for n in usable) + len(usable)
    assert ts.diff(route, route, spark, subscriptions_as_of=before).differences.changed == 0


@pytest.mark.heavy
def test_killed_in_the_middle(streams: Streams, text: str, tmp_path: Path) -> None:
    """Kill -9 while it delivers; the same command again says what is done, does the rest, and each is there once."""
    path = write_route(tmp_path, text.replace("partitions: 1", "partitions: 4"))
    streams.publish([("a", json.dumps({"n": n}).encode(), []) for n in range(1_000, 1_000 + MANY)])
    arguments = (
        "replay",
        str(path),
        "--from",
        str(COUNT + 1),
        "--id",
        "night",
        "--part",
        "1000",
        "--master",
        "local[2]",
    )
    state = tmp_path / "checkpoint" / "replays" / "night" / "state.json"

    def noted() -> int:
        return int(json.loads(state.read_text())["next"][streams.source]) if state.exists() else 0

    first = subprocess.Popen(command(*arguments), start_new_session=True, stderr=subprocess.DEVNULL)
    try:
        wait_for(lambda: noted() > COUNT + 2_000 and streams.stored(streams.sink) > noted() - COUNT)
    finally:
        os.killpg(first.pid, signal.SIGKILL)
        first.wait()
    done = noted() - COUNT - 1
    assert 2_000 <= done < MANY
    change_late(streams, tmp_path)

    ended = turnout(*arguments)

    assert ended.returncode == 0, ended.stderr
    assert f"continues: {done:,} records are done, {streams.source} before {COUNT + 1 + done:,}" in ended.stderr
    assert noted() == COUNT + 1 + MANY
    ids = Counter(row["headers"]["Nats-Msg-Id"] for row in streams.delivered())
    assert (len(ids), set(ids.values())) == (MANY, {1})
    assert sorted(delivered(streams, "late")) == list(range(1_000, 1_000 + MANY))


def test_what_cannot_be_replayed(streams: Streams, text: str, tmp_path: Path) -> None:
    """Unknown subscriptions, places and sinks are told before Spark is started, and so is another replay's name."""
    route = Route.parse(text, {})

    with pytest.raises(SubscriptionNotFoundError, match="nobody"):
        plan_replay(route, subscriptions=["nobody"])
    for asked, problem in (
        ({"start": "yesterday"}, "start: expected earliest, latest, a sequence"),
        ({"sink": "other"}, "expected a sink of the route"),
        ({"sink": "{format: nats, server: x}"}, 'did you mean "servers"'),
        ({"id": "a b"}, "expected up to 64 letters"),
    ):
        given: dict[str, Any] = asked
        with pytest.raises(ConfigError, match=problem):
            plan_replay(route, **given)
    secret = "{format: json, path: out, options: {password: hunter2}}"
    assert "hunter2" not in json.dumps(plan_replay(route, sink=secret).asked)
    with pytest.raises(ConfigError) as wrong:
        plan_replay(route, sink=secret.replace("}}", "]"))
    assert "hunter2" not in str(wrong.value)
    plan = plan_replay(route, id="mine")
    plan.folder.mkdir(parents=True)
    (plan.folder / "state.json").write_text(
        json.dumps(
            {
                "asked": {**plan.asked, "where": "n>3"},
                "ranges": [{"stream": streams.source, "start": 1, "end": 9, "records": 8}],
                "next": {streams.source: 2},
                "counts": {},
            }
        )
    )
    from turnout.history.replay import ReplayState

    with pytest.raises(ConfigError, match="was requested with another where"):
        ReplayState.of(plan)


@pytest.mark.heavy
def test_on_the_command_line(streams: Streams, text: str, tmp_path: Path) -> None:
    """The plan is said first; a sink of files takes the deliveries in place of the route's."""
    path = write_route(tmp_path, text)
    sink = f"{{format: json, path: {tmp_path}/out}}"

    ended = turnout(
        "replay", str(path), "--from", "earliest", "--subscription", "late", "--sink", sink, "--master", "local[1]"
    )

    assert ended.returncode == 0, ended.stderr
    assert f"reads {streams.source} from 1 up to {COUNT + 1}: 150 records" in ended.stderr
    assert "delivers to 1 subscription: late" in ended.stderr
    lines = [json.loads(line) for file in (tmp_path / "out").glob("*.json") for line in file.read_text().splitlines()]
    assert sorted(json.loads(line["value"])["n"] for line in lines) == wanted_by_late()
    assert streams.stored(streams.sink) == 0
    ended = turnout("replay", str(path), "--from", "earliest", "--where", "Never:1", "--master", "local[1]")
    assert ended.returncode == 2, ended.stderr
    assert "'Never' is not listed under metadata, and no record has a header of that name" in ended.stderr
