"""Open splits of one run: their ledger and its server, the task slot that they need, and their counts."""

from __future__ import annotations

import logging
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from pyspark.sql import SparkSession

from turnout.engine.counts import Counts
from turnout.routes import Route
from turnout.runtime.backfill import BackfillLedger
from turnout.runtime.driver import OpenSplitServer
from turnout.runtime.offsets import number_in
from turnout.runtime.open_splits import SLOTS, OpenSplits
from turnout.runtime.revisions import Revisions
from turnout.spark.endpoints import stays_open
from turnout.spark.running.matching import driver_address

_log = logging.getLogger(__name__)


class OpenRun:
    """Open splits of a run. Any run can continue a checkpoint that has them, whatever its trigger.

    Args:
        route: to run.
        spark: session of the run.
        checkpoint: the folder, on this machine.
        revisions: revisions of its subscriptions; None without.
        ledger: ledger of missed ranges; None without backfill.
    """

    def __init__(
        self,
        route: Route,
        spark: SparkSession,
        checkpoint: Path,
        revisions: Revisions | None,
        ledger: BackfillLedger | None = None,
    ) -> None:
        self._route = route
        self._spark = spark
        self._checkpoint = checkpoint
        self._splits = OpenSplits(checkpoint, revisions, None if ledger is None else ledger.turned)
        self._server = OpenSplitServer(self._splits, driver_address(spark))
        self._resources = ExitStack()
        self._reported = Counts()
        self._is_requested = False
        self._waits = False
        self.is_last = False

    def __enter__(self) -> Self:
        self._resources.enter_context(self._server)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._resources.close()

    @property
    def options(self) -> dict[str, str]:
        """Return the options of the source."""
        return {"openSplits": self._server.address, **({"staysOpen": "true"} if self._is_requested else {})}

    @property
    def ready(self) -> bool:
        """True if a task is ready for the next record, or if none will be."""
        return self._splits.ready or self._waits or not self._is_requested

    def allow(self) -> None:
        """Open splits from now on if the route can have them, as soon as a task slot is left for others."""
        if not stays_open(self._route):
            return
        self._is_requested = self._waits = True
        self._application = str(self._spark.sparkContext.applicationId)
        self._resources.callback(SLOTS.give_back, self._application, self._route.name)
        self.retry_slot()
        if self._waits:
            reason = "route %s: no task slot is left for an open split; its micro-batches stay short ones until then"
            _log.warning(reason, self._route.name)

    def retry_slot(self) -> None:
        """Take a task slot that has become free, if the route waits for one."""
        if self._waits and SLOTS.take(self._application, task_slots(self._spark), self._route.name):
            self._waits = False
            self._splits.open()

    def close(self) -> None:
        """Have the open split closed, and no new one opened."""
        self._waits = False
        self._splits.close()

    def end(self) -> None:
        """Refuse whatever tasks report from now on."""
        self._splits.end()

    def losses(self) -> list[str]:
        """Return the losses that the source and its tasks have stepped over."""
        return self._splits.losses()

    # Counts

    def counts(self) -> Counts:
        """Return the records of splits that Spark has not committed yet."""
        return sum(self._splits.counts().values(), Counts())

    def has_news(self) -> bool:
        """Return True if the counts have changed since the last call."""
        before, self._reported = self._reported, self.counts()
        return self._reported != before and bool(self._reported.read)

    @property
    def batch(self) -> int:
        """Number of the micro-batch that Spark has planned last; -1 before the first."""
        try:
            names = [file.name for file in (self._checkpoint / "offsets").iterdir()]
        except OSError:
            names = []
        return max((int(name) for name in names if name.isdecimal()), default=-1)

    @property
    def revision(self) -> int | None:
        """The revision of the subscriptions that was recorded last."""
        return self._splits.revision

    def committed(self, offset: dict[str, int], counts: Counts) -> Counts:
        """Return the counts of a committed micro-batch, without those that an earlier run of this process reported."""
        number = number_in(offset)
        self.is_last = number is not None
        return counts if number is None else self._splits.committed(number, counts)


def task_slots(spark: SparkSession) -> int:
    """Return how many tasks an application runs at once."""
    context = spark.sparkContext
    return context.defaultParallelism // int(context.getConf().get("spark.task.cpus", "1") or 1)
