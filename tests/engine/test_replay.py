"""Changes that a replay makes to a program."""

from __future__ import annotations

import pickle
from dataclasses import replace

import pytest

from tests.engine.batches import ROUTE, SINK, WANTED, batch, sent
from turnout.conditions import parse
from turnout.engine import Program
from turnout.engine.replay import REPLAY, Replay
from turnout.routes import Route
from turnout.subscriptions import Subscription
from turnout.subscriptions.index import Index

ROUTES = Route.parse(ROUTE + SINK + WANTED + "errors: {tolerance: all}\n", {})


def records(*towns: str):
    return batch([{"value": {"n": n, "city": town, "secret": "s"}} for n, town in enumerate(towns)])


INDEX = Index.of([Subscription(["out"], parse("town exists"), id="all")])


def test_ids_and_headers_of_a_replay() -> None:
    """A message has the id that a run would give it with the replay's behind, and says which replay it is of."""
    of_run = sent(Program.of(ROUTES).run(records("Oulu"), INDEX).messages)
    of_replay = sent(Program.of(ROUTES, Replay("r1")).run(records("Oulu"), INDEX).messages)

    assert [(topic, f"{id_}:r1", value) for topic, id_, value, _ in of_run] == [one[:3] for one in of_replay]
    assert [headers for *_, headers in of_replay] == [[(REPLAY, b"r1")]]


def test_records_that_do_not_meet_the_condition() -> None:
    """They are filtered by what conditions see of them, and the others go their way."""
    program = Program.of(ROUTES, Replay("r1", parse("town:Oulu AND n>0 AND topic:mapped.*")))

    result = pickle.loads(pickle.dumps(program)).run(records("Oulu", "Turku", "Oulu"), INDEX)

    assert (result.counts.read, result.counts.filtered, result.counts.delivered) == (3, 2, 1)
    assert result.messages.column("offset").to_pylist() == [3]


@pytest.mark.parametrize("weight", [0, 50, 100])
def test_a_condition_beside_what_weights_lose(weight) -> None:
    """Records lost by weight are counted as such and not as unmatched: every record has one outcome."""
    text = f"{ROUTE}{SINK}{WANTED}".replace('"half.x", weight: 50%', f'"half.x", weight: {weight}%')
    route = Route.parse(text, {})
    some = batch([{"topic": "half.x", "value": {"n": n, "city": "Oulu"}} for n in range(50)])

    counts = Program.of(route, Replay("r1", parse("n<25"))).run(some, INDEX).counts

    assert counts.conserved
    assert counts.lost_by_weight == Program.of(replace(route, chain=route.chain)).run(some, INDEX).counts.lost_by_weight
    assert counts.delivered + counts.filtered == 50 - counts.lost_by_weight
    assert counts.delivered <= 25
