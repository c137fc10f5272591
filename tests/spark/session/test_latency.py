"""Polling interval of sources without new records."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from turnout.routes import Route
from turnout.spark.session.build import session_for
from turnout.spark.session.latency import asking_less, with_open_slots

DELAY = "spark.sql.streaming.pollingDelay"
FILES = "{format: json, path: /tmp/in, stream: true}"
KAFKA = '{format: kafka, servers: "127.0.0.1:9092", topics: [t]}'
NATS = '{format: nats, servers: "nats://127.0.0.1:4222", stream: S}'


def _route(source: str, more: str = "") -> Route:
    return Route.parse(f"name: r\nsource: {source}\nsink: {{format: json, path: /tmp/out}}\n{more}\n")


@pytest.mark.parametrize(
    ("source", "more", "delay"),
    [
        (FILES, "", "100ms"),
        (KAFKA, "", None),
        (NATS, "", None),
        (FILES, "trigger: {latency: low}", None),
        (FILES, "trigger: {processingTime: 5 seconds}", None),
    ],
)
def test_a_source_that_cannot_wait_is_asked_ten_times_a_second(source: str, more: str, delay: str | None) -> None:
    """A source that waits at its server, and one with low latency, are polled as before."""
    assert asking_less(_route(source, more)).get(DELAY) == delay


def test_each_route_of_a_server_has_its_own_pause(spark: SparkSession) -> None:
    """The setting in the route's file has precedence."""
    usual = session_for(spark, _route(NATS)).conf.get(DELAY)
    less = session_for(spark, _route(FILES)).conf.get(DELAY)
    own = session_for(spark, _route(FILES, f"spark: {{{DELAY}: 30ms}}")).conf.get(DELAY)

    assert (usual, less, own) == ("10ms", "100ms", "30ms")


USUAL = f"name: r\nsource: {NATS}\nsink: {NATS.replace('stream: S', 'stream: OUT')}\n"
LOW = USUAL + "trigger: {latency: low}"
LIMITED = LOW.replace("stream: S", "stream: S, maxRecordsPerTrigger: 10")


@pytest.mark.parametrize(
    ("master", "texts", "slots"),
    [
        ("local[1]", [LOW], "local[2]"),
        ("local", [LOW], "local[2]"),
        ("local[2]", [LOW], "local[2]"),
        ("local[2]", [LOW, USUAL, LOW, LIMITED], "local[4]"),
        ("local[2, 3]", [LOW, LOW], "local[4, 3]"),
        ("local[1]", [USUAL, LIMITED], "local[1]"),
        ("local-cluster[1,1,1024]", [LOW], "local-cluster[1,1,1024]"),
        ("spark://host:7077", [LOW], "spark://host:7077"),
    ],
)
def test_each_open_split_has_a_slot(master: str, texts: list[str], slots: str) -> None:
    """One more slot remains for all other work."""
    assert with_open_slots(master, [Route.parse(text, {}) for text in texts]) == slots


def test_a_machine_with_few_cores_has_slots_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """There are as many slots as cores if these suffice."""
    monkeypatch.setattr("turnout.spark.session.latency._cores", lambda: 2)
    routes = [Route.parse(LOW, {})] * 2

    assert with_open_slots("local[*]", routes[:1]) == "local[*]"
    assert with_open_slots("local[*]", routes) == "local[4]"
