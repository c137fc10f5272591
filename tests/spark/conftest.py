"""What the tests beside Kafka's own classes share."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession
from tests.spark.kafka_classes import KafkaClasses, MavenMissingError


@pytest.fixture(scope="session")
def kafka(spark: SparkSession) -> KafkaClasses:
    """Kafka's classes in the JVM of the session, loaded once."""
    try:
        return KafkaClasses(spark)
    except MavenMissingError as reason:
        pytest.skip(str(reason))
