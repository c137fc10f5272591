"""State that is kept across restarts of the process."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnout.engine.counts import Counts
from turnout.errors import TurnoutError
from turnout.server.config import RetentionPart
from turnout.server.routes.state import Losses, MinutePace, Reset, State


def opened(folder: Path, now: float = 1e9, **retention: object) -> State:
    return State(folder, RetentionPart.model_validate(retention), clock=lambda: now)


def test_everything_is_there_again_and_readable_by_its_owner_only(tmp_path: Path) -> None:
    """Versions, pauses, resets, counts and events of a process are those of the next."""
    folder = tmp_path / "state"
    with opened(folder) as state:
        state.add_revision("r", digest="d1", text="one", file="r.yaml", who="file")
        state.add_revision("r", digest="d2", text="two", file="r.yaml", who="ann")
        state.pause("r", "ann")
        state.reset("r", {"S": 5})
        state.add_counts("r", Counts(read=2, delivered=2), 1e9)
        state.add_event("route.state", "r", {"state": "running"})
        assert {file.stat().st_mode & 0o077 for file in (folder, *folder.iterdir())} == {0}

    with opened(folder) as state:
        assert [(revision.digest, revision.who) for revision in state.revisions("r")] == [("d2", "ann"), ("d1", "file")]
        pause = state.paused("r")
        assert pause is not None
        assert (pause.who, pause.at) == ("ann", 1e9)
        assert state.reset_of("r") == Reset({"S": 5}, True)
        assert [count.counts.read for count in state.counts("r")] == [2]
        assert [event.detail for event in state.events()] == [{"state": "running"}]


def test_one_server_has_a_folder_at_a_time(tmp_path: Path) -> None:
    """Two would both start its routes."""
    with opened(tmp_path), pytest.raises(TurnoutError, match="another server"):
        opened(tmp_path)
    opened(tmp_path).close()


def test_counts_add_up_by_minute_and_are_kept_for_so_long(tmp_path: Path) -> None:
    """The sums are independent of the order and the number of writes."""
    with opened(tmp_path, now=6000.0, counts="1h") as state:
        for at, read in ((2300, 1), (3000, 2), (3059, 3), (3060, 4)):
            state.add_counts("r", Counts(read=read), at)
        state.add_counts("other", Counts(read=9), 3000)

        assert [(count.at, count.counts.read) for count in state.counts("r")] == [(3000, 5), (3060, 4)]
        assert [count.at for count in state.counts("r", since=3001)] == [3060]
        assert [(count.at, count.counts.read) for count in state.counts("r", step=300)] == [(3000, 9)]
        assert [count.at for count in state.counts("r", until=3060)] == [3000]


@settings(deadline=None, max_examples=40)
@given(st.lists(st.lists(st.tuples(st.integers(0, 300), st.integers(1, 9)), max_size=6), max_size=4), st.data())
def test_sums_of_hours_are_those_of_their_minutes(looks: list[list[tuple[int, int]]], data: st.DataObject) -> None:
    """Sums that are kept are written anew when something is added to an hour; the last hour is not over."""
    with TemporaryDirectory() as folder, opened(Path(folder), now=270 * 60.0, counts="30d") as state:
        expected = dict.fromkeys(range(0, 6 * 3600, 3600), 0)
        for additions in looks:
            for minute, read in additions:
                state.add_counts("r", Counts(read=read), minute * 60)
                expected[minute // 60 * 3600] += read
            until = data.draw(st.sampled_from([5 * 3600.0, 7200.0, float("inf")]))
            found = {one.at: one.counts.read for one in state.counts("r", 0.0, until, 3600)}

            assert found == {hour: read for hour, read in expected.items() if read and hour < until}


def test_one_wrong_reading_of_the_clock_deletes_no_counts(tmp_path: Path) -> None:
    """A clock that is ten years ahead for a while deletes nothing, in the process and in the one after it."""
    now = [1e9]
    state = State(tmp_path, clock=lambda: now[0])
    state.add_counts("r", Counts(read=1), now[0])
    now[0] += 10 * 365 * 86_400
    state.add_counts("r", Counts(read=2), now[0])
    assert [count.counts.read for count in state.counts("r")] == [1, 2]
    state.close()

    with opened(tmp_path, now=1e9 + 60) as later:
        later.add_counts("r", Counts(read=4), 1e9)
        assert [count.counts.read for count in later.counts("r")] == [5, 2]


def test_versions_and_events_are_bounded(tmp_path: Path) -> None:
    """The oldest go; the same version twice is one."""
    with opened(tmp_path, revisions=2, events=100) as state:
        for number in (1, 2, 3, 3):
            state.add_revision("r", digest=f"d{number}", text="", file="f", who="file")
        for number in range(450):
            state.add_event("kind", "r", {"n": number})
        ids = [event.id for event in state.events()]

        assert [revision.digest for revision in state.revisions("r")] == ["d3", "d2"]
        assert ids[-1] == 450
        assert len(ids) <= 350
        assert [event.detail["n"] for event in state.events(after=448)] == [448, 449]


def test_a_route_that_is_gone_leaves_no_pause_and_no_reset(tmp_path: Path) -> None:
    """A later one of its name begins as it says itself; its versions stay, as its checkpoint does."""
    with opened(tmp_path) as state:
        state.add_revision("r", digest="d", text="", file="f", who="file")
        state.pause("r", "ann")
        state.reset("r", None, pending=False)

        state.forget("r")

        assert (state.paused("r"), state.reset_of("r")) == (None, None)
        assert state.newest_revision("r") is not None


def test_what_is_old_is_found_without_looking_through_everything(tmp_path: Path) -> None:
    """A thousand routes have ten million minutes within a week: a flush and the page of dead letters touch few."""
    with opened(tmp_path, now=6000.0, counts="1h") as state:
        state.add_history(
            {("r", 3000): Counts(read=5, dead_lettered=2, undeliverable=1), ("s", 3000): Counts(read=1)},
            {("r", 3000): MinutePace(3000, 1, 0.5), ("r", 2000): MinutePace(2000, 1, 0.5)},
        )
        state.add_history({("r", 3000): Counts(read=5, dead_lettered=4)}, {})
        plans: list[str] = []
        state._db.set_trace_callback(plans.append)
        state.add_history({}, {("r", 3000): MinutePace(3000, 1, 0.5)})
        lost = state.losses(2400, 6000)
        state._db.set_trace_callback(None)
        queries = [text for text in plans if text.startswith(("SELECT", "DELETE"))]
        steps = [row[3] for text in queries for row in state._rows(f"EXPLAIN QUERY PLAN {text}")]

        assert lost == {"r": Losses(read=10, dead_lettered=6, undeliverable=1), "s": Losses(read=1)}
        assert [one.batches for one in state.pace("r")] == [2]
        assert len(queries) == 6
        assert [step for step in steps if step.startswith("SCAN")] == []


def test_dead_letters_of_an_older_folder_are_found(tmp_path: Path) -> None:
    """There they were written among the counts alone, or summed up in another table."""
    with opened(tmp_path) as state:
        state.add_counts("r", Counts(read=5, dead_lettered=2), 1e9)
        state.add_counts("s", Counts(read=5), 1e9)
        state._db.executescript("DROP TABLE losses; CREATE TABLE letters (minute INTEGER)")

    with opened(tmp_path) as state:
        assert state.losses(0.0, 2e9) == {"r": Losses(read=5, dead_lettered=2), "s": Losses(read=5)}
