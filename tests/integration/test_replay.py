"""History delivered once more: to whom, what, how often, and after an interruption."""

from __future__ import annotations

import json
import threading
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.integration.routes import Streams, turnout, write_route

from turnout import spark as ts
from turnout.conditions import parse
from turnout.errors import ConfigError, SubscriptionNotFoundError
from turnout.routes import Route
from turnout.spark.history.replay import carry_out
from turnout.spark.history.replay_plan import ReplayPlan, plan_replay
from turnout.spark.running.progress import Progress
from turnout.subscriptions import Subscription, open_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COUNT = 300
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
    assert (again.counts, again.resumed) == (result.counts, False)
    assert len(streams.delivered()) == len(rows)


def test_a_dry_run_says_what_would_be_delivered(spark: SparkSession, streams: Streams, text: str) -> None:
    """Counts by subscription and the deliveries as rows, for all subscriptions and a condition; nothing is sent."""
    result = ts.replay(Route.parse(text, {}), spark, where="n>50", dry_run=True)

    small = [n for n in range(51, 100) if n % 7]
    late = wanted_by_late(51)
    assert result.by_subscription == {"late": len(late), "small": len(small)}
    assert result.counts.conserved
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

    assert result.resumed
    assert [one.counts.read for one in parts] == [200, 300]
    assert Counter(delivered(streams, "late")) == Counter(wanted_by_late())
    assert 0 < before < len(streams.delivered())
    assert result.counts.conserved
    assert (result.counts.read, result.counts.messages) == (COUNT, len(streams.delivered()))
    stopped = threading.Event()
    stopped.set()
    assert carry_out(planned(), spark, stop=stopped).stopped


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
    from turnout.spark.history.replay_state import ReplayState

    with pytest.raises(ConfigError, match="was asked for another where"):
        ReplayState.of(plan)


def test_on_the_command_line(streams: Streams, text: str, tmp_path: Path) -> None:
    """The plan is said first; a sink of files takes the deliveries in place of the route's."""
    path = write_route(tmp_path, text)
    sink = f"{{format: json, path: {tmp_path}/out}}"

    ended = turnout(
        "replay", str(path), "--from", "earliest", "--subscription", "late", "--sink", sink, "--master", "local[1]"
    )

    assert ended.returncode == 0, ended.stderr
    assert f"reads {streams.source} from 1 up to {COUNT + 1}: 150 records" in ended.stderr
    assert "delivers to 1 subscriptions: late" in ended.stderr
    lines = [json.loads(line) for file in (tmp_path / "out").glob("*.json") for line in file.read_text().splitlines()]
    assert sorted(json.loads(line["value"])["n"] for line in lines) == wanted_by_late()
    assert streams.stored(streams.sink) == 0
