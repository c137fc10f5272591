"""When a route that failed is started again."""

from __future__ import annotations

import pytest

from tests.server.conftest import Bench, route_text, wait_for
from turnout.errors import ConnectionLostError
from turnout.server.config import RestartsPart
from turnout.server.errors import ConflictError
from turnout.server.routes.supervisor import Phase, Restarts


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


def test_a_route_that_fails_is_started_again_and_then_parked_with_its_reason(bench: Bench) -> None:
    """Other routes continue; `restart` starts the parked one with all attempts."""
    bench.start("bad", "good")
    for number in (1, 2, 3):
        bench.run_of("bad", number).fail()
    bench.wait_phase("bad", Phase.FAILED)
    assert bench.routes.entry("bad").status.reason == "route bad failed: no luck"
    assert bench.phase("good") is Phase.RUNNING

    bench.routes.restart("bad")

    bench.run_of("bad", 4)
    bench.wait_phase("bad", Phase.RUNNING)


def test_an_outage_does_not_park_a_route(bench: Bench) -> None:
    """It waits for its server, however long that is away."""
    bench.runner.broken["a"] = ConnectionLostError("no server of nats://u:secret@h:1 answers")
    bench.write("a")
    bench.routes.scan()
    bench.run_of("a", 8)
    wait_for(lambda: bench.phase("a") is Phase.WAITING)
    assert "secret" not in bench.routes.entry("a").status.reason

    del bench.runner.broken["a"]

    bench.wait_phase("a", Phase.RUNNING)


def test_a_failure_that_nobody_foresaw_is_one_of_its_route_alone(bench: Bench) -> None:
    """An exception without a message is reported by its type."""
    bench.start("a", "b")
    for number in (1, 2, 3):
        bench.run_of("a", number).fail(ZeroDivisionError())
    bench.wait_phase("a", Phase.FAILED)

    assert bench.routes.entry("a").status.reason == "ZeroDivisionError"
    assert bench.phase("b") is Phase.RUNNING


def test_a_route_whose_trigger_ends_it_is_done(bench: Bench) -> None:
    """It is not started again by itself."""
    bench.start("a")
    bench.run_of("a").deliver(3)
    bench.run_of("a").finish()
    bench.wait_phase("a", Phase.DONE)

    bench.routes.restart("a")
    bench.run_of("a", 2).deliver(4)

    assert bench.routes.entry("a").status.counts.read == 7


def test_a_pause_outlives_the_server(bench: Bench) -> None:
    """The actor of the pause is shown; a restart of the process or a change of the file does not resume the route."""
    bench.start("a")
    bench.routes.pause("a", who="ann")
    bench.wait_phase("a", Phase.PAUSED)
    bench.close()
    bench.open()
    bench.routes.scan()
    bench.write("a", route_text("a", more="mappings: {x: y}"))
    bench.routes.scan()
    with pytest.raises(ConflictError, match="resume it"):
        bench.routes.restart("a")

    assert (bench.phase("a"), bench.routes.entry("a").status.reason) == (Phase.PAUSED, "paused by ann")
    bench.routes.resume("a")
    assert len(bench.run_of("a", 2).route.mappings) == 1


def test_a_route_that_comes_back_waits_for_its_last_micro_batch(bench: Bench) -> None:
    """Two runs of a name at once would share a checkpoint: the runner here refuses them."""
    bench.start("a")
    bench.routes.delete("a", who="ann")
    bench.write("a")
    bench.routes.scan()

    bench.run_of("a", 2)
    assert not (bench.folder / "b.yaml").exists()
