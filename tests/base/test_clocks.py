"""A clock for ages: a jump forward counts once it has lasted."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import turnout
from turnout.base.clocks import JUMP_SECONDS, LASTING_SECONDS, TrustedClock

DAY = 86_400.0


@dataclass
class Clocks:
    """Both clocks of a machine; to pass time moves both, to set the wall clock only one."""

    wall: float = 1e9
    monotonic: float = 50.0

    def __post_init__(self) -> None:
        self.trusted = TrustedClock(lambda: self.wall, lambda: self.monotonic)

    def passes(self, seconds: float) -> None:
        self.wall += seconds
        self.monotonic += seconds


def test_time_that_passes_is_believed() -> None:
    """The clock trusts elapsed monotonic time, even if it was not read for long."""
    clocks = Clocks()
    clocks.trusted.now()
    clocks.passes(30 * DAY)

    assert clocks.trusted.now() == clocks.wall


def test_a_jump_forward_is_believed_once_it_has_lasted() -> None:
    """A jump forward is ignored for an hour: time continues from the previous reading."""
    clocks = Clocks()
    before = clocks.trusted.now()
    clocks.wall += DAY
    assert clocks.trusted.now() == before
    clocks.passes(LASTING_SECONDS / 2)
    assert clocks.trusted.now() == before + LASTING_SECONDS / 2
    clocks.passes(LASTING_SECONDS / 2)

    assert clocks.trusted.now() == clocks.wall


def test_a_second_jump_begins_anew() -> None:
    """A jump has to last by one and the same amount; a clock that is right again is followed."""
    clocks = Clocks()
    clocks.trusted.now()
    clocks.wall += DAY
    clocks.trusted.now()
    clocks.passes(LASTING_SECONDS)
    clocks.wall += DAY

    assert clocks.trusted.now() == clocks.wall - 2 * DAY
    clocks.wall -= 2 * DAY
    assert clocks.trusted.now() == clocks.wall


def test_a_clock_that_is_set_back_is_followed_at_once() -> None:
    """A clock that is set back makes less of it old, so it is believed."""
    clocks = Clocks()
    clocks.trusted.now()
    clocks.wall -= DAY

    assert clocks.trusted.now() == clocks.wall


def test_small_corrections_are_followed() -> None:
    """A clock that is stepped by seconds is followed."""
    clocks = Clocks()
    clocks.trusted.now()
    clocks.wall += JUMP_SECONDS - 1

    assert clocks.trusted.now() == clocks.wall


def test_a_process_begins_with_what_was_written_before() -> None:
    """The first reading is not before the last recorded time; a recorded time in the future is not used."""
    assert Clocks().trusted.now(1e9 - DAY) == 1e9 - DAY
    assert Clocks().trusted.now(1e9 + DAY) == 1e9


OF_OTHERS = {
    "base/clocks.py": "the reader itself",
    "codecs/conversion.py": "a zone is added",
    "nats/jetstream/config.py": "nats-server writes zones",
    "nats/protocol/positions.py": "a zone is added",
    "nats/wire/records.py": "a zone is added",
    "runtime/nats/adapter.py": "a zone is added",
    "spark/running/counts.py": "Spark writes zones",
    "subscriptions/destinations.py": "a zone is demanded",
}
"""Modules that read times in ISO 8601 by themselves, with the reason."""


def test_times_are_read_in_one_place() -> None:
    """Elsewhere a time without a zone would be local time, or none that can be compared."""
    root = Path(turnout.__file__).parent
    found = {
        file.relative_to(root).as_posix()
        for file in root.rglob("*.py")
        if re.search(r"\.fromisoformat\(", file.read_text())
    }

    assert found == OF_OTHERS.keys()
