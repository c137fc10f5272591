"""The demo's Kafka broker for tests, and the properties of Spark's connector to compare with."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tools.maven import kafka_properties, resolve_jars

from turnout.demo import kafka_broker
from turnout.demo.kafka_broker import BROKER
from turnout.errors import TurnoutError

__all__ = ["BROKER", "STAND_IN", "KafkaBroker", "connector_properties", "started_broker"]

# The connector of a new PySpark may not be published yet. Its predecessor reads and writes all the same.
STAND_IN = (
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    "org.apache.kafka:kafka-clients:3.9.1",
    "org.apache.commons:commons-pool2:2.12.1",
)


_FEW_PARTITIONS = "offsets.topic.num.partitions=1\ntransaction.state.log.num.partitions=1\n"
"""The first group of consumers, and the first transaction, would make fifty partitions each."""


class KafkaBroker(kafka_broker.KafkaBroker):
    """A broker whose JVM compiles little: its start takes 5.6 s of processor time instead of 9.2."""

    def __init__(self, work: Path, more: str = "") -> None:
        super().__init__(work, _FEW_PARTITIONS + more)

    def _java(self, *arguments: str) -> list[str]:
        program, *options = super()._java(*arguments)
        return [program, "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", *options]


def connector_properties() -> dict[str, str]:
    """Spark properties with this PySpark's Kafka connector, or with the stand-in where it cannot be had.

    Raises:
        TurnoutError: when neither can be had; the message says why.
    """
    try:
        return kafka_properties()
    except TurnoutError:
        jars = resolve_jars(STAND_IN, without=("*",))
        return {"spark.jars": ",".join(str(jar) for jar in jars)}


@contextmanager
def started_broker(folder: Path, properties: str = "") -> Iterator[KafkaBroker]:
    """Start a broker in a folder; the test is skipped where Maven, or what it should fetch, is not there."""
    folder.mkdir(exist_ok=True)
    try:
        broker = KafkaBroker(folder, properties)
    except TurnoutError as missing:
        pytest.skip(f"no Kafka broker: {missing}")
    with broker as started:
        yield started
