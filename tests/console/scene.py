"""A server with something to show: a real nats-server, real records, real dead letters, and a runner without Spark.

What Spark would do is done by the engine alone: the first records of the source are run through the route's program,
their messages are published, and the counts are told as those of a micro-batch.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.server.conftest import wait_for
from tests.server.fakes import FakeRunner, Run
from turnout.console import add_console
from turnout.engine import Program
from turnout.engine.counts import Counts, Flow
from turnout.nats.wire import Connection, ConnectionOptions, Publisher, create_stream, delete_stream
from turnout.routes import Route
from turnout.rpc.caller import Caller
from turnout.runtime.endpoints import adapter_of
from turnout.server.config import ServerConfig
from turnout.server.routes.state import MinutePace
from turnout.server.routes.supervisor import Phase
from turnout.server.serving import RouteServer
from turnout.subscriptions.index import Index

__all__ = ["ORDERS", "orders_text", "scene"]

ORDERS = 400
_DONE = 360

_ROUTE = """name: orders
# Orders of all shops, by town, for whoever asked for them.
source: {{format: nats, servers: "{url}", stream: ORDERS}}
value: {{format: json}}
transforms:
  - name: no-tests
    type: Filter
    predicate: {{type: HasHeaderKey, name: Test}}
  - {{name: town, type: "ReplaceField$Value", renames: "city:town"}}
  - {{name: amount, type: "Cast$Value", spec: "amount:float64"}}
mappings:
  "orders.*":
    - {{destination: "shop.{{{{wildcard(1)}}}}", weight: 90%}}
    - {{destination: "trial.{{{{wildcard(1)}}}}", weight: 5%}}
subscriptions:
  store: "{store}"
  metadata: {{town: value.town, amount: value.amount}}
sink: {{format: nats, servers: "{url}"}}
deadLetter: {{topic: dead.orders}}
errors: {{tolerance: all}}
"""

_TOWNS = ("Oulu", "Helsinki", "Tampere", "Turku", "Espoo")


def orders_text(url: str, store: str) -> str:
    """The route's file."""
    return _ROUTE.format(url=url, store=store)


@contextmanager
def scene(url: str, folder: Path, **more: Any) -> Iterator[RouteServer]:
    """The server at work, with a route that runs, one that has failed, one whose file is wrong, and one that is paused.

    Args:
        url: of a nats-server with JetStream; streams ORDERS, OUT and DEAD are made there, and removed at the end.
        folder: for everything else.
        more: of the server's configuration.
    """
    routes = folder / "routes"
    routes.mkdir()
    store = f"sqlite:///{folder}/subscriptions.db"
    (routes / "orders.yaml").write_text(orders_text(url, store))
    simple = 'source: {{format: nats, servers: "{url}", stream: ORDERS}}\nsink: {{format: nats, servers: "{url}"}}\n'
    for name in ("archive", "billing", "returns"):
        (routes / f"{name}.yaml").write_text(f"name: {name}\n{simple.format(url=url)}")
    (routes / "stock.yaml").write_text(
        f"name: stock\n{simple.format(url=url)}unmatchd: drop\ntrigger: {{latency: lwo}}\n"
    )
    config = ServerConfig.model_validate(
        {
            "listen": "127.0.0.1:0",
            "store": store,
            "grpc": {"listen": "127.0.0.1:0"},
            "interval": "50ms",
            "restarts": {"max": 0},
            **more,
        }
    )
    runner = FakeRunner()
    with _streams(url), RouteServer(config, [routes], runner_of=lambda *_: runner, pages=add_console) as server:
        _subscribe(server)
        _run_orders(server, runner)
        _run(runner, "billing").fail()
        server.routes.pause("returns", who="ann")
        wait_for(lambda: server.routes.entry("billing").status.phase is Phase.FAILED)
        wait_for(lambda: server.routes.entry("returns").status.phase is Phase.PAUSED)
        server.parts.survey.measure()
        yield server


@contextmanager
def _streams(url: str) -> Iterator[None]:
    with Connection.open(ConnectionOptions.from_mapping({"servers": url})) as connection:
        for name, subject in (("ORDERS", "orders.*"), ("OUT", "deliver.>"), ("DEAD", "dead.>")):
            create_stream(connection, {"name": name, "subjects": [subject], "storage": "memory"})
        publisher = Publisher(connection)
        for number in range(ORDERS):
            town = _TOWNS[number % len(_TOWNS)]
            headers = [("Test", "yes")] if number % 11 == 0 else []
            order = {"city": town, "amount": f"{number}.50" if number % 25 else "much", "order": number}
            value = b"\x00\x01\xff" + bytes(range(40)) if number == 55 else json.dumps(order).encode()
            publisher.publish(f"orders.{number % 7}", value, headers)
        publisher.flush()
        try:
            yield
        finally:
            for name in ("ORDERS", "OUT", "DEAD"):
                delete_stream(connection, name)


def _subscribe(server: RouteServer) -> None:
    from turnout.conditions import parse
    from turnout.subscriptions import Subscription

    assert server.parts.subscriptions is not None
    conditions = {f"town-{town.lower()}": f"town:{town}" for town in _TOWNS[:4]}
    conditions |= {"large-in-oulu": "town:Oulu AND amount>300", "trials": 'topic:"trial.*"'}
    for id_, condition in conditions.items():
        one = Subscription([f"deliver.{id_}"], parse(condition), {"team": "sales"}, id_)
        server.parts.subscriptions.service(Caller()).create(one)
    server.parts.subscriptions.changed()


def _run(runner: FakeRunner, name: str) -> Run:
    wait_for(lambda: runner.runs[name])
    return runner.runs[name][0]


def _run_orders(server: RouteServer, runner: FakeRunner) -> None:
    """Record the results of a run of the first records, and an hour's history before it."""
    entry = server.routes.entry("orders")
    assert entry.version is not None
    counts = _deliver(server, entry.version.route)
    run = _run(runner, "orders")
    run.deliver(counts.read, counts.flow, **counts.as_dict() | {"read": counts.read})
    _commit(server, entry.checkpoint)
    now = int(time.time() // 60) * 60
    for minute in range(1, 60):
        scale = 1 + (minute * 7 % 13) / 10
        past = Counts(*(round(count * scale) for count in counts.as_dict().values()), flow=_times(counts.flow, scale))
        server.parts.state.add_counts("orders", past, now - 60 * minute)
        pace = MinutePace(now - 60 * minute, 12, 12 * 0.4 * scale, round(90 * scale), 2 * scale)
        server.parts.state.add_pace("orders", pace)
    server.parts.routes._recorder.flush()


def _times(flow: Flow, scale: float) -> Flow:
    taken, failed = ({name: round(count * scale) for name, count in one.items()} for one in (flow.taken, flow.failed))
    return Flow(taken, failed, flow.delivery, {name: seconds * scale for name, seconds in flow.seconds.items()})


def _deliver(server: RouteServer, route: Route) -> Counts:
    """Run the first records through the engine, and publish what it makes of them."""
    assert server.parts.subscriptions is not None
    index: Index = server.parts.subscriptions.live(Caller()).index()
    batch = pa.Table.from_batches(list(adapter_of(route.source).last_records(ORDERS))).combine_chunks().to_batches()[0]
    result = Program.of(route).run(batch.slice(0, _DONE), index)
    messages = result.messages
    columns = {name: messages.column(name).to_pylist() for name in ("value", "headers")}
    with Connection.open(ConnectionOptions.from_mapping(route.source.options())) as connection:
        publisher = Publisher(connection)
        for topic, id_, value, headers in zip(
            messages.topics.to_pylist(), messages.ids.to_pylist(), columns["value"], columns["headers"], strict=True
        ):
            pairs = [(header["key"], header["value"] or b"") for header in headers or ()]
            publisher.publish(topic, value or b"", pairs, id_)
        delivery = publisher.flush().delivery
    return result.counts + Counts(flow=Flow(delivery=delivery))


def _commit(server: RouteServer, checkpoint: Path | None) -> None:
    assert checkpoint is not None
    for part in ("commits", "offsets"):
        (checkpoint / part).mkdir(parents=True)
    (checkpoint / "offsets" / "0").write_text(f'v1\n{{}}\n{{"ORDERS": {_DONE + 1}}}\n')
    (checkpoint / "commits" / "0").write_text("v1\n{}\n")
