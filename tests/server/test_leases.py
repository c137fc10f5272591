"""Stores of leases: compare-and-set on a real nats-server, a real PostgreSQL, and an API server's stand-in."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.certificates import make_certificates
from tests.postgres import NotAvailable, Postgres
from turnout.embedded import NatsServer
from turnout.errors import ConfigError, ConnectionLostError, RunError
from turnout.runtime.leases import Member, Table
from turnout.server.election import Elector, KubernetesLease, LeaseConflictError, LeaseStore, lease_store

TEXT = Table({"a": Member(1, 5.0, "http://a")}, [("a", 1)]).text().decode()
OTHER = Table({"b": Member(1, 5.0, "http://b")}, [("b", 2)]).text().decode()


class ApiServer(ThreadingHTTPServer):
    """Leases as Kubernetes' API server keeps them: a write of another version than the present one is refused."""

    daemon_threads = True

    def __init__(self, certificates: Path) -> None:
        self.leases: dict[str, dict[str, Any]] = {}
        self.version = 100
        self.lock = threading.Lock()
        self.status: int | None = None
        self.body: bytes | None = None
        super().__init__(("127.0.0.1", 0), _Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificates / "server.pem", certificates / "server.key")
        self.socket = context.wrap_socket(self.socket, server_side=True)


class _Handler(BaseHTTPRequestHandler):
    server: ApiServer

    def _do(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or "null")
        with self.server.lock:
            status, answer = self._changed(self.path.rpartition("/leases")[2].strip("/"), body)
        if self.headers["Authorization"] != "Bearer secret-token":
            status, answer = 401, {}
        raw = self.server.body or json.dumps(answer).encode()
        self.send_response(self.server.status or status)
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def _changed(self, name: str, body: Any) -> tuple[int, dict[str, Any]]:
        leases = self.server.leases
        if self.command == "GET":
            return (200, leases[name]) if name in leases else (404, {})
        if self.command == "POST" and body["metadata"]["name"] in leases:
            return 409, {}
        if self.command == "PUT" and leases[name]["metadata"]["resourceVersion"] != body["metadata"]["resourceVersion"]:
            return 409, {}
        self.server.version += 1
        body["metadata"]["resourceVersion"] = str(self.server.version)
        leases[body["metadata"]["name"]] = body
        return 201 if self.command == "POST" else 200, body

    do_GET = do_POST = do_PUT = _do

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        pass


@contextmanager
def api_server(folder: Path) -> Iterator[tuple[ApiServer, LeaseStore]]:
    account = folder / "account"
    account.mkdir()
    certificates = make_certificates(folder)
    (account / "token").write_text("secret-token\n")
    (account / "namespace").write_text("routing")
    (account / "ca.crt").write_bytes((certificates / "ca.pem").read_bytes())
    server = ApiServer(certificates)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    environment = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(server.server_port)}
    try:
        yield server, KubernetesLease("kubernetes", "turnout", 2.0, environment=environment, account=account)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture(params=["nats", "postgres", "kubernetes"])
def stores(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[LeaseStore, LeaseStore]]:
    """Two clients of one lease."""
    if request.param == "nats":
        with NatsServer() as server:
            pair = [lease_store(server.url, "turnout", 5) for _ in range(2)]
            yield pair[0], pair[1]
            for one in pair:
                one.close()
        return
    if request.param == "postgres":
        try:
            with Postgres() as database:
                pair = [lease_store(database.url, "turnout", 5) for _ in range(2)]
                yield pair[0], pair[1]
                for one in pair:
                    one.close()
        except NotAvailable as absent:
            pytest.skip(str(absent))
        return
    with api_server(tmp_path) as (_, first):
        yield first, first


def test_of_two_writers_one_fails(stores: tuple[LeaseStore, LeaseStore]) -> None:
    first, second = stores
    assert first.read() is None
    version = first.write(TEXT, None)
    assert first.read() == second.read() == (TEXT, version)
    with pytest.raises(LeaseConflictError):
        second.write(OTHER, None)
    later = second.write(OTHER, version)
    with pytest.raises(LeaseConflictError):
        first.write(TEXT, version)
    assert first.read() == (OTHER, later)


def test_of_many_writers_one_wins(stores: tuple[LeaseStore, LeaseStore]) -> None:
    """Candidates that begin at once, on several connections."""
    electors = [Elector(store, f"c{number}", "http://c", 60) for number, store in enumerate(stores)]
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda elector: elector.step(), electors))
    assert sum(elector.remaining() > 0 for elector in electors) == 1


def test_a_server_that_is_away_is_a_lost_connection() -> None:
    with NatsServer() as server:
        url = server.url
    store = lease_store(url, "turnout", 1.5)
    with pytest.raises(ConnectionLostError):
        store.read()


@pytest.mark.parametrize(
    ("url", "name", "problem"),
    [
        ("redis://u:secret@here", "turnout", r"ha\.lease: expected nats://…, .* found redis://\*+@here"),
        ("nats://127.0.0.1", "Turn out", r"ha\.name: expected lower-case"),
        ("kubernetes", "turnout", r"there is no service account here"),
    ],
)
def test_mistakes(url: str, name: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        lease_store(url, name, 5)


def test_kubernetes_says_what_is_missing(tmp_path: Path) -> None:
    with api_server(tmp_path) as (server, store):
        store.write(TEXT, None)
        spec = server.leases["turnout"]["spec"]
        assert (spec["holderIdentity"], spec["leaseDurationSeconds"], spec["leaseTransitions"]) == ("a", 5, 0)
        server.status = 403
        with pytest.raises(RunError, match="may not keep the Lease turnout: it needs get, create and update"):
            store.read()
        server.status = 500
        with pytest.raises(ConnectionLostError, match="answers 500"):
            store.read()
        server.status, server.body = None, b"<html>"
        with pytest.raises(ConnectionLostError, match="answers no JSON"):
            store.read()
        server.body = None
        del server.leases["turnout"]["metadata"]["annotations"]
        with pytest.raises(RunError, match="another program's"):
            store.read()
