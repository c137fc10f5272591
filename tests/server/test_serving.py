"""A whole server on real sockets, without Spark."""

from __future__ import annotations

import json
import logging
import queue
import shlex
import shutil
import sqlite3
import ssl
import subprocess
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import grpc
import pytest
from starlette.testclient import TestClient

from tests.certificates import make_certificates
from tests.documentation import blocks
from tests.feeds import FedRoute
from tests.server.conftest import Bench, client_of, route_text, wait_for
from tests.server.fakes import FakeRunner
from turnout.base.terminal import JsonLines
from turnout.conditions import kiwi
from turnout.console import add_console
from turnout.errors import ConfigError, RunError, StoreUnavailableError
from turnout.rpc import feeds
from turnout.rpc.caller import Caller, Right
from turnout.rpc.remote_store import RemoteStore
from turnout.rpc.server import RpcServer, ServerSettings, subscriptions_server
from turnout.rpc.status import RefusedError
from turnout.rpc.tokens import AcceptedToken, Sha256
from turnout.rpc.v1 import feeds_pb2 as pb
from turnout.rpc.v1.feeds_pb2_grpc import FeedsStub
from turnout.server.config import ServerConfig
from turnout.server.feeds import Feeds
from turnout.server.routes.supervisor import Phase
from turnout.server.serving import FeedCalls, RouteServer
from turnout.subscriptions import Subscription, open_store
from turnout.subscriptions.past import Snapshot
from turnout.subscriptions.store import BoundedPool, StoreThreads


@contextmanager
def serving(folder: Path, runner: FakeRunner | None = None, **given: Any) -> Iterator[RouteServer]:
    config = ServerConfig.model_validate({"listen": "127.0.0.1:0", "interval": "20ms", **given})
    with RouteServer(config, [folder], runner_of=lambda *_: runner or FakeRunner()) as server:
        yield server


def get(server: RouteServer, path: str, context: ssl.SSLContext | None = None, **headers: str) -> tuple[int, Any]:
    request = urllib.request.Request(server.url + path, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=30, context=context) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as refused:
        return refused.code, json.loads(refused.read())


def test_files_are_followed_and_everything_ends_in_order(tmp_path: Path) -> None:
    """A new route starts by itself; the end waits for runs, and listeners to events do not hold it up."""
    (tmp_path / "a.yaml").write_text(route_text("a"))
    runner = FakeRunner()
    with serving(tmp_path, runner) as server:
        listening = urllib.request.urlopen(server.url + "/v1/events?after=0", timeout=30)
        (tmp_path / "b.yaml").write_text(route_text("b"))
        wait_for(lambda: runner.runs["b"])
        assert [one["name"] for one in get(server, "/v1/routes")[1]["items"]] == ["a", "b"]
        runner.runs["b"][0].deliver(5)
    heard = listening.read().decode()
    listening.close()

    assert runner.closed
    assert all(run.stop.is_set() for runs in runner.runs.values() for run in runs)
    assert "event: route.state" in heard
    assert "event: route.progress" in heard
    with serving(tmp_path) as server:
        assert sum(one["counts"]["read"] for one in get(server, "/v1/routes/b/history")[1]) == 5


def test_rest_and_grpc_share_subscriptions_and_their_index(tmp_path: Path) -> None:
    """A subscription stored by one is immediately visible to the other; metrics count both."""
    with serving(tmp_path, store="memory://shared", grpc={"listen": "127.0.0.1:0"}) as server:
        store = RemoteStore.open(f"grpc://127.0.0.1:{server.grpc_port}")
        id_ = store.create(Subscription(["d"], kiwi("subject", "orders*")))

        assert get(server, f"/v1/subscriptions/{id_}")[1]["condition_text"] == "subject:orders*"
        store.close()
        with urllib.request.urlopen(server.url + "/metrics", timeout=30) as answer:
            assert "turnout_rpc_calls_total" in answer.read().decode()


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock of an SQLite file, as another program does that writes to it."""
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    other.execute("BEGIN EXCLUSIVE")
    try:
        yield
    finally:
        other.execute("ROLLBACK")
        other.close()


def post_subscription(server: RouteServer) -> tuple[int, str | None]:
    """The status of a new subscription, and when to try again."""
    body = json.dumps({"destinations": ["d"], "condition_text": "a:b"}).encode()
    request = urllib.request.Request(
        server.url + "/v1/subscriptions", body, headers={"Content-Type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, None
    except urllib.error.HTTPError as refused:
        refused.close()
        return refused.code, refused.headers["Retry-After"]


def test_a_locked_store_keeps_no_other_endpoint_waiting(tmp_path: Path) -> None:
    """While sixty writers wait, more than the framework has threads, all else answers, also what reads the store."""
    store = tmp_path / "s.db"
    config = {"listen": "127.0.0.1:0", "store": f"sqlite:///{store}", "grpc": {"listen": "127.0.0.1:0"}}
    routes = RouteServer(ServerConfig.model_validate(config), [tmp_path], runner_of=lambda *_: FakeRunner())
    routes._threads = StoreThreads(writes=BoundedPool("write", 8, seconds=60.0))
    with routes as server, ThreadPoolExecutor(60) as clients:
        threads = server.parts.threads
        with locked(store):
            writers = [clients.submit(post_subscription, server) for _ in range(60)]
            wait_for(lambda: threads.writes.calls == 60)
            wait_for(lambda: get(server, "/ready")[0] == 200)
            paths = ("/live", "/ready", "/v1/routes", "/v1/subscriptions", "/connectors")
            statuses = [get(server, path)[0] for path in paths]
            with urllib.request.urlopen(server.url + "/metrics", timeout=30) as answer:
                statuses.append(answer.status)
            still_waiting = sum(not writer.done() for writer in writers)
        stored = [writer.result() for writer in writers]

    assert statuses == [200] * 6
    assert still_waiting == 60
    assert stored == [(201, None)] * 60


def test_writers_beyond_those_that_may_wait_are_refused_at_once(tmp_path: Path) -> None:
    """Over REST with 503 and a time to retry, over gRPC with RESOURCE_EXHAUSTED; the others time out."""
    store = tmp_path / "s.db"
    config = {"listen": "127.0.0.1:0", "store": f"sqlite:///{store}", "grpc": {"listen": "127.0.0.1:0"}}
    routes = RouteServer(ServerConfig.model_validate(config), [tmp_path], runner_of=lambda *_: FakeRunner())
    routes._threads = StoreThreads(writes=BoundedPool("write", 1, waiting=2, seconds=8.0))
    with routes as server, ThreadPoolExecutor(3) as clients, locked(store):
        writers = [clients.submit(post_subscription, server) for _ in range(3)]
        wait_for(lambda: server.parts.threads.writes.full)
        refused = post_subscription(server)
        with (
            RemoteStore.open(f"grpc://127.0.0.1:{server.grpc_port}") as remote,
            pytest.raises(StoreUnavailableError, match="RESOURCE_EXHAUSTED: the store is slow, and 3 calls wait"),
        ):
            remote.delete("x")
        assert not any(writer.done() for writer in writers)
        gave_up = [writer.result() for writer in writers]

    assert refused == (503, "1")
    assert gave_up == [(503, "1")] * 3


DEAD = """name: a
source: {format: nats, servers: "nats://127.0.0.1:1", stream: IN}
sink: {format: nats, servers: "nats://127.0.0.1:1"}
deadLetter: {topic: dead}
"""


def status_of(server: RouteServer, path: str, body: bytes | None) -> int:
    """The status of a GET, or of a POST with a body."""
    request = urllib.request.Request(server.url + path, body, headers={"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as refused:
        refused.close()
        return refused.code


@pytest.mark.parametrize(
    ("path", "body", "waiting_for"),
    [
        ("/v1/routes/a/dead-letters/redrive", b"{}", "turnout.server.rest.records.newest"),
        ("/fragments/dead-letters/a/redrive", b"{}", "turnout.console.pages.dead_letters.newest"),
        ("/v1/routes/a/dead-letters", None, "turnout.server.rest.records.newest"),
        ("/fragments/routes/a/replay?to=earliest", None, "turnout.console.pages.route.replay_of"),
    ],
)
def test_slow_servers_of_routes_keep_no_other_endpoint_waiting(
    tmp_path: Path, path: str, body: bytes | None, waiting_for: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While as many requests as may wait for a route's server, all else answers; one more is refused at once."""
    may_go_on = threading.Event()
    monkeypatch.setattr(waiting_for, lambda *_, **__: may_go_on.wait(60) and [])
    (tmp_path / "a.yaml").write_text(DEAD)
    config = ServerConfig.model_validate({"listen": "127.0.0.1:0"})
    routes = RouteServer(config, [tmp_path], runner_of=lambda *_: FakeRunner(), pages=add_console)
    pool = BoundedPool("few", 4, waiting=46)
    routes._threads = StoreThreads(servers=pool, redrives=pool)
    with routes as server, ThreadPoolExecutor(50) as clients:
        waiting = [clients.submit(status_of, server, path, body) for _ in range(50)]
        wait_for(lambda: pool.full)
        refused = status_of(server, path, body)
        statuses = [get(server, other)[0] for other in ("/live", "/v1/routes", "/v1/routes/a/status")]
        still_waiting = sum(not call.done() for call in waiting)
        may_go_on.set()
        answered = {call.result() for call in waiting}

    assert refused == 503
    assert statuses == [200] * 3
    assert still_waiting == 50
    assert answered == {200}


def test_renewed_certificates_and_tokens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """New connections get the new certificate, and a removed token is refused, without a restart; a certificate that
    does not fit its key is not used."""
    monkeypatch.setattr("turnout.base.files._LOOK_SECONDS", 0.0)
    certificates = make_certificates(tmp_path)
    pair = {"pem": tmp_path / "tls.crt", "key": tmp_path / "tls.key"}

    def install(name: str, *kinds: str) -> None:
        for kind in kinds or pair:
            pair[kind].write_bytes((certificates / f"{name}.{kind}").read_bytes())

    def status(authority: str, token: str) -> int | None:
        context = ssl.create_default_context(cafile=certificates / authority)
        try:
            return get(served, "/v1/routes", context, Authorization=f"Bearer {token}")[0]
        except urllib.error.URLError:
            return None

    install("server")
    tokens = tmp_path / "tokens.txt"
    tokens.write_text("first-token\n")
    tls = {"cert": str(pair["pem"]), "key": str(pair["key"])}
    (tmp_path / "routes").mkdir()
    with serving(tmp_path / "routes", tls=tls, tokens=str(tokens)) as served:
        assert [status("ca.pem", "first-token"), status("other.pem", "first-token")] == [200, None]
        tokens.write_text("second-token\n")
        assert [status("ca.pem", "first-token"), status("ca.pem", "second-token")] == [401, 200]
        install("stranger", "pem")
        assert status("ca.pem", "second-token") == 200
        install("stranger", "key")
        assert [status("ca.pem", "second-token"), status("other.pem", "second-token")] == [None, 200]


def test_tls_and_tokens_hold_for_http_and_grpc(tmp_path: Path) -> None:
    """One configuration for both: without the authority or the token access is refused."""
    certificates = make_certificates(tmp_path)
    (tmp_path / "tokens").write_text("sesame\n")
    tls = {"cert": f"{certificates}/server.pem", "key": f"{certificates}/server.key"}
    config: dict[str, Any] = {
        "tls": tls,
        "tokens": str(tmp_path / "tokens"),
        "store": "memory://tls",
        "grpc": {"listen": "127.0.0.1:0"},
    }
    (tmp_path / "routes").mkdir()
    with serving(tmp_path / "routes", **config) as server:
        trusting = ssl.create_default_context(cafile=f"{certificates}/ca.pem")
        assert server.url.startswith("https://")
        with pytest.raises(urllib.error.URLError, match="CERTIFICATE_VERIFY_FAILED"):
            get(server, "/v1/routes")
        assert get(server, "/v1/routes", trusting)[0] == 401
        assert get(server, "/v1/routes", trusting, Authorization="Bearer sesame")[0] == 200
        authority = (certificates / "ca.pem").read_bytes()
        address = f"localhost:{server.grpc_port}"
        with grpc.secure_channel(address, grpc.ssl_channel_credentials(authority)) as channel:
            call = channel.unary_unary("/subscriptions.Service/Read", lambda _: b"", bytes)
            with pytest.raises(grpc.RpcError) as refused:
                call(b"")
        assert refused.value.code() == grpc.StatusCode.UNAUTHENTICATED


def test_an_address_that_is_taken_is_told_before_anything_starts(tmp_path: Path) -> None:
    """The failure releases everything: the state folder can be used again."""
    with serving(tmp_path) as server:
        config = ServerConfig.model_validate({"listen": f"127.0.0.1:{server.port}", "state": str(tmp_path / "other")})
        runner = FakeRunner()
        with (
            pytest.raises(ConfigError, match="cannot listen"),
            RouteServer(config, [tmp_path], runner_of=lambda *_: runner),
        ):
            pass
        assert not (tmp_path / "other").exists()


def test_a_certificate_of_another_key_is_told_at_the_start(tmp_path: Path) -> None:
    """It is reported at the start, not at the first connection."""
    certificates = make_certificates(tmp_path)
    tls = {"cert": f"{certificates}/server.pem", "key": f"{certificates}/client.key"}
    (tmp_path / "routes").mkdir()
    with pytest.raises(ConfigError, match="tls"), serving(tmp_path / "routes", tls=tls):
        pass


def test_a_server_whose_runner_is_gone_ends_with_the_reason(tmp_path: Path) -> None:
    """A supervisor can then restart it."""
    runner = FakeRunner()
    with serving(tmp_path, runner) as server:
        runner.lives = False
        with pytest.raises(RunError, match="started again"):
            server.wait(threading.Event())


def test_a_log_for_programs_is_an_object_a_line() -> None:
    """With the exception where there is one, and without what must not be shown."""
    failure = RunError("no server of nats://ann:secret@a answers")
    record = logging.LogRecord("turnout.server", logging.ERROR, "f", 1, "route %s", ("a",), (RunError, failure, None))
    record.route = "a"

    line = json.loads(JsonLines().format(record))

    assert (line["level"], line["message"], line["route"]) == ("error", "route a", "a")
    assert "secret" not in line["exception"]


@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl here: apt-get install curl")
def test_requests_of_the_page_with_curl(tmp_path: Path) -> None:
    """Each is answered as the page means it, one after another."""
    folder = tmp_path / "routes"
    folder.mkdir()
    (folder / "orders.yaml").write_text(route_text("orders"))
    block = next(block for block in blocks("server-api.md", "sh") if "curl" in block.text)
    commands = block.text.replace("\\\n", " ").strip().splitlines()
    with serving(folder, store="memory://", grpc={"listen": "127.0.0.1:0"}) as server:
        wait_for(lambda: server.routes.entry("orders").status.phase is Phase.RUNNING)
        answers = []
        for command in commands:
            words = shlex.split(command.replace("http://127.0.0.1:8090", server.url))
            answers.append(subprocess.run(words, capture_output=True, text=True, check=True).stdout)

    assert len(commands) == 7
    assert not [answer for answer in answers if '"status":4' in answer or '"status":5' in answer]
    assert json.loads(answers[5])["matches"][0]["subscription_id"] == "oulu"


SETTINGS = ServerSettings(host="127.0.0.1", port=0, grace_seconds=2.0, log_level="error")
TOKENS = tuple(
    AcceptedToken(Sha256.of(name), caller)
    for name, caller in {
        "root": Caller(),
        "acme": Caller("acme", frozenset({Right.READ})),
        "matcher": Caller(rights=frozenset({Right.MATCH})),
    }.items()
)
Read = Callable[..., list[pb.ReadResponse]]


@pytest.fixture
def calls(bench: Bench, fed: FedRoute) -> FeedCalls:
    """Access to the feeds of a server with that route."""
    bench.write("orders", fed.text)
    bench.routes.scan()
    return FeedCalls(bench.parts)


@pytest.fixture
def server(bench: Bench, calls: FeedCalls) -> Iterator[RpcServer]:
    with subscriptions_server(bench.store, replace(SETTINGS, tokens=TOKENS), feeds=calls) as server:
        yield server


@pytest.fixture
def stub(server: RpcServer) -> Iterator[FeedsStub]:
    with grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        yield FeedsStub(channel)


@pytest.fixture
def read(stub: FeedsStub) -> Read:
    """Read a feed to its present end, with further requests after the first."""

    def all_of(id_: str, *more: pb.ReadRequest, token: str = "root", **start: Any) -> list[pb.ReadResponse]:
        requests = [pb.ReadRequest(start=pb.Start(subscription_id=id_, **start)), *more]
        return list(stub.Read(iter(requests), timeout=30, metadata=_bearer(token)))

    return all_of


def _bearer(token: str) -> list[tuple[str, str]]:
    return [("authorization", f"Bearer {token}")]


def acknowledgement(cursor: str) -> pb.ReadRequest:
    return pb.ReadRequest(ack=pb.Acknowledgement(cursor=cursor))


def cursors(responses: list[pb.ReadResponse]) -> list[list[str]]:
    return [[message.cursor for message in response.messages] for response in responses]


def test_pages_have_the_messages_of_rest(read: Read, bench: Bench) -> None:
    """Every field is REST's, page by page, and the last response says that it is the last."""
    responses = read("oulu", limit=3)
    expected = client_of(bench).get("/v1/feeds/oulu").json()["messages"]
    messages = [message for response in responses for message in response.messages]

    assert cursors(responses) == [["1", "3", "5"], ["7", "9"]]
    assert [(response.cursor, response.last) for response in responses] == [("5", False), ("10", True)]
    assert [(m.topic, m.id, m.value.decode(), m.HasField("key")) for m in messages] == [
        (m["topic"], m["id"], m["value"], m["key"] is not None) for m in expected
    ]
    assert [[(header.name, header.value.decode()) for header in m.headers] for m in messages] == [
        [tuple(pair) for pair in m["headers"]] for m in expected
    ]
    assert cursors(read("oulu", after="5", route="orders")) == [["7", "9"]]
    assert read("oulu", after="9")[0] == pb.ReadResponse(cursor="10", last=True)


def test_a_named_reader_continues_behind_what_it_acknowledged(read: Read, bench: Bench) -> None:
    """The position is the one of REST's reader of that name."""
    first = read("turku", acknowledgement("4"), acknowledgement("2"), reader="desk", limit=2)
    again = read("turku", reader="desk")
    rest = client_of(bench).get("/v1/feeds/turku", params={"reader": "desk"}).json()

    assert cursors(first) == [["2", "4"], ["6", "8"], ["10"]]
    assert cursors(again) == [["6", "8", "10"]]
    assert [message["cursor"] for message in rest["messages"]] == [6, 8, 10]


def test_a_followed_feed_ends_with_its_subscription(stub: FeedsStub, fed: FedRoute, bench: Bench) -> None:
    """Messages arrive as their micro-batches are committed, acknowledgements while the call is open."""
    requests: queue.SimpleQueue[pb.ReadRequest | None] = queue.SimpleQueue()
    requests.put(pb.ReadRequest(start=pb.Start(subscription_id="oulu", reader="desk", limit=4, follow=True)))
    responses = stub.Read(iter(requests.get, None), timeout=60, metadata=_bearer("root"))
    seen = [next(responses), next(responses)]
    requests.put(acknowledgement("7"))
    desk = client_of(bench)
    wait_for(lambda: desk.get("/v1/feeds/oulu?reader=desk").json()["messages"][0]["cursor"] == 9)
    with open_store(fed.store_url) as store:
        store.delete("oulu")
    with pytest.raises(grpc.RpcError) as ended:
        list(responses)
    requests.put(None)

    assert cursors(seen) == [["1", "3", "5", "7"], ["9"]]
    assert ended.value.code() is grpc.StatusCode.NOT_FOUND
    assert "oulu" in ended.value.details()


@pytest.mark.parametrize("most", [1, 2])
def test_a_cut_between_the_messages_of_a_record(
    stub: FeedsStub, fed: FedRoute, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    """A client that continues behind a message's cursor, or a response's, gets every message of a record once."""
    monkeypatch.setattr(feeds, "_MAX_BYTES", 1)
    with open_store(fed.store_url) as store:
        store.update("oulu", replace(store.read("oulu"), destinations=("a", "b", "c")))
    seen: list[tuple[str, bytes]] = []
    after = ""
    while len(seen) < 15:
        start = pb.ReadRequest(start=pb.Start(subscription_id="oulu", after=after, follow=True))
        call = stub.Read(iter([start]), timeout=30, metadata=_bearer("root"))
        for response in islice(call, min(most, 15 - len(seen))):
            seen += [(message.topic, message.value) for message in response.messages]
            after = response.cursor
        call.cancel()

    assert [topic for topic, _ in seen] == ["a", "b", "c"] * 5
    assert len(set(seen)) == 15


def test_quiet_followers_get_the_cursor(stub: FeedsStub, monkeypatch: pytest.MonkeyPatch) -> None:
    """A response without messages after a quiet time; the call ends when its client cancels."""
    monkeypatch.setattr(feeds, "_QUIET_SECONDS", 0.0)
    start = pb.ReadRequest(start=pb.Start(subscription_id="oulu", after="9", follow=True))
    responses = stub.Read(iter([start]), timeout=60, metadata=_bearer("root"))

    assert [next(responses) for _ in range(3)] == [pb.ReadResponse(cursor="10", last=True)] * 3
    responses.cancel()


@pytest.mark.parametrize(
    ("requests", "code", "text"),
    [
        ([], "INVALID_ARGUMENT", "the first request of a call has start"),
        ([acknowledgement("1")], "INVALID_ARGUMENT", "the first request of a call has start"),
        ([pb.Start(subscription_id="nobody")], "NOT_FOUND", "nobody"),
        ([pb.Start(subscription_id="oulu", route="none")], "NOT_FOUND", "no route is named 'none'"),
        ([pb.Start(subscription_id="oulu", route="plain")], "INVALID_ARGUMENT", "feeds: true"),
        ([pb.Start(subscription_id="oulu", limit=1001)], "INVALID_ARGUMENT", "1001 records"),
        ([pb.Start(subscription_id="oulu", after="x")], "INVALID_ARGUMENT", "expected the cursor of a message"),
        ([pb.Start(subscription_id="oulu", reader="x" * 129)], "INVALID_ARGUMENT", "129 characters"),
        ([pb.Start(subscription_id="oulu", follow=True), acknowledgement("1")], "INVALID_ARGUMENT", "ack: expected"),
        (
            [pb.Start(subscription_id="oulu", reader="desk"), acknowledgement("-1")],
            "INVALID_ARGUMENT",
            "found '-1'",
        ),
        (
            [pb.Start(subscription_id="oulu", reader="desk"), pb.Start(subscription_id="turku")],
            "INVALID_ARGUMENT",
            "only the first request",
        ),
    ],
)
def test_calls_that_cannot_be_answered(
    stub: FeedsStub, bench: Bench, requests: list[pb.Start | pb.ReadRequest], code: str, text: str
) -> None:
    """The status and a text that names the value."""
    bench.start("plain")
    sent = [pb.ReadRequest(start=one) if isinstance(one, pb.Start) else one for one in requests]
    with pytest.raises(grpc.RpcError) as refused:
        list(stub.Read(iter(sent), timeout=30, metadata=_bearer("root")))

    assert refused.value.code().name == code
    assert text in refused.value.details()


def test_a_tenant_reads_its_own_feeds(read: Read, fed: FedRoute) -> None:
    """Others' subscriptions do not exist for it, and reading is a right."""
    with open_store(fed.store_url) as store:
        store.create(Subscription(["feed:"], "city:Oulu", id="@acme/mine"))

    assert cursors(read("mine", token="acme")) == [[]]
    for id_, token, code in (
        ("oulu", "acme", "NOT_FOUND"),
        ("oulu", "matcher", "PERMISSION_DENIED"),
        ("oulu", "unknown", "UNAUTHENTICATED"),
    ):
        with pytest.raises(grpc.RpcError) as refused:
            read(id_, token=token)
        assert refused.value.code().name == code


def test_followers_are_limited_with_those_of_rest(bench: Bench, calls: FeedCalls) -> None:
    """One more is refused with REST's text and time; a call that only reads pages is not."""
    calls.parts = bench.parts = replace(bench.parts, feeds=Feeds(max_followers=1))
    client: TestClient = client_of(bench)
    start = pb.Start(subscription_id="oulu", follow=True)
    with (
        subscriptions_server(bench.store, SETTINGS, feeds=calls) as server,
        grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel,
    ):
        stub = FeedsStub(channel)
        with client.websocket_connect("/v1/feeds/oulu") as socket:
            assert socket.receive_json()["cursor"] == 1
            with pytest.raises(grpc.RpcError) as refused:
                list(stub.Read(iter([pb.ReadRequest(start=start)]), timeout=30))
            start.follow = False
            assert len(list(stub.Read(iter([pb.ReadRequest(start=start)]), timeout=30))) == 1

    assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert refused.value.details() == "too many feeds are followed already: try again later"
    assert ("grpc-retry-pushback-ms", "5000") in refused.value.trailing_metadata()


def test_large_pages_come_in_parts_between_records(read: Read, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each part has a cursor of its own to continue from, and only the end of the feed is last."""
    monkeypatch.setattr(feeds, "_MAX_BYTES", 1)
    responses = read("oulu")

    assert cursors(responses) == [["1"], ["3"], ["5"], ["7"], ["9"]]
    assert [response.cursor for response in responses] == ["1", "3", "5", "7", "10"]
    assert [response.last for response in responses] == [False, False, False, False, True]


def test_calls_while_the_server_starts(bench: Bench) -> None:
    """The status says that a retry helps, with a time."""
    with (
        subscriptions_server(bench.store, SETTINGS, feeds=FeedCalls()) as server,
        grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel,
        pytest.raises(grpc.RpcError) as refused,
    ):
        list(FeedsStub(channel).Read(iter([pb.ReadRequest(start=pb.Start(subscription_id="x"))]), timeout=30))

    assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
    assert ("grpc-retry-pushback-ms", "1000") in refused.value.trailing_metadata()


def test_the_effect_of_an_import_while_the_server_starts(tmp_path: Path) -> None:
    """As on a standby: there are no routes yet on whose records it could be seen."""
    server = RouteServer(ServerConfig(), [tmp_path])
    with pytest.raises(RefusedError, match="is starting, or is a standby"):
        server._import_effect("a", 5, Snapshot(()), Snapshot(()))
