"""Webhooks: signed requests of 1 KB from a delivery stream to a local endpoint in a process of its own.

The dispatcher, with the clients of nats-server and HTTP, works in this process, on one core. The baseline is the HTTP
client alone, which posts the same bodies without a stream and without signatures. The latency is that of single
deliveries, from the moment at which the delivery stream gets one to that at which the endpoint has its last byte. The
isolation is the latency of 900 endpoints, with and without 100 others that do not answer.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import socket
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from yarl import URL

from benchmarks.harness import Case, Options, Result, Setup, cpu_seconds
from turnout.delivery.client import Client, Target
from turnout.delivery.dispatcher import deliver, opened_queue
from turnout.embedded import NatsServer
from turnout.nats.wire import Connection, Publisher
from turnout.routes import Route
from turnout.routes.webhooks import WebhooksPart
from turnout.subscriptions import open_store
from turnout.subscriptions.destinations import delivery_subject

BODY = b'{"text": "%b"}' % (b"x" * 1_010)
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
CONCURRENCY = 64
_SETUP = Setup("new", None, 1)
_STORE = "memory://bench-webhooks"
_STAMPED = b'{"at": '
_WARM = 50
"""Deliveries that are not counted: connections are made with the first ones."""

_BETWEEN_SECONDS = 0.005
_BETWEEN_ENDPOINTS_SECONDS = 0.002

ANSWERING, HANGING = 900, 100
"""Endpoints of the case about isolation."""


def cases(options: Options) -> Iterator[Case]:
    """The dispatcher, then the client alone."""
    count = options.rows(50_000, 5_000)
    with _endpoint() as url:
        if options.wants("signed requests"):
            yield Case("signed requests of 1 KB", lambda: _dispatched(url, count))
        if options.wants("latency"):
            yield Case("latency of a delivery", lambda: _latency(url, options.rows(2_000, 200)))
        if options.wants("isolation"):
            yield Case("isolation of endpoints", lambda: _isolated(url, options.rows(10, 2)))
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


def _latency(url: str, count: int) -> Iterator[Result]:
    """Publish one delivery every five milliseconds; the endpoint answers with the time at which it has a request."""
    with tempfile.TemporaryDirectory(prefix="turnout-bench-") as folder, NatsServer(Path(folder)) as server:
        route = _route(server.url, url)
        open_store(_STORE).close()
        asyncio.run(_with_streams(route))
        stop, begun = threading.Event(), time.perf_counter()
        dispatcher = threading.Thread(target=lambda: asyncio.run(deliver(route, stop)))
        dispatcher.start()
        try:
            taken = _taken(server.url, url, count)
        finally:
            stop.set()
            dispatcher.join()
        spent = time.perf_counter() - begun
        extra = {f"p{at}_ms": float(np.percentile(taken, at)) * 1e3 for at in (50, 99)}
        yield Result("latency of a delivery", count, (count / spent,), _SETUP, extra=extra)


def _isolated(url: str, each: int) -> Iterator[Result]:
    """Publish for 900 endpoints in turn, alone and among 100 that hang."""
    begun = time.perf_counter()
    p99 = [float(np.percentile(_latencies_of_many(url, each, hanging), 99)) for hanging in (0, HANGING)]
    spent = time.perf_counter() - begun
    extra = {"p99_alone_ms": p99[0] * 1e3, "p99_ms": p99[1] * 1e3}
    count = ANSWERING * each
    rate = 2 * count / spent
    yield Result("isolation of endpoints", count, (rate,), _SETUP, "p99 alone", p99[0] / p99[1], extra)


def _latencies_of_many(url: str, each: int, hanging: int) -> list[float]:
    """Return the seconds of the deliveries to the endpoints that answer; one is published every 2 ms."""
    _ask(url, "forget")
    with tempfile.TemporaryDirectory(prefix="turnout-bench-") as folder, NatsServer(Path(folder)) as server:
        route = _route(server.url, url)
        open_store(_STORE).close()
        asyncio.run(_with_streams(route))
        stop = threading.Event()
        dispatcher = threading.Thread(target=lambda: asyncio.run(deliver(route, stop)))
        dispatcher.start()
        try:
            with Connection.open(server.url) as connection:
                publisher = Publisher(connection)
                for number in range((ANSWERING + hanging) * each):
                    index = number % (ANSWERING + hanging)
                    path = f"answers/{index}" if index < ANSWERING else f"hangs/{index}"
                    body = b'{"at": %.6f, "text": "%b"}' % (time.time(), b"x" * 980)
                    publisher.publish(delivery_subject("deliver", f"{url}{path}", ""), body, (), f"id-{number}")
                    publisher.flush()
                    time.sleep(_BETWEEN_ENDPOINTS_SECONDS)
            return _arrivals(url, ANSWERING * each)
        finally:
            stop.set()
            dispatcher.join()


def _taken(server: str, url: str, count: int) -> list[float]:
    """Return the seconds of each delivery, the first ones aside."""
    with Connection.open(server) as connection:
        publisher = Publisher(connection)
        for number in range(_WARM + count):
            body = b'{"at": %.6f, "text": "%b"}' % (time.time(), b"x" * 980)
            publisher.publish(delivery_subject("deliver", "webhook:e", ""), body, (), f"id-{number}")
            publisher.flush()
            time.sleep(_BETWEEN_SECONDS)
    return _arrivals(url, _WARM + count)[_WARM:]


def _arrivals(url: str, count: int) -> list[float]:
    """Ask the endpoint for the latencies that it has measured, until it has all of them."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        latencies = _ask(url)
        if len(latencies) >= count:
            return latencies
        time.sleep(0.1)
    raise AssertionError(f"{len(latencies)} of {count} deliveries arrived")


def _ask(url: str, path: str = "") -> list[float]:
    """Return the latencies that the endpoint has measured, which ``forget`` clears."""
    target = URL(url)
    with socket.create_connection((str(target.host), int(target.port or 0))) as asking:
        asking.sendall(b"GET /%b HTTP/1.1\r\nContent-Length: 0\r\n\r\n" % path.encode())
        asking.shutdown(socket.SHUT_WR)
        with asking.makefile("rb") as answer:
            latencies: list[float] = json.loads(answer.read())
    return latencies


async def _with_streams(route: Route) -> None:
    async with opened_queue(route):
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
    return Result(case, count, (count / spent,), _SETUP, extra={"cpu_us": cpu / count * 1e6})


_latencies: list[float] = []
"""Of the endpoint's process: seconds of the deliveries whose bodies begin with the time of their publication."""


class _Endpoint(asyncio.Protocol):
    """Answers 204 to requests whose bodies have a Content-Length, and a GET with the latencies so far."""

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
            sent = self._received[end + 4 : whole]
            del self._received[:whole]
            assert isinstance(self._transport, asyncio.WriteTransport)
            if head.startswith(b"get"):
                if head.startswith(b"get /forget "):
                    _latencies.clear()
                self._transport.write(json.dumps(_latencies).encode())
                self._transport.close()
                return
            if head.startswith(b"post /hangs/"):
                continue
            if sent.startswith(_STAMPED):
                _latencies.append(time.time() - float(sent[len(_STAMPED) : sent.index(b",")]))
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
