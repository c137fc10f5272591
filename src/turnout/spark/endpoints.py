"""Endpoints of a route in Spark: reading its source, and writing to its sinks."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pkgutil import resolve_name
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple

from pyspark.sql import DataFrame, SparkSession

from turnout.routes.endpoints import Endpoint, Sink, Source
from turnout.routes.endpoints.formats import format_of

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSource

    from turnout.history.replay import StreamRange
    from turnout.kafka.group import GroupProgress
    from turnout.records import Schema
    from turnout.routes import Route
    from turnout.routes.rows import RowPlan
    from turnout.runtime.kafka.publisher import KafkaLimits
    from turnout.runtime.publishing import PublishingOptions
    from turnout.spark.history.diff import RecordSpan

RECORD_COLUMNS: Final = ("topic", "partition", "offset", "key", "value", "headers", "timestamp")


class BatchId(NamedTuple):
    """Micro-batch of a query, as a table notes it.

    Attributes:
        query: id of the query, which its checkpoint has.
        number: number of the micro-batch.
        sink: name of the route's sink.
    """

    query: str
    number: int
    sink: str = ""

    @property
    def application(self) -> str:
        """Name of the query and its sink, as tables note the micro-batches of an application."""
        return f"turnout-{self.query}" + (f"-{self.sink}" if self.sink else "")


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """Options of a streaming read that are not a source's own.

    Attributes:
        latency: with ``low`` a source that can wait does so, and is read by one task, unless its own options say else.
        wait: wait for the next record at the server, which Spark polls a hundred times a second otherwise.
        pause_file: while this file exists, the source has nothing new.
        splits: rows are splits of the streams, to be read by the next stage.
        stage: encoded stage that tasks run on their splits: rows are its counts. None where a next stage reads them.
        more: options that are not a route's to set.
    """

    latency: str | None = None
    wait: bool = False
    pause_file: str | None = None
    splits: bool = False
    stage: str | None = field(default=None, repr=False)
    more: Mapping[str, str] = field(default_factory=dict)


class SparkEndpoint:
    """Adapter of an endpoint format to Spark; named in the registry of `turnout.routes.endpoints.formats`.

    Args:
        endpoint: the source or the sink.
    """

    reads_splits: ClassVar[bool] = False
    """True if the rows of a source can be splits, read by the stage itself, and if the source waits at its server."""

    stays_open: bool = False
    """True if one task can read the source for as long as it likes, as an open split."""

    open_tasks: int = 1
    """Tasks that read an open source at once, if there are slots."""

    opens_splits: ClassVar[bool] = False
    """True if the source's checkpoints may have open splits, whatever the route is now."""

    open_by_partition: ClassVar[bool] = False
    """True if an open split has several partitions."""

    publishes: ClassVar[bool] = False
    """True if the stage itself delivers to a sink; if not, it returns rows."""

    observable: ClassVar[bool] = True
    """False if Spark reports no observed metrics of a plan that this sink writes."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint

    def needs(self, properties: Mapping[str, str]) -> dict[str, str]:  # noqa: ARG002 - for connectors
        """Return the Spark properties that put the format's connector on the class path, unless it is there."""
        return {}

    def lacks(self, properties: Mapping[str, str]) -> dict[str, str]:  # noqa: ARG002 - for connectors
        """Return the properties that an application with *properties* lacks for the format's connector."""
        return {}

    def read(self, spark: SparkSession, options: ReadOptions) -> DataFrame:
        """Return the source's records, streaming unless the source is bounded."""
        raise NotImplementedError

    def recorded(self, spark: SparkSession, span: RecordSpan) -> DataFrame:
        """Return a span of the source; as splits if it `reads_splits`.

        Raises:
            ConfigError: the source does not know such places.
        """
        raise NotImplementedError

    def part(
        self, spark: SparkSession, range_: StreamRange, filters: Sequence[str], stage: str | None = None
    ) -> DataFrame:
        """Return a range of one stream, or partition, as splits, or as the counts of a stage that publishes them.

        Args:
            spark: session.
            range_: range of the stream.
            filters: subjects to read, if only some are.
            stage: encoded stage that tasks run on their splits; None where a next stage reads them.
        """
        raise NotImplementedError

    def write(self, messages: DataFrame, message_id: str) -> None:
        """Write the messages; after the return the sink has acknowledged them.

        Args:
            messages: with the record's columns, values as bytes.
            message_id: the column of the messages' ids.
        """
        raise NotImplementedError

    def plan(self, spark: SparkSession, value: Schema | None, path: str) -> RowPlan | None:  # noqa: ARG002 - of tables
        """Return the columns of the sink's rows; None for a sink of messages.

        Args:
            spark: session.
            value: schema of the values after the chain; None for schemaless ones.
            path: place of the sink in the route.

        Raises:
            ConfigError: a column has no type, or the table cannot have it.
        """
        return None

    def write_rows(self, rows: DataFrame, plan: RowPlan, batch: BatchId | None) -> bool:
        """Append rows to the sink's table; after the return they are there.

        Args:
            rows: columns of the plan.
            plan: columns and types.
            batch: names the micro-batch; None for a source that is read once.

        Returns:
            False if the table has the micro-batch already, so that nothing was read of the rows.

        Raises:
            StreamError: the table refuses them.
        """
        raise NotImplementedError

    def value_schema(self, rows: DataFrame) -> Schema | None:  # noqa: ARG002 - of tables
        """Return the schema of the typed values of the source's rows; None for values that a format reads."""
        return None

    def publishing(self) -> PublishingOptions | None:
        """Return the options by which the stage itself delivers; None if the sink receives rows.

        Raises:
            ConfigError: an option of the sink is wrong.
        """
        return None

    def group_progress(self) -> GroupProgress | None:
        """Return the consumer group that shows the progress of a run; None for none."""
        return None

    def limits(self) -> KafkaLimits | None:
        """Return the sizes of records that the sink takes; None if it has no limits that are known before.

        Raises:
            ConfigError: an option of the sink is wrong.
        """
        return None

    def broker_limits(self, limits: KafkaLimits) -> KafkaLimits:
        """Return the limits, lowered to those of the servers."""
        return limits

    def prepare(self) -> None:
        """Create the run's resources at the sink's servers, such as a topic; none by default.

        Raises:
            StreamError: a server refuses it.
            ConnectionLostError: no server answers.
        """


def endpoint_of(endpoint: Endpoint) -> SparkEndpoint:
    """Return the adapter of an endpoint, by its format."""
    adapter: SparkEndpoint = resolve_name(format_of(endpoint).spark)(endpoint)
    return adapter


def reads_splits(source: Source) -> bool:
    """Return True if the stage itself reads the source."""
    return endpoint_of(source).reads_splits


def publishes(sinks: Mapping[str, Sink]) -> bool:
    """Return True if the stage itself delivers to all sinks."""
    return all(endpoint_of(sink).publishes for sink in sinks.values())


def stays_open(route: Route) -> bool:
    """Return True if the micro-batches of a route can be open splits: ``latency: low``, and ends that allow it."""
    low = route.trigger.latency == "low" and route.trigger.processing_time is None
    source, transactional = endpoint_of(route.source), sum(sink.has_transactions for sink in route.sinks.values())
    # The matches of feeds are recorded by stream, and not in a transaction.
    feeds = route.subscriptions is not None and bool(route.subscriptions.feeds)
    by_stream = not feeds or not (transactional or source.open_by_partition)
    # Of two transactions one may be committed alone: a micro-batch knows which, an open split does not.
    return low and source.stays_open and publishes(route.sinks) and transactional <= 1 and by_stream


def open_tasks(route: Route) -> int:
    """Return how many open splits a route would have at once; 0 if it has none."""
    return endpoint_of(route.source).open_tasks if stays_open(route) else 0


def has_transactions(route: Route) -> bool:
    """Return True if a sink of the route has each split in a transaction: a repeated micro-batch must not change."""
    return any(sink.has_transactions for sink in route.sinks.values())


def activate(spark: SparkSession) -> None:
    """Make this the session of the calling thread.

    Spark looks a format up in the thread's active session. A new thread has none until it makes a frame, and one in
    which another session was used has that one. Making a frame would do, but it imports pandas first (half a second).
    """
    java = getattr(spark, "_jsparkSession", None)
    # A session of Spark Connect has its own on the server.
    if java is not None:
        # SparkSession.setActiveSession is public in Scala and Java, not in Python.
        sessions = SparkSession._get_j_spark_session_class(spark._jvm)  # noqa: SLF001
        sessions.setActiveSession(java)


def register_source(spark: SparkSession, source: type[DataSource]) -> None:
    """Make a format known in this session, which becomes that of the calling thread.

    Spark refuses a name that the thread's active session knows and this one does not: a thread that runs a route for
    the second time would have the session of the first run.
    """
    activate(spark)
    spark.dataSource.register(source)


def task_slots(spark: SparkSession) -> int:
    """Return how many tasks an application runs at once: ``spark.default.parallelism``, or the executors' cores.

    The driver of a session of Spark Connect has no context; its processors are taken instead.
    """
    context = getattr(spark, "sparkContext", None)
    if context is None:
        return os.cpu_count() or 1
    slots: int = context.defaultParallelism // int(context.getConf().get("spark.task.cpus", "1") or 1)
    return max(1, slots)
