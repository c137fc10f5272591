"""Progress of a replay, in a file, so that an interrupted one continues."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Self

from turnout.engine.counts import Counts
from turnout.errors import ConfigError, Mistake
from turnout.files import FileLock, replace_file
from turnout.history.ranges import StreamRange
from turnout.nats.protocol.identity import StreamIdentity
from turnout.private_files import private_folder
from turnout.records.types import Fields
from turnout.untrusted import JsonObject

if TYPE_CHECKING:
    from turnout.history.replay_plan import ReplayPlan
    from turnout.routes import Route

_FILE = "state.json"


@dataclass(frozen=True, slots=True)
class Splitting:
    """Division of a replay whose splits are transactions, fixed when it is begun.

    Attributes:
        at_once: sequences of a part.
        tasks: splits of a part, at most.
    """

    at_once: int
    tasks: int

    @classmethod
    def of(cls, route: Route, at_once: int) -> Self:
        """Return the splitting for a route's source, or for the processors here."""
        return cls(at_once, getattr(route.source, "partitions", None) or os.cpu_count() or 1)


@dataclass(frozen=True, slots=True)
class ReplayState:
    """Finished and remaining parts of a replay.

    Attributes:
        asked: the request.
        ranges: ranges to read, as first planned.
        next: stream → next sequence.
        revision: revision of the subscriptions that it delivers to; None for a route without.
        counts: counts of exactly the records below *next*.
        digest: digest of the route's file; "" for a route that was made in Python, which is not known again.
        parts: number of finished parts, continues to count if a finished exact replay is repeated.
        exact: how parts are split, which a repeated part must keep; None for a replay without transactions.
    """

    asked: JsonObject
    ranges: tuple[StreamRange, ...]
    next: dict[str, int]
    revision: int | None = None
    counts: Counts = field(default_factory=Counts)
    digest: str = ""
    parts: int = 0
    exact: Splitting | None = None

    @property
    def done(self) -> bool:
        """True if nothing remains."""
        return all(self.next[range_.stream] >= range_.end for range_ in self.ranges)

    @property
    def begun(self) -> bool:
        """True if some part is finished."""
        return any(self.next[range_.stream] > range_.start for range_ in self.ranges)

    def left(self, at_once: int) -> StreamRange | None:
        """Return the next part, without the number of its records; None at the end.

        Args:
            at_once: sequences of a part, where the replay's splitting is not fixed.
        """
        at_once = at_once if self.exact is None else self.exact.at_once
        for range_ in self.ranges:
            start = self.next[range_.stream]
            if start < range_.end:
                return replace(range_, start=start, end=min(range_.end, start + at_once), records=0)
        return None

    def with_splitting(self, exact: Splitting) -> Self:
        """Return the state with a splitting, unless it has one already."""
        return self if self.exact is not None else replace(self, exact=exact)

    def after(self, stream: str, end: int, counts: Counts) -> ReplayState:
        """Return the state when a part is delivered."""
        return replace(self, next={**self.next, stream: end}, counts=self.counts + counts, parts=self.parts + 1)

    @classmethod
    def of(cls, plan: ReplayPlan) -> Self:
        """Return the state to continue from: the beginning, unless a replay of this id was interrupted.

        A finished replay into transactions continues behind its end: delivered messages stay delivered once.

        Raises:
            ConfigError: an interrupted one of this id had another request, or the route has changed;
                or an exact one of this id is finished that was, or whose topics have fewer records now.
        """
        state = cls._written(plan.folder)
        if state is not None and not state.done:
            return state.checked(plan.folder, plan.asked, plan.route.digest).of_streams(plan)
        revision = None if plan.subscriptions is None else plan.subscriptions.revision
        starts = {range_.stream: range_.start for range_ in plan.ranges}
        new = cls(plan.asked, plan.ranges, starts, revision, digest=plan.route.digest)
        if state is None or state.exact is None or not plan.is_exact:
            return new
        return state.checked(plan.folder, plan.asked).of_streams(plan).extended(plan, new)

    def of_streams(self, plan: ReplayPlan) -> Self:
        """Return the state if its ranges are of the streams of a plan.

        Raises:
            ConfigError: one was made anew since.
        """
        identities = {range_.stream: range_.identity for range_ in plan.ranges}
        for range_ in self.ranges:
            former, present = range_.identity, identities.get(range_.stream)
            if former is not None and present is not None and former.created != present.created:
                problem = (
                    f"the replay {plan.folder.name} has read {range_.stream} up to {self.next[range_.stream]:,}, of the"
                    f" stream that was created at {former.created}; the present one was created at {present.created}"
                )
                raise ConfigError([Mistake("id", f"{problem}: give this one another id")])
        return self

    def extended(self, plan: ReplayPlan, new: Self) -> Self:
        """Return the state of a new request that continues after this finished one.

        Raises:
            ConfigError: a stream ends before that now, so that it is another one.
        """
        starts = {}
        for range_ in plan.ranges:
            reached = self.next.get(range_.stream, range_.start)
            if reached > range_.end:
                problem = f"the replay {plan.folder.name} has read {range_.stream} up to {reached}"
                remedy = f"which ends at {range_.end} now: give this one another id"
                raise ConfigError([Mistake("id", f"{problem}, {remedy}")])
            starts[range_.stream] = max(reached, range_.start)
        return replace(new, next=starts, counts=self.counts, parts=self.parts, exact=self.exact)

    @classmethod
    def unfinished(cls, folder: Path, request: Fields, digest: str) -> Self | None:
        """Return the state of a replay that was interrupted; None if the folder has none, or one that is done.

        Args:
            folder: folder of the replay.
            request: the current request.
            digest: digest of the route's file as it is now; "" where there is none.

        Raises:
            ConfigError: it was begun with another request, or with another version of the route.
        """
        state = cls._written(folder)
        return None if state is None or state.done else state.checked(folder, request, digest)

    @classmethod
    def _written(cls, folder: Path) -> Self | None:
        """Read the state in a folder; None without one."""
        try:
            written = json.loads((folder / _FILE).read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        # A replay that an older turnout began has no identities, revision, digest, parts or splitting in its state.
        identities = [range_.pop("identity", None) for range_ in written["ranges"]]
        ranges = tuple(
            StreamRange(**range_, identity=None if identity is None else StreamIdentity(**identity))
            for range_, identity in zip(written["ranges"], identities, strict=True)
        )
        exact = written.get("exact")
        return cls(
            written["asked"],
            ranges,
            written["next"],
            written.get("revision"),
            Counts.of(written["counts"]),
            written.get("digest", ""),
            written.get("parts", 0),
            None if exact is None else Splitting(**exact),
        )

    def checked(self, folder: Path, request: Fields, digest: str = "") -> Self:
        """Return the state if it belongs to this request and to the route with this digest ("" for any).

        Raises:
            ConfigError: it is not.
        """
        status = "finished" if self.done else "not finished"
        if self.asked != request:
            names = sorted(name for name in {*self.asked, *request} if self.asked.get(name) != request.get(name))
            problem = f"the replay {folder.name} is {status} and was requested with another {', '.join(names)}"
            remedy = (
                "give this one another id" if self.done else "finish it as it was begun, or give this one another id"
            )
            raise ConfigError([Mistake("id", f"{problem}: {remedy}")])
        if self.digest and digest and self.digest != digest:
            # The remaining records would be delivered differently, but under the same message ids.
            problem = (
                f"the replay {folder.name} is {status}, and the route {request['route']} has changed since it was"
                f" begun (digest {self.digest[:12]} then, {digest[:12]} now)"
            )
            remedy = "finish it with the route as it was, or give this one another id"
            raise ConfigError([Mistake("id", f"{problem}: {remedy}")])
        return self

    def write(self, folder: Path) -> None:
        """Write the state atomically."""
        text = json.dumps(
            {
                "asked": self.asked,
                "ranges": [asdict(range_) for range_ in self.ranges],
                "next": self.next,
                "revision": self.revision,
                "digest": self.digest,
                "parts": self.parts,
                "exact": None if self.exact is None else asdict(self.exact),
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
