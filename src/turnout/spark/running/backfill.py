"""Delivery of records that a run's subscriptions have missed, during its micro-batches or after the last one."""

from __future__ import annotations

import logging
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import SparkSession

from turnout.base.background import Background
from turnout.history.backfill import next_part, resolve_seams
from turnout.routes import Route
from turnout.runtime.backfill import BackfillLedger
from turnout.spark.history.replay import carry_out

_log = logging.getLogger(__name__)

_POLL_SECONDS = 0.5
_LONGEST_PAUSE = 60.0


class Backfill:
    """Backfill of one run.

    Args:
        route: as it runs.
        spark: session of the run.
        checkpoint: checkpoint of the run, on this machine.
        ledger: ledger of the missing ranges.
    """

    def __init__(self, route: Route, spark: SparkSession, checkpoint: Path, ledger: BackfillLedger) -> None:
        self._route = route
        self._spark = spark
        self._checkpoint = checkpoint
        self.ledger = ledger
        self._stop = threading.Event()
        self._background: Background | None = None

    def start(self, watch: Callable[[], None]) -> None:
        """Deliver on a thread of its own, until `close`.

        Args:
            watch: shows the ledger what has changed in the store: between two records far apart nothing else does.
        """

        def step() -> None:
            watch()
            self.finish()

        name = f"delivery of earlier records of {self._route.name}"
        self._background = Background(name, step, every=_POLL_SECONDS, delay=_POLL_SECONDS, longest=_LONGEST_PAUSE)
        self._background.start()

    def note_seams(self) -> None:
        """Note where new revisions begin, as long as the checkpoint has it: a part may take longer."""
        resolve_seams(self._checkpoint, self.ledger)

    def close(self) -> None:
        """Stop after the part that is under way."""
        self._stop.set()
        if self._background is not None:
            self._background.close()
            self._background = None

    def finish(self) -> None:
        """Deliver all missing records up to the position of the run.

        Raises:
            TurnoutError: it cannot be delivered now; a later run continues.
        """
        while not self._stop.is_set() and self._step():
            pass

    def _step(self) -> bool:
        """Deliver the next part; return False if there is none."""
        part = next_part(self._route, self._checkpoint, self.ledger)
        if part is None:
            return False
        # Work interrupted by a kill is repeated: its messages have the same ids. Transactions are not, so that their
        # matches are kept.
        part.keep_matches(self._checkpoint)
        shutil.rmtree(part.plan.folder, ignore_errors=True)
        (range_,) = part.plan.ranges
        counts = carry_out(part.plan, self._spark).counts if range_.start < range_.end else None
        part.keep_matches(self._checkpoint)
        part.note(self.ledger)
        if counts is not None:
            text = "route %s: %d messages of %s %d to %d for %d subscriptions that had missed them"
            last = range_.end - 1
            _log.info(text, self._route.name, counts.messages, part.stream, range_.start, last, len(part.rows))
        return True
