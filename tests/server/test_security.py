"""The gate before every request."""

from __future__ import annotations

import asyncio
import gzip
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from starlette.testclient import TestClient
from starlette.types import Message, Receive, Scope, Send

from tests.server.conftest import Bench, client_of, route_text, wait_for
from turnout.errors import ConfigError
from turnout.rpc.caller import Caller, Right
from turnout.rpc.tokens import Scrypt, entry_of, new_token
from turnout.server.rest.app import build_app, guarded
from turnout.server.security import MAX_BODY, Bodies, Principal, TokenFile, allowed_hosts

JSON = {"Content-Type": "application/json"}
NEW = {"destinations": ["d"], "condition_text": "a:b"}


class Readers:
    """Everybody may read, those with a token may write as well."""

    def principal(self, token: str | None) -> Principal | None:
        rights = frozenset(Right) if token == "w" else frozenset({Right.READ})
        return Principal(token or "reader", Caller(rights=rights))


@pytest.fixture
def tokens(tmp_path: Path) -> TokenFile:
    file = tmp_path / "tokens"
    file.write_text("# of ann\nsesame\n\nopen\n")
    return TokenFile(file)


def test_a_token_opens_everything_but_probes_which_are_open(bench: Bench, tokens: TokenFile) -> None:
    """Wrong and missing tokens, and other schemes, get an error with the expected scheme."""
    client = client_of(bench, authenticator=tokens)
    for header in (None, "Bearer wrong", "Bearer ", "Basic sesame", "sesame"):
        refused = client.get("/v1/routes", headers={"Authorization": header} if header else {})
        assert (refused.status_code, refused.headers["www-authenticate"]) == (401, "Bearer")
    for path in ("/metrics", "/v1/docs", "/connectors", "/nowhere"):
        assert client.get(path).status_code == 401

    assert client.get("/v1/routes", headers={"Authorization": "Bearer sesame"}).status_code == 200
    assert client.get("/live").status_code == 200


def test_a_token_file_without_tokens_is_no_open_door(tmp_path: Path) -> None:
    """Neither is one that is something else."""
    for text in ("", "# nothing\n", "- id: a\n  hash: b\n"):
        (tmp_path / "t").write_text(text)
        with pytest.raises(ConfigError):
            TokenFile(tmp_path / "t")


def test_who_may_read_may_not_write_and_sees_no_secrets(bench: Bench) -> None:
    """Only callers with write permission see the complete text of a route."""
    client = client_of(bench, authenticator=Readers())
    bench.write("a", route_text("a").replace("stream: IN", "stream: IN, user: ann, password: hunter2"))
    bench.routes.scan()
    requests = [("PUT", "/v1/routes/a"), ("DELETE", "/v1/routes/a"), ("POST", "/v1/subscriptions")]
    requests += [("POST", f"/v1/routes/a/{what}") for what in ("pause", "resume", "restart")]
    requests += [("PUT", "/v1/routes/a/offsets"), ("PUT", "/connectors/a/pause"), ("POST", "/connectors/a/restart")]
    bodies = {"/v1/routes/a": {"text": "x"}, "/v1/routes/a/offsets": {"to": 1}}
    bodies["/v1/subscriptions"] = {"destinations": ["d"], "condition_text": "a:b"}
    for method, path in requests:
        body = bodies.get(path, {}) if method != "DELETE" else None
        assert client.request(method, path, json=body).status_code == 403, path

    reader, writer = (client.get("/v1/routes/a", headers=headers) for headers in ({}, {"Authorization": "Bearer w"}))
    assert "hunter2" not in reader.text
    assert "hunter2" in writer.text
    assert "hunter2" not in client.get("/connectors/a/config", headers={"Authorization": "Bearer w"}).text


def test_a_page_of_another_site_changes_nothing(bench: Bench) -> None:
    """Not by a form, not by a script, and not by a request whose content it cannot choose."""
    client = client_of(bench)
    bench.start("a")
    forms = [
        {"Content-Type": "text/plain"},
        {"Content-Type": "application/x-www-form-urlencoded"},
        {},
    ]
    for headers in forms:
        assert client.post("/v1/routes/a/pause", headers=headers, content=b"").status_code == 415
    for headers in (
        {**JSON, "Origin": "http://evil.example"},
        {**JSON, "Origin": "null"},
        {**JSON, "Sec-Fetch-Site": "cross-site"},
    ):
        assert client.post("/v1/routes/a/pause", headers=headers, content=b"{}").status_code == 403
    assert bench.phase("a") == "running"

    own = {**JSON, "Origin": "http://127.0.0.1:8090", "Sec-Fetch-Site": "same-origin"}
    assert client.post("/v1/routes/a/pause", headers=own, content=b"{}").status_code == 202
    assert client.post("/v1/routes/a/resume", headers={"Authorization": "Bearer x"}).status_code == 202
    assert client.put("/connectors/a/pause").status_code == 202


def test_reading_never_changes_anything(bench: Bench) -> None:
    """No path with an effect answers a GET."""
    client = client_of(bench)
    bench.start("a")
    for path in ("pause", "resume", "restart", "explain"):
        assert client.get(f"/v1/routes/a/{path}").status_code == 405
    assert client.get("/connectors/a/pause").status_code == 405


def test_a_host_that_is_not_ours_is_refused(bench: Bench) -> None:
    """Somebody may point a name of theirs at a loopback address, and have a browser ask for it."""
    client = client_of(bench, hosts=allowed_hosts("127.0.0.1", ["switch.example"]))
    for host, status in (("evil.example", 421), ("switch.example:8090", 200), ("localhost", 200), ("[::1]:1", 200)):
        assert client.get("/v1/routes", headers={"Host": host}).status_code == status
    assert allowed_hosts("0.0.0.0", []) is None
    assert allowed_hosts("::", ["a"]) == frozenset({"::", "a", "localhost", "127.0.0.1", "::1"})


def test_every_answer_tells_browsers_what_they_may_do(bench: Bench) -> None:
    """Scripts come from here alone, and none is inline; refusals say so too."""
    client = client_of(bench)
    for path in ("/v1/docs", "/v1/routes", "/nowhere"):
        headers = client.get(path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert (headers["x-content-type-options"], headers["cache-control"]) == ("nosniff", "no-store")
    assert "<script" not in client.get("/v1/docs").text
    assert "://" not in client.get("/v1/docs").text.replace("nats://", "")


def test_a_request_is_no_larger_than_it_needs_to_be(bench: Bench) -> None:
    """A text of a route is refused before it is read, when it is too long."""
    client = client_of(bench)

    assert client.put("/v1/routes/a", json={"text": "x" * (5 << 20)}).status_code == 413


class Deliberating:
    """Authenticator that recognises no token before it is told to, and caches one token."""

    def __init__(self) -> None:
        self.asked = threading.Event()
        self.decided = threading.Event()

    def remembered(self, token: str) -> Principal | None:
        return Principal("ann") if token == "known" else None

    def principal(self, token: str | None) -> Principal | None:
        self.asked.set()
        assert self.decided.wait(30)
        return None if token is None else Principal("bob")


def test_a_token_that_takes_long_holds_up_nobody_else(bench: Bench) -> None:
    """A token that has to be computed leaves the event loop to requests whose tokens are known."""
    deliberating = Deliberating()
    app = guarded(build_app(bench.parts), authenticator=deliberating)

    async def run() -> list[int]:
        transport = httpx2.ASGITransport(app)
        async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            unknown = asyncio.create_task(client.get("/v1/routes", headers={"Authorization": "Bearer new"}))
            assert await asyncio.to_thread(deliberating.asked.wait, 30)
            known = await client.get("/v1/routes", headers={"Authorization": "Bearer known"})
            assert not unknown.done()
            deliberating.decided.set()
            return [known.status_code, (await unknown).status_code]

    assert asyncio.run(asyncio.wait_for(run(), 60)) == [200, 200]


def test_unknown_tokens_do_not_queue(bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond a few checks at once a further unknown token is answered with 503, a recognised one with 200."""
    token, accepted = new_token()
    (tmp_path / "tokens.yaml").write_text(entry_of(accepted, "*", [Right.READ], []))
    tokens = TokenFile(tmp_path / "tokens.yaml")
    client = client_of(bench, authenticator=tokens)
    assert client.get("/v1/routes", headers={"Authorization": f"Bearer {token}"}).status_code == 200
    going = threading.Event()
    monkeypatch.setattr(Scrypt, "fits", lambda *_: not going.wait(30))
    name = token.partition(".")[0]
    threads = [threading.Thread(target=tokens.principal, args=(f"{name}.{number}",)) for number in range(8)]
    for thread in threads:
        thread.start()
    try:
        refused = wait_for(
            lambda: (
                (answer := client.get("/v1/routes", headers={"Authorization": f"Bearer {name}.x"})).status_code == 503
                and answer
            )
        )
        assert refused.json()["detail"].startswith("too many unknown tokens")
        assert client.get("/v1/routes", headers={"Authorization": f"Bearer {token}"}).status_code == 200
        assert client.get("/v1/routes", headers={"Authorization": "Bearer nobody.x"}).status_code == 401
    finally:
        going.set()
        for thread in threads:
            thread.join()


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

        await self._bodies.forward(app, {"headers": []}, self._parts.get, send, refuse)


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


def test_pages_of_other_origins(bench: Bench) -> None:
    """Those of the setting may do what a token may, and read the headers; the others, and all without it, may not."""
    known, other = {"Origin": "https://ops.example"}, {"Origin": "https://evil.example"}
    asked = {"Access-Control-Request-Method": "PATCH", "Access-Control-Request-Headers": "authorization,if-match"}
    client = client_of(bench, origins=["https://ops.example"])
    preflight = client.options("/v1/subscriptions/a", headers={**known, **asked})
    stored = client.post("/v1/subscriptions", json=NEW, headers={**known, "Sec-Fetch-Site": "cross-site"})
    missing = client.get("/v1/subscriptions/none", headers=known)

    assert preflight.status_code == 200
    assert "PATCH" in preflight.headers["Access-Control-Allow-Methods"]
    assert stored.status_code == 201
    for answer in (preflight, stored, missing):
        assert answer.headers["Access-Control-Allow-Origin"] == "https://ops.example"
        assert "Access-Control-Allow-Credentials" not in answer.headers
    assert "ETag" in stored.headers["Access-Control-Expose-Headers"]
    assert client.options("/v1/subscriptions/a", headers={**other, **asked}).status_code == 400
    assert "Access-Control-Allow-Origin" not in client.get("/v1/routes", headers=other).headers
    for refusing in (
        client.post("/v1/subscriptions", json=NEW, headers=other),
        client_of(bench).post("/v1/subscriptions", json=NEW, headers=known),
    ):
        assert refusing.status_code == 403
    assert "Access-Control-Allow-Origin" not in client_of(bench).get("/v1/routes", headers=known).headers


def test_answers_are_compressed(client: TestClient) -> None:
    """Those of a kilobyte or more, if the client takes gzip; a stream of events is not."""
    whole = client.get("/v1/openapi.json", headers={"Accept-Encoding": "identity"})
    compressed = client.get("/v1/openapi.json", headers={"Accept-Encoding": "gzip"})

    assert "Content-Encoding" not in whole.headers
    assert compressed.headers["Content-Encoding"] == "gzip"
    assert "Accept-Encoding" in compressed.headers["Vary"]
    assert int(compressed.headers["Content-Length"]) < len(whole.content) / 5
    assert compressed.json() == whole.json()
    events = client.get("/v1/events?follow=false", headers={"Accept-Encoding": "gzip"})
    assert "Content-Encoding" not in events.headers


@pytest.mark.parametrize(
    ("body", "encoding", "status", "words"),
    [
        (gzip.compress(json.dumps(NEW).encode()), "gzip", 201, ""),
        (gzip.compress(json.dumps(NEW).encode())[:-3], "gzip", 400, "not of gzip: it ends too early"),
        (gzip.compress(b"{") + gzip.compress(b"}"), "gzip", 400, "more than one member"),
        (b"{}", "gzip", 400, "not of gzip"),
        (gzip.compress(b" " * (MAX_BODY + 1)), "gzip", 413, "4,194,304 bytes when it is decompressed"),
        (b"{}", "br", 415, "expected gzip, found 'br'"),
        (json.dumps(NEW).encode(), "identity", 201, ""),
    ],
)
def test_compressed_requests(client: TestClient, body: bytes, encoding: str, status: int, words: str) -> None:
    """They have the limit of others."""
    headers = {"Content-Encoding": encoding, "Content-Type": "application/json"}
    answer = client.post("/v1/subscriptions", content=body, headers=headers)

    assert answer.status_code == status
    assert words in answer.text


@pytest.mark.parametrize(
    ("path", "kind", "body", "status"),
    [
        ("/v1/subscriptions", "text/plain", b"{}", 415),
        ("/v1/subscriptions", "application/x-ndjson", b"{}", 415),
        ("/v1/subscriptions", None, b"{}", 415),
        ("/v1/subscriptions", "application/merge-patch+json; charset=utf-8", json.dumps(NEW).encode(), 201),
        ("/v1/subscriptions/import", "application/json", b"{}", 415),
        ("/v1/subscriptions/import", "application/x-ndjson", b"", 422),
    ],
)
def test_bodies_of_another_type(client: TestClient, path: str, kind: str | None, body: bytes, status: int) -> None:
    """An Authorization header opens the gate for any type; what cannot be read is refused, with the type that can."""
    headers = {"Authorization": "Bearer x", **({"Content-Type": kind} if kind else {})}
    answer = client.post(path, content=body, headers=headers)

    assert answer.status_code == status
    if status == 415:
        assert answer.json()["detail"].startswith("Content-Type: expected application/")
