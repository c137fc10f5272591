"""Kafka as a source and as a sink of a route in Spark: the stage reads and publishes itself."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, Final, cast

from pyspark.sql import DataFrame, SparkSession

from turnout.errors import ConfigError, ConnectionLostError, StreamError
from turnout.kafka.admin import KafkaAdmin
from turnout.kafka.group import GroupProgress
from turnout.routes.endpoints import KafkaSink, KafkaSource
from turnout.runtime.kafka.history import no_single_offset, offsets_by_topic
from turnout.runtime.kafka.publisher import CONFIG, PARTITIONS, KafkaLimits, KafkaSinkOptions
from turnout.runtime.kafka.source import KafkaPosition, KafkaSourceOptions, position_of
from turnout.runtime.offsets import encoded
from turnout.runtime.publishing import TALLY
from turnout.spark.endpoints import ReadOptions, SparkEndpoint, register_source, task_slots
from turnout.spark.formats.kafka.source import FORMAT, OPTIONS, KafkaDataSource

if TYPE_CHECKING:
    from turnout.history.replay import StreamRange
    from turnout.nats.wire.streams import StreamPosition
    from turnout.spark.history.diff import RecordSpan

_log = logging.getLogger(__name__)

_WAIT_SECONDS: Final = 1.0
"""Seconds that a poll without news waits, where the source does not say."""

_MOST_TOPICS: Final = 5000
"""Maximum number of topics of one cluster whose limits are requested; the others have the broker's."""


class KafkaEndpoint(SparkEndpoint):
    """Topics of Kafka: records do not pass through the JVM, and no connector of Spark's is needed."""

    endpoint: KafkaSource | KafkaSink
    reads_splits: ClassVar[bool] = True
    publishes: ClassVar[bool] = True
    opens_splits: ClassVar[bool] = True
    open_by_partition: ClassVar[bool] = True

    # Source

    @property
    def stays_open(self) -> bool:  # type: ignore[override]
        """True if nothing bounds a micro-batch."""
        source = self.endpoint
        return isinstance(source, KafkaSource) and (source.max_records_per_trigger, source.end) == (None, None)

    @property
    def open_tasks(self) -> int:  # type: ignore[override]
        """Tasks that the source names, at most one for each partition; one if it names none."""
        source = self.endpoint
        return (source.partitions if isinstance(source, KafkaSource) else None) or 1

    def read(self, spark: SparkSession, options: ReadOptions) -> DataFrame:
        """Return the splits of the topics."""
        source = cast("KafkaSource", self.endpoint)
        waits = source.poll_wait or (_WAIT_SECONDS if options.wait or options.latency == "low" else 0.0)
        settings = KafkaSourceOptions.of(
            source,
            task_slots(spark),
            poll_wait=float(waits),
            pause_file=options.pause_file,
            revisions_url=options.more.get("revisionsUrl"),
            open_splits=options.more.get("openSplits"),
            stays_open=options.more.get("staysOpen") == "true",
            stage=options.stage,
        )
        _tell_ignored(settings.client.ignored)
        return _splits(spark, settings, streaming=True)

    def group_progress(self) -> GroupProgress | None:
        """Return the group that the source names."""
        source = self.endpoint
        if not isinstance(source, KafkaSource) or source.commit_group is None:
            return None
        return GroupProgress(source.client, source.commit_group)

    def recorded(self, spark: SparkSession, span: RecordSpan) -> DataFrame:
        """Return the splits of a span."""
        settings = KafkaSourceOptions.of(cast("KafkaSource", self.endpoint), task_slots(spark))
        bounded = replace(settings, start=_bound("from", span.start), end=_bound("to", span.end))
        return _splits(spark, bounded, streaming=False)

    def part(
        self,
        spark: SparkSession,
        range_: StreamRange,
        filters: Sequence[str],  # noqa: ARG002 - NATS
        stage: str | None = None,
    ) -> DataFrame:
        """Return a range of one partition."""
        topic, _, number = range_.stream.rpartition(":")
        start, end = ({topic: {number: offset}} for offset in (range_.start, range_.end))
        settings = KafkaSourceOptions.of(cast("KafkaSource", self.endpoint), task_slots(spark))
        bounded = replace(settings, topics=(topic,), pattern=None, only=int(number), start=start, end=end, stage=stage)
        return _splits(spark, bounded, streaming=False)

    # Sink

    def write(self, messages: DataFrame, message_id: str) -> None:
        """Write the messages from tasks of their own, where other sinks of the route receive rows too."""
        from turnout.spark.formats.kafka.source import write_rows

        write_rows(messages, message_id, self.publishing().at_least_once())

    def publishing(self) -> KafkaSinkOptions:
        """Return the options of the sink."""
        return KafkaSinkOptions.of(cast("KafkaSink", self.endpoint))

    def limits(self) -> KafkaLimits:
        """Return the limits of the producer."""
        return KafkaLimits.of(cast("KafkaSink", self.endpoint))

    def broker_limits(self, limits: KafkaLimits) -> KafkaLimits:
        """Return the limits, lowered to those of the brokers and topics.

        A batch that is compressed may be smaller than its record: with ``compression.type`` only the producer's limit
        is known beforehand. So it is where the brokers do not answer, or refuse to describe their settings.
        """
        options = self.endpoint.client
        if options.properties.get("compression.type", options.properties.get("compression.codec", "none")) != "none":
            return limits
        try:
            with KafkaAdmin(options) as admin:
                found = admin.record_limits(admin.topics()[:_MOST_TOPICS])
        except (StreamError, ConnectionLostError) as failure:
            _log.warning("the size limits of the topics at %s are not known: %s", ", ".join(options.servers), failure)
            return limits
        own = {name: size for name, size in found.topics.items() if size < limits.producer}
        return replace(limits, topics=own, others=found.others)

    def prepare(self) -> None:
        """Create the control topic of a sink with transactions, if it is not there."""
        sink = self.endpoint
        _tell_ignored(sink.client.ignored)
        if not isinstance(sink, KafkaSink) or not sink.has_transactions:
            return
        with KafkaAdmin(sink.client) as admin:
            if sink.control_topic not in admin.existing([sink.control_topic]):
                admin.create_topic(sink.control_topic, PARTITIONS, CONFIG)


def _splits(spark: SparkSession, settings: KafkaSourceOptions, *, streaming: bool) -> DataFrame:
    register_source(spark, KafkaDataSource)
    reader = spark.readStream if streaming else spark.read
    if settings.stage is not None:
        reader = reader.schema(TALLY)
    return reader.format(FORMAT).option(OPTIONS, encoded(settings)).load()


def _bound(side: str, position: StreamPosition) -> KafkaPosition:
    """Return an end of a span as a place in topics."""
    if isinstance(position, int):
        raise ConfigError([no_single_offset(side, position)], what="bad range")
    return offsets_by_topic(position) if isinstance(position, Mapping) else position_of(position)


def _tell_ignored(names: tuple[str, ...]) -> None:
    if names:
        _log.warning("these properties are of Kafka's Java client alone, and have no effect: %s", ", ".join(names))
