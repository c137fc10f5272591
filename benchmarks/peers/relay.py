"""The example route with 10,000 subscriptions beside a bare relay in Go: one server, one stream, by turns in one run.

The relay (``natsgo/main.go``) reads every message with a pull consumer of nats.go and publishes every second one as it
is, with an id, asynchronously. It parses and decides nothing: its speed is what client and server alone allow.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from statistics import median
from typing import Any

from benchmarks.harness import Case, Options, Result, Setup
from benchmarks.peers.programs import NATS_GO, Program, natsgo
from benchmarks.route import CORES, RECORDS, SUBSCRIPTIONS, empty_outputs, flights_server, whole
from turnout.demo.year import route_file
from turnout.errors import TurnoutError
from turnout.nats.wire import Connection, stream_info
from turnout.routes import Route

CASE = "route beside a Go relay"


def cases(options: Options) -> Iterator[Case]:
    """The one case."""
    records, subscriptions = options.rows(RECORDS, 20_000), 1_000 if options.quick else SUBSCRIPTIONS
    yield Case(CASE, partial(_measured, records, subscriptions, 1 if options.quick else 3))


def _measured(records: int, subscriptions: int, turns: int) -> Iterator[Result]:
    """Turns over records of their own; the route's speed is that after its first micro-batch."""
    ours, its = [], []
    with Program([natsgo()]) as program, flights_server(subscriptions) as (server, environment, work):
        route = Route.load(route_file(), environment)
        for number in range(turns):
            folder = work / str(number)
            folder.mkdir()
            ours.append(whole(route, folder, server, records, number).extra)
            empty_outputs(server)
            order = {"work": "relay", "url": server.url, "count": records, "batch": 1000}
            its.append(program.ask(json.dumps(order)))
            with Connection.open(server.url) as connection:
                written = stream_info(connection, "DELIVERIES")["state"]["messages"]
            if written != (records + 1) // 2:
                raise TurnoutError(f"{CASE}: the relay wrote {written} of {(records + 1) // 2} messages")
            empty_outputs(server)
    speeds = tuple(float(turn["after_first_batch_per_second"]) for turn in ours)
    its_speeds = [records / turn["seconds"] for turn in its]
    extra: dict[str, Any] = {
        "its_per_second": median(its_speeds),
        "cpu_us": median(turn["after_first_cpu_us"] for turn in ours),
        "its_cpu_us": median(turn["cpu"] for turn in its) / records * 1e6,
        "first_batch_s": median(turn["first_batch_seconds"] for turn in ours),
    }
    ratio = median(our / their for our, their in zip(speeds, its_speeds, strict=True))
    yield Result(CASE, records, speeds, Setup("new", None, CORES), f"nats.go {NATS_GO}", ratio, extra)
