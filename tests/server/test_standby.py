"""Two servers on real sockets and one lease in a real nats-server, without Spark: who answers, who runs the routes."""

from __future__ import annotations

import asyncio
import gzip
import json
import sqlite3
import ssl
import threading
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from tests.certificates import make_certificates
from tests.server.conftest import route_text, wait_for
from tests.server.fakes import FakeRunner
from turnout.embedded import NatsServer
from turnout.errors import ConfigError, RunError
from turnout.runtime.leases import PERMIT_SECONDS, Fence, FenceServer, LeaseLostError, Member
from turnout.server.config import ServerConfig
from turnout.server.election import Elector, Lease
from turnout.server.serving import RouteServer
from turnout.server.standby import StandbyApp, folder_of_term


@dataclass
class Served:
    """A server that is waited for on a thread."""

    server: RouteServer
    runner: FakeRunner
    stop: threading.Event = field(default_factory=threading.Event)
    failure: BaseException | None = None

    def __post_init__(self) -> None:
        self.thread = threading.Thread(target=self._wait, daemon=True)
        self.thread.start()

    def _wait(self) -> None:
        try:
            self.server.wait(self.stop)
        except BaseException as failure:  # noqa: BLE001 - the test looks at it
            self.failure = failure

    @property
    def leads(self) -> bool:
        return self.server._standby is not None and self.server._standby.app is not None

    def end(self) -> None:
        self.stop.set()
        self.thread.join()
        self.server.__exit__(None, None, None)


class Pair:
    """Servers of one folder of routes."""

    def __init__(self, folder: Path, url: str, resources: ExitStack) -> None:
        self.routes, self.shared, self.url = folder / "routes", folder / "shared", url
        self.routes.mkdir()
        (self.routes / "a.yaml").write_text(route_text("a"))
        self._resources = resources

    def start(self, name: str, tls: dict[str, str] | None = None, **given: Any) -> Served:
        ha = {"lease": self.url, "folder": str(self.shared), "seconds": 2, **given}
        config = ServerConfig.model_validate({"listen": "127.0.0.1:0", "interval": "20ms", "ha": ha, "tls": tls})
        runner = FakeRunner()
        server = RouteServer(config, [self.routes], runner_of=lambda *_: runner)
        server._state_folder = self.shared.parent / name
        server.__enter__()
        one = Served(server, runner)
        self._resources.callback(one.end)
        return one


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    with NatsServer() as server, ExitStack() as resources:
        yield Pair(tmp_path, server.url, resources)


def ask(one: Served, path: str, body: object = None, method: str | None = None) -> tuple[int, Any]:
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json", "Origin": one.server.url}
    request = urllib.request.Request(one.server.url + path, data, headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            text = answer.read().decode()
            return answer.status, json.loads(text) if text.startswith(("{", "[")) else text
    except urllib.error.HTTPError as refused:
        return refused.code, json.loads(refused.read())


def test_the_standby_answers_by_the_leader(pair: Pair) -> None:
    """Reads, changes, streams and WebSockets reach the leader; what is about the process is the standby's own."""
    first = pair.start("one")
    wait_for(lambda: first.leads and first.runner.runs["a"])
    second = pair.start("two")
    wait_for(lambda: ask(second, "/ready")[0] == 200)
    second.runner.is_warm = False
    assert ask(second, "/ready")[1]["problems"] == {"spark": "the session is being prepared"}

    assert [one["name"] for one in ask(second, "/v1/routes")[1]["items"]] == ["a"]
    assert ask(second, "/v1/routes/a/pause", {}, "POST")[0] == 202
    wait_for(lambda: ask(first, "/v1/routes/a/status")[1]["state"] == "paused")
    status, created = ask(second, "/v1/routes/b", {"text": route_text("b")}, "PUT")
    assert (status, created["name"]) == (201, "b")
    assert ask(second, "/v1/routes/zz")[0] == 404
    for encoding in ("gzip", "identity"):
        request = urllib.request.Request(f"{second.server.url}/v1/openapi.json", headers={"Accept-Encoding": encoding})
        with urllib.request.urlopen(request, timeout=30) as answer:
            found = answer.read()
        assert json.loads(gzip.decompress(found) if encoding == "gzip" else found)["openapi"]
    assert ask(second, "/v1/leader")[1]["url"] == first.server.url
    assert "turnout_leader 0" in ask(second, "/metrics")[1]
    assert "turnout_leader 1.0" in ask(first, "/metrics")[1]
    assert not second.runner.runs

    with urllib.request.urlopen(second.server.url + "/v1/events?after=0&follow=false", timeout=30) as events:
        assert b"route.version" in events.read()


def test_servers_that_ask_for_certificates(pair: Pair, tmp_path: Path) -> None:
    """A standby shows its own to the leader."""
    pems = make_certificates(tmp_path)
    tls = {"cert": f"{pems}/server.pem", "key": f"{pems}/server.key", "clientCa": f"{pems}/ca.pem"}
    context = ssl.create_default_context(cafile=pems / "ca.pem")
    context.load_cert_chain(pems / "client.pem", pems / "client.key")
    first = pair.start("one", tls, ca=f"{pems}/ca.pem")
    wait_for(lambda: first.leads and first.runner.runs["a"])
    second = pair.start("two", tls, ca=f"{pems}/ca.pem")

    def answered() -> list[str]:
        try:
            with urllib.request.urlopen(f"{second.server.url}/v1/routes", timeout=30, context=context) as answer:
                return [route["name"] for route in json.loads(answer.read())["items"]]
        except urllib.error.HTTPError:
            return []

    wait_for(lambda: answered() == ["a"])
    with pytest.raises(OSError):
        urllib.request.urlopen(
            f"{second.server.url}/v1/routes", context=ssl.create_default_context(cafile=pems / "ca.pem")
        )


def test_another_leads_when_the_leader_hands_over(pair: Pair) -> None:
    """Pauses, versions and confirmations go over with the state; the standby runs the routes from their checkpoints."""
    (pair.routes / "b.yaml").write_text(route_text("b"))
    first = pair.start("one")
    wait_for(lambda: first.leads and first.runner.runs["a"] and first.runner.runs["b"])
    second = pair.start("two")
    wait_for(lambda: ask(second, "/ready")[0] == 200)
    checkpoint = Path(str(first.runner.runs["a"][0].route.checkpoint))
    (checkpoint / "offsets").mkdir(parents=True)
    (checkpoint / "offsets" / "0").write_text("v1\n")
    assert ask(second, "/v1/routes/b/pause", {}, "POST")[0] == 202

    assert ask(second, "/v1/leader/hand-over", {}, "POST")[0] == 202
    wait_for(lambda: not first.thread.is_alive())
    assert first.failure is None
    first.end()
    wait_for(lambda: second.leads and second.runner.runs["a"])

    continued = Path(str(second.runner.runs["a"][0].route.checkpoint))
    assert continued.parts[-3:] == ("term-00000002", "checkpoints", "a")
    assert (continued / "offsets" / "0").read_text() == "v1\n"
    assert ask(second, "/v1/routes/b/status")[1]["reason"] == "paused by anonymous"
    assert not second.runner.runs["b"]
    assert (pair.shared / "current").resolve() == continued.parents[1]


def test_a_leader_without_its_lease_ends(pair: Pair) -> None:
    """A leader that cannot renew its lease says so and stops; the other one leads after it."""
    first = pair.start("one")
    wait_for(lambda: first.leads and first.runner.runs["a"])
    second = pair.start("two")
    elector = first.server._leadership.elector  # type: ignore[union-attr]
    real, elector._step = elector._step, lambda **_: True  # type: ignore[method-assign]
    wait_for(lambda: first.failure is not None)
    assert isinstance(first.failure, RunError)
    assert "lease of term 1 is lost" in str(first.failure)
    assert first.runner.permit()[0] <= 0
    wait_for(lambda: second.leads and second.runner.runs["a"])
    elector._step = real  # type: ignore[method-assign]


def test_a_leader_that_is_cut_off_from_its_brokers_gives_way(pair: Pair) -> None:
    """The standby leads if it reaches the servers of the routes, and stays what it is if not."""
    (pair.routes / "a.yaml").write_text(route_text("a").replace("nats://127.0.0.1:1", pair.url))
    first = pair.start("one")
    wait_for(lambda: first.leads and first.runner.runs["a"])
    second = pair.start("two")
    wait_for(lambda: ask(second, "/ready")[0] == 200)
    leader, standby = first.server._leadership, second.server._leadership
    asked = threading.Semaphore(0)

    def reaches_none() -> bool:
        asked.release()
        return False

    standby._reaches, real = reaches_none, standby._reaches  # type: ignore[union-attr]
    leader._reaches = lambda: False  # type: ignore[union-attr]
    assert all(asked.acquire(timeout=30) for _ in range(3))
    assert first.leads
    standby._reaches = real  # type: ignore[union-attr]
    wait_for(lambda: first.failure is not None)
    assert "leadership of term 1 has ended: a server of the routes cannot be reached" in str(first.failure)
    assert first.runner.permit() == (0, 1)
    wait_for(lambda: second.leads and second.runner.runs["a"])


def test_without_a_leader_requests_are_to_come_again(pair: Pair) -> None:
    first = pair.start("one", lease="nats://127.0.0.1:1")
    assert ask(first, "/v1/routes") == (
        503, {"title": "no leader", "status": 503, "detail": "no server leads at present; try again"},
    )  # fmt: skip
    assert ask(first, "/ready")[0] == 503
    assert ask(first, "/live")[0] == 200


async def asked(app: StandbyApp, scope: dict[str, Any], *messages: dict[str, Any]) -> list[dict[str, Any]]:
    """Return what an ASGI application sends when it receives these messages."""
    received, sent = asyncio.Queue[dict[str, Any]](), []
    for message in messages:
        received.put_nowait(message)

    async def send(message: Any) -> None:
        sent.append(message)
        if message["type"] == "websocket.send":
            received.put_nowait({"type": "websocket.disconnect"})

    base = {"method": "GET", "query_string": b"", "headers": [], "client": ("10.1.2.3", 5)}
    await app({**base, **scope}, received.get, send)
    return sent


@asynccontextmanager
async def leader() -> AsyncIterator[tuple[StandbyApp, str]]:
    """A standby of a leader that tells what it is asked, and sends back what comes over a WebSocket."""

    async def told(request: web.Request) -> web.StreamResponse:
        names = ("Host", "Origin", "Cookie", "X-Forwarded-For", "Turnout-Forwarded", "Connection-Only")
        body = {"path": request.raw_path, "body": (await request.read()).decode()}
        headers = {name: request.headers.get(name) for name in names}
        return web.json_response({**body, **headers}, headers={"Set-Cookie": "a=1", "Location": "/there"}, status=302)

    async def echo(request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        async for message in socket:
            await socket.send_str(f"{message.data} back")
        return socket

    application = web.Application()
    application.add_routes([web.get("/ws", echo), web.route("*", "/{rest:.*}", told)])
    async with TestServer(application) as server:
        url = f"http://127.0.0.1:{server.port}"
        elector = Elector(Silent(), "me", "http://me", 5)
        elector.lease = Lease(1, "other", Member(1, 5.0, url))
        app = StandbyApp(elector, "http://me:1")
        yield app, url
        await app.close()


class Silent:
    """A store that nobody asks."""

    def read(self) -> tuple[str, str] | None:
        raise AssertionError

    def write(self, text: str, version: str | None) -> str:
        raise AssertionError

    def close(self) -> None:
        raise AssertionError


def test_requests_are_forwarded_as_they_are() -> None:
    """Path, body, cookies and redirects; the leader is asked under its own name, and an own origin becomes its own."""

    async def run() -> None:
        async with leader() as (app, url):
            headers = [
                (b"host", b"me:1"),
                (b"origin", b"http://me:1"),
                (b"cookie", b"s=2"),
                (b"connection", b"keep-alive, connection-only"),
                (b"connection-only", b"x"),
                (b"content-length", b"6"),
            ]
            scope = {
                "type": "http",
                "method": "POST",
                "path": "/a b",
                "raw_path": b"/a%20b%2Fc",
                "query_string": b"q=%2F",
            }
            parts: list[dict[str, Any]] = [
                {"type": "http.request", "body": b"abc", "more_body": True},
                {"type": "http.request", "body": b"def"},
            ]
            start, *chunks = await asked(app, {**scope, "headers": headers}, *parts)
            told = json.loads(b"".join(chunk["body"] for chunk in chunks))
            assert told == {
                "path": "/a%20b%2Fc?q=%2F",
                "body": "abcdef",
                "Host": url.removeprefix("http://"),
                "Origin": url,
                "Cookie": "s=2",
                "X-Forwarded-For": "10.1.2.3",
                "Turnout-Forwarded": "1",
                "Connection-Only": None,
            }
            assert start["status"] == 302
            sent = {name.lower(): value for name, value in start["headers"]}
            assert (sent[b"location"], sent[b"set-cookie"]) == (b"/there", b"a=1")

            again = {"type": "http", "path": "/", "headers": [(b"turnout-forwarded", b"1")]}
            assert (await asked(app, again))[0]["status"] == 503, "two standbys do not ask each other for ever"
            foreign = {"type": "http", "path": "/", "headers": [(b"host", b"me:1"), (b"origin", b"http://evil")]}
            _, *chunks = await asked(app, foreign)
            assert json.loads(b"".join(chunk["body"] for chunk in chunks))["Origin"] == "http://evil"

    asyncio.run(run())


def test_websockets_are_forwarded() -> None:
    async def run() -> None:
        async with leader() as (app, _):
            sent = await asked(
                app,
                {"type": "websocket", "path": "/ws"},
                {"type": "websocket.connect"},
                {"type": "websocket.receive", "text": "there"},
            )
            kinds = [message["type"] for message in sent]
            assert kinds[:2] == ["websocket.accept", "websocket.send"]
            assert sent[1]["text"] == "there back"
            refused = await asked(app, {"type": "websocket", "path": "/other"}, {"type": "websocket.connect"})
            assert [message["type"] for message in refused] == ["websocket.close"]
            app._elector.lease = None
            refused = await asked(app, {"type": "websocket", "path": "/ws"}, {"type": "websocket.connect"})
            assert "no server leads" in refused[0]["reason"]

    asyncio.run(run())


def test_a_term_begins_with_the_one_before(tmp_path: Path) -> None:
    """Databases are copied whole while they are in use, indexes are shared, locks are left out; two terms are kept."""
    routes = [tmp_path / "routes"]
    first = folder_of_term(tmp_path / "shared", 3, routes)
    (first / "checkpoints/a/subscriptions").mkdir(parents=True)
    (first / "checkpoints/a/subscriptions/index").write_bytes(b"large")
    (first / "checkpoints/a/run.lock").touch()
    with closing(sqlite3.connect(first / "checkpoints/a/backfills.db")) as database:
        database.execute("PRAGMA journal_mode=WAL")
        database.execute("CREATE TABLE t (n INTEGER)")
        database.execute("INSERT INTO t VALUES (7)")
        database.commit()
        database.execute("INSERT INTO t VALUES (8)")
        second = folder_of_term(tmp_path / "shared", 5, routes)
    with closing(sqlite3.connect(second / "checkpoints/a/backfills.db")) as database:
        assert database.execute("SELECT n FROM t").fetchall() == [(7,)]
    index = second / "checkpoints/a/subscriptions/index"
    assert index.stat().st_ino == (first / "checkpoints/a/subscriptions/index").stat().st_ino
    assert not (second / "checkpoints/a/run.lock").exists()

    with pytest.raises(RunError, match="has the folder of term 5, and the lease says 5"):
        folder_of_term(tmp_path / "shared", 5, routes)
    with pytest.raises(RunError, match="start all servers with the same paths"):
        folder_of_term(tmp_path / "shared", 6, [tmp_path / "elsewhere"])
    folder_of_term(tmp_path / "shared", 7, routes)
    names = sorted(entry.name for entry in (tmp_path / "shared").iterdir())
    assert names == ["current", "term-00000005", "term-00000007"]


def test_a_checkpoint_of_its_own_is_refused(pair: Pair) -> None:
    (pair.routes / "a.yaml").write_text(route_text("a") + "checkpoint: /elsewhere\n")
    first = pair.start("one")
    wait_for(lambda: first.leads)
    wait_for(lambda: ask(first, "/v1/routes/a")[1]["mistakes"])
    (mistake,) = ask(first, "/v1/routes/a")[1]["mistakes"]
    assert (mistake["path"], "several servers take turns" in mistake["problem"]) == ("checkpoint", True)


@pytest.mark.parametrize("more", [{"state": "here"}, {"checkpoints": "here"}])
def test_one_place_for_what_outlives_a_leader(more: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="in the folder of ha; remove these settings"):
        ServerConfig.model_validate({"ha": {"lease": "kubernetes", "folder": "shared"}, **more})


def test_a_fence_holds_for_the_time_that_it_was_told(caplog: pytest.LogCaptureFixture) -> None:
    """A task asks again when the time is over, and writes nothing when nobody answers, or the lease is over."""
    left, now = [0.9], [0.0]
    with FenceServer(lambda: (left[0], 7)) as server:
        fence = Fence(server.address, clock=lambda: now[0])
        fence.check()
        left[0] = -1.0
        now[0] = 0.8
        fence.check()
        now[0] = 0.9
        with pytest.raises(LeaseLostError, match=r"in term 7: .* no longer has the lease"):
            fence.check()
        assert "in term 7" in caplog.text
        host, port, token = server.address.split(" ")
        stranger = Fence(f"{host} {port} {'0' * len(token)}")
        with pytest.raises(LeaseLostError, match="does not answer"):
            stranger.check()
        left[0] = 4.0
        fence.check()
        left[0] = -1.0
        now[0] = 0.9 + PERMIT_SECONDS
        with pytest.raises(LeaseLostError, match="no longer has the lease"):
            fence.check()
    with pytest.raises(LeaseLostError, match="does not answer"):
        fence.check()


def test_mistakes_of_the_settings(tmp_path: Path) -> None:
    file = tmp_path / "turnout.yaml"
    file.write_text("ha: {lease: nats://here, folder: f, second: 3}\n")
    with pytest.raises(ConfigError, match=r'ha\.second: is no setting; there are .*did you mean "seconds"'):
        ServerConfig.load(file, {})
