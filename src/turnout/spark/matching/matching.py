"""Subscriptions × records → deliveries."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Literal

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import arrow_udf

from turnout.spark.matching.facts import FACTS
from turnout.spark.matching.lookup import WANTED, Tables
from turnout.spark.matching.metadata import metadata_columns
from turnout.spark.matching.overlay import Base, Overlay
from turnout.spark.matching.resident import IndexFile, finder
from turnout.spark.matching.sizes import BatchSize
from turnout.spark.matching.table import Layout, build_table
from turnout.spark.values import once
from turnout.subscriptions import Snapshot, Store

__all__ = ["Matching", "match"]

_METADATA = "_turnout_metadata"
_WANTED = "_turnout_wanted"
_PLACE = "_turnout_place"
_OVERLAY = "_turnout_overlay_"
_BASE = "_turnout_base_"
_FACT = "_turnout_fact_"
_CANDIDATES = "_turnout_candidates"

_LOOKED_UP = ("slots", "many", "always")
_VERIFIED = ("entries", "gone")

_MAX_FIELDS = "spark.sql.codegen.maxFields"
_ENOUGH_FIELDS = 2000

How = Literal["auto", "broadcast", "resident"]


def match(records: DataFrame, store: Store | Snapshot, metadata: Mapping[str, str] | None = None) -> DataFrame:
    """One row for each record, subscription that wants it, and destination of that.

    The record's columns, then ``subscription_id`` and ``destination``. See `Matching` for what conditions see.
    """
    return Matching(records.sparkSession, store, metadata or {}).match(records)


class Matching:
    """The subscriptions of a store, indexed for Spark, that follow the store by revision.

    A condition sees the record's ``topic`` (alias ``subject``), every header by its name, the record's key as
    ``key`` and the listed paths, all as text. A listed path wins over a header of the same name.

    An index is used in one of two ways. *Broadcast*: it is a row that Spark sends to every task; that costs a few
    microseconds per subscription and query, and then next to nothing per record. *Resident*: Spark's Python workers
    keep it between queries; that costs nothing per query, and some 20 µs per record, and needs workers on the driver's
    machine. With ``auto`` a matching takes what seems cheaper for as many records as the query before had.

    Args:
        spark: the session of the records.
        store: the subscriptions; a snapshot stays as it is.
        metadata: names and the paths of their values, as in ``{"origin": "value.origin"}``.
        sample: metadata of typical messages, to look subscriptions up by what is rare in it.
        how: ``broadcast``, ``resident`` or ``auto``.
    """

    def __init__(
        self,
        spark: SparkSession,
        store: Store | Snapshot,
        metadata: Mapping[str, str] | None = None,
        *,
        sample: Collection[Mapping[str, str]] = (),
        how: How = "broadcast",
    ) -> None:
        self._spark = spark
        self._store = store
        self._paths = dict(metadata or {})
        self._how = how
        self._size = BatchSize(spark)
        self._made: tuple[tuple[Layout, ...], tuple[Column, Column, Column]] | None = None
        # Records and index together have many fields, and an operator that therefore is not compiled as a part of its
        # stage would copy the whole index for each record.
        if int(spark.conf.get(_MAX_FIELDS) or 0) < _ENOUGH_FIELDS:
            spark.conf.set(_MAX_FIELDS, _ENOUGH_FIELDS)
        snapshot = store if isinstance(store, Snapshot) else store.snapshot()
        self.revision = snapshot.revision
        self._start(Overlay(Base(snapshot, sample)))

    def _start(self, overlay: Overlay) -> None:
        """Begin with a new base; what is made of it is made when it is first needed."""
        self._overlay = overlay
        self._base_layout = Layout.of(overlay.base.placed)
        self._base_table: DataFrame | None = None
        self._file: IndexFile | None = None
        self._cover()

    def _cover(self) -> None:
        """Lay the present overlay over the base."""
        entries = self._overlay.placed()
        self._overlay_layout = Layout.of(entries, self._base_layout.facts)
        self._overlay_table: DataFrame | None = None
        if self._overlay:
            table = build_table(entries, self._overlay_layout, self._overlay.gone, _OVERLAY)
            self._overlay_table = self._frame(table)

    def _frame(self, table: pa.Table) -> DataFrame:
        return self._spark.createDataFrame(table)

    @property
    def needed_metadata(self) -> tuple[str, ...]:
        """The keys that some condition looks at; no other metadata is read from the records."""
        return self._overlay_layout.facts.keys

    def __len__(self) -> int:
        """How many subscriptions there are, give or take those that were deleted since the index was built."""
        return len(self._overlay.base.subscriptions) + len(self._overlay.new)

    def refresh(self) -> bool:
        """Catch up with the store; whether anything had changed. A snapshot never changes."""
        if isinstance(self._store, Snapshot):
            return False
        changes = self._store.changes(self.revision)
        self.revision = changes.revision
        if not changes:
            return False
        overlay = self._overlay.apply(changes)
        if overlay is self._overlay:
            self._cover()
        else:
            self._start(overlay)
        return True

    def learn(self, records: DataFrame) -> None:
        """Index the subscriptions anew, by what is rare among these typical records, which are collected."""
        keys = self.needed_metadata
        columns = metadata_columns(records, self._paths, keys)
        rows = records.select(*(column.alias(f"_{place}") for place, column in enumerate(columns))).collect()
        sample = [{key: text for key, text in zip(keys, row, strict=True) if text is not None} for row in rows]
        base = self._overlay.base
        present = [one for one in base.subscriptions.values() if one.id not in self._overlay.gone]
        self._start(Overlay(Base([*present, *self._overlay.new.values()], sample)))

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
        columns = [_column(name) for name in records.columns]
        values = metadata_columns(records, self._paths, self.needed_metadata)
        metadata = F.array(*values) if values else F.array().cast("array<string>")
        if where is not None:
            metadata = F.when(where, metadata)
        rows = records.withColumn(_METADATA, metadata)
        if self._how == "auto":
            rows = self._size.observe(rows)
        rows = self._resident(rows) if self._is_resident() else self._broadcast(rows)
        # Null for a record without a match, and not Spark's own filter before an inner explode, which would evaluate
        # the whole match a second time for each record.
        rows = rows.select(*columns, F.posexplode_outer(_WANTED).alias(_PLACE, _WANTED))
        if unmatched == "drop":
            rows = rows.where(F.col(_PLACE).isNotNull())
        extra = [] if first is None else [(F.coalesce(F.col(_PLACE), F.lit(0)) == 0).alias(first)]
        return rows.select(*columns, f"{_WANTED}.subscription_id", f"{_WANTED}.destination", *extra)

    def _is_resident(self) -> bool:
        if self._how == "auto":
            return self._size.suits_resident(len(self._overlay.base.entries))
        return self._how == "resident"

    def _broadcast(self, rows: DataFrame) -> DataFrame:
        if self._base_table is None:
            table = build_table(self._overlay.base.placed, self._base_layout, prefix=_BASE)
            self._base_table = self._frame(table)
        columns = [_column(name) for name in rows.columns]
        facts = self._overlay_layout.facts.columns(F.col(_METADATA))
        rows = rows.withColumns({f"{_FACT}{name}": column for name, column in facts.items()})
        candidates, true, wanted = self._steps()
        verified = [F.col(f"{_FACT}{name}") for name in ("texts", "numbers", "words")]
        rows = self._beside(rows, _LOOKED_UP).select(*columns, *verified, candidates.alias(_CANDIDATES))
        rows = self._beside(rows, _VERIFIED)
        rows = rows.withColumn(_CANDIDATES, once(true))
        return rows.select(*columns, wanted.alias(_WANTED))

    def _beside(self, rows: DataFrame, parts: Sequence[str]) -> DataFrame:
        """The rows with these columns of the tables, which every task gets a copy of."""
        for table, prefix in ((self._base_table, _BASE), (self._overlay_table, _OVERLAY)):
            if table is not None:
                rows = rows.crossJoin(F.broadcast(table.select(*(f"{prefix}{part}" for part in parts))))
        return rows

    def _tables(self) -> Tables:
        over = None if self._overlay_table is None else self._overlay_layout
        return Tables(self._base_layout, over, (_BASE, _OVERLAY))

    def _steps(self) -> tuple[Column, Column, Column]:
        """Candidates, the true ones, and who wants a record; the same columns as long as the layouts are the same.

        Each new lambda has a name of its own, which stands in the code that Spark generates: a column that is made
        anew for each micro-batch is compiled anew, by Java and then by the JVM, at the price of many thousand records.
        """
        tables = self._tables()
        if self._made is None or self._made[0] != tables.layouts:
            facts = {name: F.col(f"{_FACT}{name}") for name in FACTS}
            found = F.when(F.col(_METADATA).isNotNull(), tables.candidates(facts))
            rest = F.col(_CANDIDATES)
            self._made = tables.layouts, (found, tables.true(rest, facts), tables.deliveries(rest))
        return self._made[1]

    def _resident(self, rows: DataFrame) -> DataFrame:
        if self._file is None:
            self._file = IndexFile(self._overlay.base)
        find = finder(self._file, self._overlay, self.revision, self.needed_metadata)
        # The kind of function follows from its annotations; the type stubs know only the deprecated argument for it.
        function = arrow_udf(find, WANTED)  # type: ignore[call-overload]
        return rows.withColumn(_WANTED, function(F.col(_METADATA)))


def _column(name: str) -> Column:
    return F.col(f"`{name.replace('`', '``')}`")
