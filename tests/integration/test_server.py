"""``turnout serve`` as a process: real Spark, a real nats-server, and what a person would ask of both."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from tests.integration.routes import Streams, turnout, wait_for
from tests.integration.served import ROUTE, SECONDS, Served

from turnout.embedded import NatsServer


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    served = Served(tmp_path_factory.mktemp("served"))
    yield served
    served.close()


def has_caught_up(served: Served, name: str) -> bool:
    """Whether nothing is left to do for a route."""
    return (served.route(name)["lag"] or {}).get("seconds") == 0.0


def test_two_routes_run_and_the_scraped_sums_are_the_final_counts(served: Served) -> None:
    """Each route delivers its own stream; metrics, REST and the streams agree, and nothing is left to do."""
    for name, count in (("first", 700), ("second", 300)):
        served.publish(name, count)
    for name, count in (("first", 700), ("second", 300)):
        served.wait_read(name, count)
        wait_for(partial(has_caught_up, served, name), SECONDS)

        streams, metrics = served.streams[name], served.metrics()

        assert streams.stored(streams.sink) == count
        assert metrics["turnout_route_records_total", name, "delivered"] == count
        assert (
            sum(
                value
                for (sample, route, _), value in metrics.items()
                if (sample, route) == ("turnout_route_records_total", name)
            )
            == count
        )
        assert metrics["turnout_route_messages_total", name, ""] == count
        assert {
            stage: value
            for (sample, route, stage), value in metrics.items()
            if (sample, route) == ("turnout_route_stage_records_total", name)
        } == dict.fromkeys(("source", "key", "value", "mapping", "sink"), count)
        assert metrics["turnout_route_delivery_seconds_count", name, ""] == count
        assert metrics["turnout_route_delivery_seconds_bucket", name, "+Inf"] == count
        assert metrics["turnout_route_delivery_seconds_sum", name, ""] > 0
        assert metrics["turnout_route_lag_records", name, streams.source] == 0
        assert metrics["turnout_route_up", name, ""] == 1
    assert served.ask("/ready") == (200, {"ready": True, "problems": {}})


def test_a_poisoned_file_stops_nothing(served: Served) -> None:
    """A new file that is wrong and a file that becomes wrong show their mistakes; both routes go on."""
    before = {name: served.route(name)["counts"]["read"] for name in served.streams}
    (served.folder / "poison.yaml").write_text("name: poison\nsource: {format: carrier-pigeon}\n")
    file = served.folder / "first.yaml"
    text = file.read_text()
    file.write_text(text + "unknwon: 1\n")
    wait_for(lambda: served.ask("/v1/routes/poison")[0] == 200 and bool(served.route("first")["mistakes"]), SECONDS)
    for name in served.streams:
        served.publish(name, 10)
        served.wait_read(name, before[name] + 10)

    poisoned, first = served.route("poison"), served.route("first")
    (served.folder / "poison.yaml").unlink()
    file.write_text(text)

    assert (poisoned["state"], first["state"]) == ("invalid", "running")
    assert "carrier-pigeon" in json.dumps(poisoned["mistakes"])
    wait_for(lambda: served.ask("/v1/routes/poison")[0] == 404 and not served.route("first")["mistakes"], SECONDS)


def test_a_paused_route_goes_on_where_it_stopped(served: Served) -> None:
    """Records published during a pause are read after it, once; the other route does not wait."""
    read, other = (served.route(name)["counts"]["read"] for name in ("first", "second"))
    assert served.ask("/v1/routes/first/pause", "POST")[0] == 202
    served.wait_state("first", "paused")
    for name in served.streams:
        served.publish(name, 20)
    served.wait_read("second", other + 20)
    assert served.route("first")["counts"]["read"] == read

    assert served.ask("/v1/routes/first/resume", "POST")[0] == 202
    served.wait_read("first", read + 20)

    streams = served.streams["first"]
    assert served.route("first")["counts"]["read"] == read + 20
    assert served.ask("/v1/routes/first/offsets")[1]["next"] == {streams.source: streams.stored(streams.source) + 1}


def test_reset_offsets_are_read_from_again_exactly(served: Served) -> None:
    """From a sequence on, every message is read again and none before it; only a paused route can be reset."""
    streams = served.streams["second"]
    last, read = streams.stored(streams.source), served.route("second")["counts"]["read"]
    assert served.ask("/v1/routes/second/offsets", "PUT", {"to": "earliest"})[0] == 409
    served.ask("/v1/routes/second/pause", "POST")
    served.wait_state("second", "paused")

    status, answer = served.ask("/v1/routes/second/offsets", "PUT", {"to": last - 99})
    served.ask("/v1/routes/second/resume", "POST")
    served.wait_read("second", read + 100)
    wait_for(lambda: served.ask("/v1/routes/second/offsets")[1]["next"] == {streams.source: last + 1}, SECONDS)

    assert (status, answer["begins_at"]) == (200, {streams.source: last - 99})
    assert served.route("second")["counts"]["read"] == read + 100
    # The same messages have the same ids: the stream stores none of them twice.
    assert streams.stored(streams.sink) == last


def _is_unwell(served: Served, route: str) -> bool:
    """Return True if the route's own readiness says that it is not."""
    return bool(served.ask(f"/ready?route={route}")[0] == 503)


def test_a_server_that_goes_away_turns_its_routes_red_and_back(served: Served) -> None:
    """While nats-server is down each route reports the reason, and the server is ready; when it is back, routes deliver
    again automatically."""
    read = served.route("first")["counts"]["read"]
    served.nats.stop(kill=True)
    problems: dict[str, str] = {}
    for name in ("first", "second"):
        wait_for(partial(_is_unwell, served, name), SECONDS)
        problems |= served.ask(f"/ready?route={name}")[1]["problems"]
    ready = served.ask("/ready")

    served.nats.start()
    wait_for(lambda: all(served.ask(f"/ready?route={name}")[0] == 200 for name in ("first", "second")), SECONDS)
    served.publish("first", 5)
    served.wait_read("first", read + 5)

    assert ready == (200, {"ready": True, "problems": {}})
    assert set(problems) == {"route first", "route second"}
    assert str(served.nats_port) in problems["route first"]


@pytest.mark.heavy
def test_a_run_prints_a_line_for_each_micro_batch(tmp_path: Path) -> None:
    """With --json-lines each line stands for itself, and the last one is what --json prints."""
    with NatsServer() as nats:
        streams = Streams(nats.url)
        streams.create()
        streams.publish([(f"a.{n}", b"{}", ()) for n in range(30)])
        text = ROUTE.format(
            name="lines", url=nats.url, source=streams.source, sink=streams.sink, prefix=streams.name
        ).replace("reconnectTimeout: 2", "maxRecordsPerTrigger: 10", 1)
        route = tmp_path / "route.yaml"
        route.write_text(text)

        done = turnout("run", str(route), "--once", "--json-lines", "--master", "local[2]")

    assert done.returncode == 0, done.stderr
    *batches, end = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["counts"]["read"] for line in batches] == [10, 20, 30]
    assert (end["counts"]["delivered"], end["conserved"], end["batches"]) == (30, True, 3)
