"""Events of routes and their listeners."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.server.conftest import Bench, client_of
from turnout.server.routes.events import Event, Events
from turnout.server.routes.state import State


def test_listeners_hear_what_was_kept_and_then_what_happens(tmp_path: Path) -> None:
    """Each event once and in order, from any thread; a reconnecting listener names the last event that it received."""

    async def listen() -> tuple[list[int], list[str]]:
        heard: list[int] = []
        kinds: list[str] = []
        async for event in events.listen(after=1):
            assert event is not None
            kinds.append(event.kind)
            if event.id is not None:
                heard.append(event.id)
            if event.id == 3:
                await asyncio.to_thread(events.publish, "four", "r", {})
                await asyncio.to_thread(events.progress, "r", {"counts": {}})
                await asyncio.to_thread(events.progress, "r", {"counts": {}})
                await asyncio.to_thread(events.publish, "five", "r", {})
            if event.kind == "five":
                events.close()
        return heard, kinds

    with State(tmp_path) as state:
        events = Events(state)
        for kind in ("one", "two", "three"):
            events.publish(kind, "r", {})

        heard, kinds = asyncio.run(asyncio.wait_for(listen(), 30))

    assert heard == [2, 3, 4, 5]
    assert kinds == ["two", "three", "four", "route.progress", "five"]


def test_silence_is_told_so_that_the_connection_stays(tmp_path: Path) -> None:
    """Listeners that connect after the end receive nothing."""

    async def listen() -> list[Event | None]:
        heard = []
        async for event in events.listen(quiet=0.01):
            heard.append(event)
            events.close()
        heard += [event async for event in events.listen()]
        return heard

    with State(tmp_path) as state:
        events = Events(state)

        assert asyncio.run(asyncio.wait_for(listen(), 30)) == [None]


def test_a_listener_that_stops_reading_holds_a_bounded_number(tmp_path: Path) -> None:
    """Events beyond the bound are not kept for a listener that is stuck, and it is let go once it reads again."""

    async def listen() -> int:
        listening = events.listen()
        events.progress("r", {})
        first = asyncio.ensure_future(anext(listening))
        await asyncio.sleep(0)
        events.publish("first", "r", {})
        await first
        for _ in range(3_000):
            events._send(Event("more", "r", 0.0, {}))
        await asyncio.sleep(0)
        (listener,) = events._listeners
        held = listener._queue.qsize()
        assert [event async for event in listening] == []
        return held

    with State(tmp_path) as state:
        events = Events(state)
        assert asyncio.run(asyncio.wait_for(listen(), 30)) == 1_000


def test_a_listener_that_was_away_long_gets_every_event(tmp_path: Path) -> None:
    """More events than one query reads are all yielded, and an id of another state folder begins with the oldest."""

    async def stored(events: Events, after: int) -> list[int | None]:
        seen: list[int | None] = []
        async for event in events.listen(after, quiet=0.01):
            if event is None:
                return seen
            seen.append(event.id)
        return seen

    with State(tmp_path) as state:
        events = Events(state)
        for number in range(2_005):
            events.publish("route.state", "a", {"n": number})
        assert asyncio.run(stored(events, 2)) == list(range(3, 2_006))
        assert asyncio.run(stored(events, 9_999)) == list(range(1, 2_006))


@pytest.mark.parametrize("written", ["9" * 5_000, "9" * 30, "٣", "-1", "x"])
def test_an_id_that_is_none_is_refused(bench: Bench, written: str) -> None:
    """A Last-Event-ID that no event can have is refused, not taken for another position."""
    bench.events.close()
    answer = client_of(bench).get("/v1/events", headers={b"Last-Event-ID": written.encode()})

    assert answer.status_code == 422
    assert answer.json()["detail"].startswith("bad request: 1 mistake\n  Last-Event-ID: expected the id of an event")
    assert client_of(bench).get(f"/v1/events?after={1 << 63}").status_code == 422
