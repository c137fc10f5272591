"""Jars from Maven, for tests and benchmarks: a Kafka broker, and Spark's Kafka connector to compare with.

Maven's command is preferred, as it knows the mirrors and the credentials of its user's settings; without it
Spark is asked to fetch the connector itself.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pyspark

from turnout.demo.kafka_broker import resolve_jars

__all__ = ["CONNECTOR", "kafka_properties", "resolve_jars"]

CONNECTOR = f"org.apache.spark:spark-sql-kafka-0-10_2.13:{pyspark.__version__}"
"""The Maven coordinates of the connector that fits this PySpark."""


def kafka_properties() -> dict[str, str]:
    """The Spark properties that put the connector on the class path.

    Raises:
        TurnoutError: when Maven is there and cannot fetch it; the message has Maven's reason.
    """
    if shutil.which("mvn") is None:
        return {"spark.jars.packages": CONNECTOR}
    bundled = {path.name for path in (Path(pyspark.__file__).parent / "jars").glob("*.jar")}
    # The Hadoop client and its like are in Spark already, and two of them do not get along.
    jars = [jar for jar in resolve_jars([CONNECTOR], without=("org.apache.hadoop",)) if jar.name not in bundled]
    return {"spark.jars": ",".join(str(jar) for jar in jars)}
