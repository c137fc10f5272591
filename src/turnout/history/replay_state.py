"""Progress of a replay, in a file, so that an interrupted one continues."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Self

from turnout.engine.counts import Counts
from turnout.errors import ConfigError, Mistake
from turnout.files import FileLock, replace_file
from turnout.history.ranges import StreamRange
from turnout.private_files import private_folder
from turnout.records.types import Fields
from turnout.untrusted import JsonObject

if TYPE_CHECKING:
    from turnout.history.replay_plan import ReplayPlan

_FILE = "state.json"


@dataclass(frozen=True, slots=True)
class ReplayState:
    """Finished and remaining parts of a replay.

    Attributes:
        asked: what the replay was asked for.
        ranges: what is to be read, as it was planned in the beginning.
        next: stream → the sequence that comes next.
        revision: of the subscriptions that it delivers to; None for a route without.
        counts: of what is done: of every record below *next*, and of no other.
        digest: of the route's file; "" for a route that was made in Python, which is not known again.
    """

    asked: JsonObject
    ranges: tuple[StreamRange, ...]
    next: dict[str, int]
    revision: int | None = None
    counts: Counts = field(default_factory=Counts)
    digest: str = ""

    @property
    def done(self) -> bool:
        """True if nothing remains."""
        return all(self.next[range_.stream] >= range_.end for range_ in self.ranges)

    @property
    def begun(self) -> bool:
        """True if some part is finished."""
        return any(self.next[range_.stream] > range_.start for range_ in self.ranges)

    def left(self, at_once: int) -> tuple[str, int, int] | None:
        """The next part: stream, first sequence, the sequence behind the last one; None where nothing is left."""
        for range_ in self.ranges:
            start = self.next[range_.stream]
            if start < range_.end:
                return range_.stream, start, min(range_.end, start + at_once)
        return None

    def after(self, stream: str, end: int, counts: Counts) -> ReplayState:
        """The state when a part is delivered."""
        return replace(self, next={**self.next, stream: end}, counts=self.counts + counts)

    @classmethod
    def of(cls, plan: ReplayPlan) -> Self:
        """Return the state to continue from: the beginning, unless a replay of this id was interrupted.

        Raises:
            ConfigError: one of this id was interrupted that was asked for something else, or the route has changed.
        """
        state = cls.unfinished(plan.folder, plan.asked, plan.route.digest)
        if state is not None:
            return state
        revision = None if plan.subscriptions is None else plan.subscriptions.revision
        starts = {range_.stream: range_.start for range_ in plan.ranges}
        return cls(plan.asked, plan.ranges, starts, revision, digest=plan.route.digest)

    @classmethod
    def unfinished(cls, folder: Path, asked: Fields, digest: str) -> Self | None:
        """The state of a replay that was interrupted; None if the folder has none, or one that is done.

        Args:
            folder: of the replay.
            asked: what is asked for now.
            digest: of the route's file as it is now; "" where there is none.

        Raises:
            ConfigError: it was begun with something else asked for, or with another version of the route.
        """
        try:
            written = json.loads((folder / _FILE).read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        ranges = tuple(StreamRange(**range_) for range_ in written["ranges"])
        # A replay that an older turnout began has no revision and no digest in its state.
        revision, begun_with = written.get("revision"), written.get("digest", "")
        state = cls(written["asked"], ranges, written["next"], revision, Counts.of(written["counts"]), begun_with)
        if state.done:
            return None
        if state.asked != asked:
            names = sorted(name for name in {*state.asked, *asked} if state.asked.get(name) != asked.get(name))
            problem = f"the replay {folder.name} is not finished and was asked for another {', '.join(names)}"
            raise ConfigError([Mistake("id", f"{problem}: finish it as it was begun, or give this one another id")])
        if state.digest and digest and state.digest != digest:
            # What is left would be delivered differently from what is done already, but under the same message ids.
            problem = (
                f"the replay {folder.name} is not finished, and the route {asked['route']} has changed since it was"
                f" begun (digest {state.digest[:12]} then, {digest[:12]} now)"
            )
            remedy = "finish it with the route as it was, or give this one another id"
            raise ConfigError([Mistake("id", f"{problem}: {remedy}")])
        return state

    def write(self, folder: Path) -> None:
        """Write the state atomically."""
        text = json.dumps(
            {
                "asked": self.asked,
                "ranges": [
                    {"stream": range_.stream, "start": range_.start, "end": range_.end, "records": range_.records}
                    for range_ in self.ranges
                ],
                "next": self.next,
                "revision": self.revision,
                "digest": self.digest,
                "counts": self.counts.as_dict(),
            }
        )
        replace_file(folder / _FILE, text)


@contextmanager
def claimed(folder: Path) -> Iterator[None]:
    """Have the folder of a replay for this process alone.

    Raises:
        ConfigError: another process carries out this replay.
    """
    # A checkpoint that a run has not made yet is for its owner only as well.
    for directory in (folder.parent.parent, folder.parent, folder):
        private_folder(directory)
    with FileLock(folder / "lock") as lock:
        try:
            lock.acquire()
        except OSError:
            raise ConfigError([Mistake("id", f"another process carries out the replay {folder.name}")]) from None
        yield
