"""Work in shares that processes divide among themselves, by one text in a store of compare-and-set.

The text names the members, each with a number that it raises, and the owner of each share with its term, which is
higher than those of all owners before. A member raises its number before a sixth of its lease is over; who has seen the
same number for the whole lease on its own clock removes the member, and its shares are free. A member counts its lease
from before the write: with clocks that run equally fast, within `DRIFT`, it ends before another one owns its shares.
`turnout.server.election` elects the one server of a leadership by the same rule.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import Final

import msgspec

from turnout.errors import RunError, StreamError
from turnout.nats.jetstream import KeyValue
from turnout.nats.jetstream.errors import WrongLastSequenceError
from turnout.nats.jetstream.kv import Entry, KeyNotFoundError
from turnout.nats.jetstream.publish import Ttl
from turnout.runtime.fence import leased_seconds

DRIFT: Final = 0.05
"""Part by which the clock of another member may run faster."""

_MARGIN: Final = 0.1
"""Part of its lease that a member leaves at the end, for what is under way."""

_BEATS: Final = 6
"""Raised numbers within one lease."""

_RETRIES: Final = 5


class Member(msgspec.Struct):
    """Member of those who divide work: the number that it raises, and the seconds of its lease."""

    number: int
    seconds: float


class Table(msgspec.Struct):
    """Members, and owners of the shares.

    Attributes:
        members: by name.
        owners: owner and term of each share; "" for a free one.
    """

    members: dict[str, Member]
    owners: list[tuple[str, int]]


class Shares:
    """Shares of one member.

    Args:
        bucket: keeps the text.
        key: its key there.
        name: name of this member, which no other has.
        count: number of shares.
        seconds: length of its lease.
        is_lasting: whether the text stays although others of the bucket expire.
        clock: seconds that only grow.

    Attributes:
        owned: terms of the shares that are this member's, as far as its lease goes.
        leaving: shares of these that another member is to have; nothing more is begun for them.
    """

    def __init__(
        self,
        bucket: KeyValue,
        key: str,
        name: str,
        count: int,
        seconds: float,
        *,
        is_lasting: bool = False,
        clock: Callable[[], float] = leased_seconds,
    ) -> None:
        self.owned: Mapping[int, int] = {}
        self.leaving: set[int] = set()
        self._bucket = bucket
        self._key = key
        self._ttl: Ttl | None = "never" if is_lasting else None
        self._name = name
        self._count = count
        self._seconds = seconds
        self._clock = clock
        self._seen: dict[str, tuple[int, float]] = {}
        self._until = clock()
        self._number = 0

    @property
    def pause(self) -> float:
        """Seconds until the next step is due."""
        return self._seconds / _BEATS

    @property
    def is_valid(self) -> bool:
        """True while no other member can have taken the shares."""
        return self._clock() < self._until

    def owns(self, share: int, term: int) -> bool:
        """Return True if a share is this member's since a term; whether its lease is valid is another question."""
        return self.owned.get(share) == term

    async def step(self, busy: Collection[int] = (), *, ends: bool = False) -> bool:
        """Renew the lease, take free shares, and give up those that others are to have; return whether it is valid.

        Args:
            busy: leaving shares with work that is not done yet.
            ends: whether this member leaves.

        Raises:
            RunError: something else writes there, or other members divide the work otherwise.
            StreamError: the store refuses the text.
            ConnectionLostError: the store does not answer; the lease runs on until its end.
        """
        # Work may have begun meanwhile for those that this step finds to leave.
        done = self.leaving.difference(busy)
        for _ in range(_RETRIES):
            entry: Entry | None = None
            with suppress(KeyNotFoundError):
                entry = await self._bucket.get(self._key)
            now = self._clock()
            table = Table({}, [("", 0)] * self._count) if entry is None else self._read(entry.value)
            self._remove_silent(table, now)
            self._divide(table, done, ends=ends)
            begun = self._clock()
            text = msgspec.json.encode(table)
            try:
                if entry is None:
                    await self._bucket.create(self._key, text, ttl=self._ttl)
                else:
                    await self._bucket.update(self._key, text, entry.revision, ttl=self._ttl)
            except WrongLastSequenceError:
                continue
            self._until = begun if ends else begun + self._seconds * (1 - _MARGIN)
            self.owned = {at: term for at, (owner, term) in enumerate(table.owners) if owner == self._name}
            self.leaving &= self.owned.keys()
            break
        return self.is_valid

    def _read(self, text: bytes) -> Table:
        try:
            table = msgspec.json.decode(text, type=Table)
        except ValueError as failure:
            raise RunError(f"the shares of the work are divided by another program, or release: {failure}") from None
        if len(table.owners) != self._count:
            raise RunError(f"others divide the work in {len(table.owners)} shares, and this process in {self._count}")
        return table

    def _remove_silent(self, table: Table, now: float) -> None:
        """Remove the members that have raised no number for their lease, and free their shares."""
        seen = {}
        for name, member in tuple(table.members.items()):
            number, since = self._seen.get(name, (None, now))
            seen[name] = member.number, since if number == member.number else now
            if name != self._name and now - seen[name][1] > member.seconds * (1 + DRIFT):
                del table.members[name]
        self._seen = seen
        table.owners = [(name if name in table.members else "", term) for name, term in table.owners]

    def _divide(self, table: Table, done: set[int], *, ends: bool) -> None:
        """Enter this member, with its part of the shares."""
        # Never the same again, also after others have removed this member.
        self._number += 1
        table.members[self._name] = Member(self._number, self._seconds)
        owners = [name for name, _ in table.owners]
        own = [at for at, name in enumerate(owners) if name == self._name]
        # Who has more keeps more: nothing moves without need.
        ranks = sorted(table.members, key=lambda name: (-owners.count(name), name))
        most = self._count // len(ranks) + (ranks.index(self._name) < self._count % len(ranks))
        # What was left once is given up, as its work is dropped.
        self.leaving |= set(own[most:])
        for at in done.intersection(own):
            table.owners[at] = "", table.owners[at][1]
        for at in [at for at, name in enumerate(owners) if not name][: max(0, most - len(own))]:
            if not ends:
                table.owners[at] = self._name, table.owners[at][1] + 1
        if ends:
            del table.members[self._name]
            table.owners = [("" if name == self._name else name, term) for name, term in table.owners]

    async def leave(self) -> None:
        """Give up all shares, when nothing more is done for them: others take them with their next steps."""
        # Whether the answer comes or not, others may have them from now on.
        self.owned, self._until = {}, self._clock()
        if self._seen:
            with suppress(StreamError, ConnectionError, RunError, asyncio.TimeoutError):
                await self.step(ends=True)
