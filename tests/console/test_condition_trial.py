"""Trials of conditions on a route's recent records."""

from __future__ import annotations

import time
from pathlib import Path

from turnout.conditions import parse
from turnout.console.condition_trial import trial_of
from turnout.console.pages.subscriptions import _over_time
from turnout.embedded import NatsServer
from turnout.nats.wire import Connection, create_stream, delete_stream
from turnout.routes import Route


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
