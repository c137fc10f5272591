"""Election of a leader with clocks that drift, stores that answer late or not at all, and candidates that sleep."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TypeVar

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from turnout.errors import ConnectionLostError, RunError
from turnout.runtime.leases import DRIFT, Table
from turnout.server.election import Elector, LeaseConflictError

SECONDS = 5.0
T = TypeVar("T")


@dataclass
class World:
    """True time, the one lease of all candidates, and who acts when: also while another's call is under way."""

    now: float = 0.0
    stored: tuple[str, int] | None = None
    due: list[tuple[float, int]] = field(default_factory=list)
    act: Callable[[int], None] = lambda _: None

    def write(self, text: str, version: str | None) -> str:
        found = None if self.stored is None else str(self.stored[1])
        if found != version:
            raise LeaseConflictError
        self.stored = text, int(version or 0) + 1
        return str(self.stored[1])

    def pass_time(self, seconds: float) -> None:
        end = self.now + seconds
        while self.due and self.due[0][0] <= end:
            at, number = heapq.heappop(self.due)
            self.now = max(self.now, at)
            self.act(number)
        self.now = max(self.now, end)


@dataclass
class Candidate:
    """A candidate with a clock of its own, and calls of its store that take time and may be lost on either way."""

    world: World
    name: str
    rate: float
    offset: float
    faults: Callable[[], tuple[float, float, str]]

    def __post_init__(self) -> None:
        self.elector = Elector(self, self.name, f"http://{self.name}", SECONDS, clock=self.clock)

    def clock(self) -> float:
        return self.offset + self.rate * self.world.now

    def read(self) -> tuple[str, str] | None:
        return self._call(self._stored)

    def _stored(self) -> tuple[str, str] | None:
        return None if self.world.stored is None else (self.world.stored[0], str(self.world.stored[1]))

    def write(self, text: str, version: str | None) -> str:
        return self._call(lambda: self.world.write(text, version))

    def close(self) -> None:
        """Close nothing."""

    def _call(self, work: Callable[[], T]) -> T:
        there, back, lost = self.faults()
        self.world.pass_time(there)
        if lost == "request":
            raise ConnectionLostError("the request is lost")
        result = work()
        self.world.pass_time(back)
        if lost == "answer":
            raise ConnectionLostError("the answer is lost")
        return result


short = st.one_of(st.just(0.0), st.floats(0, 0.1), st.floats(0, 6))
calls = st.tuples(short, short, st.sampled_from(["", "", "", "", "", "request", "answer"]))


@given(
    data=st.data(),
    rates=st.lists(st.floats(1.0, 1.0 + DRIFT), min_size=2, max_size=3),
    pauses=st.lists(st.tuples(st.integers(0, 2), st.floats(0, 30), st.floats(0, 20)), max_size=5),
)
def test_never_two_leaders(data: st.DataObject, rates: list[float], pauses: list[tuple[int, float, float]]) -> None:
    """Whatever is late, lost, asleep or cut off, at each moment one candidate leads, and no other's task may write."""
    world = World()
    candidates: list[Candidate] = []
    terms: dict[int, str] = {}
    permits: dict[str, float] = {}
    retired: set[str] = set()

    def candidate(number: int) -> Candidate:
        """Make the next process on a host."""
        name = f"c{number} {world.now}"
        return Candidate(world, name, rates[number], 1000.0 * number, lambda: data.draw(calls, "call"))

    def check() -> None:
        leading = [one for one in candidates if one.elector.remaining() > 0]
        assert len(leading) <= 1, [one.name for one in leading]
        for leader in leading:
            assert leader.elector.term is not None
            assert terms.setdefault(leader.elector.term, leader.name) == leader.name, "a term belongs to one leader"
            late = [name for name, until in permits.items() if name != leader.name and until > world.now + 1e-6]
            assert not late, "a task of another leader may write"
            # On the slowest clock.
            permits[leader.name] = world.now + leader.elector.permit()[0]

    def act(number: int) -> None:
        one = candidates[number]
        ends = [at + length for who, at, length in pauses if who == number and at <= world.now < at + length]
        if ends:
            heapq.heappush(world.due, (max(ends), number))
            return
        check()
        one.elector.is_cut_off = data.draw(st.booleans(), "is cut off")
        pause = one.elector.pause
        with suppress(ConnectionLostError):
            if one.name in retired:
                one.elector.release()
            else:
                one.elector.step()
                if one.elector.term is None and data.draw(st.booleans(), "reaches all"):
                    one.elector.ask()
        check()
        if one.elector.is_wanted and one.elector.remaining() > 0:
            pause = max(0.0, one.elector.retire()) / one.rate
            retired.add(one.name)
        elif one.elector.has_lost():
            candidates[number] = candidate(number)
        heapq.heappush(world.due, (world.now + pause, number))

    candidates += [candidate(number) for number in range(len(rates))]
    world.act = act
    world.due = [(0.0, number) for number in range(len(candidates))]
    while world.due and world.now < 40:
        world.pass_time(0.5)
        check()
    event(f"{min(len(retired), 1)} retired")
    event(f"{len(terms)} terms")


def without_faults() -> tuple[float, float, str]:
    return 0.0, 0.0, ""


def test_takes_over_after_the_lease_and_not_before() -> None:
    world = World()
    first, second = (Candidate(world, name, 1.0, 0.0, without_faults) for name in ("a", "b"))
    first.elector.step()
    assert first.elector.term == 1
    second.elector.step()
    for _ in range(20):
        world.now += SECONDS / 20
        second.elector.step()
        assert second.elector.term is None
    assert first.elector.has_lost()
    world.now += SECONDS * DRIFT + 0.01
    second.elector.step()
    assert second.elector.term == 2

    first.elector.step()
    assert first.elector.remaining() <= 0, "what was lost is not taken again"
    assert second.elector.remaining() > 0


def test_a_released_lease_is_taken_at_once() -> None:
    world = World()
    first, second = (Candidate(world, name, 1.0, 0.0, without_faults) for name in ("a", "b"))
    first.elector.step()
    second.elector.step()
    usual, first.elector.is_leaving = second.elector.pause, True
    first.elector.step()
    second.elector.step()
    assert second.elector.pause < usual, "it is told that the leader ends"
    first.elector.release()
    assert first.elector.remaining() == 0
    second.elector.step()
    assert second.elector.term == 2
    assert second.elector.lease is not None
    assert second.elector.lease.member.url == "http://b"


def test_a_leader_that_is_cut_off_gives_way() -> None:
    """A standby that reaches what the leader does not asks for the lease, and has it as soon as no task may write."""
    world = World()
    first, second = (Candidate(world, name, 1.0, 0.0, without_faults) for name in ("a", "b"))

    def wanted() -> bool:
        return first.elector.is_wanted

    first.elector.step()
    second.elector.step()
    second.elector.ask()
    first.elector.step()
    assert not wanted(), "it reaches all"

    first.elector.is_cut_off = True
    first.elector.step()
    second.elector.step()
    second.elector.ask()
    first.elector.is_cut_off = False
    first.elector.step()
    assert not wanted(), "it reaches all again"

    first.elector.is_cut_off = True
    second.elector.step()
    first.elector.step()
    # The leader has renewed its lease since the standby has looked.
    second.elector.ask()
    first.elector.step()
    assert wanted()
    for _ in range(2):
        second.elector.step()
        second.elector.ask()
    first.elector.step()
    assert wanted()
    first.elector.retire()
    assert first.elector.permit() == (0, 1)
    second.elector.step()
    assert second.elector.permit() == (0, 0)
    # Nor does a wish keep the leader from giving the lease back.
    second.elector.ask()
    first.elector.release()
    second.elector.step()
    assert second.elector.term == 2


def test_a_renewal_counts_from_its_own_write() -> None:
    """One whose answer was lost is no later one: the standby has seen it, and waits from then on."""
    world = World()
    answers = iter(["", "", "", "answer"])
    first = Candidate(world, "a", 1.0, 0.0, lambda: (0.0, 0.0, next(answers, "")))
    second = Candidate(world, "b", 1.0, 0.0, without_faults)
    first.elector.step()
    world.now = 1
    with pytest.raises(ConnectionLostError):
        first.elector.step()
    second.elector.step()
    world.now = 2
    first.elector.step()
    for _ in range(1_000):
        world.now += 0.01
        second.elector.step()
        assert first.elector.remaining() <= 0 or second.elector.remaining() <= 0
    assert second.elector.term == 2


def test_an_answer_that_is_lost_does_not_end_a_leader() -> None:
    """A renewal whose answer is lost has arrived; the next one finds its own text, and goes on."""
    world = World()
    answers = iter(["", "", "", "answer", "", "", "", ""])
    one = Candidate(world, "a", 1.0, 0.0, lambda: (0.0, 0.0, next(answers)))
    one.elector.step()
    world.now += 1
    with pytest.raises(ConnectionLostError):
        one.elector.step()
    world.now += 1
    one.elector.step()
    assert one.elector.remaining() > 0
    world.now += 1
    one.elector.step()
    assert one.elector.remaining() > 4


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"term": 1, "holder": "a", "url": "b", "seconds": 5}', '{"a": 1}'])
def test_what_is_no_lease_is_refused(text: str) -> None:
    with pytest.raises(RunError, match="none of this release of turnout"):
        Table.of(text, 1)
