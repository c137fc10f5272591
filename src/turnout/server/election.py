"""Election of the one server that runs the routes, by a lease in a store of compare-and-set.

The store keeps one text. The leader writes it anew before a third of the lease is over; each write needs the version
that the writer has read, so that of two writers one fails. A standby takes over when it has seen the same version for
the whole lease on its own clock. A leader counts its lease from before the write that renewed it: with clocks that run
equally fast, within `DRIFT`, its lease ends before another one can begin. The wall clocks do not matter.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Final, Protocol

from turnout.base.background import Background
from turnout.base.untrusted import is_whole
from turnout.errors import ConnectionLostError, RunError
from turnout.runtime.fence import PERMIT_SECONDS, Permit, leased_seconds

_log = logging.getLogger("turnout.server")

DRIFT: Final = 0.05
"""Part by which the clock of a standby may run faster than that of the leader."""

MARGIN: Final = 0.1
"""Part of the lease that its holder leaves at the end, for what is under way."""

_RENEWALS: Final = 6
"""Renewals within one lease."""

RETIRED_SECONDS: Final = PERMIT_SECONDS * (1 + DRIFT)
"""Seconds after which no task of a retired leader may write, whatever clock it has."""

_TRIES: Final = 4
"""Writes of one renewal; each but the last was overtaken by a standby that asks for the lease."""

_LOOK_SECONDS: Final = 0.25
"""Seconds between two looks of a standby: a released lease is taken as soon."""

_WATCH_SECONDS: Final = 0.5
"""Seconds between two looks whether the servers of the routes answer."""


class LeaseConflictError(Exception):
    """Raised by a store of which another one has written the lease meanwhile."""


class LeaseStore(Protocol):
    """Store of one lease, as text. Every call is bounded in time."""

    def read(self) -> tuple[str, str] | None:
        """Return the text and its version; None if there is none.

        Raises:
            ConnectionLostError: the store does not answer.
        """
        ...

    def write(self, text: str, version: str | None) -> str:
        """Replace the text of this version, or write the first one; return the new version.

        Raises:
            LeaseConflictError: the version is another one.
            ConnectionLostError: the store does not answer; whether the text is written is not known.
        """
        ...

    def close(self) -> None:
        """Close the connection."""
        ...


@dataclass(frozen=True, slots=True)
class Lease:
    """Lease of a leader.

    Attributes:
        term: number of the leadership: each leader has a higher one than all before.
        holder: name of the leader, which no other process has.
        url: where the leader answers.
        seconds: length of the lease.
        released: whether the leader has ended, so that another one may begin at once.
        cut_off: whether the leader does not reach a server of its routes.
        wanted: whether a standby that reaches all of them asks for the lease.
    """

    term: int
    holder: str
    url: str
    seconds: float
    released: bool = False
    cut_off: bool = False
    wanted: bool = False

    def text(self) -> str:
        """Return the lease as a store keeps it."""
        return json.dumps(asdict(self))

    @classmethod
    def of(cls, text: str) -> Lease:
        """Return the lease that a store has kept.

        Raises:
            RunError: the text is none: something else writes there.
        """
        try:
            fields = json.loads(text)
            lease = cls(**fields)
            valid = is_whole(lease.term) and lease.term > 0 and 0 < float(lease.seconds) < 86_400
        except (ValueError, TypeError) as failure:
            raise RunError(f"the lease in the store is none of turnout: {failure}") from None
        if not valid:
            raise RunError(f"the lease in the store is none of turnout: {text!r:.200}")
        return lease


class Elector:
    """Candidate for the lease: leads from the time when it gets it until it loses or releases it, once.

    Args:
        store: keeps the lease.
        holder: name of this process, which no other has.
        url: where this process answers.
        seconds: length of its lease.
        clock: seconds that only grow.

    Attributes:
        lease: the lease as it was read last; None before.
        hands_over: whether this process is asked to end, so that another one leads.
        is_cut_off: whether a server of the routes cannot be reached from here.
        is_wanted: whether a standby has asked for the lease while this process was cut off.
    """

    def __init__(
        self,
        store: LeaseStore,
        holder: str,
        url: str,
        seconds: float,
        *,
        clock: Callable[[], float] = leased_seconds,
    ) -> None:
        self.lease: Lease | None = None
        self.hands_over = False
        self.is_cut_off = False
        self.is_wanted = False
        self._store = store
        self._holder = holder
        self._url = url
        self._seconds = seconds
        self._clock = clock
        self._lock = threading.Lock()
        self._term: int | None = None
        self._version: str | None = None
        self._seen_at = 0.0
        self._until = clock()
        self._ended = False

    @property
    def term(self) -> int | None:
        """Term of this process's leadership; None before it leads."""
        return self._term

    @property
    def pause(self) -> float:
        """Seconds until the next step is due."""
        return _LOOK_SECONDS if self._term is None or self.is_cut_off else self._seconds / _RENEWALS

    def remaining(self) -> float:
        """Return the seconds for which this process leads without another renewal; 0 or less if it does not."""
        return 0.0 if self._term is None or self._ended else self._until - self._clock()

    def permit(self) -> Permit:
        """Return the seconds for which this process leads, and its term."""
        return self.remaining(), self._term or 0

    def has_lost(self) -> bool:
        """Return True if this process led, and must not any more."""
        return self._term is not None and self.remaining() <= 0

    def step(self) -> None:
        """Renew the lease, or take it if no other process has it. One that was lost is not taken again by this process.

        Raises:
            ConnectionLostError: the store does not answer; the lease runs on until its end.
            RunError: the store holds something else.
        """
        with self._lock:
            if self.has_lost() or self._ended:
                return
            if self._term is not None:
                self._renew(self._term)
                return
            begun = self._clock()
            found = self._store.read()
            now = self._clock()
            before = None if found is None else Lease.of(found[0])
            version = None if found is None else found[1]
            if before != self.lease or version != self._version or before is None:
                self.lease, self._version, self._seen_at = before, version, now
            if before is None or before.released or now - self._seen_at > before.seconds * (1 + DRIFT):
                self._take(1 if before is None else before.term + 1, begun)

    def _take(self, term: int, begun: float) -> None:
        lease = Lease(term, self._holder, self._url, self._seconds)
        # A write that seemed to be lost may have arrived before.
        if self._wrote(lease) or self._found_own(term):
            self.lease, self._term, self._until = lease, term, begun + self._seconds * (1 - MARGIN)

    def _renew(self, term: int) -> None:
        """Write the lease anew: also over an earlier renewal that seemed to be lost, and over a request for it."""
        lease = Lease(term, self._holder, self._url, self._seconds, cut_off=self.is_cut_off)
        for _ in range(_TRIES):
            begun = self._clock()
            if self._wrote(lease):
                self.lease, self._until = lease, begun + self._seconds * (1 - MARGIN)
                return
            if not self._found_own(term):
                break
        self._ended, self._until = True, self._clock()

    def _wrote(self, lease: Lease) -> bool:
        try:
            self._version = self._store.write(lease.text(), self._version)
        except LeaseConflictError:
            return False
        return True

    def _found_own(self, term: int) -> bool:
        """Read the lease, and return True if it is still that of this process."""
        text, version = self._store.read() or ("", None)
        lease = Lease.of(text) if text else None
        if lease is None or (lease.term, lease.holder, lease.released) != (term, self._holder, False):
            return False
        self._version, self.is_wanted = version, lease.wanted and lease.cut_off and self.is_cut_off
        return True

    def ask(self) -> None:
        """Ask the leader, which is cut off, for its lease: this standby reaches the servers that it does not."""
        with self._lock:
            if self._term is None and self.lease is not None and self.lease.cut_off and not self.lease.wanted:
                _log.warning("asking the leader at %s, which is cut off, for the lease", self.lease.url)
                # Of two writers at the same time one fails: the leader renews, and another standby asks too.
                self._wrote(replace(self.lease, wanted=True))

    def retire(self) -> None:
        """Lead no more, although tasks have permission to write for the next `PERMIT_SECONDS`."""
        with self._lock:
            self._ended = True

    def release(self) -> None:
        """Give the lease back, when nothing more is written: another server takes it at once."""
        with self._lock:
            self._ended = True
            if self._term is None or self.lease is None or self._clock() >= self._until:
                return
            self._until = self._clock()
            try:
                self._store.write(replace(self.lease, released=True).text(), self._version)
            except (LeaseConflictError, ConnectionLostError) as failure:
                _log.warning("the lease of term %d ends by itself: %s", self._term, failure)


class Leadership:
    """Election in the background.

    Args:
        elector: takes the steps.
        store: keeps the lease.
        reaches: returns True if all servers of the routes can be reached from here.
    """

    def __init__(self, elector: Elector, store: LeaseStore, reaches: Callable[[], bool]) -> None:
        self.elector = elector
        self._store = store
        self._reaches = reaches
        self._background = Background("election of the leader", self._work, longest=1.0)
        # Servers that do not answer may not delay the election.
        self._watch = Background("watch of the routes' servers", self._check, every=_WATCH_SECONDS, longest=1.0)

    def start(self) -> None:
        """Stand for election."""
        self._background.start()
        self._watch.start()

    def _work(self) -> None:
        while not self._background.stopped.wait(self.elector.pause):
            self.elector.step()

    def _check(self) -> None:
        """Note whether this leader is cut off; as a standby, ask one that is for its lease."""
        elector = self.elector
        if elector.term is not None:
            before, elector.is_cut_off = elector.is_cut_off, not self._reaches()
            if elector.is_cut_off != before:
                state = "cannot be reached from here" if elector.is_cut_off else "answer again"
                _log.warning("servers of the routes %s", state)
        elif elector.lease is not None and elector.lease.cut_off and self._reaches():
            elector.ask()

    def resign(self) -> None:
        """Release the lease as soon as no task may write any more, whatever still runs."""
        self.elector.retire()
        self._background.stopped.wait(RETIRED_SECONDS)
        self.elector.release()

    def close(self) -> None:
        """End the election, and give back the lease if this process has it."""
        self._watch.stop()
        self._background.close()
        self.elector.release()
        self._store.close()
