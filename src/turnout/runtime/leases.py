"""Leases: work in shares that processes divide among themselves, and the fence that tasks of a leading server ask.

A store of compare-and-set keeps one text. It names the members, each with a number that it raises, and the owner of
each share with its term, which is higher than those of all owners before. A member raises its number before a sixth of
its lease is over; who has seen the same number for the whole lease on its own clock removes the member, and its shares
are free. A member counts its lease from before the write: with clocks that run equally fast, within `DRIFT`, it ends
before another one owns its shares. The wall clocks do not matter. A write whose answer is lost may have arrived: it
only lengthens the wait of the others. The store is read and written by who uses a `Membership`: dispatchers of
webhooks, and servers of which one leads, which is the owner of a single share.

A server that was paused may wake up when another one leads. Its tasks, which can be on other machines and continue
while the server is paused, therefore write only within the time that the server has confirmed to them.
"""

from __future__ import annotations

import logging
import socket
import socketserver
import struct
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from hmac import compare_digest
from secrets import token_bytes
from typing import Final

import msgspec

from turnout.errors import RunError
from turnout.runtime.driver import TaskServer

PERMIT_SECONDS: Final = 1.0
"""Longest permission: so long after the end of a leadership something of it may be written."""

_log = logging.getLogger("turnout.runtime")

Permit = tuple[float, int]
"""Seconds for which a server may write, 0 or less for none, and the term of its leadership."""

_ANSWER: Final = struct.Struct(">dq")
_TOKEN_BYTES: Final = 24
_TIMEOUT_SECONDS: Final = 2.0


class LeaseLostError(RunError):
    """Raised where a server that no longer leads would have written."""


def leased_seconds() -> float:
    """Return seconds that only grow, also while the machine sleeps.

    >>> leased_seconds() <= leased_seconds()
    True
    """
    return time.clock_gettime(time.CLOCK_BOOTTIME)


_of_process: list[str] = []


def guard_process(address: str) -> None:
    """Have all stages that this process makes from now on ask the fence before they write."""
    _of_process[:] = [address]


def fence_of_process() -> str | None:
    """Return the address of the fence that stages of this process ask; None if no other server may lead."""
    return _of_process[0] if _of_process else None


class Fence:
    """Permission of a task to write, which is asked for again at least every second.

    Args:
        address: as `FenceServer` gives it.
        clock: seconds that only grow.
    """

    def __init__(self, address: str, clock: Callable[[], float] = leased_seconds) -> None:
        host, port, token = address.split(" ")
        self._at = host, int(port)
        self._token = bytes.fromhex(token)
        self._clock = clock
        self._valid_until = clock()
        self._term = 0

    def check(self) -> None:
        """Return if the task may write now.

        Raises:
            LeaseLostError: the server does not lead any more, or does not answer.
        """
        if self._clock() < self._valid_until:
            return
        begun = self._clock()
        try:
            with socket.create_connection(self._at, timeout=_TIMEOUT_SECONDS) as connection:
                connection.sendall(self._token)
                seconds, self._term = _ANSWER.unpack(_received(connection, _ANSWER.size))
        except (OSError, struct.error) as failure:
            raise self._refusal(f"does not answer ({failure})") from None
        self._valid_until = begun + min(seconds, PERMIT_SECONDS)
        if self._clock() >= self._valid_until:
            raise self._refusal("no longer has the lease of the leader")

    def _refusal(self, reason: str) -> LeaseLostError:
        term = f" in term {self._term}" if self._term else ""
        refusal = LeaseLostError(f"nothing more is written{term}: the server of this run {reason}")
        # The process that catches it may be ended before it reports it.
        _log.warning("%s", refusal)
        return refusal


class FenceServer(TaskServer):
    """Answers the tasks of a run with the seconds that are left of the server's lease.

    Args:
        permit: returns what is left.
        host: the address to listen on, and the one that others know it by.
    """

    def __init__(self, permit: Callable[[], Permit], host: str = "127.0.0.1") -> None:
        token = token_bytes(_TOKEN_BYTES)

        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                with suppress(OSError):
                    self.request.settimeout(_TIMEOUT_SECONDS)
                    if compare_digest(_received(self.request, _TOKEN_BYTES), token):
                        self.request.sendall(_ANSWER.pack(*permit()))

        super().__init__("fence of the run", Handler, token.hex(), host)


def _received(connection: socket.socket, size: int) -> bytes:
    """Return so many bytes, or fewer if the other side ends before."""
    data = b""
    while len(data) < size and (more := connection.recv(size - len(data))):
        data += more
    return data


DRIFT: Final = 0.05
"""Part by which the clock of another member may run faster."""

_MARGIN: Final = 0.1
"""Part of its lease that a member leaves at the end, for what is under way."""

_BEATS: Final = 6
"""Raised numbers within one lease."""

TRIES: Final = 5
"""Writes of one step; each but the last was overtaken by that of another process."""


class Member(msgspec.Struct, omit_defaults=True):
    """Member of those who divide work.

    Attributes:
        number: is raised with each renewal.
        seconds: length of its lease.
        url: where it answers.
        cut_off: whether it does not reach a server that its work needs.
        wanted: whether a process that reaches all of them asks for its shares.
        leaving: whether it gives up its shares soon.
    """

    number: int
    seconds: float
    url: str = ""
    cut_off: bool = False
    wanted: bool = False
    leaving: bool = False


class Table(msgspec.Struct):
    """Members, and owners of the shares.

    Attributes:
        members: by name.
        owners: owner and term of each share; "" for a free one.
    """

    members: dict[str, Member]
    owners: list[tuple[str, int]]

    @classmethod
    def of(cls, text: str | bytes | None, count: int) -> Table:
        """Return the table that a store has kept; without a text, an empty one.

        Raises:
            RunError: something else writes there, or others divide the work otherwise.
        """
        if text is None:
            return cls({}, [("", 0)] * count)
        try:
            table = msgspec.json.decode(text, type=cls)
        except ValueError as failure:
            raise RunError(f"what the store of the lease has is none of this release of turnout: {failure}") from None
        if len(table.owners) != count:
            raise RunError(f"others divide the work in {len(table.owners)} shares, and this process in {count}")
        return table

    def text(self) -> bytes:
        """Return the table as a store keeps it."""
        return msgspec.json.encode(self)


class Membership:
    """Shares of one member.

    Args:
        name: name of this member, which no other has.
        count: number of shares.
        seconds: length of its lease.
        clock: seconds that only grow.
        url: where it answers.

    Attributes:
        owned: terms of the shares that are this member's, as far as its lease goes.
        leaving: shares of these that another member is to have; nothing more is begun for them.
        until: end of its lease on its clock.
    """

    def __init__(
        self, name: str, count: int, seconds: float, clock: Callable[[], float] = leased_seconds, url: str = ""
    ) -> None:
        self.owned: Mapping[int, int] = {}
        self.leaving: set[int] = set()
        self.name = name
        self.clock = clock
        self.until = clock()
        self._count = count
        self._seconds = seconds
        self._url = url
        self._seen: dict[str, tuple[int, float]] = {}
        self._number = 0

    @property
    def pause(self) -> float:
        """Seconds until the next step is due."""
        return self._seconds / _BEATS

    @property
    def is_valid(self) -> bool:
        """True while no other member can have taken the shares."""
        return self.clock() < self.until

    def owns(self, share: int, term: int) -> bool:
        """Return True if a share is this member's since a term; whether its lease is valid is another question."""
        return self.owned.get(share) == term

    def read(self, text: str | bytes | None) -> Table:
        """Return the table that was just read, without the members that have raised no number for their lease.

        Raises:
            RunError: as `Table.of`.
        """
        table, now, seen = Table.of(text, self._count), self.clock(), {}
        for name, member in tuple(table.members.items()):
            number, since = self._seen.get(name, (None, now))
            seen[name] = member.number, since if number == member.number else now
            if name != self.name and now - seen[name][1] > member.seconds * (1 + DRIFT):
                del table.members[name]
        self._seen = seen
        table.owners = [(name if name in table.members else "", term) for name, term in table.owners]
        return table

    def enter(self, table: Table, done: Collection[int] = (), *, ends: bool = False, **marks: bool) -> float:
        """Enter this member in a table, with its part of the shares; return the time before which it is not written.

        Args:
            table: is changed.
            done: leaving shares without work.
            ends: whether this member leaves.
            marks: the rest of its `Member`.
        """
        # Never the same again, also after others have removed this member.
        self._number += 1
        table.members[self.name] = Member(self._number, self._seconds, self._url, **marks)
        owners = [name for name, _ in table.owners]
        own = [at for at, name in enumerate(owners) if name == self.name]
        # Who has more keeps more: nothing moves without need.
        ranks = sorted(table.members, key=lambda name: (-owners.count(name), name))
        most = self._count // len(ranks) + (ranks.index(self.name) < self._count % len(ranks))
        # What was left once is given up, as its work is dropped.
        self.leaving |= set(own[most:])
        for at in set(own).intersection(done):
            table.owners[at] = "", table.owners[at][1]
        for at in [at for at, name in enumerate(owners) if not name][: max(0, most - len(own))]:
            if not ends:
                table.owners[at] = self.name, table.owners[at][1] + 1
        if ends:
            del table.members[self.name]
            table.owners = [("" if name == self.name else name, term) for name, term in table.owners]
        return self.clock()

    def written(self, table: Table, begun: float) -> None:
        """Hold the shares of a table that is stored, for a lease from the time that `enter` has returned."""
        is_member = self.name in table.members
        self.until = begun + self._seconds * (1 - _MARGIN) if is_member else begun
        self.owned = {at: term for at, (owner, term) in enumerate(table.owners) if owner == self.name}
        self.leaving &= self.owned.keys()
