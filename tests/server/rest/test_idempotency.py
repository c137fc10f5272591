"""Idempotency keys: requests that are sent again."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from starlette.testclient import TestClient
from starlette.types import Message, Receive, Scope, Send

from tests.server.conftest import Bench
from turnout.rpc.caller import Caller
from turnout.server.rest.idempotency import IdempotentPosts
from turnout.server.security import ANONYMOUS, Principal

NEW = {"destinations": ["d"], "condition_text": "a:b"}


def keyed(key: str) -> dict[str, str]:
    return {"Idempotency-Key": key}


def test_a_repeated_request_has_the_first_answer(bench: Bench, client: TestClient) -> None:
    """The same id and tag, and one subscription; the answer says that it was given before."""
    first = client.post("/v1/subscriptions", json=NEW, headers=keyed("k1"))
    again = client.post("/v1/subscriptions", json=NEW, headers=keyed("k1"))
    other = client.post("/v1/subscriptions", json=NEW, headers=keyed("k2"))

    assert first.status_code == again.status_code == 201
    assert again.content == first.content
    assert again.headers["Location"] == first.headers["Location"]
    assert "Idempotency-Replayed" not in first.headers
    assert again.headers["Idempotency-Replayed"] == "true"
    assert other.json()["id"] != first.json()["id"]
    assert len(bench.store.snapshot()) == 2


@pytest.mark.parametrize(
    "sent",
    [
        ("/v1/subscriptions", {**NEW, "destinations": ["e"]}),
        ("/v1/subscriptions/create-many", {"subscriptions": [NEW]}),
    ],
)
def test_a_key_of_another_request_is_refused(bench: Bench, client: TestClient, sent: tuple[str, Any]) -> None:
    client.post("/v1/subscriptions", json=NEW, headers=keyed("k1"))
    path, body = sent
    refused = client.post(path, json=body, headers=keyed("k1"))

    assert refused.status_code == 422
    assert "was sent with another request" in refused.json()["detail"]
    assert len(bench.store.snapshot()) == 1


@pytest.mark.parametrize("key", ["", "a b", "x" * 256, "\xe9"])
def test_keys_that_are_none(client: TestClient, key: str) -> None:
    refused = client.post("/v1/subscriptions", json=NEW, headers={b"Idempotency-Key": key.encode("latin-1")})

    assert refused.status_code == 400
    assert "1 to 255 visible ASCII characters" in refused.json()["detail"]


def test_a_failure_is_not_kept(bench: Bench, client: TestClient) -> None:
    """A request that was refused may succeed later."""
    new = {**NEW, "id": "x"}
    client.post("/v1/subscriptions", json=new)
    refused = client.post("/v1/subscriptions", json=new, headers=keyed("k1"))
    client.request("DELETE", "/v1/subscriptions/x")
    stored = client.post("/v1/subscriptions", json=new, headers=keyed("k1"))

    assert (refused.status_code, stored.status_code) == (409, 201)
    assert "Idempotency-Replayed" not in stored.headers


class Counting:
    """An application that answers with the number of its calls."""

    def __init__(self, status: int = 201, size: int = 0) -> None:
        self.status, self.size, self.calls = status, size, 0
        self.gate = asyncio.Event()
        self.gate.set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.calls += 1
        body = f"{self.calls}".encode().ljust(self.size)
        await self.gate.wait()
        await send({"type": "http.response.start", "status": self.status, "headers": []})
        await send({"type": "http.response.body", "body": body})


async def post(app: IdempotentPosts, key: str, principal: Principal = ANONYMOUS) -> bytes:
    """The body that a POST is answered with."""
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": b"{}"}

    async def send(message: Message) -> None:
        sent.append(message)

    scope = {
        "type": "http", "method": "POST", "path": "/x", "query_string": b"",
        "headers": [(b"idempotency-key", key.encode())], "state": {"principal": principal},
    }  # fmt: skip
    await app(scope, receive, send)
    return bytes(sent[1]["body"]).strip()


def test_a_request_under_way_is_waited_for() -> None:
    async def run() -> tuple[list[bytes], int]:
        counting = Counting()
        counting.gate.clear()
        app = IdempotentPosts(counting)
        requests = [asyncio.create_task(post(app, "k")) for _ in range(5)]
        await asyncio.sleep(0.01)
        counting.gate.set()
        return await asyncio.gather(*requests), counting.calls

    assert asyncio.run(run()) == ([b"1"] * 5, 1)


def test_after_a_failure_the_next_one_is_tried() -> None:
    """Those that wait run one after the other, as none succeeds."""

    async def run() -> list[bytes]:
        counting = Counting(status=503)
        counting.gate.clear()
        app = IdempotentPosts(counting)
        requests = [asyncio.create_task(post(app, "k")) for _ in range(3)]
        await asyncio.sleep(0.01)
        counting.gate.set()
        return sorted(await asyncio.gather(*requests))

    assert asyncio.run(run()) == [b"1", b"2", b"3"]


def test_callers_have_keys_of_their_own() -> None:
    async def run() -> list[bytes]:
        app = IdempotentPosts(Counting())
        tenants = [Principal("token a", Caller("acme")), Principal("token a", Caller("bolt"))]
        return [await post(app, "k", tenant) for tenant in tenants + tenants]

    assert asyncio.run(run()) == [b"1", b"2", b"1", b"2"]


def test_memory_is_bounded() -> None:
    """Beyond 1,000 keys or 1 MiB of a caller its oldest are forgotten, and no one else's."""

    async def run(size: int, count: int) -> tuple[bytes, bytes, bytes]:
        app = IdempotentPosts(Counting(size=size))
        other = Principal("token b")
        await post(app, "k0", other)
        for number in range(count):
            await post(app, f"k{number}")
        return await post(app, "k0", other), await post(app, f"k{count - 1}"), await post(app, "k0")

    assert asyncio.run(run(10, 1_001)) == (b"1", b"1002", b"1003")
    assert asyncio.run(run(1 << 19, 3)) == (b"1", b"4", b"5")
    assert asyncio.run(run(1 << 19, 2)) == (b"1", b"3", b"2")
