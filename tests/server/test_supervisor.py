"""Routes that fail, wait for their servers, end, and start again after a pause."""

from __future__ import annotations

import pytest

from tests.server.conftest import Bench, route_text, wait_for
from turnout.errors import ConnectionLostError
from turnout.server.errors import ConflictError
from turnout.server.supervisor import Phase


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
