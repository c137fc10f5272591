"""Recorded progress of open splits: a file for each in the checkpoint's folder."""

from __future__ import annotations

import json
import logging
import secrets
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self

from turnout.base.files import private_folder, replace_file
from turnout.base.untrusted import LARGEST_SEQUENCE, JsonObject, is_whole
from turnout.engine.counts import NUMBERS, Counts
from turnout.engine.flow import Flow
from turnout.records.types import Fields

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
        next: the next sequence.
        counts: counts of the records since the split was opened, over all attempts.
        revision: of the subscriptions that records from *next* on are matched with; None without subscriptions.
        process: mark of the process that recorded it.
        time: when the message before *next* was stored, in microseconds since 1970; None if that is unknown.
    """

    next: int
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
            whole = [following, time or 0, *(numbers[name] for name in NUMBERS if name in numbers)]
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


def position_after(checkpoint: Path, number: int) -> int | None:
    """Return the sequence that an open split of a checkpoint has reached; None if it is not recorded."""
    progress = ProgressFolder(checkpoint).read(number)
    return None if progress is None else progress.next
