"""How often a source is asked that has nothing to give."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from turnout.routes import Route
from turnout.spark.session.build import session_for
from turnout.spark.session.latency import asking_less

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
        (KAFKA, "", "100ms"),
        (NATS, "", None),
        (KAFKA, "trigger: {latency: low}", None),
        (FILES, "trigger: {processingTime: 5 seconds}", None),
    ],
)
def test_a_source_that_cannot_wait_is_asked_ten_times_a_second(source: str, more: str, delay: str | None) -> None:
    """And not a hundred times; one that waits at its server, and one that is to be quick, as ever."""
    assert asking_less(_route(source, more)).get(DELAY) == delay


def test_each_route_of_a_server_has_its_own_pause(spark: SparkSession) -> None:
    """What the route's file says goes before."""
    usual = session_for(spark, _route(NATS)).conf.get(DELAY)
    less = session_for(spark, _route(FILES)).conf.get(DELAY)
    own = session_for(spark, _route(FILES, f"spark: {{{DELAY}: 30ms}}")).conf.get(DELAY)

    assert (usual, less, own) == ("10ms", "100ms", "30ms")
