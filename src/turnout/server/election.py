"""Election of the one server that runs the routes: it is the owner of the one share of a table of leases.

`turnout.runtime.shares` has the rule. Standbys read the table, and write it only to take the share, when it is free,
or to ask for it: a leader that does not reach the servers of its routes gives way to one that does.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Protocol, Self

from turnout.base.background import Background, run_once
from turnout.errors import ConnectionLostError
from turnout.runtime.fence import PERMIT_SECONDS, Permit, leased_seconds
from turnout.runtime.shares import DRIFT, TRIES, Member, Membership, Table

_log = logging.getLogger("turnout.server")

_LOOK_SECONDS: Final = 0.25
"""Seconds between two looks of a standby: a released lease is taken as soon."""

_SOON_SECONDS: Final = 0.05
"""The same while the leader is about to release it."""

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
    """Lease of a leader, as a table has it.

    Attributes:
        term: number of the leadership: each leader has a higher one than all before.
        holder: name of the leader, which no other process has; "" if none leads, so that another one may begin at once.
        member: the rest that is known of it.
    """

    term: int
    holder: str
    member: Member

    @classmethod
    def of(cls, table: Table) -> Self:
        """Return the lease of a table with one share."""
        holder, term = table.owners[0]
        return cls(term, holder, table.members.get(holder, Member(0, 0.0)))


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
        is_leaving: whether it ends, and gives the lease back soon.
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
        self.is_leaving = False
        self.is_cut_off = False
        self.is_wanted = False
        self._store = store
        self._membership = Membership(holder, 1, seconds, clock, url)
        self._lock = threading.Lock()
        self._term: int | None = None
        self._ended = False
        # Apart from the other lock, as tasks do not wait for the store.
        self._permits = threading.Lock()
        self._permitted_until = clock()

    @property
    def term(self) -> int | None:
        """Term of this process's leadership; None before it leads."""
        return self._term

    @property
    def pause(self) -> float:
        """Seconds until the next step is due."""
        if self._term is None and self.lease is not None and self.lease.member.leaving:
            return _SOON_SECONDS
        return _LOOK_SECONDS if self._term is None or self.is_cut_off else self._membership.pause

    def remaining(self) -> float:
        """Return the seconds for which this process leads without another renewal; 0 or less if it does not."""
        return 0.0 if self._term is None or self._ended else self._membership.until - self._membership.clock()

    def permit(self) -> Permit:
        """Return the seconds for which a task may write, and the term of this process."""
        with self._permits:
            seconds = min(self.remaining(), PERMIT_SECONDS)
            self._permitted_until = max(self._permitted_until, self._membership.clock() + seconds)
        return seconds, self._term or 0

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
            if not self.has_lost() and not self._ended:
                self._ended = not self._step() and self._term is not None

    def _step(self, *, ends: bool = False) -> bool:
        """Renew, take or release the lease; return False if another process has it."""
        own = self._membership
        for _ in range(TRIES):
            lease, table, version = self._read()
            # A write that seemed to be lost may have arrived before.
            if lease.holder != own.name and (lease.holder or self._term is not None):
                return False
            self.is_wanted = (self.is_wanted or lease.member.wanted) and self.is_cut_off
            begun = own.enter(table, ends=ends, cut_off=self.is_cut_off, leaving=self.is_leaving)
            if self._write(table, version):
                own.written(table, begun)
                self.lease, self._term = Lease.of(table), own.owned.get(0, self._term)
                return True
        raise ConnectionLostError("the lease cannot be written: other servers write it all the time")

    def _read(self) -> tuple[Lease, Table, str | None]:
        text, version = self._store.read() or (None, None)
        table = self._membership.read(text)
        self.lease = Lease.of(table)
        return self.lease, table, version

    def _write(self, table: Table, version: str | None) -> bool:
        try:
            self._store.write(table.text().decode(), version)
        except LeaseConflictError:
            return False
        return True

    def ask(self) -> None:
        """Ask the leader, which is cut off, for its lease: this standby reaches the servers that it does not.

        Raises:
            ConnectionLostError: the store does not answer.
            RunError: the store holds something else.
        """
        with self._lock:
            lease, table, version = self._read()
            if self._term is None and lease.member.cut_off and not lease.member.wanted:
                _log.warning("asking the leader at %s, which is cut off, for the lease", lease.member.url)
                lease.member.wanted = True
                # Of two writers at the same time one fails: the leader renews, and another standby asks too.
                self._write(table, version)

    def retire(self) -> float:
        """Lead no more; return the seconds after which no task may write any more, whatever clock it has."""
        with self._lock, self._permits:
            self._ended = True
            return self._permitted_until + PERMIT_SECONDS * DRIFT - self._membership.clock()

    def release(self) -> None:
        """Give the lease back, when nothing more is written: another server takes it at once."""
        with self._lock:
            self._ended = True
            if self._term is None or not self._membership.is_valid:
                return
            # Whether the answer comes or not, another one may have it from now on.
            self._membership.until = self._membership.clock()
            try:
                self._step(ends=True)
            except ConnectionLostError as failure:
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
                # Standbys read it at once; an election that fails is repeated by its own thread.
                with suppress(ConnectionLostError):
                    elector.step()
        elif elector.lease is not None and elector.lease.member.cut_off and self._reaches():
            elector.ask()

    def announce(self) -> None:
        """Have standbys look more often, as the lease is given back soon."""
        self.elector.is_leaving = True
        # A store that is slow does not hold the end up.
        run_once("announcement of the end", self.elector.step, level=logging.INFO)

    def resign(self) -> None:
        """Release the lease as soon as no task may write any more, whatever still runs."""
        # Tasks that hang on a server have not asked for long.
        self._background.stopped.wait(max(0.0, self.elector.retire()))
        self.elector.release()

    def close(self) -> None:
        """End the election, and give back the lease if this process has it."""
        self._watch.stop()
        self._background.close()
        self.elector.release()
        self._store.close()
