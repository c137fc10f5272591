"""Kafka as a source and as a sink of Spark: its own connector, fetched when a route needs it.

Maven's command is preferred, as it knows the mirrors and the credentials of its user's settings; without it
Spark is asked to fetch the connector itself.
"""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, cast

import pyspark
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from turnout.errors import ConfigError, Mistake, RunError, TurnoutError
from turnout.files import replace_file
from turnout.private_files import scratch_folder
from turnout.routes.endpoints import KafkaSink, KafkaSource
from turnout.runtime.java_failures import in_one_line
from turnout.runtime.kafka_limits import KafkaLimits
from turnout.spark.endpoints import RECORD_COLUMNS, ReadOptions, SparkEndpoint

if TYPE_CHECKING:
    from turnout.nats.wire.positions import Place
    from turnout.spark.history.recorded import RecordSpan

_log = logging.getLogger(__name__)

CONNECTOR = f"org.apache.spark:spark-sql-kafka-0-10_2.13:{pyspark.__version__}"
"""The Maven coordinates of the connector that fits this PySpark."""

_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
<modelVersion>4.0.0</modelVersion>
<groupId>turnout</groupId><artifactId>classpath</artifactId><version>1</version><packaging>pom</packaging>
<dependencies>{}</dependencies>
</project>
"""
_DEPENDENCY = """<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version>
<exclusions>{}</exclusions></dependency>"""
_EXCLUSION = "<exclusion><groupId>{}</groupId><artifactId>*</artifactId></exclusion>"


_TOO_LARGE: Final = "RecordTooLargeException"
_LARGEST: Final = (
    "the largest record, for {topic!r}, read at partition {partition}, offset {offset}, has {size} bytes: "
)

_ADMIN_SECONDS: Final = 10
_MOST_TOPICS: Final = 5000
"""Topics of one cluster whose limits are asked for; those beyond have the broker's."""

_TIMEOUTS: Final = {"default.api.timeout.ms": str(_ADMIN_SECONDS * 1000), "request.timeout.ms": "5000"}


class KafkaEndpoint(SparkEndpoint):
    """Topics of Kafka, through Spark's connector."""

    endpoint: KafkaSource | KafkaSink
    observable: ClassVar[bool] = False

    def needs(self, properties: Mapping[str, str]) -> dict[str, str]:
        """Return the properties that fetch the connector."""
        return {} if brings_connector(properties) else kafka_properties()

    def lacks(self, properties: Mapping[str, str]) -> dict[str, str]:
        """Return the package of the connector, if there is none."""
        return {} if brings_connector(properties) else {"spark.jars.packages": CONNECTOR}

    def read(self, spark: SparkSession, options: ReadOptions) -> DataFrame:  # noqa: ARG002 - Kafka has none of them
        """Return the records of the topics."""
        reader = spark.readStream.format("kafka").options(**self.endpoint.options())
        return reader.option("includeHeaders", "true").load().select(*RECORD_COLUMNS)

    def recorded(self, spark: SparkSession, span: RecordSpan) -> DataFrame:
        """Return the records of a span."""
        options = span.options_of(self.endpoint)
        options |= _bound("starting", span.start, span.begin) | _bound("ending", span.end, span.limit)
        reader = spark.read.format("kafka").options(**options)
        return reader.option("includeHeaders", "true").load().select(*RECORD_COLUMNS)

    def write(self, messages: DataFrame, message_id: str) -> None:  # noqa: ARG002 - Kafka has no ids
        """Write the messages.

        Raises:
            RunError: a broker refused a record for its size; Kafka does not say which, so the largest is named.
        """
        writer = messages.select("topic", "value", "headers", "key").write.format("kafka")
        try:
            writer.options(**self.endpoint.options()).mode("append").save()
        except (Py4JError, PySparkException) as failure:
            if _TOO_LARGE not in str(failure):
                raise
            size = F.octet_length("value") + F.coalesce(F.octet_length("key"), F.lit(0))
            rows = messages.select("topic", "partition", "offset", size.alias("size"))
            row = rows.orderBy(F.col("size").desc_nulls_last()).first()
            largest = "" if row is None else _LARGEST.format(**row.asDict())
            raise RunError(f"{largest}{in_one_line(failure)}") from failure

    def limits(self) -> KafkaLimits:
        """Return the limits of the producer."""
        return KafkaLimits.of(cast("KafkaSink", self.endpoint))

    def broker_limits(self, limits: KafkaLimits, spark: SparkSession) -> KafkaLimits:
        """Return the limits, lowered to those of the brokers and topics.

        A batch that is compressed may be smaller than its record: with ``kafka.compression.type`` only the producer's
        limit is known beforehand. So it is where the brokers do not answer, or refuse to describe their settings.
        """
        given = self.endpoint.options()
        options = {name.removeprefix("kafka."): text for name, text in given.items() if name.startswith("kafka.")}
        if options.get("compression.type", "none") != "none":
            return limits
        try:
            return _asked(limits, spark._jvm, {**_TIMEOUTS, **options})  # noqa: SLF001 - Kafka's client is Java
        except (Py4JError, AttributeError, TypeError) as failure:
            servers = options.get("bootstrap.servers")
            _log.warning("the size limits of the topics at %s are not known: %s", servers, in_one_line(failure))
            return limits


def _bound(side: str, position: Place, text: str) -> dict[str, str]:
    """Return the option of Spark's Kafka source for one end of a span."""
    if isinstance(position, datetime):
        return {f"{side}Timestamp": str(int(position.timestamp() * 1000))}
    if isinstance(position, int):
        problem = f"{position} is no place in Kafka, where each partition has offsets of its own: give a time"
        raise ConfigError([Mistake("from" if side == "starting" else "to", problem)], what="bad range")
    return {f"{side}Offsets": text}


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
        topics = sorted(admin.listTopics().names().get(_ADMIN_SECONDS, seconds))[:_MOST_TOPICS]
        # A Java collection that is neither a list nor a set cannot be iterated from Python.
        found_nodes = jvm.java.util.ArrayList(admin.describeCluster().nodes().get(_ADMIN_SECONDS, seconds))
        nodes = [node.idString() for node in found_nodes]
        asked = [(name, resource(kinds.TOPIC, name), "max.message.bytes") for name in topics]
        asked += [("", resource(kinds.BROKER, node), "message.max.bytes") for node in nodes]
        several = jvm.java.util.ArrayList()
        for _, one, _ in asked:
            several.add(one)
        described = admin.describeConfigs(several).all().get(_ADMIN_SECONDS, seconds)
        found = [(name, described.get(one).get(setting).value()) for name, one, setting in asked]
    finally:
        admin.close(jvm.java.time.Duration.ZERO)
    others = min((int(value) for name, value in found if not name), default=None)
    own = {name: int(value) for name, value in found if name and int(value) < limits.producer}
    return replace(limits, topics=own, others=others)


def brings_connector(properties: Mapping[str, object]) -> bool:
    """Return True if Spark properties name a connector already, so that none is fetched."""
    return any("spark-sql-kafka" in str(properties.get(name, "")) for name in ("spark.jars", "spark.jars.packages"))


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


def resolve_jars(coordinates: Sequence[str], without: Sequence[str] = ()) -> list[Path]:
    """The jars of *coordinates* (``group:artifact:version``) and of all that they need, in the local repository.

    What was found is remembered, and found again as long as the jars are there.

    Args:
        coordinates: what to fetch.
        without: group ids whose artifacts are left out; ``*`` leaves out all that is not named itself.

    Raises:
        TurnoutError: when there is no Maven, or it cannot fetch them.
    """
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    name = hashlib.sha256(" ".join([*coordinates, "without", *without]).encode()).hexdigest()[:20]
    remembered = caches / "turnout" / f"{name}.classpath"
    if remembered.exists():
        jars = _paths(remembered.read_text(encoding="utf-8"))
        if jars and all(jar.exists() for jar in jars):
            return jars
    maven = shutil.which("mvn")
    if maven is None:
        raise TurnoutError("Maven is not installed: put mvn on PATH, or the jars in spark.jars")
    text = _class_path(maven, coordinates, without)
    remembered.parent.mkdir(parents=True, exist_ok=True)
    replace_file(remembered, text)
    return _paths(text)


def _class_path(maven: str, coordinates: Sequence[str], without: Sequence[str]) -> str:
    exclusions = "".join(_EXCLUSION.format(group) for group in without)
    dependencies = "".join(_DEPENDENCY.format(*coordinate.split(":"), exclusions) for coordinate in coordinates)
    with scratch_folder("maven") as folder:
        pom, class_path = folder / "pom.xml", folder / "classpath"
        pom.write_text(_POM.format(dependencies), encoding="utf-8")
        command = [maven, "-q", "-B", "-f", str(pom), "dependency:build-classpath", f"-Dmdep.outputFile={class_path}"]
        process = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
        if process.returncode != 0 or not class_path.exists():
            # The first error names the artifact; what follows it is advice about Maven's switches.
            errors = [line for line in (process.stdout + process.stderr).splitlines() if "[ERROR]" in line]
            reason = errors[0].split("[ERROR]", 1)[1].strip() if errors else "it said nothing"
            raise TurnoutError(f"Maven could not fetch {', '.join(coordinates)}: {reason}")
        return class_path.read_text(encoding="utf-8").strip()


def _paths(text: str) -> list[Path]:
    return [Path(part) for part in text.split(os.pathsep) if part]
