"""Two versions of a route over the same recorded records, in one job that reads each record once."""

from __future__ import annotations

import hashlib
import json
import logging
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

import msgspec
import pyarrow as pa
from pyspark import cloudpickle
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from turnout.base.caches import LruCache
from turnout.base.startup import paused_gc
from turnout.base.terminal import plural
from turnout.errors import ConfigError, ConnectionLostError, Mistake, StreamError
from turnout.history.diff.differences import Differences
from turnout.history.diff.report import DiffReport
from turnout.nats.protocol.options import ConnectionSettings
from turnout.nats.wire.streams import PLACES, StreamPosition, parse_place
from turnout.routes import Route
from turnout.routes.endpoints import Endpoint, Source
from turnout.routes.values import listed
from turnout.runtime.checkpoint import checkpoint_of
from turnout.runtime.java import run_error
from turnout.runtime.lake.lookups import with_rows
from turnout.runtime.offsets import records_of
from turnout.runtime.preflight import preflight
from turnout.runtime.revisions import RunMatching
from turnout.runtime.task_index import IndexLocation
from turnout.secrets import masked_url
from turnout.spark.columns import map_in_arrow
from turnout.spark.endpoints import endpoint_of, reads_splits
from turnout.spark.session.build import local_copy
from turnout.spark.session.jvm import driver_address
from turnout.subscriptions.past import Moment
from turnout.subscriptions.store import snapshot_of

if TYPE_CHECKING:
    from turnout.history.diff.diff import Diff


_WHERE: Final = frozenset({"servers", "api_prefix", "domain"})
_HOW: Final = {field.name for field in fields(ConnectionSettings)} - _WHERE | {
    "start", "end", "max_records_per_trigger", "max_bytes_per_trigger", "max_files_per_trigger", "partitions",
    "fail_on_data_loss", "poll_wait", "ack_consumer", "push_down",
    "security",
}  # fmt: skip
"""Fields of a source that affect how it is read, not its records."""

_NAMES: Final = frozenset({"servers", "stream", "filter_subject", "topics"})

_STREAMING_ONLY: Final = frozenset(
    {"maxRecordsPerTrigger", "maxBytesPerTrigger", "maxOffsetsPerTrigger", "pollWait", "ackConsumer"}
)
_PLACES: Final = frozenset({"startingOffsets", "endingOffsets"})


@dataclass(frozen=True, slots=True)
class RecordSpan:
    """Range of the records to read.

    Attributes:
        start: ``earliest``, a sequence or an offset, a time, or a sequence for each stream.
        end: likewise, or ``latest``; the records before it are read, and not the one at it.
    """

    start: StreamPosition = "earliest"
    end: StreamPosition = "latest"

    @classmethod
    def parse(cls, start: object | None, end: object | None) -> Self:
        """Parse the two bounds; None means the first record and the end.

        Raises:
            ConfigError: one of them is no place.
        """
        positions, mistakes = [], []
        for name, bound, usual in (("from", start, "earliest"), ("to", end, "latest")):
            position = usual if bound is None else _position(bound)
            if position is None:
                mistakes.append(Mistake(name, f"expected {PLACES}, found {bound!r}"))
                continue
            positions.append(position)
        if mistakes:
            raise ConfigError(mistakes, what="bad range")
        return cls(*positions)

    def __str__(self) -> str:
        return f"from {self.begin} to {self.limit}"

    @property
    def begin(self) -> str:
        """The start as an option of Spark's sources."""
        return _option_text(self.start)

    @property
    def limit(self) -> str:
        """The end as an option of Spark's sources."""
        return _option_text(self.end)

    def options_of(self, source: Endpoint) -> dict[str, str]:
        """Return a source's options for a bounded read, without places and without those of streaming reads."""
        return {name: text for name, text in source.options().items() if name not in _STREAMING_ONLY | _PLACES}


def _position(value: object) -> StreamPosition | None:
    if isinstance(value, datetime | int | Mapping) and not isinstance(value, bool):
        return value
    return parse_place(value.strip()) if isinstance(value, str) else None


def _option_text(position: StreamPosition) -> str:
    if isinstance(position, Mapping):
        return json.dumps(dict(position))
    return position.isoformat() if isinstance(position, datetime) else str(position)


def same_source(old: Source, new: Source) -> None:
    """Check that two versions read the same records; logins and read limits may differ.

    Raises:
        ConfigError: names the differences.
    """
    before, after = _what(old), _what(new)
    mistakes = [
        Mistake(f"source.{name}", f"is {_quoted(before.get(name))} in the old version and {_quoted(value)} in the new")
        for name, value in after.items()
        if before.get(name) != value
    ]
    if mistakes:
        raise ConfigError(mistakes, what="the versions do not read the same records")


def _what(source: Source) -> dict[str, object]:
    options = source.model_dump(by_alias=False)
    if not source.streams:
        # Of files it says how they are read.
        options.pop("stream", None)
    # Names may be given in a list or in one text.
    return {
        name: listed(value) if name in _NAMES and value is not None else value
        for name, value in options.items()
        if name not in _HOW
    }


def _quoted(value: object) -> str:
    # Options of a client are not ours to know: some are passwords.
    if isinstance(value, Mapping) and value:
        return "a block of its own"
    return masked_url(repr(", ".join(value) if isinstance(value, tuple) else value))


def check_source(route: Route) -> None:
    """Check that a route's source is reachable and has its streams, if it is NATS.

    Raises:
        ConnectionLostError: the server cannot be reached.
        StreamError: the stream does not exist.
    """
    preflight(replace(route, sinks={}))


def recorded(spark: SparkSession, source: Source, span: RecordSpan) -> DataFrame:
    """Read a span of a source; from NATS as splits, which the next stage reads.

    Raises:
        ConfigError: the source does not know such places.
    """
    return endpoint_of(source).recorded(spark, span)


_MATRIX: Final = "old_outcome string, old_stage string, new_outcome string, new_stage string, records bigint"
_EXAMPLES: Final = (
    "kind string, what string, stream string, partition int, offset bigint, topic string, old string, new string"
)
_PART: Final = pa.schema([pa.field("differences", pa.binary())])

_log = logging.getLogger(__name__)


class DiffResult:
    """Differences between two versions.

    Args:
        report: the sums, with examples.
        spark: makes the frames.
    """

    def __init__(self, report: DiffReport, spark: SparkSession) -> None:
        self.report = report
        self._spark = spark

    @property
    def differences(self) -> Differences:
        """The sums."""
        return self.report.differences

    @cached_property
    def matrix(self) -> DataFrame:
        """A row for each way in which records ended with the old version and with the new; the stage is "" for none."""
        rows = [(*old, *new, number) for (old, new), number in sorted(self.differences.matrix.counts.items())]
        return self._spark.createDataFrame(rows, _MATRIX)

    @cached_property
    def examples(self) -> DataFrame:
        """A row for each example; a side is JSON, or null for nothing."""
        rows = [
            (
                kind,
                name,
                example.position.stream,
                example.position.partition,
                example.position.offset,
                example.topic,
                example.old,
                example.new,
            )
            for (kind, name), examples in sorted(self.differences.examples.by_kind.items())
            for example in examples
        ]
        return self._spark.createDataFrame(rows, _EXAMPLES)


def diff(
    old: Route,
    new: Route,
    spark: SparkSession,
    *,
    start: object | None = None,
    end: object | None = None,
    examples: int = 5,
    names: tuple[str, str] = ("old", "new"),
    subscriptions_as_of: Moment | tuple[Moment | None, Moment | None] | None = None,
) -> DiffResult:
    """Compare what two versions of a route do with the records that their source holds.

    Nothing is published and no progress is kept. Subscriptions are the current ones of the stores, unless another
    moment is named; versions of one store are matched with the same revision of it.

    Args:
        old: the old version.
        new: the new one, with the same source; it is read as the new version says.
        spark: session to run it in.
        start: ``earliest`` if not given, a sequence or an offset, a time, or a sequence for each stream.
        end: likewise, ``latest`` if not given; the record at it is not read.
        examples: how many are kept of each kind.
        names: names of the versions in the report.
        subscriptions_as_of: match with the stores' subscriptions at this revision or time; two for the old version and
            the new one, None for the present.

    Raises:
        ConfigError: the sources are not the same, or do not know such places.
        HistoryForgottenError: a store does not remember so far back.
        ConnectionLostError: the source's server cannot be reached.
        StreamError: its stream does not exist.
        RunError: the job failed.
    """
    same_source(old.source, new.source)
    span = RecordSpan.parse(start, end)
    check_source(new)
    begun = time.monotonic()
    old, new = _looked_ahead(old, new)
    if old.tables or new.tables:
        with local_copy(spark, str(checkpoint_of(new))) as copy:
            old, new = (with_rows(one, copy) for one in (old, new))
    with ExitStack() as resources:
        moments = subscriptions_as_of if isinstance(subscriptions_as_of, tuple) else (subscriptions_as_of,) * 2
        indexes = _indexes((old, new), moments, spark, resources)
        stage = _Stage.of(old, new, indexes, examples)
        parts = map_in_arrow(recorded(spark, new.source, span), stage, "differences binary")
        try:
            rows = parts.collect()
        except PySparkException as failure:
            raise run_error(f"the versions of {new.name} could not be compared", failure) from failure
    decoder = msgspec.msgpack.Decoder(Differences)
    differences = sum((decoder.decode(row[0]) for row in rows), Differences())
    return DiffResult(DiffReport(*names, str(span), differences, time.monotonic() - begun), spark)


def _looked_ahead(old: Route, new: Route) -> tuple[Route, Route]:
    """Return both versions after preflight, as for runs: it checks on the servers for routing loops.

    To compare them needs no sink. If a server is unreachable, or a stream does not exist yet, neither version queries
    it, so that this alone makes no difference.
    """
    try:
        return preflight(old), preflight(new)
    except (ConnectionLostError, StreamError) as failure:
        _log.warning("destinations that lead back into the source are not looked for: %s", failure)
        return old, new


@dataclass(frozen=True, slots=True)
class _Subscriptions:
    """Index location and revision of a version; None for a version without subscriptions."""

    index_location: IndexLocation
    revision: int


def _indexes(
    versions: tuple[Route, Route],
    moments: tuple[Moment | None, Moment | None],
    spark: SparkSession,
    resources: ExitStack,
) -> tuple[_Subscriptions | None, _Subscriptions | None]:
    """Return each version's index, built once; versions of one store share it, unless they mean different moments."""
    scratch = Path(resources.enter_context(tempfile.TemporaryDirectory(prefix="turnout-diff-")))
    built: dict[tuple[str, Moment | None], _Subscriptions] = {}

    def opened(route: Route, moment: Moment | None) -> _Subscriptions | None:
        if route.subscriptions is None:
            return None
        store = route.subscriptions.store
        if (store, moment) not in built:
            pinned = None if moment is None else snapshot_of(store, moment)
            matching = RunMatching(route, driver_address(spark), scratch / str(len(built)), pinned=pinned)
            resources.callback(matching.close)
            matching.learn()
            built[store, moment] = _Subscriptions(matching.index_location, matching.revisions.newest())
        return built[store, moment]

    old, new = map(opened, versions, moments)
    return old, new


_CACHED_DIFFS: Final = 2
_diffs = LruCache[str, "Diff"](_CACHED_DIFFS)


@dataclass(frozen=True, slots=True)
class _Stage:
    """Two versions as a function for ``mapInArrow``: from a task's records one row with its results.

    Attributes:
        splits: whether a row is a split, to be read here; if not, rows are records.
        indexes: indexes of the old version and of the new one.
        versions: both, pickled together with the number of examples.
        key: identifies them.
    """

    splits: bool
    indexes: tuple[_Subscriptions | None, _Subscriptions | None]
    versions: bytes = field(repr=False)
    key: str

    @classmethod
    def of(
        cls, old: Route, new: Route, indexes: tuple[_Subscriptions | None, _Subscriptions | None], examples: int
    ) -> _Stage:
        """Return the stage of two versions."""
        pickled = cloudpickle.dumps((old, new, examples))  # type: ignore[no-untyped-call]
        return cls(reads_splits(new.source), indexes, pickled, hashlib.sha256(pickled).hexdigest())

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Compare both versions on a task's records."""
        from turnout.engine import pieces

        differences = Differences()
        with paused_gc(freeze=True):
            versions = self._diff()
            old, new = (
                None if served is None else served.index_location.open(served.revision) for served in self.indexes
            )
            for batch in self._records(batches):
                for piece in pieces(batch):
                    differences += versions.of(piece, old, new)
        yield pa.RecordBatch.from_arrays([pa.array([msgspec.msgpack.encode(differences)], pa.binary())], schema=_PART)

    def _records(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if self.splits:
                yield from records_of(batch)
            elif batch.num_rows:
                yield batch

    def _diff(self) -> Diff:
        """Return the worker's own programs of the two versions."""
        return _diffs.get_or_add(self.key, self._load)

    def _load(self) -> Diff:
        from turnout.history.diff.diff import Diff

        old, new, examples = cloudpickle.loads(self.versions)
        return Diff(old, new, examples=examples)


def tasks_done(spark: SparkSession) -> str:
    """Return the number of finished tasks of the stages that Spark executes; "" if none runs, or it cannot be asked."""
    # Spark Connect has no context, and a JVM that ends is the failure of the work itself.
    with suppress(Exception):
        tracker = spark.sparkContext.statusTracker()
        infos = [info for stage in tracker.getActiveStageIds() if (info := tracker.getStageInfo(stage)) is not None]
        if infos:
            done, count = sum(info.numCompletedTasks for info in infos), sum(info.numTasks for info in infos)
            return f"{done:,} of {plural(count, 'task')}"
    return ""
