"""Lag of routes, and availability of their servers, on a real nats-server."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.routes import Streams
from tests.server.conftest import Bench, client_of
from tests.server.routes.test_compatibility import checkpoint
from turnout.embedded import NatsServer
from turnout.engine.counts import Counts
from turnout.routes import Route
from turnout.routes.limits import HealthPart
from turnout.server.health import DEFAULT_LIMITS, loss_report
from turnout.server.routes.compatibility import resolved
from turnout.server.routes.state import Losses
from turnout.server.routes.supervisor import Phase

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
    """Of routes that count, with the reason, without the credentials; other routes are not concerned."""
    bench.close()
    bench.counted = ("*",)
    bench.open()
    client = client_of(bench)
    start(bench, streams)
    assert client.get("/ready").json()["problems"] == {"routes": "the server is starting"}
    bench.survey.measure()
    bench.parts.health.check()
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
    bench.parts.health.check()
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
    bench.parts.health.check()
    assert client.get("/ready").status_code == 200


def test_the_health_of_a_route_is_its_own(bench: Bench, streams: Streams) -> None:
    """A route whose broker is away, or which has failed, is red itself, and the server is ready: it answers, and the
    others work. A paused route is well; a route that there is not is 404."""
    client = client_of(bench)
    start(bench, streams)
    away = "source: {format: nats, servers: 'nats://u:secret@127.0.0.1:1', stream: X}"
    bench.write("b", f"name: b\n{away}\nsink: {{format: nats, servers: 'nats://127.0.0.1:1'}}\n")
    bench.write("broken", "name: broken\n")
    bench.routes.scan()
    bench.run_of("b")
    bench.survey.measure()
    bench.parts.health.check()
    answer = client.get("/ready?route=b")
    broken = client.get("/ready?route=broken")

    assert client.get("/ready").json() == {"ready": True, "problems": {}}
    assert client.get("/ready?route=a").json() == {"ready": True, "problems": {}}
    assert (answer.status_code, broken.status_code) == (503, 503)
    assert "127.0.0.1:1" in answer.json()["problems"]["route b"]
    assert "secret" not in answer.text
    assert broken.json()["problems"] == {"route broken": "is invalid; its page, and /v1/routes, have the reason"}
    assert client.get("/ready?route=c").status_code == 404
    bench.routes.pause("b", who="ann")
    bench.wait_phase("b", Phase.PAUSED)
    bench.survey.measure()
    bench.parts.health.check()
    assert client.get("/ready?route=b").status_code == 200


def test_routes_that_count_for_the_server(bench: Bench, streams: Streams) -> None:
    """Those that are named make the server unready, a name that no route has, too; the others do not."""
    bench.close()
    bench.counted = ("broken", "missing")
    bench.open()
    client = client_of(bench)
    start(bench, streams)
    for name in ("broken", "other"):
        bench.write(name, f"name: {name}\n")
    bench.routes.scan()
    bench.survey.measure()
    bench.parts.health.check()

    assert set(client.get("/ready").json()["problems"]) == {"route broken", "route missing"}


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


@pytest.mark.parametrize("kind", ["dead_lettered", "discarded", "unmatched"])
def test_a_route_that_loses_every_record_is_not_healthy(kind) -> None:
    """It is unhealthy for every kind of loss, also without its own limits."""
    report = loss_report(DEFAULT_LIMITS, Losses(read=100, **{kind: 100}), Losses())

    assert report.shares[kind] == 1.0
    assert len(report.problems) == 1
    assert report.problems[0].startswith("100% of its records")


def test_deliveries_are_compared_with_deliveries() -> None:
    """A record may have many: those that no sink accepted are a share of all that were tried."""
    report = loss_report(DEFAULT_LIMITS, Losses(read=1000, messages=60, undeliverable=90), Losses())

    assert report.shares["undeliverable"] == 0.6
    assert report.problems == (
        "60% of its deliveries were accepted by no sink in the last 15 minutes; its limit is 50%",
    )


def test_few_records_say_nothing() -> None:
    """One invalid record in a quiet period is not a loss."""
    assert loss_report(DEFAULT_LIMITS, Losses(read=99, discarded=99), Losses()).problems == ()


def test_a_limit_of_the_route() -> None:
    """It overrides the server's limit, in both directions; `off` is never a problem."""
    own = HealthPart.model_validate({"discarded": "1%", "unmatched": "off", "deadLettered": 0.9})
    limits = own.over(DEFAULT_LIMITS)
    recent = Losses(read=1000, discarded=11, unmatched=1000, dead_lettered=600)

    assert loss_report(limits, recent, Losses(read=5000)).problems == (
        "60% of its records became dead letters in the last 15 minutes, 0% in the day before",
        "1% of its records failed and were discarded in the last 15 minutes; its limit is 1%",
    )


def test_a_share_that_is_as_it_always_was() -> None:
    """A route whose interests are few leaves most records unmatched; a rise is a problem."""
    recent = Losses(read=1000, unmatched=900)

    assert loss_report(DEFAULT_LIMITS, recent, Losses(read=9000, unmatched=8000)).problems == ()
    assert loss_report(DEFAULT_LIMITS, recent, Losses(read=9000, unmatched=1000)).problems == (
        "90% of its records were matched by no subscription in the last 15 minutes, 11% in the day before",
    )


def test_everybody_is_told(bench, client) -> None:
    """REST and metrics say it of the one route, which runs."""
    bench.start("lossy", "fine")
    counts = {"lossy": Counts(read=200, discarded=200), "fine": Counts(read=200, delivered=200, messages=200)}
    for name, more in counts.items():
        bench.state.add_counts(name, more, time.time() - 60)
    bench.losses.check()

    answers = {name: client.get(f"/v1/routes/{name}").json() for name in counts}
    metrics = bench.metrics.text().decode()

    assert answers["lossy"]["losses"] == [
        "100% of its records failed and were discarded in the last 15 minutes; its limit is 50%"
    ]
    assert answers["lossy"]["loss_shares"]["discarded"] == 1.0
    assert answers["fine"]["losses"] == []
    assert 'turnout_route_healthy{route="lossy"} 0.0' in metrics
    assert 'turnout_route_healthy{route="fine"} 1.0' in metrics
    assert 'turnout_route_loss_ratio{loss="discarded",route="lossy"} 1.0' in metrics
