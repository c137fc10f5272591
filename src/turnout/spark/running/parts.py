"""Parts of a run beside its query: subscriptions, delivery of what they have missed, open splits."""

from __future__ import annotations

import logging
import shutil
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing
from pathlib import Path
from typing import NamedTuple, Self

from pyspark.sql import SparkSession

from turnout.base.background import Background
from turnout.engine.counts import Counts
from turnout.errors import TurnoutError
from turnout.history.replay import next_part, resolve_seams
from turnout.kafka.group import GroupProgress
from turnout.routes import Route
from turnout.runtime.backfill import BackfillLedger
from turnout.runtime.checkpoint import BatchRevisions
from turnout.runtime.driver import OpenSplitServer
from turnout.runtime.matches import FeedMerging
from turnout.runtime.offsets import committed, open_numbers
from turnout.runtime.open_splits import SLOTS, OpenSplits
from turnout.runtime.revisions import Revisions, RunMatching
from turnout.spark.endpoints import endpoint_of, open_tasks, stays_open, task_slots
from turnout.spark.history.replay import carry_out
from turnout.spark.running.counts import OpenCounts
from turnout.spark.session.jvm import driver_address
from turnout.spark.stage import SparkStage

_log = logging.getLogger(__name__)


class RunPart:
    """Part of a run beside its query; by default it does nothing.

    The run calls ``begin`` before its query starts, ``batch`` for each micro-batch that Python itself writes,
    ``follow`` between two checks of the query, ``pause`` when it is to stop, ``end`` when the query has ended, and
    ``finish`` if the query has done all there was.
    """

    @property
    def options(self) -> Mapping[str, str]:
        """Return the options that the part adds to the source."""
        return {}

    @property
    def ready(self) -> bool:
        """True if the next record waits for no preparation of the part."""
        return True

    def stage(self, stage: SparkStage) -> SparkStage:
        """Return the stage of the run with what the part adds."""
        return stage

    def begin(self, *, once: bool) -> None:
        """Prepare the first micro-batch; *once* if the run does all there is and stops."""

    def batch(self, number: int, stage: SparkStage) -> SparkStage:  # noqa: ARG002 - by other parts
        """Return the stage of a micro-batch."""
        return stage

    def follow(self) -> None:
        """Do what is due while the query runs."""

    def pause(self) -> None:
        """Have no new work begun."""

    def end(self) -> None:
        """End what was begun; the query has ended."""

    def finish(self) -> None:
        """Do what is left when the query has done all there was."""


class Parts(NamedTuple):
    """Parts of one run.

    Attributes:
        every: all of them, in the order of their hooks.
        open_counts: counts of open splits.
        subscriptions: returns the number of subscriptions; None without.
    """

    every: tuple[RunPart, ...]
    open_counts: OpenCounts
    subscriptions: Callable[[], int | None]


def parts_of(
    route: Route, spark: SparkSession, checkpoint: Path | None, scratch: Path, resources: ExitStack, *, whole: bool
) -> Parts:
    """Return the parts of a run.

    Args:
        route: to run.
        spark: session of the run.
        checkpoint: checkpoint of a streaming run, if it is on this machine.
        scratch: folder of the run's temporary files.
        resources: closes the parts.
        whole: Spark runs the whole route.

    Raises:
        TurnoutError: the store of the subscriptions cannot be read, or another run has the checkpoint.
    """
    parts: list[RunPart] = []
    open_counts, revisions, ledger = OpenCounts(), None, None
    if route.subscriptions is not None:
        if checkpoint is not None and route.source.keeps_history:
            ledger = BackfillLedger(checkpoint)
            resources.callback(ledger.close)
        matching = Matching(route, spark, checkpoint, scratch, ledger)
        resources.callback(matching.close)
        revisions = matching.revisions
        parts.append(matching)
        if matching.stores_matches and checkpoint is not None:
            resources.enter_context(FeedMerging(route, checkpoint))
        if ledger is not None and checkpoint is not None:
            parts.append(Backfill(route, spark, checkpoint, ledger, revisions.watch))
    if endpoint_of(route.source).opens_splits and whole and checkpoint is not None:
        open_counts = resources.enter_context(OpenRun(route, spark, checkpoint, revisions, ledger))
        parts.append(open_counts)
    progress = endpoint_of(route.source).group_progress()
    if progress is not None and checkpoint is not None:
        parts.append(GroupCommits(route.name, checkpoint, resources.enter_context(closing(progress))))
    elif progress is not None:
        _log.warning("route %s: commitGroup has no effect, as the checkpoint is not on this machine", route.name)
        progress.close()
    return Parts(tuple(parts), open_counts, lambda: None if revisions is None else len(revisions))


class Matching(RunPart):
    """Subscriptions of a run.

    Args:
        route: a route with subscriptions.
        spark: session of the run.
        checkpoint: checkpoint of the run, if it is on this machine. Beside it the revisions of the subscriptions
            outlive the run, as the offsets do that name them.
        scratch: folder of the revisions otherwise.
        ledger: ledger of missed ranges; None without backfill.
    """

    def __init__(
        self, route: Route, spark: SparkSession, checkpoint: Path | None, scratch: Path, ledger: BackfillLedger | None
    ) -> None:
        assert route.subscriptions is not None
        lasting = checkpoint is not None
        folder = (checkpoint or scratch) / "subscriptions"
        self._matching = RunMatching(route, driver_address(spark), folder, lasting=lasting, ledger=ledger)
        self._batches = BatchRevisions(None if checkpoint is None else checkpoint / "revisions")
        self.revisions = self._matching.revisions
        self.stores_matches = bool(route.subscriptions.feeds) and lasting
        self.close = self._matching.close

    @property
    def options(self) -> Mapping[str, str]:
        """Return the location of the revisions, and whether the source leaves out what no subscription can match."""
        return self._matching.options

    def stage(self, stage: SparkStage) -> SparkStage:
        """Return the stage with the location of the index."""
        return stage.with_index(self._matching.index_location, stores_matches=self.stores_matches)

    def begin(self, *, once: bool) -> None:  # noqa: ARG002 - it makes no difference
        """Read a sample of the records, for the index."""
        self._matching.learn()

    def batch(self, number: int, stage: SparkStage) -> SparkStage:
        """Return the stage with the revision of a micro-batch, unless the source's offsets hold it."""
        if stage.splits:
            return stage
        before = self._batches.of(number)
        revision = self.revisions.newest() if before is None else self.revisions.usable(before)
        self._batches.note(number, revision)
        return stage.at(revision)


class OpenRun(RunPart, OpenCounts):
    """Open splits of a run. Each run can continue a checkpoint that has them, whatever its trigger.

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

    def __enter__(self) -> Self:
        self._resources.enter_context(self._server)
        return self

    def __exit__(self, *_: object) -> None:
        self._resources.close()

    @property
    def options(self) -> dict[str, str]:
        """Return the options of the source."""
        return {"openSplits": self._server.address, **({"staysOpen": "true"} if self._is_requested else {})}

    @property
    def ready(self) -> bool:
        """True if a task is ready for the next record, or if none will be."""
        return self._splits.ready or self._waits or not self._is_requested

    def begin(self, *, once: bool) -> None:
        """Open splits from now on if the route can have them, as soon as a task slot is left for others."""
        if once or not stays_open(self._route):
            return
        self._is_requested = self._waits = True
        self._application = str(self._spark.sparkContext.applicationId)
        self._resources.callback(SLOTS.give_back, self._application, self._route.name)
        self.follow()
        if self._waits:
            reason = "route %s: no task slot is left for an open split; its micro-batches stay short ones until then"
            _log.warning(reason, self._route.name)

    def follow(self) -> None:
        """Take a task slot that has become free, if the route waits for one."""
        if not self._waits:
            return
        wanted = open_tasks(self._route)
        taken = SLOTS.take(self._application, task_slots(self._spark), self._route.name, wanted)
        if taken:
            self._waits = False
            self._splits.open(taken)
        if 0 < taken < wanted:
            text = "route %s: %d of %d task slots are left for its open splits, which read more partitions each"
            _log.warning(text, self._route.name, taken, wanted)

    def pause(self) -> None:
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
    def last_batch(self) -> int:
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
        numbers = open_numbers(offset).values()
        self.is_last = bool(numbers)
        for number in numbers:
            counts = self._splits.committed(number, counts)
        return counts


class GroupCommits(RunPart):
    """Commits of a run's progress to a consumer group, once a second and at the end, as far as it has moved.

    Args:
        route_name: name of the route.
        checkpoint: checkpoint of the run, on this machine.
        progress: the group.
    """

    def __init__(self, route_name: str, checkpoint: Path, progress: GroupProgress) -> None:
        self._checkpoint = checkpoint
        self._progress = progress
        self._committed: dict[str, object] = {}
        self._due = 0.0
        name = f"progress of {route_name} in a consumer group"
        self._background = Background(name, self._step, every=_GROUP_SECONDS, delay=_GROUP_SECONDS)

    def begin(self, *, once: bool) -> None:  # noqa: ARG002 - it makes no difference
        """Commit on a thread of its own while the query runs."""
        self._background.start()

    def end(self) -> None:
        """Commit the last progress."""
        self._background.close()
        try:
            self._step()
        except TurnoutError as failure:
            _log.warning("%s: the last position is not committed: %s", self._background.name, failure)

    def _step(self) -> None:
        reached, now = committed(self._checkpoint).by_stream, time.monotonic()
        # Brokers forget what is not committed again within a week.
        if reached and (reached != self._committed or now >= self._due):
            self._progress.commit({name: at for name, at in reached.items() if isinstance(at, int)})
            self._committed, self._due = reached, now + _RENEW_SECONDS


_GROUP_SECONDS = 1.0
_RENEW_SECONDS = 3600.0
_POLL_SECONDS = 0.5
_LONGEST_PAUSE = 60.0


class Backfill(RunPart):
    """Backfill of one run.

    Args:
        route: as it runs.
        spark: session of the run.
        checkpoint: checkpoint of the run, on this machine.
        ledger: ledger of the missing ranges.
        watch: shows the ledger what has changed in the store: between two records far apart nothing else does.
    """

    def __init__(
        self, route: Route, spark: SparkSession, checkpoint: Path, ledger: BackfillLedger, watch: Callable[[], None]
    ) -> None:
        self._route = route
        self._spark = spark
        self._checkpoint = checkpoint
        self._ledger = ledger
        self._watch = watch
        self._stop = threading.Event()
        self._background: Background | None = None
        self._delivers = False

    def begin(self, *, once: bool) -> None:
        """Deliver on a thread of its own while the query runs, unless the run stops by itself."""
        if not once and not self._route.trigger.available_now:
            name = f"delivery of earlier records of {self._route.name}"

            def step() -> None:
                self._watch()
                self.finish()

            self._background = Background(name, step, every=_POLL_SECONDS, delay=_POLL_SECONDS, longest=_LONGEST_PAUSE)

    def follow(self) -> None:
        """Deliver from the first check on; note where new revisions begin, as long as the checkpoint has it."""
        if self._background is not None and not self._delivers:
            self._background.start()
            self._delivers = True
        resolve_seams(self._checkpoint, self._ledger)

    def end(self) -> None:
        """Stop after the part that is under way."""
        if self._background is not None:
            self._stop.set()
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
        part = next_part(self._route, self._checkpoint, self._ledger)
        if part is None:
            return False
        # Work interrupted by a kill is repeated: its messages have the same ids. Transactions are not, so that their
        # matches are kept.
        part.keep_matches(self._checkpoint)
        shutil.rmtree(part.plan.folder, ignore_errors=True)
        (range_,) = part.plan.ranges
        counts = carry_out(part.plan, self._spark).counts if range_.start < range_.end else None
        part.keep_matches(self._checkpoint)
        part.note(self._ledger)
        if counts is not None:
            text = "route %s: %d messages of %s %d to %d for %d subscriptions that had missed them"
            last = range_.end - 1
            _log.info(text, self._route.name, counts.messages, part.stream, range_.start, last, len(part.rows))
        return True
