"""Subscriptions × records → deliveries."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from turnout.spark.matching.lookup import wanted_by
from turnout.spark.matching.metadata import metadata_columns
from turnout.spark.matching.table import Layout, build_table
from turnout.subscriptions import Changes, Snapshot, Store, Subscription
from turnout.subscriptions.entries import Entry, Popularity, entries_of

__all__ = ["Matching", "match"]

_METADATA = "_turnout_metadata"
_WANTED = "_turnout_wanted"
_PLACE = "_turnout_place"


def match(records: DataFrame, store: Store | Snapshot, metadata: Mapping[str, str] | None = None) -> DataFrame:
    """One row for each record, subscription that wants it, and destination of that.

    The record's columns, then ``subscription_id`` and ``destination``. See `Matching` for what conditions see.
    """
    return Matching(records.sparkSession, store, metadata or {}).match(records)


class Matching:
    """The subscriptions of a store, indexed for Spark, that follow the store by revision.

    A condition sees the record's ``topic`` (alias ``subject``), every header by its name, the record's key as
    ``key`` and the listed paths, all as text. A listed path wins over a header of the same name.
    """

    def __init__(self, spark: SparkSession, store: Store | Snapshot, metadata: Mapping[str, str]) -> None:
        self._spark = spark
        self._store = store
        self._paths = dict(metadata)
        snapshot = store if isinstance(store, Snapshot) else store.snapshot()
        self._subscriptions: dict[str, Subscription] = {one.id: one for one in snapshot}
        self.revision = snapshot.revision
        self._build()

    def _build(self) -> None:
        subscriptions = self._subscriptions.values()
        popularity = Popularity(subscriptions)
        entries: list[Entry] = [entry for one in subscriptions for entry in entries_of(one, popularity)]
        self._layout = Layout.of(entries)
        self._table = self._spark.createDataFrame(build_table(entries, self._layout))

    @property
    def needed_metadata(self) -> tuple[str, ...]:
        """The keys that some condition looks at; no other metadata is read from the records."""
        return self._layout.keys

    def refresh(self) -> bool:
        """Catch up with the store; whether anything had changed. A snapshot never changes."""
        if isinstance(self._store, Snapshot):
            return False
        changes = self._store.changes(self.revision)
        if not changes:
            return False
        self._apply(changes)
        self._build()
        return True

    def _apply(self, changes: Changes) -> None:
        if changes.reset:
            self._subscriptions.clear()
        for gone in changes.deleted_ids:
            self._subscriptions.pop(gone, None)
        self._subscriptions |= {one.id: one for one in changes.created}
        self.revision = changes.revision

    def match(
        self,
        records: DataFrame,
        *,
        unmatched: Literal["drop", "keep"] = "drop",
        where: Column | None = None,
        first: str | None = None,
    ) -> DataFrame:
        """The records' columns with ``subscription_id`` and ``destination``, a row for each.

        Args:
            records: a batch of records; each stays on its partition, and no row is shuffled.
            unmatched: whether to keep a record that nobody wants, once, with null for both.
            where: which records to match; nobody is asked about the others, so they count as not wanted.
            first: add a column of this name that is true on exactly one row of each record.
        """
        columns = records.columns
        values = metadata_columns(records, self._paths, self.needed_metadata)
        metadata = F.array(*values) if values else F.array().cast("array<string>")
        if where is not None:
            metadata = F.when(where, metadata)
        rows = records.withColumn(_METADATA, metadata).crossJoin(F.broadcast(self._table))
        wanted = wanted_by(F.col(_METADATA), self._layout)
        if where is not None:
            wanted = F.when(F.col(_METADATA).isNotNull(), wanted)
        rows = rows.select(*(_column(name) for name in columns), wanted.alias(_WANTED))
        explode = F.posexplode_outer if unmatched == "keep" else F.posexplode
        rows = rows.select(*(_column(name) for name in columns), explode(_WANTED).alias(_PLACE, _WANTED))
        extra = [] if first is None else [(F.coalesce(F.col(_PLACE), F.lit(0)) == 0).alias(first)]
        return rows.select(
            *(_column(name) for name in columns), f"{_WANTED}.subscription_id", f"{_WANTED}.destination", *extra
        )


def _column(name: str) -> Column:
    return F.col(f"`{name.replace('`', '``')}`")
