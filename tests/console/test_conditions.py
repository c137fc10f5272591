"""Conditions from parts, held to the reference evaluator."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnout.conditions import evaluate, parse
from turnout.console.pages.subscriptions import TESTS, _over_time, extended, trial_of
from turnout.embedded import NatsServer
from turnout.errors import ConditionError
from turnout.nats.wire import Connection, create_stream, delete_stream
from turnout.routes import Route

TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), min_size=1, max_size=8)


@given(TEXTS, TEXTS, TEXTS)
def test_texts_are_taken_literally(key: str, value: str, around: str) -> None:
    """Wildcards, quotes and backslashes of a value mean themselves."""
    values = {key: value} if key != "*" else {"other": value}
    longer = dict.fromkeys(values, f"{around}{value}{around}")
    for test, holds in (
        ("is", values),
        ("begins", dict.fromkeys(values, f"{value}{around}")),
        ("contains", longer),
    ):
        condition = parse(extended("", "and", key, test, value))

        assert evaluate(condition, values)
        assert evaluate(condition, holds)
    assert not evaluate(parse(extended("", "and", key, "is", value)), longer)


@pytest.mark.parametrize("test", sorted(TESTS))
def test_every_test_reads_back(test: str) -> None:
    """As one more leaf of a group, negated or not, and behind one of another kind in parentheses."""
    value = "10.0.0.0/8" if test == "network" else "10"
    once = extended("", "and", "a", test, value)

    assert parse(extended("b:1 AND c:2", "and", "a", test, value)) == parse(f"b:1 AND c:2 AND {once}")
    assert parse(extended("b:1 AND c:2", "or not", "a", test, value)) == parse(f"(b:1 AND c:2) OR NOT {once}")


@pytest.mark.parametrize(("key", "test", "value"), [("a", "<", "x"), ("", "is", "x"), ("a", "network", "x")])
def test_parts_that_are_none(key: str, test: str, value: str) -> None:
    """No leaf is made of them."""
    with pytest.raises(ConditionError):
        extended("b:1", "and", key, test, value)


def test_the_times_are_those_of_the_records(nats_server: NatsServer, tmp_path: Path) -> None:
    """The picture of the matches has the times at which the records were stored, in seconds."""
    begun = time.time()
    with Connection.open(nats_server.url) as connection:
        create_stream(connection, {"name": "TRIED", "subjects": ["tried.*"], "storage": "memory"})
        for number in range(3):
            connection.request("tried.a", b'{"n": %d}' % number)
    ended = time.time()
    path = tmp_path / "route.yaml"
    path.write_text(
        f"name: tried\nsource: {{format: nats, servers: '{nats_server.url}', stream: TRIED}}\n"
        "value: {format: json}\nsubscriptions: {store: 'sqlite:///s.db', metadata: {n: value.n}}\n"
        f"sink: {{format: nats, servers: '{nats_server.url}'}}\n"
    )

    trial = trial_of(Route.load(path), parse("n>=1"), 10)

    assert (trial.records, trial.matched) == (3, 2)
    assert (len(trial.times), len(trial.matched_times)) == (3, 2)
    # The records have milliseconds.
    assert all(begun - 0.001 <= at <= ended for at in (*trial.times, *trial.matched_times))
    shown = _over_time(trial)
    assert shown is not None
    assert f"{time.gmtime(begun).tm_year}-" in shown[2]
    with Connection.open(nats_server.url) as connection:
        delete_stream(connection, "TRIED")
