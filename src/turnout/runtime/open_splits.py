"""Splits without an end: the reading task, the position and the counts of each, which tasks report to the driver.

Decision 15 (docs/decisions/0015-open-splits.md) says why the driver keeps them, and what follows a failure. Of the task
slots of an application one is always left for other tasks.
"""

from __future__ import annotations

import json
import logging
import secrets
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Protocol, Self, TypeAlias

from turnout.base.files import private_folder, replace_file
from turnout.base.untrusted import LARGEST_SEQUENCE, JsonObject, is_whole
from turnout.engine.counts import NUMBERS, Counts, Flow
from turnout.records.types import Fields

OpenPosition: TypeAlias = int | JsonObject
"""Position in a source, which alone reads it: the next sequence of a NATS stream, or the next offsets of Kafka's
partitions with the ids of their topics and the last record before each: `turnout.runtime.kafka.source.KafkaOffsets`."""

SHORTEST_SECONDS: Final = 10.0
LONGEST_SECONDS: Final = 60.0
FIRST_SECONDS: Final = 0.1
"""Seconds that a split stays open before any gap is known: the slow first gaps are over before a run is ready."""

_GAP_SHARE: Final = 0.002
"""Share of the time in which no task reads, at which the length of splits aims."""


def open_seconds(gap: float) -> float:
    """Return the seconds that a split is to stay open if it takes *gap* seconds until the next one reads.

    >>> [open_seconds(gap) for gap in (0.005, 0.08, 0.4)]
    [10.0, 40.0, 60.0]
    """
    return min(LONGEST_SECONDS, max(SHORTEST_SECONDS, gap / _GAP_SHARE))


_MOST_LOSSES: Final = 10_000
"""Losses of a run that are kept; each is a warning in its log, and many more are read by no one."""


class RevisionSource(Protocol):
    """Subscriptions that open splits follow: see `turnout.runtime.revisions.Revisions`."""

    def newest(self) -> int:
        """Return the present revision."""

    def usable(self, revision: int) -> int:
        """Return this revision if it can be opened, else a later one."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Answer to the source when it plans a micro-batch.

    Attributes:
        next: the position that the split in question has reached; None if that is not recorded.
        number: for the next open split.
        opens: whether there may be one.
        time: when the message before *next* was stored, in microseconds since 1970; None if that is unknown.
        tasks: number of open splits at once, for a source of several partitions.
    """

    next: OpenPosition | None
    number: int
    opens: bool
    time: int | None = None
    tasks: int = 1


@dataclass(frozen=True, slots=True)
class Attempt:
    """One task's right to read an open split; the next attempt ends it.

    Attributes:
        number: number of the split.
        serial: serial of the attempt in this run.
        progress: first position, and earlier counts.
        seconds: how long the split may stay open; 0 ends it at once.
        group: number of the first split of its micro-batch: they end together.
    """

    number: int
    serial: int
    progress: OpenProgress
    seconds: float
    group: int = 0


class OpenSplits:
    """Ledger of a run's open splits. Thread-safe.

    Args:
        checkpoint: its folder, on this machine.
        revisions: revisions of the route's subscriptions; None without.
        on_revision: called with a revision, and with the position from which on it is in use, before it is recorded.

    Attributes:
        seconds: how long a split may stay open, by what the gap between the last two has cost; 0 as long as none may be
            opened.
        revision: revision of the subscriptions, as it was recorded last; None without.
        gap: seconds between the end of a split and the moment at which the next one read; None before the second.
        ready: whether a task that may stay open for long has been ready for the next record.
    """

    def __init__(
        self,
        checkpoint: Path,
        revisions: RevisionSource | None = None,
        on_revision: Callable[[int, OpenPosition], None] | None = None,
    ) -> None:
        self._folder = ProgressFolder(checkpoint)
        self._on_revision = on_revision
        self._revisions = revisions
        self._lock = threading.Lock()
        self._serial = 0
        self._current: dict[int, int] = {}
        self._counts: dict[int, Counts] = {}
        self._reported = self._reported_before()
        self._losses: dict[str, None] = {}
        self._ended = False
        self._ended_groups: set[int] = set()
        self._tasks = 1
        self.seconds = 0.0
        self.revision: int | None = None
        self._noted: dict[int, int] = {}
        self.gap: float | None = None
        self.ready = False
        self._ended_at: float | None = None

    def _reported_before(self) -> dict[int, Counts]:
        """Counts that an earlier run in this process has reported already, by split."""
        read = {number: self._folder.read(number) for number in self._folder.numbers()[-1:]}
        return {
            number: progress.counts for number, progress in read.items() if progress and progress.process == PROCESS
        }

    # The source

    def plan(self, number: int | None) -> Plan:
        """Return the plan for the source's next offset.

        Args:
            number: number of the open split that the last offset names; None if it names none.
        """
        progress = None if number is None else self._folder.read(number)
        if number is None:
            # Micro-batches with an end are between: they are no gap.
            self._ended_at = None
        highest = max([number or 0, *self._folder.numbers()])
        following, stored = (None, None) if progress is None else (progress.next, progress.time)
        return Plan(following, highest + 1, self.seconds > 0, stored, self._tasks)

    # Losses

    def lost(self, text: str) -> None:
        """Note a loss that the source or a task has stepped over; the same one is noted once."""
        with self._lock:
            if len(self._losses) < _MOST_LOSSES:
                self._losses.setdefault(text)

    def losses(self) -> list[str]:
        """Return the losses, in order."""
        with self._lock:
            return list(self._losses)

    # Tasks

    def begin(self, number: int, start: OpenPosition, revision: int | None, group: int | None = None) -> Attempt:
        """Return a new attempt to read a split; earlier attempts may record nothing more.

        Args:
            number: number of the split.
            start: its first position if none is recorded.
            revision: revision of the subscriptions, likewise.
            group: number of the first split of its micro-batch; None if it is the only one.
        """
        group = number if group is None else group
        recorded = self._folder.read(number)
        progress = OpenProgress(start, Counts(), revision) if recorded is None else recorded
        if self._revisions is None:
            progress = replace(progress, revision=None)
        elif progress.revision is None:
            progress = replace(progress, revision=self._revisions.newest())
        else:
            progress = replace(progress, revision=self._revisions.usable(progress.revision))
        with self._lock:
            self._note_revision(number, progress)
            self._serial += 1
            self._current[number] = self._serial
            self._counts.setdefault(number, progress.counts)
            return Attempt(number, self._serial, progress, 0.0 if group in self._ended_groups else self.seconds, group)

    def record(self, attempt: Attempt, progress: OpenProgress, *, final: bool) -> bool:
        """Record the progress of an attempt; return False if another attempt has replaced it, or the run has ended.

        Args:
            attempt: attempt of the task that reports.
            progress: its progress.
            final: whether the task ends the split with it.

        Raises:
            OSError: it cannot be written.
        """
        with self._lock:
            if not self._holds(attempt):
                return False
            self._note_revision(attempt.number, progress)
            self._folder.write(attempt.number, replace(progress, process=PROCESS), fsync=final)
            self._counts[attempt.number] = progress.counts
            self.revision = progress.revision
            self._ended_at = time.monotonic() if final else None
            if final:
                self._ended_groups.add(attempt.group)
            return True

    def _note_revision(self, number: int, progress: OpenProgress) -> None:
        revision = progress.revision
        if self._on_revision is not None and revision is not None and revision != self._noted.get(number):
            self._on_revision(revision, progress.next)
            self._noted[number] = revision

    def reads(self, attempt: Attempt) -> None:
        """Take note that a task is ready for the next record."""
        with self._lock:
            if not self._holds(attempt):
                return
            self.ready = self.ready or attempt.seconds > FIRST_SECONDS
            if self._ended_at is not None:
                self.gap, self._ended_at = time.monotonic() - self._ended_at, None
                self.seconds = open_seconds(self.gap) if self.seconds > 0 else 0.0

    def holds(self, attempt: Attempt) -> bool:
        """Return True as long as the attempt may continue."""
        with self._lock:
            return self._holds(attempt)

    def _holds(self, attempt: Attempt) -> bool:
        return not self._ended and self._current.get(attempt.number) == attempt.serial

    def closes(self, attempt: Attempt) -> bool:
        """Return True if a split is to be closed: the run stops, or another split of its micro-batch has ended."""
        return self.seconds <= 0 or attempt.group in self._ended_groups

    def newest_revision(self) -> int | None:
        """Return the present revision of the subscriptions; None without."""
        return None if self._revisions is None else self._revisions.newest()

    # The run

    def open(self, tasks: int = 1) -> None:
        """Have splits opened from now on, so many at once."""
        self._tasks, self.seconds = tasks, FIRST_SECONDS

    def close(self) -> None:
        """Have the open splits closed, and no new ones opened."""
        with self._lock:
            self.seconds = 0.0

    def end(self) -> None:
        """Refuse whatever tasks report from now on."""
        with self._lock:
            self._ended = True
        self.close()

    def counts(self) -> dict[int, Counts]:
        """Return the counts of this process by split, for the splits that are not committed yet."""
        with self._lock:
            return {number: counts - self._reported.get(number, Counts()) for number, counts in self._counts.items()}

    def committed(self, number: int, counts: Counts) -> Counts:
        """Remove a committed split, and return its counts without those that an earlier run has reported."""
        with self._lock:
            self._counts.pop(number, None)
            self._noted.pop(number, None)
            return counts - self._reported.pop(number, Counts())


FOLDER: Final = "open"
"""The folder in a checkpoint."""

PROCESS: Final = secrets.token_hex(8)
"""Mark of this process in its files."""

_KEPT_FILES: Final = 10

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class OpenProgress:
    """Position and counts of an open split: everything below *next* is counted, and nothing else is.

    Attributes:
        next: the next position.
        counts: counts of the records since the split was opened, over all attempts.
        revision: of the subscriptions that records from *next* on are matched with; None without subscriptions.
        process: mark of the process that recorded it.
        time: when the message before *next* was stored, in microseconds since 1970; None if that is unknown.
    """

    next: OpenPosition
    counts: Counts = field(default_factory=Counts)
    revision: int | None = None
    process: str = ""
    time: int | None = field(default=None, compare=False)

    def as_dict(self) -> JsonObject:
        """Return the progress as JSON values."""
        numbers = {"counts": self.counts.as_dict(), "flow": self.counts.flow.as_dict()}
        position = {"next": self.next} if self.time is None else {"next": self.next, "time": self.time}
        return {**position, **numbers, "revision": self.revision, "process": self.process}

    @classmethod
    def from_dict(cls, written: Fields) -> Self:
        """Inverse of `as_dict`.

        Raises:
            ValueError: it is something else.
        """
        try:
            following, revision, numbers = written["next"], written["revision"], written["counts"]
            flow, time = Flow.from_dict(written["flow"]), written.get("time")
            whole = [
                0 if isinstance(following, dict) else following,
                time or 0,
                *(numbers[name] for name in NUMBERS if name in numbers),
            ]
            if not all(map(is_whole, whole)) or not (revision is None or is_whole(revision)):
                raise ValueError(f"expected numbers from 0 to {LARGEST_SEQUENCE}, found {whole}, {revision!r}")
            return cls(following, Counts.of(numbers, flow), revision, str(written["process"]), time)
        except (KeyError, TypeError, AttributeError) as problem:
            raise ValueError(f"progress of an open split: {problem!r}") from None


class ProgressFolder:
    """Progress of a checkpoint's open splits by their numbers; the newest ten are kept.

    Args:
        checkpoint: the folder of the checkpoint, on this machine.
    """

    def __init__(self, checkpoint: Path) -> None:
        self._folder = checkpoint / FOLDER

    def numbers(self) -> list[int]:
        """Return the numbers of the recorded splits, ascending."""
        try:
            return sorted(int(file.name) for file in self._folder.iterdir() if file.name.isdecimal())
        except OSError:
            return []

    def read(self, number: int) -> OpenProgress | None:
        """Return the recorded progress of a split; None if it is missing or unreadable."""
        file = self._folder / str(number)
        try:
            return OpenProgress.from_dict(json.loads(file.read_bytes()))
        except OSError:
            return None
        except ValueError as problem:
            _log.warning("%s is torn: its records are read again from its beginning: %s", file, problem)
            return None

    def write(self, number: int, progress: OpenProgress, *, fsync: bool = False) -> None:
        """Record the progress of a split; the first of a split removes those of old ones.

        Args:
            number: number of the split.
            progress: replaces the recorded one.
            fsync: wait until it is on the disk.
        """
        file = self._folder / str(number)
        if not file.exists():
            private_folder(self._folder)
            for old in self.numbers()[: -_KEPT_FILES + 1]:
                with suppress(OSError):
                    (self._folder / str(old)).unlink()
        replace_file(file, json.dumps(progress.as_dict()), fsync=fsync)


def position_after(checkpoint: Path, number: int) -> OpenPosition | None:
    """Return the position that an open split of a checkpoint has reached; None if it is not recorded."""
    progress = ProgressFolder(checkpoint).read(number)
    return None if progress is None else progress.next


@dataclass(frozen=True, slots=True)
class SlotUse:
    """Use of an application's task slots.

    Attributes:
        total: how many there are.
        taken: the routes that have one for their open splits, each as often as it has slots.
        waiting: the routes whose micro-batches have an end as long as none is free.
    """

    total: int
    taken: tuple[str, ...] = ()
    waiting: tuple[str, ...] = ()


class TaskSlots:
    """Slots of all applications of this process. Thread-safe.

    >>> slots = TaskSlots()
    >>> [slots.take("app", 3, route) for route in ("a", "b", "c")]
    [1, 1, 0]
    >>> slots.give_back("app", "a")
    >>> slots.take("app", 3, "c"), slots.use("app", 3)
    (1, SlotUse(total=3, taken=('b', 'c'), waiting=()))
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._taken: dict[str, list[str]] = {}
        self._waiting: dict[str, list[str]] = {}
        self._totals: dict[str, int] = {}

    def take(self, application: str, total: int, route: str, most: int = 1) -> int:
        """Take slots for a route, and return their number; without a free one it waits, until it takes or gives back.

        Args:
            application: Spark's id of it.
            total: how many slots it has.
            route: name of the route.
            most: how many the route can use.
        """
        with self._lock:
            self._totals[application] = total
            routes = self._taken.setdefault(application, [])
            waiting = self._waiting.setdefault(application, [])
            free = max(0, min(most, total - 1 - len(routes)))
            routes += [route] * free
            if free and route in waiting:
                waiting.remove(route)
            elif not free and route not in waiting:
                waiting.append(route)
            return free

    def give_back(self, application: str, route: str) -> None:
        """Return the slots of a route, or end its wait."""
        with self._lock:
            for routes in (self._taken, self._waiting):
                routes[application] = [other for other in routes.get(application, ()) if other != route]

    def use(self, application: str, total: int) -> SlotUse:
        """Return the use of an application's slots, *total* of them unless a route has seen another number."""
        with self._lock:
            running, waiting = (tuple(routes.get(application, ())) for routes in (self._taken, self._waiting))
            return SlotUse(self._totals.get(application, total), running, waiting)


SLOTS: Final = TaskSlots()
"""The slots that the runs of this process share."""
