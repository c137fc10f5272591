"""The gate before every request."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import httpx2
import pytest

from tests.server.conftest import Bench, client_of, route_text, wait_for
from turnout.errors import ConfigError
from turnout.rpc.caller import Caller, Right
from turnout.rpc.tokens import Scrypt, entry_of, new_token
from turnout.server.app import build_app, guarded
from turnout.server.principal import Principal, TokenFile
from turnout.server.security import allowed_hosts

JSON = {"Content-Type": "application/json"}


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
