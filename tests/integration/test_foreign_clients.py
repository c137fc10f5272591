"""Clients that no one here wrote: generated ones of two languages for gRPC, and npm's ``eventsource`` for events."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.feeds import FedRoute
from tests.integration.foreign_clients import Client, NotAvailable, go_client, node_client
from tests.integration.routes import command
from tests.server.test_serving import serving

from turnout.conditions import kiwi
from turnout.embedded import free_port
from turnout.rpc.server import RpcServer, ServerSettings, subscriptions_server
from turnout.server.serving import RouteServer
from turnout.subscriptions import Subscription, open_store
from turnout.subscriptions.store import FullStore

pytestmark = pytest.mark.heavy


def _client_or_skip(build: Callable[[], Client]) -> Client:
    try:
        return build()
    except NotAvailable as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="module", params=[go_client, node_client], ids=["go", "node"])
def client(request: pytest.FixtureRequest) -> Client:
    return _client_or_skip(request.param)


@pytest.fixture(scope="module")
def node() -> Client:
    return _client_or_skip(node_client)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[FullStore]:
    with open_store(f"sqlite:///{tmp_path}/subscriptions.db") as store:
        yield store


@pytest.fixture(params=["subscriptions serve", "serve"])
def address(request: pytest.FixtureRequest, store: FullStore, tmp_path: Path) -> Iterator[str]:
    """Address of each server that offers the services."""
    if request.param == "serve":
        (tmp_path / "routes").mkdir()
        with serving(
            tmp_path / "routes", store=f"sqlite:///{tmp_path}/subscriptions.db", grpc={"listen": "127.0.0.1:0"}
        ) as server:
            yield f"127.0.0.1:{server.grpc_port}"
    else:
        with subscriptions_server(store, settings()) as server:
            yield f"127.0.0.1:{server.port}"


def settings() -> ServerSettings:
    return ServerSettings(host="127.0.0.1", port=0, grace_seconds=5.0, log_level="error")


@pytest.fixture
def server(store: FullStore) -> Iterator[RpcServer]:
    with subscriptions_server(store, settings()) as server:
        yield server


def test_expected_revisions(client: Client, address: str) -> None:
    """An update and a delete of another version than the expected one are ABORTED and change nothing."""
    seen = client.see("lifecycle", address)

    assert seen["conflict"].startswith("ABORTED: ")
    assert seen["late"].startswith("ABORTED: ")
    assert (seen["name"], seen["same"], seen["deleted"]) == ("second", True, "OK")
    assert seen["gone"].startswith("NOT_FOUND: ")


def test_matches_beside_each_other_see_what_was_stored_before(client: Client, address: str) -> None:
    """Eight matches at once right after a creation find the subscription, and after its deletion do not."""
    assert client.see("concurrent", address) == {"matches": 400, "wrong": 0}


def test_searches_by_pages(client: Client, address: str) -> None:
    """Pages by their cursors have each subscription once, in the order of ids."""
    seen = client.see("pages", address)

    assert seen["byMetadata"] == seen["byCondition"] == sorted(seen["created"])
    assert seen["lengths"] == [2, 2, 1]


def test_watch(client: Client, address: str) -> None:
    """What was stored before, and what is created and deleted meanwhile, arrives as changes."""
    assert client.see("watch", address) == {"created": True, "deleted": True, "other": False}


def test_calls_at_once(client: Client, address: str) -> None:
    """Of 2,000 calls at once on one connection each is answered or RESOURCE_EXHAUSTED."""
    counts = client.see("burst", address, "2000")["counts"]

    assert sum(counts.values()) == 2_000
    assert set(counts) <= {"OK", "RESOURCE_EXHAUSTED"}
    assert counts["OK"] > 0


def test_calls_beyond_the_limit(client: Client, store: FullStore) -> None:
    """Calls above the limit of the server are RESOURCE_EXHAUSTED, and those below it are answered."""
    with subscriptions_server(store, replace(settings(), max_calls=20)) as server:
        counts = client.see("burst", f"127.0.0.1:{server.port}", "2000")["counts"]

    assert sum(counts.values()) == 2_000
    assert set(counts) <= {"OK", "RESOURCE_EXHAUSTED"}
    assert counts["OK"] > 0


def test_a_response_that_a_client_does_not_take(client: Client, server: RpcServer, store: FullStore) -> None:
    """The answer is RESOURCE_EXHAUSTED of the server with both sizes, not an error of the client's library."""
    store.create_many(
        Subscription(["out"], kiwi("subject", "large"), id=f"{number}{'x' * 1_000}") for number in range(4_500)
    )
    outcome = client.see("large", f"127.0.0.1:{server.port}")["outcome"]

    assert outcome.startswith("RESOURCE_EXHAUSTED: the response has 4,")
    assert "this client takes 4,194,304" in outcome


def test_a_server_that_stops(client: Client, tmp_path: Path) -> None:
    """At SIGTERM all calls are answered or told that the server stops, and the process ends with 0."""
    port = free_port()
    url = f"sqlite:///{tmp_path}/subscriptions.db"
    with subprocess.Popen(
        command("subscriptions", "serve", "--store", url, "--port", str(port)),
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "LOG_LEVEL": "info"},
    ) as server:
        try:
            assert server.stderr is not None
            assert any('"serving"' in line or "serving" in line for line in server.stderr)
            with client.started("stop", f"127.0.0.1:{port}") as process:
                assert process.stdout is not None
                assert process.stdout.readline() == "ready\n"
                server.send_signal(signal.SIGTERM)
                _, log = server.communicate(timeout=240)
                seen = client.result(process)
        finally:
            if server.poll() is None:
                server.kill()

    refusal = "UNAVAILABLE: the server is shutting down: call another one, or try again"
    assert set(seen["counts"]) <= {"OK", refusal}, log
    assert seen["counts"][refusal] == 50
    assert seen["away"] == "UNAVAILABLE"
    assert server.returncode == 0


@pytest.fixture
def fed_server(fed: FedRoute, tmp_path: Path) -> Iterator[RouteServer]:
    """A server of a route whose feed ``oulu`` has five records for three destinations."""
    with open_store(fed.store_url) as store:
        store.update("oulu", replace(store.read("oulu"), destinations=("a", "b", "c")))
    (tmp_path / "served").mkdir()
    (tmp_path / "served" / "orders.yaml").write_text(fed.text, encoding="utf-8")
    with serving(tmp_path / "served", store=fed.store_url, grpc={"listen": "127.0.0.1:0"}) as server:
        yield server


EXPECTED = [(n, topic) for n in (0, 2, 4, 6, 8) for topic in "abc"]


def test_a_feed_that_is_cut_between_the_messages_of_a_record(client: Client, fed_server: RouteServer) -> None:
    """A reader that goes on behind the last message's cursor gets every message once."""
    seen = client.see("feed", f"127.0.0.1:{fed_server.grpc_port}", "oulu")

    assert [(json.loads(value)["n"], topic) for value, topic in seen["messages"]] == EXPECTED
    assert seen["connections"] == 8


def test_eventsource_reads_a_feed_through_cuts(node: Client, fed_server: RouteServer, fed: FedRoute) -> None:
    """npm's eventsource, cut off after every second event, gets each message once, and the end of the feed."""
    with node.started("events", fed_server.url, "/v1/feeds/oulu 15") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        with open_store(fed.store_url) as store:
            store.delete("oulu")
        seen = node.result(process)

    messages = [json.loads(data) for _, data in seen["seen"]]
    assert [(json.loads(message["value"])["n"], message["topic"]) for message in messages] == EXPECTED
    assert [id_ for id_, _ in seen["seen"]] == [str(message["cursor"]) for message in messages]
    assert seen["ended"] == "end"
    assert seen["connections"] == 8


def test_eventsource_reads_events_through_cuts(node: Client, fed_server: RouteServer) -> None:
    """Events of routes, stored before and while it reads and is cut off, arrive once and in their order."""
    for n in range(7):
        fed_server.recorder.record("route.offsets", "orders", n=n)
    with node.started("events", fed_server.url, "/v1/events?after=0 3 the-end") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        for n in range(7, 15):
            fed_server.recorder.record("route.offsets", "orders", n=n, to="the-end" if n == 14 else "")
        seen = node.result(process)

    ids = [int(id_) for id_, _ in seen["seen"]]
    events = [json.loads(data) for _, data in seen["seen"]]
    assert [event["n"] for event in events if "n" in event] == list(range(15))
    assert ids == list(range(1, len(ids) + 1))
    assert (seen["ended"], seen["connections"]) == ("last", (len(ids) + 1) // 2)
