"""Webhooks: signed requests of 1 KB from a delivery stream to a local endpoint in a process of its own.

The dispatcher, with the clients of nats-server and HTTP, works in this process, on one core. The baseline is the HTTP
client alone, which posts the same bodies without a stream and without signatures.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import socket
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from yarl import URL

from benchmarks.harness import Case, Options, Result, Setup, cpu_seconds
from turnout.delivery.client import Client
from turnout.delivery.service import deliver, opened_streams
from turnout.delivery.target import Target
from turnout.embedded import NatsServer
from turnout.nats.wire import Connection, Publisher
from turnout.routes import Route
from turnout.routes.webhooks import WebhooksPart
from turnout.subscriptions import open_store
from turnout.subscriptions.webhooks import delivery_subject

BODY = b'{"text": "%b"}' % (b"x" * 1_010)
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
CONCURRENCY = 64
_SETUP = Setup("new", None, 1)
_STORE = "memory://bench-webhooks"


def cases(options: Options) -> Iterator[Case]:
    """The dispatcher, then the client alone."""
    count = options.rows(50_000, 5_000)
    with _endpoint() as url:
        if options.wants("signed requests"):
            yield Case("signed requests of 1 KB", lambda: _dispatched(url, count))
        if options.wants("client alone"):
            yield Case("the HTTP client alone", lambda: _posted(url, count))


def _dispatched(url: str, count: int) -> Iterator[Result]:
    with tempfile.TemporaryDirectory(prefix="turnout-bench-") as folder, NatsServer(Path(folder)) as server:
        route = _route(server.url, url)
        open_store(_STORE).close()
        asyncio.run(_with_streams(route))
        with Connection.open(server.url) as connection:
            publisher = Publisher(connection)
            for number in range(count):
                publisher.publish(delivery_subject("deliver", "webhook:e", ""), BODY, (), f"id-{number}")
            publisher.flush()
        cpu, begun = cpu_seconds(), time.perf_counter()
        counts = asyncio.run(deliver(route, threading.Event(), drain=True))
        spent = time.perf_counter() - begun
        assert counts.delivered == count
        yield _result("signed requests of 1 KB", count, spent, cpu_seconds() - cpu)


async def _with_streams(route: Route) -> None:
    async with opened_streams(route):
        pass


def _route(server: str, url: str) -> Route:
    text = f"""
    name: bench
    source: {{format: nats, servers: "{server}", stream: S}}
    subscriptions: {{store: "{_STORE}"}}
    webhooks:
      allow: [127.0.0.0/8]
      endpoints: {{e: {{url: "{url}", secrets: ["{SECRET}"], delivery: {{concurrency: {CONCURRENCY}}}}}}}
    sink: {{format: nats, servers: "{server}"}}
    """
    return Route.parse(text, {})


def _posted(url: str, count: int) -> Iterator[Result]:
    async def post() -> None:
        networks = WebhooksPart(allow=["127.0.0.0/8"]).networks
        target = Target.of(URL(url))
        async with Client(networks) as client:
            numbers = iter(range(count))

            async def some() -> None:
                for _ in numbers:
                    response = await client.post(target, {}, BODY, timeout=15.0, max_response=1_000)
                    assert response.is_success

            await asyncio.gather(*(some() for _ in range(CONCURRENCY)))

    cpu, begun = cpu_seconds(), time.perf_counter()
    asyncio.run(post())
    spent = time.perf_counter() - begun
    yield _result("the HTTP client alone", count, spent, cpu_seconds() - cpu)


def _result(case: str, count: int, spent: float, cpu: float) -> Result:
    return Result(case, count, [count / spent], _SETUP, extra={"CPU of a request, µs": round(cpu / count * 1e6, 1)})


class _Endpoint(asyncio.Protocol):
    """Answers 204 to requests whose bodies have a Content-Length."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._received = bytearray()

    def data_received(self, data: bytes) -> None:
        self._received += data
        while (end := self._received.find(b"\r\n\r\n")) >= 0:
            head = bytes(self._received[:end]).lower()
            whole = end + 4 + int(head.partition(b"content-length:")[2].partition(b"\r\n")[0])
            if len(self._received) < whole:
                return
            del self._received[:whole]
            assert isinstance(self._transport, asyncio.WriteTransport)
            self._transport.write(b"HTTP/1.1 204 No Content\r\n\r\n")


def _serve(listening: socket.socket) -> None:
    async def serve() -> None:
        server = await asyncio.get_running_loop().create_server(_Endpoint, sock=listening)
        await server.serve_forever()

    asyncio.run(serve())


@contextmanager
def _endpoint() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        process = multiprocessing.get_context("fork").Process(target=_serve, args=(listening,), daemon=True)
        process.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}/"
        finally:
            process.kill()
            process.join()
