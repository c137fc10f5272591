"""Shares of work with clocks that drift, stores that answer late or not at all, and members that sleep."""

from __future__ import annotations

import heapq
import types
from collections.abc import Callable, Coroutine, Generator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from random import Random
from typing import Any

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from turnout.delivery.streams import Shares
from turnout.errors import ConnectionLostError, RunError
from turnout.nats.jetstream.errors import WrongLastSequenceError
from turnout.nats.jetstream.kv import Entry, KeyNotFoundError, Operation
from turnout.runtime.leases import DRIFT

SECONDS = 6.0
COUNT = 4


@types.coroutine
def passing(seconds: float) -> Generator[float]:
    """Let true time pass."""
    yield seconds


@dataclass
class World:
    """True time, the one text of all members, and what goes on at what time."""

    now: float = 0.0
    text: tuple[bytes, int] | None = None
    due: list[tuple[float, int, Coroutine[float, None, None], Callable[[float], float]]] = field(default_factory=list)
    begun: int = 0

    def start(self, work: Coroutine[float, None, None], awake: Callable[[float], float]) -> None:
        self.begun += 1
        heapq.heappush(self.due, (awake(self.now), self.begun, work, awake))

    def run(self, until: float, check: Callable[[], None]) -> None:
        while self.due and self.due[0][0] <= until:
            at, number, work, awake = heapq.heappop(self.due)
            # Between two events nothing begins; leases end by themselves.
            self.now = max(self.now, at)
            with suppress(StopIteration):
                seconds = work.send(None)
                heapq.heappush(self.due, (awake(self.now + seconds), number, work, awake))
            check()
        self.now = until
        for _, _, work, _ in self.due:
            work.close()


@dataclass
class Process:
    """A member with a clock of its own, and calls of its store that take time and may be lost on either way."""

    world: World
    name: str
    rate: float
    faults: Callable[[], tuple[float, float, str]]
    slow: int = 0

    def __post_init__(self) -> None:
        bucket: Any = self
        self.shares = Shares(
            bucket, "shares", self.name, COUNT, SECONDS, clock=lambda: 100.0 + self.rate * self.world.now
        )

    async def get(self, key: str) -> Entry:
        def read() -> tuple[bytes, int]:
            if self.world.text is None:
                raise KeyNotFoundError("no key", code=404)
            return self.world.text

        text, revision = await self._call(read)
        return Entry("bucket", key, text, revision, datetime.now(UTC), 0, Operation.PUT)

    async def create(self, key: str, text: bytes, *, ttl: object) -> None:
        await self.update(key, text, 0, ttl=ttl)

    async def update(self, _: str, text: bytes, revision: int, *, ttl: object) -> None:
        def store() -> None:
            if revision != (0 if self.world.text is None else self.world.text[1]):
                raise WrongLastSequenceError("another one", code=400)
            self.world.text = text, revision + 1

        await self._call(store)

    async def _call(self, work: Callable[[], Any]) -> Any:
        there, back, lost = self.faults()
        await passing(there)
        if lost == "request":
            raise ConnectionLostError("the request is lost")
        result = work()
        await passing(back)
        if lost == "answer":
            raise ConnectionLostError("the answer is lost")
        return result

    def held(self) -> dict[int, int]:
        return dict(self.shares.owned) if self.shares.is_valid else {}

    async def live(self, end: float) -> None:
        """Renew; each leaving share is busy for as many steps as it is slow; leave in the end, if there is one."""
        left: dict[int, int] = {}
        while self.world.now < end:
            left = {at: left.get(at, self.slow) - 1 for at in self.shares.leaving}
            with suppress(ConnectionLostError):
                await self.shares.step([at for at, steps in left.items() if steps > 0])
            await passing(self.shares.pause)
        await self.shares.leave()


def faults_of(random: Random) -> Callable[[], tuple[float, float, str]]:
    """Return what draws, for each call, how long its request and its answer take, and which of them is lost."""

    def seconds() -> float:
        return random.choice((0.0, 0.0, random.uniform(0, 0.1), random.uniform(0, 0.1), random.uniform(0, 7)))

    return lambda: (seconds(), seconds(), random.choice(("", "", "", "", "", "", "request", "answer")))


@settings(deadline=None)
@given(
    random=st.randoms(use_true_random=False),
    rates=st.lists(st.floats(1.0, 1.0 + DRIFT), min_size=2, max_size=4),
    ends=st.lists(st.floats(5, 80), min_size=4, max_size=4),
    pauses=st.lists(st.tuples(st.integers(0, 3), st.floats(0, 40), st.floats(0, 20)), max_size=5),
)
def test_no_share_has_two_owners(
    random: Random, rates: list[float], ends: list[float], pauses: list[tuple[int, float, float]]
) -> None:
    """Whatever is late, lost or asleep, at each moment a share is at most one member's, and a term one member's."""
    world = World()
    faults = faults_of(Random(random.random()))
    processes = [Process(world, f"m{number}", rate, faults, number) for number, rate in enumerate(rates)]
    terms: dict[tuple[int, int], str] = {}

    before: dict[str, tuple[dict[int, int], set[int]]] = {}

    def check() -> None:
        for one in processes:
            owned, leaving = before.get(one.name, ({}, set()))
            gone = {share for share, term in owned.items() if one.held().get(share) != term}
            assert not one.held() or gone <= leaving, "work ends before its share goes"
            before[one.name] = one.held(), set(one.shares.leaving)
        # Nothing begins for a share that is to leave, and it goes when nothing is under way.
        held = [
            (share, term, one.name)
            for one in processes
            for share, term in one.held().items()
            if share not in one.shares.leaving
        ]
        assert len({share for share, _, _ in held}) == len(held), held
        for share, term, name in held:
            assert terms.setdefault((share, term), name) == name, "a term belongs to one member"
            assert all(known <= term for known_share, known in terms if known_share == share), "terms grow"

    for number, process in enumerate(processes):

        def awake(at: float, number: int = number) -> float:
            woken = (begin + length for who, begin, length in pauses if who == number and begin <= at < begin + length)
            return max(woken, default=at)

        world.start(process.live(ends[number]), awake)
    world.run(60.0, check)
    event(f"{len(terms)} terms")


def finish(work: Coroutine[Any, None, Any]) -> None:
    """Run what waits for nothing but time."""
    with suppress(StopIteration):
        while True:
            work.send(None)


def without_faults() -> tuple[float, float, str]:
    return 0.0, 0.0, ""


def settled(*several: tuple[float, float]) -> tuple[list[Process], list[list[dict[int, int]]]]:
    """Run members from a time to another; return them, and what they held at each whole second."""
    world, seen = World(), []
    processes = [Process(world, f"m{number}", 1.0, without_faults, slow=2) for number in range(len(several))]

    async def watch() -> None:
        while True:
            seen.append([process.held() for process in processes])
            await passing(1.0)

    for process, (begin, end) in zip(processes, several, strict=True):
        world.start(process.live(end), lambda at, begin=begin: max(at, begin))  # type: ignore[misc]
    world.start(watch(), lambda at: at)
    world.run(max(end for _, end in several) + 1, lambda: None)
    return processes, seen


def test_shares_are_divided_anew_when_a_member_comes_or_goes() -> None:
    """All are the first one's; half of them go to the second; and back when that has left. Others do not move."""
    _, seen = settled((0, 60), (10, 30))

    assert [len(one) for one in seen[5]] == [4, 0]
    assert [len(one) for one in seen[20]] == [2, 2]
    assert [len(one) for one in seen[40]] == [4, 0]
    assert {at: term for at, term in seen[40][0].items() if at in seen[20][0]} == seen[20][0]
    assert all(seen[40][0][at] > term for at, term in seen[20][1].items())


def test_shares_of_a_member_that_is_silent_are_taken_after_its_lease() -> None:
    """Not before, and it has given them up by then on its own clock."""
    world = World()
    one, two = (Process(world, name, 1.0, without_faults) for name in ("a", "b"))
    seen: dict[float, tuple[int, int]] = {}
    world.start(one.live(99), lambda at: at if at < 20 else 1e9)
    world.start(two.live(99), lambda at: at)
    world.run(60, lambda: seen.setdefault(world.now, (len(one.held()), len(two.held()))) and None)

    assert seen[20.0] == (2, 2)
    taken = min(at for at, (_, second) in seen.items() if at > 20 and second == 4)
    assert 20 - one.shares.pause + SECONDS * (1 + DRIFT) <= taken <= 20 + SECONDS * (1 + DRIFT) + two.shares.pause
    assert seen[taken] == (0, 4)


def test_what_is_written_by_others_is_an_error() -> None:
    """Neither the text of an earlier release nor another number of shares is replaced."""
    for text in (b"owner of an earlier release", b'{"members":{},"owners":[["",0]]}'):
        world = World(text=(text, 1))
        with pytest.raises(RunError, match=r"none of this release|divide"):
            finish(Process(world, "a", 1.0, without_faults).shares.step())
