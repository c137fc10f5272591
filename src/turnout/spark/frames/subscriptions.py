"""Subscriptions as a DataFrame."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession

from turnout.subscriptions import Snapshot, Store
from turnout.subscriptions.analysis.table import table_of
from turnout.subscriptions.past import PastStore


def subscriptions_table(spark: SparkSession, store: Store | PastStore | Snapshot) -> DataFrame:
    """Return one row for each subscription; see `turnout.subscriptions.analysis.table.TABLE` for the columns.

    The driver reads and normalises them all: a million take some minutes and gigabytes there.

    Args:
        spark: the session.
        store: the subscriptions; ``store.as_of(…)`` for those of then, of which it is not told when they were created.
    """
    births = store.births() if isinstance(store, Store) else {}
    snapshot = store if isinstance(store, Snapshot) else store.snapshot()
    return spark.createDataFrame(table_of(snapshot, births))
