"""Jars from Maven, for tests and benchmarks: a Kafka broker, and Spark's Kafka connector to compare with.

Maven's command is preferred, as it knows the mirrors and the credentials of its user's settings; without it
Spark is asked to fetch the connector itself.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

import pyspark

from turnout.demo.kafka_broker import resolve_jars

__all__ = ["CONNECTOR", "kafka_properties", "resolve_jars", "s3_jars"]

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


_HADOOP: Final = "3.5.0"
_AWS: Final = "2.35.4"
_ACCELERATOR: Final = "1.3.1"


def s3_jars() -> list[Path]:
    """The jars of Hadoop's client of S3 for this PySpark, 12 MB: without the AWS SDK's services that it does not use.

    Raises:
        TurnoutError: Maven is not there, or cannot fetch them.
    """
    alone = (
        f"org.apache.hadoop:hadoop-aws:{_HADOOP}",
        f"software.amazon.s3.analyticsaccelerator:analyticsaccelerator-s3:{_ACCELERATOR}",
    )
    sdk = [f"software.amazon.awssdk:{part}:{_AWS}" for part in ("s3", "s3-transfer-manager", "sts")]
    # Netty is Spark's own.
    return [*resolve_jars(alone, without=("*",)), *resolve_jars(sdk, without=("io.netty", "org.slf4j"))]
