"""Subscriptions × a frame of records → deliveries."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Final
from uuid import uuid4

import pyarrow as pa
from pyspark import SparkFiles
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from turnout.base.files import lasting_folder
from turnout.errors import ConfigError, Mistake
from turnout.runtime.frames.columns import millis_of, whole
from turnout.spark.frames.columns import case_rule, with_record_names
from turnout.spark.frames.metadata import FrameMetadata
from turnout.spark.workers.map_in_arrow import map_in_arrow
from turnout.subscriptions import Snapshot, Store
from turnout.subscriptions.analysis.table import table_of
from turnout.subscriptions.index.anchor_frequencies import Costs
from turnout.subscriptions.index.build import build
from turnout.subscriptions.index.index import Index
from turnout.subscriptions.index.layers import Layer
from turnout.subscriptions.index.segment import Segment
from turnout.subscriptions.past import PastStore
from turnout.subscriptions.store import creations_of

_ADDED: Final = (
    T.StructField("subscription_id", T.StringType()),
    T.StructField("destination", T.StringType()),
)

_OPEN_INDEXES: Final = 2
"""Indexes that a Python worker keeps open: those of two queries that alternate."""


def match(records: DataFrame, store: Store | Snapshot, metadata: Mapping[str, str] | None = None) -> DataFrame:
    """Return one row for each record, matching subscription and destination.

    The record's columns, then ``subscription_id`` and ``destination``; a record without a matching subscription has no
    row. No row is shuffled. Names of columns, and of fields in paths, are compared as Spark does
    (``spark.sql.caseSensitive``). A condition sees the record's ``topic`` (alias ``subject``), every header by its
    name, the record's key as ``key`` and the listed paths, all as text. A listed path wins over a header of its name.

    The subscriptions are those of now, also for a streaming frame. Their index is one file of some 120 bytes for each,
    which Spark brings to every executor once, and which its Python workers map; Spark keeps such files until the
    session ends, one for each requested set of subscriptions.

    Args:
        records: each may have any of the columns of a record, and others.
        store: the subscriptions.
        metadata: names and the paths of their values, as in ``{"origin": "value.origin"}``.

    Raises:
        ConfigError: for a path that the records cannot have, columns that Spark takes for one, and a frame that has
            ``subscription_id`` or ``destination`` already, as after another match.
    """
    rule = case_rule(records.sparkSession)
    added = {field.name for field in _ADDED}
    problem = "the frame has this column already, as after another match: rename or drop it first"
    if mistakes := [Mistake(name, problem) for name in records.columns if rule(name) in added]:
        raise ConfigError(mistakes, what="bad columns for matching")
    renamed = with_record_names(records)
    snapshot = store if isinstance(store, Snapshot) else store.snapshot()
    segment = build(snapshot, Costs())
    reader = FrameMetadata.of(renamed.schema, metadata or {}, segment.head.keys, rule)
    names = (*records.columns, *(field.name for field in _ADDED))
    task = _Match(_sent(records.sparkSession, segment), snapshot.revision, reader, names)
    return map_in_arrow(renamed, task, T.StructType([*records.schema.fields, *_ADDED]))


def _sent(spark: SparkSession, segment: Segment) -> str:
    """Return the name under which the workers find the segment's file."""
    begun = _folder() / uuid4().hex
    segment.write(begun)
    with begun.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    path = begun.rename(begun.with_name(f"turnout-{digest}.index"))
    context = getattr(spark, "sparkContext", None)
    if context is None:
        # Spark Connect has no context.
        spark.addArtifacts(str(path), file=True)
    else:
        context.addFile(str(path))
    return path.name


@cache
def _folder() -> Path:
    """Return the folder of this process's indexes: executors that start later fetch them from here."""
    return lasting_folder("match")


@lru_cache(maxsize=_OPEN_INDEXES)
def _opened(path: str, revision: int) -> Index:
    return Index([Layer(Segment.open(Path(path)))], revision)


@dataclass(frozen=True)
class _Match:
    """Gives the deliveries of Arrow batches.

    Attributes:
        file: the index, by the name that Spark knows it under.
        names: names of the resulting columns.
    """

    file: str
    revision: int
    reader: FrameMetadata
    names: tuple[str, ...]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        index = _opened(SparkFiles.get(self.file), self.revision)
        for arrow in batches:
            if not arrow.num_rows:
                continue
            times = None
            if index.expires and "timestamp" in arrow.schema.names:
                times = millis_of(whole(arrow.column("timestamp"))).to_pylist()
            matches = index.match(self.reader.columns(arrow), arrow.num_rows, times=times)
            deliveries = index.deliveries(matches)
            if len(deliveries.rows):
                columns = arrow.take(pa.array(deliveries.rows)).columns
                added = [index.subscription_ids(deliveries.subscriptions), index.destinations(deliveries.destinations)]
                yield pa.RecordBatch.from_arrays([*columns, *added], names=list(self.names))


def subscriptions_table(spark: SparkSession, store: Store | PastStore | Snapshot) -> DataFrame:
    """Return one row for each subscription; see `turnout.subscriptions.analysis.table.TABLE` for the columns.

    The driver reads and normalises them all: a million take some minutes and gigabytes there.

    Args:
        spark: the session.
        store: the subscriptions; ``store.as_of(…)`` for earlier ones, whose creation times are unknown.
    """
    births = creations_of(store) if isinstance(store, Store) else {}
    snapshot = store if isinstance(store, Snapshot) else store.snapshot()
    return spark.createDataFrame(table_of(snapshot, births))
