"""When a route that failed is started again."""

from __future__ import annotations

from turnout.server.config import RestartsPart
from turnout.server.restarts import Restarts


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def restarts(clock: Clock, draw: float = 1.0) -> Restarts:
    policy = RestartsPart.model_validate({"max": 3, "window": "1m", "pause": 1, "longest": "3s"})
    return Restarts(policy, clock=clock, draw=lambda: draw)


def test_pauses_double_up_to_the_longest_and_then_it_ends() -> None:
    """The number of restarts is that of the policy; one more is refused."""
    schedule = restarts(Clock())

    assert [schedule.after_failure() for _ in range(5)] == [1.0, 2.0, 3.0, None, None]


def test_a_draw_shortens_a_pause_to_no_less_than_half() -> None:
    """Routes that fail together do not restart together."""
    assert restarts(Clock(), 0.0).after_failure() == 0.5
    assert restarts(Clock(), 0.5).after_failure() == 0.75


def test_failures_before_the_window_are_forgotten() -> None:
    """A failure an hour is no failure too many."""
    clock = Clock()
    schedule = restarts(clock)
    for _ in range(10):
        assert schedule.after_failure() == 1.0
        clock.now += 61


def test_an_outage_never_ends_the_attempts_and_is_over_with_the_first_progress() -> None:
    """A server that is away is not the route's fault."""
    schedule = restarts(Clock())
    assert [schedule.after_outage() for _ in range(6)] == [1.0, 2.0, 3.0, 3.0, 3.0, 3.0]

    schedule.progressed()

    assert schedule.after_outage() == 1.0
    assert schedule.count == 0


def test_somebody_who_asks_for_the_route_gives_it_all_attempts_again() -> None:
    """Failures are counted from zero again."""
    schedule = restarts(Clock())
    while schedule.after_failure() is not None:
        pass

    schedule.forget()

    assert schedule.after_failure() == 1.0
