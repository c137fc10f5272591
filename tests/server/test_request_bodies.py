"""Bodies of requests: invalid lengths, bodies beyond the limit, and the limit of all together."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from starlette.types import Message, Receive, Scope, Send

from tests.server.conftest import Bench, client_of
from tests.server.test_security import JSON
from turnout.server.request_bodies import Bodies

BIG = 5 << 20


@pytest.mark.parametrize("length", ["-1", "+1", "1_0", "0x10", "1.0", "9" * 5_000, "", " "])
def test_a_length_that_is_none_is_refused(bench: Bench, length: str) -> None:
    """A Content-Length that is no number of bytes is answered with 400, and short in the answer."""
    answer = client_of(bench).post("/v1/subjects/map", headers={**JSON, "Content-Length": length})

    assert answer.status_code == 400
    assert len(answer.text) < 400


def test_a_body_without_a_length_is_cut_off_at_the_limit(bench: Bench) -> None:
    """A chunked body is counted while it is read, and answered with 413."""
    sent = 0

    def parts() -> Iterator[bytes]:
        nonlocal sent
        for _ in range(BIG >> 16):
            sent += 1 << 16
            yield b" " * (1 << 16)

    assert client_of(bench).post("/v1/subjects/map", headers=JSON, content=parts()).status_code == 413
    answer = client_of(bench).post("/v1/subjects/map", headers=JSON, content=iter([b"{", b"}"]))
    assert answer.status_code == 422


@pytest.mark.parametrize("origin", ["http://[", "http://[::1", "//["])
def test_an_origin_that_is_no_address_is_not_ours(bench: Bench, origin: str) -> None:
    """It is refused as that of another site."""
    answer = client_of(bench).post("/v1/subjects/map", headers={**JSON, "Origin": origin}, content=b"{}")
    assert answer.status_code == 403


class Reading:
    """Request whose body arrives in these parts."""

    def __init__(self, bodies: Bodies) -> None:
        self._bodies = bodies
        self._parts: asyncio.Queue[Message] = asyncio.Queue()
        self.refused: list[int] = []
        self.received: list[bytes] = []
        self.answer = asyncio.Event()

    def give(self, size: int, more: bool = True) -> None:
        self._parts.put_nowait({"type": "http.request", "body": b"x" * size, "more_body": more})

    def go(self) -> None:
        self._parts.put_nowait({"type": "http.disconnect"})

    async def run(self) -> None:
        async def app(_scope: Scope, receive: Receive, _send: Send) -> None:
            self.received.append((await receive())["body"])
            await self.answer.wait()

        async def refuse(status: int, _reason: str) -> None:
            self.refused.append(status)

        async def send(_: Any) -> None:
            raise AssertionError

        await self._bodies.forward(app, {}, self._parts.get, send, refuse)


def test_bodies_share_a_budget() -> None:
    """Bytes are held until their request is answered, refused or gone; one more body than fits is answered with 503."""

    async def run() -> None:
        bodies = Bodies(total=100)
        answered, slow, third, gone, last = (Reading(bodies) for _ in range(5))
        tasks = [asyncio.create_task(reading.run()) for reading in (answered, slow, third)]
        answered.give(50, more=False)
        slow.give(40)
        await asyncio.sleep(0)
        third.give(20)
        await tasks[2]
        assert (answered.received, third.refused) == ([b"x" * 50], [503])

        slow.go()
        await tasks[1]
        assert slow.received == []
        gone.give(50)
        gone.go()
        await gone.run()
        answered.answer.set()
        await tasks[0]
        last.give(100, more=False)
        last.answer.set()
        await last.run()
        assert (last.received, last.refused) == ([b"x" * 100], [])

    asyncio.run(run())
