"""NATS as a source and as a sink of a route in Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, Final, cast

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from turnout.routes.endpoints import NatsSink, NatsSource
from turnout.runtime.nats.sink import SinkOptions
from turnout.runtime.nats.source import STAGE
from turnout.runtime.publishing import TALLY
from turnout.spark.endpoints import ReadOptions, SparkEndpoint, activate
from turnout.spark.formats.nats.source import register
from turnout.spark.session.build import low_latency_source, waiting_source

if TYPE_CHECKING:
    from pyspark.sql import DataFrameReader
    from pyspark.sql.streaming.readwriter import DataStreamReader

    from turnout.history.replay import StreamRange
    from turnout.spark.history.diff import RecordSpan

_OF_RUNS: Final = frozenset(
    {"startingOffsets", "maxRecordsPerTrigger", "maxBytesPerTrigger", "pollWait", "ackConsumer"}
    | {"filterSubject", "filterSubjects"}
)
"""Options of a source that a range of its history does without."""


class NatsEndpoint(SparkEndpoint):
    """Streams of JetStream: the stage reads and publishes itself, so that records do not pass through the JVM."""

    endpoint: NatsSource | NatsSink
    reads_splits: ClassVar[bool] = True
    publishes: ClassVar[bool] = True
    opens_splits: ClassVar[bool] = True

    @property
    def stays_open(self) -> bool:  # type: ignore[override]
        """True if one task reads one stream, on one subject at most, and nothing bounds a micro-batch."""
        source = self.endpoint
        if not isinstance(source, NatsSource):
            return False
        bounds = (source.max_records_per_trigger, source.max_bytes_per_trigger, source.ack_consumer)
        one_task = len(source.streams) == 1 and len(source.filters) <= 1 and (source.partitions or 1) == 1
        return one_task and not source.pushes_down and bounds == (None, None, None)

    def read(self, spark: SparkSession, options: ReadOptions) -> DataFrame:
        """Return the records of the streams, or their splits."""
        register(spark)
        usual = low_latency_source() if options.latency == "low" else waiting_source() if options.wait else {}
        settings = {**usual, **self.endpoint.options(), **options.more}
        if options.pause_file is not None:
            settings["pauseFile"] = options.pause_file
        settings["splits" if options.splits else "includeStream"] = "true"
        return _loaded(spark.readStream, settings, options.stage)

    def recorded(self, spark: SparkSession, span: RecordSpan) -> DataFrame:
        """Return the splits of a span."""
        register(spark)
        options = span.options_of(self.endpoint) | {"startingOffsets": span.begin, "endingOffsets": span.limit}
        return _loaded(spark.read, {**options, "splits": "true"})

    def part(
        self, spark: SparkSession, range_: StreamRange, filters: Sequence[str], stage: str | None = None
    ) -> DataFrame:
        """Return a range of one stream."""
        register(spark)
        options = {name: text for name, text in self.endpoint.options().items() if name not in _OF_RUNS}
        options |= {"stream": range_.stream, "startingOffsets": str(range_.start), "endingOffsets": str(range_.end)}
        identity = range_.identity
        options["streamIdentity"] = "" if identity is None else f"{identity.created} {identity.token}"
        if filters:
            options["filterSubjects"] = ",".join(filters)
        return _loaded(spark.read, {**options, "splits": "true"}, stage)

    def write(self, messages: DataFrame, message_id: str) -> None:
        """Publish the messages by the format's own sink."""
        sink = cast("NatsSink", self.endpoint)
        activate(messages.sparkSession)
        ids = [F.col(message_id).alias("key")] if sink.with_ids else []
        rows = messages.select("topic", "value", "headers", *ids)
        ways = {"messageId": "key" if sink.with_ids else "none"}
        rows.write.format("nats").options(**sink.options(), **ways).mode("append").save()

    def publishing(self) -> SinkOptions:
        """Return the options of the sink."""
        return SinkOptions.of(cast("NatsSink", self.endpoint))


def _loaded(
    reader: DataFrameReader | DataStreamReader, options: Mapping[str, str], stage: str | None = None
) -> DataFrame:
    """Return the rows of the streams: records, splits, or the counts of an encoded stage."""
    of_format = reader.format("nats").options(**options)
    return of_format.load() if stage is None else of_format.option(STAGE, stage).schema(TALLY).load()
