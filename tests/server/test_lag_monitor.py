"""Lag of routes, and availability of their servers, on a real nats-server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.routes import Streams
from tests.server.conftest import Bench, client_of
from tests.server.test_offsets import checkpoint
from turnout.embedded import NatsServer
from turnout.routes import Route
from turnout.server.offsets import resolved
from turnout.server.supervisor import Phase

ROUTE = """name: a
source: {{format: nats, servers: "{url}", stream: {source}}}
sink: {{format: nats, servers: "{url}"}}
"""


@pytest.fixture
def streams(nats_server: NatsServer) -> Iterator[Streams]:
    streams = Streams(nats_server.url)
    streams.create()
    yield streams
    streams.delete()


def start(bench: Bench, streams: Streams) -> None:
    bench.write("a", ROUTE.format(url=streams.url, source=streams.source))
    bench.routes.scan()
    bench.run_of("a")


def test_the_lag_is_what_the_checkpoint_has_not_done(bench: Bench, streams: Streams) -> None:
    """Records by stream, and the age of the oldest of them."""
    start(bench, streams)
    streams.publish([(f"a.{n}", b"x", ()) for n in range(10)])
    bench.survey.measure()
    all_of_them = bench.survey.lag("a")
    folder = bench.routes.entry("a").checkpoint
    assert folder is not None
    checkpoint(folder, f'{{"{streams.source}": 8}}')
    bench.survey.measure()
    three = bench.survey.lag("a")
    checkpoint(folder.with_name("new"), f'{{"{streams.source}": 11}}')
    folder.rename(folder.with_name("old"))
    folder.with_name("new").rename(folder)
    bench.survey.measure()

    assert all_of_them is not None
    assert all_of_them.records == {streams.source: 10}
    assert all_of_them.seconds is not None
    assert three is not None
    assert three.records == {streams.source: 3}
    latest = bench.survey.lag("a")
    assert latest is not None
    assert latest.records == {streams.source: 0}
    assert latest.seconds == 0.0


def test_two_streams_in_one_text_are_two(bench: Bench, streams: Streams) -> None:
    """As in the route: each stream has its own lag, and its own positions."""
    text = ROUTE.format(url=streams.url, source=f'"{streams.source}, {streams.sink}"')
    bench.write("a", text)
    bench.routes.scan()
    bench.run_of("a")
    streams.publish([("a", b"x", ())])
    bench.survey.measure()
    lag = bench.survey.lag("a")

    assert lag is not None
    assert lag.records == {streams.source: 1, streams.sink: 0}
    assert resolved(Route.parse(text, {}), "latest") == {streams.source: 2, streams.sink: 1}


def test_ready_is_red_while_a_server_or_a_stream_is_away(bench: Bench, streams: Streams, tmp_path: Path) -> None:
    """With the reason, without the credentials; other routes are not concerned."""
    client = client_of(bench)
    start(bench, streams)
    assert client.get("/ready").json()["problems"] == {"routes": "the server is starting"}
    bench.survey.measure()
    assert client.get("/ready").status_code == 200
    bench.write(
        "b",
        "name: b\nsource: {format: nats, servers: 'nats://u:secret@127.0.0.1:1', stream: X}\n"
        "sink: {format: nats, servers: 'nats://127.0.0.1:1'}\n",
    )
    bench.write("c", ROUTE.format(url=streams.url, source="NOWHERE").replace("name: a", "name: c"))
    bench.write(
        "d", "name: d\nsource: {format: kafka, servers: '127.0.0.1:1', topics: x}\nsink: {format: json, path: x}\n"
    )
    bench.routes.scan()
    for name in "bcd":
        bench.run_of(name)
    bench.survey.measure()
    answer = client.get("/ready")

    assert answer.status_code == 503
    assert set(answer.json()["problems"]) == {"route b", "route c", "route d"}
    assert "127.0.0.1:1" in answer.json()["problems"]["route b"]
    assert "secret" not in answer.text
    assert client.get("/v1/routes/c").json()["problem"] == answer.json()["problems"]["route c"]
    for name in "bcd":
        bench.routes.pause(name, who="ann")
        bench.wait_phase(name, Phase.PAUSED)
    bench.survey.measure()
    assert client.get("/ready").status_code == 200


def test_a_process_that_cannot_run_routes_any_more_is_not_live(bench: Bench) -> None:
    """The process is reported as not live, so that its supervisor restarts it."""
    client = client_of(bench)
    assert client.get("/live").status_code == 200
    bench.runner.lives = False
    bench.parts.health.check()

    assert (client.get("/live").status_code, client.get("/ready").status_code) == (503, 503)


def test_a_place_is_made_exact_when_it_is_named(streams: Streams) -> None:
    """The latest position is resolved now, because it changes before the route continues."""
    streams.publish([(f"a.{n}", b"x", ()) for n in range(4)])
    route = Route.parse(ROUTE.format(url=streams.url, source=streams.source))

    assert resolved(route, "latest") == {streams.source: 5}
    assert resolved(route, "earliest") == {streams.source: 1}
    assert resolved(route, "2000-01-01T00:00:00+00:00") == {streams.source: 1}
    assert resolved(route, {streams.source: 3}) == {streams.source: 3}


def test_a_message_is_explained_by_its_place(bench: Bench, streams: Streams) -> None:
    """Stream and sequence; an empty position and an unknown stream have their own errors."""
    mapping = f'mappings: {{"{streams.subject("a.*")}": "{streams.out("a.{{wildcard(1)}}")}"}}\n'
    bench.write("a", ROUTE.format(url=streams.url, source=streams.source) + mapping)
    bench.routes.scan()
    bench.run_of("a")
    streams.publish([("a.1", b'{"n": 1}', [("Kind", "odd")])])
    client = client_of(bench)
    ask = lambda at: client.post("/v1/routes/a/explain", json={"at": at})  # noqa: E731

    explanation = ask(f"{streams.source}:1").json()

    assert explanation["record"]["topic"] == streams.subject("a.1")
    assert explanation["record"]["headers"] == [["Kind", "odd"]]
    assert explanation["record"]["value"] == '{"n": 1}'
    assert explanation["messages"][0]["topic"] == streams.out("a.1")
    assert ask(f"{streams.source}:99").status_code == 404
    assert ask("OTHER:1").status_code == 422
