"""Events of routes and their listeners."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.server.conftest import Bench, client_of
from turnout.server.events import Event, Events
from turnout.server.state import State


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


@pytest.mark.parametrize("written", ["9" * 5_000, "9" * 30, "٣", "-1", "x"])
def test_an_id_that_is_none_is_passed_over(bench: Bench, written: str) -> None:
    """A Last-Event-ID that no event can have is as good as none, and no failure of the server."""
    bench.events.close()
    answer = client_of(bench).get("/v1/events", headers={b"Last-Event-ID": written.encode()})

    assert (answer.status_code, answer.text) == (200, "retry: 2000\n\n")
    assert client_of(bench).get(f"/v1/events?after={1 << 63}").status_code == 422
