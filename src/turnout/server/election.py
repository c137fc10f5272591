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
from turnout.runtime.fence import leased_seconds

_log = logging.getLogger("turnout.server")

DRIFT: Final = 0.05
"""Part by which the clock of a standby may run faster than that of the leader."""

MARGIN: Final = 0.1
"""Part of the lease that its holder leaves at the end, for what is under way."""

_RENEWALS: Final = 6
"""Renewals within one lease."""

_LOOK_SECONDS: Final = 0.25
"""Seconds between two looks of a standby: a released lease is taken as soon."""


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
    """

    term: int
    holder: str
    url: str
    seconds: float
    released: bool = False

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
        return _LOOK_SECONDS if self._term is None else self._seconds / _RENEWALS

    def remaining(self) -> float:
        """Return the seconds for which this process leads without another renewal; 0 or less if it does not."""
        return 0.0 if self._term is None or self._ended else self._until - self._clock()

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
            found = self._store.read()
            now = self._clock()
            before = None if found is None else Lease.of(found[0])
            version = None if found is None else found[1]
            if before != self.lease or version != self._version or before is None:
                self.lease, self._version, self._seen_at = before, version, now
            if before is None or before.released or now - self._seen_at > before.seconds * (1 + DRIFT):
                self._take(1 if before is None else before.term + 1)

    def _take(self, term: int) -> None:
        begun = self._clock()
        lease = Lease(term, self._holder, self._url, self._seconds)
        if self._written(lease):
            self.lease, self._term, self._until = lease, term, begun + self._seconds * (1 - MARGIN)

    def _renew(self, term: int) -> None:
        begun = self._clock()
        if self._written(Lease(term, self._holder, self._url, self._seconds)):
            self._until = begun + self._seconds * (1 - MARGIN)
        else:
            self._ended = True

    def _written(self, lease: Lease) -> bool:
        """Return True if the store has the lease; a write that seemed to be lost may have arrived before."""
        try:
            self._version = self._store.write(lease.text(), self._version)
        except LeaseConflictError:
            found = self._store.read()
            if found is None or Lease.of(found[0]) != lease:
                return False
            self._version = found[1]
        return True

    def release(self) -> None:
        """Give the lease back, when nothing more is written: another server takes it at once."""
        with self._lock:
            if self.remaining() <= 0 or self.lease is None:
                return
            self._ended = True
            try:
                self._store.write(replace(self.lease, released=True).text(), self._version)
            except (LeaseConflictError, ConnectionLostError) as failure:
                _log.warning("the lease of term %d ends by itself: %s", self.lease.term, failure)


class Leadership:
    """Election in the background.

    Args:
        elector: takes the steps.
    """

    def __init__(self, elector: Elector, store: LeaseStore) -> None:
        self.elector = elector
        self._store = store
        self._background = Background("election of the leader", self._work, longest=1.0)

    def start(self) -> None:
        """Stand for election."""
        self._background.start()

    def _work(self) -> None:
        while not self._background.stopped.wait(self.elector.pause):
            self.elector.step()

    def close(self) -> None:
        """End the election, and give back the lease if this process has it."""
        self._background.close()
        self.elector.release()
        self._store.close()
