"""Progress of a run: after each micro-batch, and at its end."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from turnout.engine.counts import Counts


class StartupStep(StrEnum):
    """Step of a run before its first micro-batch, in the words that show it."""

    SERVERS = "asking the servers and the store"
    LOOPS = "compiling, once"
    SESSION = "starting Spark: the JVM and its session"
    SUBSCRIPTIONS = "reading the subscriptions"
    FIRST_BATCH = "waiting for Spark's workers and the first records"


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of a run after a micro-batch.

    Attributes:
        batch: the number of the micro-batch, as in the checkpoint.
        counts: everything since the run began.
        seconds: since the first micro-batch began.
        batch_seconds: duration of the last micro-batch, from the first record to the last acknowledgement.
        revision: revision of the subscriptions that it was matched with; None without subscriptions.
        subscriptions: how many there are; None without subscriptions.
    """

    batch: int
    counts: Counts
    seconds: float
    batch_seconds: float
    revision: int | None
    subscriptions: int | None = None


@dataclass(frozen=True, slots=True)
class RunResult:
    """Result of a run.

    Attributes:
        counts: outcomes of the records.
        batches: how many micro-batches were run.
        seconds: from the first micro-batch's beginning to the end of the last.
        stopped: the run was stopped on request; it can continue from its checkpoint.
    """

    counts: Counts
    batches: int
    seconds: float
    stopped: bool = False

    @property
    def records_per_second(self) -> float:
        """Records read per second of work; 0 if no work was done."""
        return self.counts.read / self.seconds if self.seconds else 0.0
