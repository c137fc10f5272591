"""What happens to routes, for those who listen."""

from __future__ import annotations

import asyncio
from pathlib import Path

from turnout.server.events import Event, Events
from turnout.server.state import State


def test_listeners_hear_what_was_kept_and_then_what_happens(tmp_path: Path) -> None:
    """Each once and in order, from any thread; who comes back says what it heard last."""

    async def listen() -> tuple[list[int], list[str]]:
        heard: list[int] = []
        kinds: list[str] = []
        async for event in events.listen(after=1):
            assert event is not None
            kinds.append(event.kind)
            if event.id is not None:
                heard.append(event.id)
            if event.id == 3:
                await asyncio.to_thread(events.tell, "four", "r", {})
                await asyncio.to_thread(events.progress, "r", {"counts": {}})
                await asyncio.to_thread(events.progress, "r", {"counts": {}})
                await asyncio.to_thread(events.tell, "five", "r", {})
            if event.kind == "five":
                events.close()
        return heard, kinds

    with State(tmp_path) as state:
        events = Events(state)
        for kind in ("one", "two", "three"):
            events.tell(kind, "r", {})

        heard, kinds = asyncio.run(asyncio.wait_for(listen(), 30))

    assert heard == [2, 3, 4, 5]
    assert kinds == ["two", "three", "four", "route.progress", "five"]


def test_silence_is_told_so_that_the_connection_stays(tmp_path: Path) -> None:
    """And those who come when it is over hear nothing."""

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
