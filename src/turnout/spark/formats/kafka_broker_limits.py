"""Size limits of topics and brokers, requested once at the start of a run."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any, Final

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from turnout.routes.endpoints import KafkaSink
from turnout.runtime.java_failures import in_one_line
from turnout.spark.formats.kafka_limits import KafkaLimits

_log = logging.getLogger(__name__)

_SECONDS: Final = 10
_MOST_TOPICS: Final = 5000
"""Topics of one cluster whose limits are asked for; those beyond have the broker's."""

_TIMEOUTS: Final = {"default.api.timeout.ms": str(_SECONDS * 1000), "request.timeout.ms": "5000"}


def with_broker_limits(limits: KafkaLimits, spark: SparkSession, sink: KafkaSink) -> KafkaLimits:
    """Return the limits of a sink, lowered to those of its brokers and topics.

    A batch that is compressed may be smaller than its record: with ``kafka.compression.type`` only the producer's
    limit is known beforehand. So it is where the brokers do not answer, or refuse to describe their settings.
    """
    options = {name.removeprefix("kafka."): text for name, text in sink.options().items() if name.startswith("kafka.")}
    if options.get("compression.type", "none") != "none":
        return limits
    try:
        return _asked(limits, spark._jvm, {**_TIMEOUTS, **options})  # noqa: SLF001 - Kafka's client is Java
    except (Py4JError, AttributeError, TypeError) as failure:
        servers = options.get("bootstrap.servers")
        _log.warning("the size limits of the topics at %s are not known: %s", servers, in_one_line(failure))
        return limits


def _asked(limits: KafkaLimits, jvm: Any, options: dict[str, str]) -> KafkaLimits:
    """The limits that the brokers describe, as far as they are lower than the producer's."""
    properties = jvm.java.util.Properties()
    for name, text in options.items():
        properties.put(name, text)
    resource = jvm.org.apache.kafka.common.config.ConfigResource
    kinds = resource.Type
    admin = jvm.org.apache.kafka.clients.admin.Admin.create(properties)
    try:
        seconds = jvm.java.util.concurrent.TimeUnit.SECONDS
        topics = sorted(admin.listTopics().names().get(_SECONDS, seconds))[:_MOST_TOPICS]
        # A Java collection that is neither a list nor a set cannot be iterated from Python.
        found_nodes = jvm.java.util.ArrayList(admin.describeCluster().nodes().get(_SECONDS, seconds))
        nodes = [node.idString() for node in found_nodes]
        asked = [(name, resource(kinds.TOPIC, name), "max.message.bytes") for name in topics]
        asked += [("", resource(kinds.BROKER, node), "message.max.bytes") for node in nodes]
        several = jvm.java.util.ArrayList()
        for _, one, _ in asked:
            several.add(one)
        described = admin.describeConfigs(several).all().get(_SECONDS, seconds)
        found = [(name, described.get(one).get(setting).value()) for name, one, setting in asked]
    finally:
        admin.close(jvm.java.time.Duration.ZERO)
    others = min((int(value) for name, value in found if not name), default=None)
    own = {name: int(value) for name, value in found if name and int(value) < limits.producer}
    return replace(limits, topics=own, others=others)
