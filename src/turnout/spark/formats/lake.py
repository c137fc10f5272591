"""Tables with versions as a source and as a sink of a route: tasks read files, Spark writes them, a library commits."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple, cast

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from turnout.base.untrusted import JsonObject
from turnout.codecs.arrow_columns import arrow_type, schema_of_arrow
from turnout.errors import ConfigError, Mistake, RunError, StreamError
from turnout.records import Schema
from turnout.routes.endpoints import IcebergSink, LakeSink, LakeSource
from turnout.routes.rows import RECORD_ROWS, ColumnRule, RowPlan, plan_rows
from turnout.runtime.driver import AskedRevisions
from turnout.runtime.lake.adapter import LakeHistory
from turnout.runtime.lake.table import (
    BatchMark,
    LakeTable,
    LakeVersions,
    columns_of,
    create_table,
    existing_table,
    open_table,
    problem_of_sink,
    translated,
)
from turnout.runtime.offsets import REVISION, SPLIT_COLUMNS, decoded, encoded, task_rows
from turnout.runtime.publishing import TALLY
from turnout.spark.endpoints import BatchId, ReadOptions, SparkEndpoint, register_source, task_slots

if TYPE_CHECKING:
    from turnout.history.replay import StreamRange
    from turnout.spark.history.diff import RecordSpan

_log = logging.getLogger(__name__)

FORMAT: Final = "turnout-lake"
OPTIONS: Final = "encodedSecret"
"""Option with the encoded `LakeOptions`; Spark redacts the values of such names."""

_PAUSE_SECONDS: Final = 0.1
_WRITING: Final = {"spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS", "spark.sql.session.timeZone": "UTC"}
"""Properties with which the files of both formats are written."""

_COPY: Final = "turnout_partition_"


class LakeOptions(NamedTuple):
    """Options of the source as Spark's processes get them.

    Attributes:
        source: the source.
        range: versions to read; None for a stream.
        stage: encoded stage that tasks run on their splits; None where a next stage reads them.
        revisions_url: URL of the subscriptions' revision; None without.
        pause_file: as long as there is a file of this name, nothing is new.
    """

    source: LakeSource
    range: tuple[int, int] | None = None
    stage: str | None = None
    revisions_url: str | None = None
    pause_file: str | None = None


class LakeDataSource(DataSource):
    """Splits of a table, for the stage of a route."""

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return FORMAT

    def schema(self) -> str:
        """Return the column of splits."""
        return SPLIT_COLUMNS

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002 - it is always the same
        """Return a reader of some versions."""
        return LakeReader(decoded(self.options[OPTIONS]))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002, N802 - Spark's name
        """Return a reader of micro-batches."""
        return LakeStreamReader(decoded(self.options[OPTIONS]))


class _SplitReader:
    """Reads splits of a table, in partitions of Spark; that without a split is empty."""

    def __init__(self, options: LakeOptions) -> None:
        self._options = options
        self._versions = LakeVersions(options.source)

    def _between(
        self, start: Mapping[str, object], end: Mapping[str, object], revision: int | None = None
    ) -> Sequence[InputPartition]:
        splits = self._versions.splits(start, end, revision)
        return [InputPartition(split) for split in splits or (None,)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield a split as a row, or the counts of the stage that reads it."""
        yield from task_rows(None, partition.value, self._options.stage)


class LakeReader(_SplitReader, DataSourceReader):
    """Reads versions of a table."""

    def partitions(self) -> Sequence[InputPartition]:
        """Return the splits."""
        start, end = ({self._versions.stream: version} for version in self._options.range or ())
        return self._between(start, end)


class LakeStreamReader(_SplitReader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads versions of a table in micro-batches. Spark keeps one instance for a query, in its own process."""

    def __init__(self, options: LakeOptions) -> None:
        super().__init__(options)
        self._initial: JsonObject | None = None
        self._target: int | None = None
        self._revisions = AskedRevisions(options.revisions_url) if options.revisions_url else None

    # Spark's names

    def initialOffset(self) -> JsonObject:  # noqa: N802
        """Return the start of a query without a checkpoint."""
        if self._initial is None:
            self._initial = self._versions.initial()
        return self._initial

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return no limit: the source has its own."""
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Fix the end of the run; later versions belong to the next run."""
        self._target = self._versions.open().version + 1

    def latestOffset(self, start: JsonObject, limit: ReadLimit) -> JsonObject:  # noqa: ARG002, N802
        """Return the end of the next micro-batch."""
        source = self._versions.source
        deadline = time.monotonic() + (source.poll_wait if self._target is None else 0)
        while True:
            if self._options.pause_file and Path(self._options.pause_file).exists():
                return start
            is_first = start == self._initial
            end = self._versions.next(start, source.max_versions_per_trigger, self._target, is_first=is_first)
            if end != start:
                return end if self._revisions is None else {**end, REVISION: self._revisions.newest()}
            if time.monotonic() > deadline:
                return start
            time.sleep(min(_PAUSE_SECONDS, source.poll_wait))

    def partitions(self, start: JsonObject, end: JsonObject) -> Sequence[InputPartition]:
        """Return the splits between two offsets: for a micro-batch that is done again, the same as before."""
        revision = end.get(REVISION)
        if self._revisions is not None:
            revision = self._revisions.newest() if revision is None else self._revisions.usable(revision)
        return self._between(start, end, revision)

    def commit(self, end: JsonObject) -> None:
        """Do nothing: the checkpoint alone holds the position."""


class LakeEndpoint(SparkEndpoint):
    """Table of Delta Lake or Iceberg."""

    endpoint: LakeSource | LakeSink
    reads_splits: ClassVar[bool] = True

    # Source

    def read(self, spark: SparkSession, options: ReadOptions) -> DataFrame:
        """Return the splits of the table, or the counts of a stage that reads them."""
        source = cast("LakeSource", self.endpoint)
        more = options.more.get("revisionsUrl"), options.pause_file
        return _loaded(spark, LakeOptions(source, None, options.stage, *more))

    def recorded(self, spark: SparkSession, span: RecordSpan) -> DataFrame:
        """Return the splits of a span of versions."""
        source = cast("LakeSource", self.endpoint)
        history = LakeHistory(LakeVersions(source))
        start, end = (history.resolve(history.streams[0], bound) for bound in (span.start, span.end))
        return _loaded(spark, LakeOptions(source, (start, end)))

    def part(
        self,
        spark: SparkSession,
        range_: StreamRange,
        filters: Sequence[str],  # noqa: ARG002 - of NATS
        stage: str | None = None,
    ) -> DataFrame:
        """Return a range of versions."""
        return _loaded(spark, LakeOptions(cast("LakeSource", self.endpoint), (range_.start, range_.end), stage))

    def value_schema(self, rows: DataFrame) -> Schema | None:  # noqa: ARG002 - these are splits
        """Return the schema of the table's rows."""
        return schema_of_arrow(pa.struct(list(existing_table(cast("LakeSource", self.endpoint)).schema)))

    # Sink

    def plan(self, spark: SparkSession, value: Schema | None, path: str) -> RowPlan | None:  # noqa: ARG002 - none needed
        """Return the columns of the rows, with the types of the table if it is there.

        Raises:
            ConfigError: a column has no type, or the table does not have it and may not get it.
        """
        sink = cast("LakeSink", self.endpoint)
        table = open_table(sink)
        required = [field.name for field in (table.schema if table else ()) if not field.nullable]
        rules = dict.fromkeys(required, ColumnRule(required=True))
        plan = plan_rows(sink, value, columns_of(table), path, rules) if sink.is_typed else RECORD_ROWS
        if problem := problem_of_sink(sink, table, plan.types):
            raise ConfigError([Mistake(f"{path}.columns" if table else path, problem)], what="bad sink")
        return plan

    def write_rows(self, rows: DataFrame, plan: RowPlan, batch: BatchId | None) -> bool:
        """Write the rows to files, and commit these as one version, unless the table has the micro-batch."""
        sink = cast("LakeSink", self.endpoint)
        # A run that reads its source once has no number, but may have to recognise its own commit.
        mark = BatchMark(f"turnout-{uuid.uuid4()}", 0) if batch is None else BatchMark(batch.application, batch.number)
        table = open_table(sink) or create_table(sink, plan)
        if _has(table, mark):
            _log.info("the table %s has micro-batch %d of %s", sink.table_name, mark.number, mark.application)
            return False
        if new := {name: arrow_type(one) for name, one in plan.types.items() if name not in table.schema.names}:
            with translated(f"the table {sink.table_name} refuses new columns", 409):
                table.evolve(new)
            table = existing_table(sink)
        folder = "data/" if isinstance(sink, IcebergSink) else ""
        files = _written(rows, f"{table.location.rstrip('/')}/{folder}turnout-{uuid.uuid4()}", sink)
        if files:
            self._commit(table, files, mark)
        return True

    def _commit(self, table: LakeTable, files: Sequence[tuple[str, int]], mark: BatchMark) -> None:
        """Commit files; a commit that is reported as failed and has landed is one."""
        sink = cast("LakeSink", self.endpoint)
        try:
            table.append(files, sink.partition_columns, mark)
        except Exception as failure:
            try:
                landed = _has(existing_table(sink), mark)
            except StreamError as unknown:
                problem = f"the commit to the table {sink.table_name} failed, and may have landed: {unknown}"
                raise StreamError(problem, code=503) from failure
            if not landed:
                problem = f"the commit to the table {sink.table_name} failed: {failure}"
                raise StreamError(problem, code=409) from failure
            _log.warning(
                "the commit to the table %s was reported as failed, and has landed: %s", sink.table_name, failure
            )


def _has(table: LakeTable, mark: BatchMark) -> bool:
    done = table.done(mark.application)
    return done is not None and done >= mark.number


def _written(rows: DataFrame, folder: str, sink: LakeSink) -> list[tuple[str, int]]:
    """Write rows to files of a folder of their own, and return the URL and the size of each that has rows."""
    spark = rows.sparkSession
    partitions = list(sink.partition_columns)
    if isinstance(sink, IcebergSink):
        # Its files have all columns, and the folders' names are without a meaning.
        copies = {f"{_COPY}{name}": F.col(name) for name in partitions}
        rows, partitions = rows.withColumns(copies) if copies else rows, list(copies)
    before = {name: str(spark.conf.get(name)) for name in _WRITING}
    try:
        for name, value in _WRITING.items():
            spark.conf.set(name, value)
        writer = rows.write.mode("append").option("mapreduce.fileoutputcommitter.marksuccessfuljobs", "false")
        writer = writer.partitionBy(*partitions) if partitions else writer
        writer.parquet(folder)
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)
    return _listed(spark, folder)


def _listed(spark: SparkSession, folder: str) -> list[tuple[str, int]]:
    jvm = spark._jvm  # noqa: SLF001 - the file system that has written the files
    if jvm is None:
        raise RunError("tables need a classic session, with a driver of its own")
    path = jvm.org.apache.hadoop.fs.Path(folder)
    files = path.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf())  # noqa: SLF001
    found, listed = files.listFiles(path, True), []
    while found.hasNext():
        one = found.next()
        url = str(one.getPath().toString())
        if url.endswith(".parquet"):
            listed.append((url, int(one.getLen())))
    return sorted(listed)


def _loaded(spark: SparkSession, options: LakeOptions) -> DataFrame:
    # Its tasks are planned in a process that does not know the cluster.
    tasks = options.source.partitions or task_slots(spark)
    options = options._replace(source=options.source.model_copy(update={"partitions": tasks}))
    register_source(spark, LakeDataSource)
    reader = spark.readStream if options.range is None else spark.read
    reader = reader.schema(TALLY) if options.stage is not None else reader
    return reader.format(FORMAT).option(OPTIONS, encoded(options)).load()
