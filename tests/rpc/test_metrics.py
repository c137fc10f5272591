"""Metrics for clients that do not read them."""

from __future__ import annotations

import socket
import urllib.request
from contextlib import ExitStack
from dataclasses import replace

from tests.rpc.sockets import read_to_end
from tests.server.conftest import wait_for
from turnout.rpc import metrics
from turnout.rpc.server import subscriptions_server


def scraped(port: int | None) -> bytes:
    """The metrics; nothing where a slot is about to be given back."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as page:
            return page.read()
    except OSError:
        return b""


def test_slow_clients_of_metrics_hold_few_threads(backing, settings, monkeypatch, capfd):
    """Half-open connections to the metrics port are closed in time or at once, and Prometheus is answered again."""
    monkeypatch.setattr(metrics._Handler, "timeout", 0.3)
    # Few clients: those beyond the queue of the listening socket connect again only seconds later.
    monkeypatch.setattr(metrics, "_SCRAPES", 3)
    with subscriptions_server(backing, replace(settings, metrics_port=0)) as server, ExitStack() as clients:
        address = ("127.0.0.1", server.metrics_port)
        for client in [clients.enter_context(socket.create_connection(address, timeout=30)) for _ in range(9)]:
            read_to_end(client)
        assert b"turnout_subscriptions" in wait_for(lambda: scraped(server.metrics_port))
    assert "Traceback" not in capfd.readouterr().err


def test_many_clients_of_metrics_connect_at_once():
    """Before the first is answered: none is turned away to connect again seconds later."""
    with metrics._server_class("127.0.0.1")(("127.0.0.1", 0), metrics._Handler) as server, ExitStack() as clients:
        for _ in range(100):
            clients.enter_context(socket.create_connection(("127.0.0.1", server.server_port), timeout=5))
