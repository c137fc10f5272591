"""The HTTP client against endpoints that answer byte by byte, wrongly, late or not at all."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from ipaddress import ip_network
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from yarl import URL

from tests.certificates import make_certificates
from turnout.delivery.client import Client, Connection, Exchange, Response, ResponseReader, Target

OK = b"HTTP/1.1 204 No Content\r\n\r\n"
Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def request_of(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    return head + await reader.readexactly(int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0]))


@asynccontextmanager
async def endpoint(talk: Talk) -> Any:
    """An endpoint that talks so on each connection; yields a client, a target, and the list of connections."""
    connections: list[asyncio.StreamWriter] = []

    async def served(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(writer)
        try:
            await talk(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(served, "127.0.0.1", 0)
    target = Target.of(URL(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/in"))
    async with server, Client([ip_network("127.0.0.0/8")]) as client:
        yield client, target, connections


async def post(client: Client, target: Target, body: bytes = b"x", **limits: Any) -> Response:
    return await client.post(target, {"A": "b"}, body, **{"timeout": 5.0, "max_response": 1_000, **limits})


def answered(*parts: bytes, requests: int = 1, **limits: Any) -> list[Response]:
    """Return the client's result for an endpoint that sends these parts after each request, and then closes."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(requests):
            await request_of(reader)
            for part in parts:
                writer.write(part)
                await writer.drain()
                await asyncio.sleep(0.001)

    async def work() -> list[Response]:
        async with endpoint(talk) as (client, target, _):
            return [await post(client, target, **limits) for _ in range(requests)]

    return asyncio.run(work())


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ((OK,), Response(204)),
        (tuple(bytes([byte]) for byte in OK), Response(204)),
        ((b"HTTP/1.1 103 Early Hints\r\nContent-Length: 9\r\n\r\n", OK), Response(204)),
        ((b"HTTP/1.1 100 Continue\r\n\r\n" + OK,), Response(204)),
        ((b"HTTP/1.1 500 No\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nno\r\n", b"0\r\n\r\n"), Response(500, "", "no")),
        ((b"HTTP/1.0 503 No\r\nRetry-After: 7\r\n\r\n", b"until", b" the end"), Response(503, "7", "until the end")),
        ((b"HTTP/1.1 200 OK\r\n\r\n",), Response(200)),
        ((b"HTTP/1.1 302 Found\r\nLocation: http://x/\r\nContent-Length: 0\r\n\r\n",), Response(302)),
        (
            (b"HTTP/1.1 429 No\r\nRetry-After: %b\r\nContent-Length: 0\r\n\r\n" % (b"9" * 500),),
            Response(429, "9" * 100),
        ),
    ],
)
def test_responses(parts: tuple[bytes, ...], expected: Response) -> None:
    """Responses in any pieces, with interim ones before, in chunks, or up to the end of the connection."""
    assert answered(*parts) == [expected]


@pytest.mark.parametrize(
    ("parts", "error"),
    [
        ((), "closed the connection before its response"),
        ((b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabc",), "closed the connection before its response"),
        (
            (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab",),
            "closed the connection before its response",
        ),
        ((b"SSH-2.0-OpenSSH\r\n",), "no HTTP response"),
        ((b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",), "switches to another protocol"),
        ((b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 10_000,), "over 16,384 bytes of headers"),
        ((b"HTTP/1.1 200 OK\r\nA: " + b"b" * 100_000,), "over 16,384 bytes of headers"),
        ((b"HTTP/1.1 100 Continue\r\n\r\n" * 5_000,), "over 16,384 bytes of headers"),
    ],
)
def test_no_response(parts: tuple[bytes, ...], error: str) -> None:
    """An incomplete response is a failure without a status."""
    (response,) = answered(*parts)

    assert response.status is None
    assert error in response.error


def test_time_limit() -> None:
    """An endpoint that sends a byte now and then gets no more time than one that sends nothing."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request_of(reader)
        for byte in b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n" + b"a" * 1_000:
            writer.write(bytes([byte]))
            await asyncio.sleep(0.01)

    async def work() -> None:
        async with endpoint(talk) as (client, target, _):
            response = await post(client, target, timeout=0.2)
            assert response == Response(None, error="no response within 0.2 s")

    asyncio.run(work())


def test_body_limit() -> None:
    """No more is read of a body than the limit; the status counts, and the connection is not used again."""
    sent = [0]

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request_of(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n")
        while True:
            writer.write(b"a" * 65_536)
            await writer.drain()
            sent[0] += 65_536

    async def work() -> None:
        async with endpoint(talk) as (client, target, connections):
            assert [await post(client, target) for _ in range(2)] == [Response(200)] * 2
            assert len(connections) == 2
        assert sent[0] < 100_000_000

    asyncio.run(work())


def test_connections_are_kept() -> None:
    """Requests one after the other share a connection, those at the same time have one each."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await request_of(reader)
            await asyncio.sleep(0.01)
            writer.write(OK)

    async def work() -> None:
        async with endpoint(talk) as (client, target, connections):
            for _ in range(3):
                assert await post(client, target) == Response(204)
            assert len(connections) == 1
            await asyncio.gather(*(post(client, target) for _ in range(5)))
            await asyncio.gather(*(post(client, target) for _ in range(5)))
            assert len(connections) == 5

    asyncio.run(work())


def test_closed_while_kept() -> None:
    """A kept connection that is closed before it has the request costs no attempt; a new one has it once."""
    seen: list[bytes] = []

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await request_of(reader))
        writer.write(OK)
        # Closed as soon as the next request comes, and without an answer.
        await reader.read(1)
        writer.transport.abort()

    async def work() -> None:
        async with endpoint(talk) as (client, target, connections):
            assert [await post(client, target, b"%d" % n) for n in range(3)] == [Response(204)] * 3
            assert len(connections) == 3
        assert [request[-1:] for request in seen] == [b"0", b"1", b"2"]

    asyncio.run(work())


@pytest.mark.parametrize("surplus", [b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n", b"HTTP/1.1 2", b"x"])
@pytest.mark.parametrize("later", [False, True])
def test_surplus(surplus: bytes, later: bool) -> None:
    """Bytes after a response are not taken for the answer to the next request."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await request_of(reader)
            writer.write(OK if later else OK + surplus)
            if later:
                await asyncio.sleep(0.01)
                writer.write(surplus)

    async def work() -> None:
        async with endpoint(talk) as (client, target, connections):
            for _ in range(3):
                assert await post(client, target) == Response(204)
                await asyncio.sleep(0.05)
            assert len(connections) == 3

    asyncio.run(work())


def test_closed_at_once() -> None:
    """An endpoint that accepts and closes is a failure for every request, also for those over new connections."""

    async def talk(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.abort()

    async def work() -> None:
        async with endpoint(talk) as (client, target, _):
            for response in await asyncio.gather(*(post(client, target) for _ in range(50))):
                assert response.status is None
                assert response.error

    asyncio.run(work())


def test_lost_before_the_request() -> None:
    """A connection that is lost between its opening and its first request ends that request."""

    async def work() -> None:
        outcomes: list[Response] = []
        connection = Connection(Target.of(URL("http://a/")), Client())
        connection.connection_made(asyncio.Transport())
        connection.connection_lost(None)
        connection.begin(Exchange(connection.target, b"", 1.0, 1.0, 1, outcomes.append))
        assert [one.status for one in outcomes] == [None]

    asyncio.run(work())


def test_nobody_listens_and_leaving() -> None:
    """A refused connection is a failure; leaving the block ends requests under way, and nothing is called later."""

    async def talk(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await request_of(reader)
        await asyncio.sleep(30)

    async def work() -> None:
        called: list[Response] = []
        async with endpoint(talk) as (client, target, connections):
            refused = await post(client, Target.of(URL("http://127.0.0.1:1/")))
            assert refused.status is None
            assert "refused" in refused.error.lower() or "connect" in refused.error.lower()
            client.send(target, {}, b"", timeout=9, max_response=1, done=called.append)
            while not connections:
                await asyncio.sleep(0.01)
            connections[0].transport.pause_reading()
        assert called == []

    asyncio.run(work())


@pytest.mark.parametrize("text", ["a\r\nB: c", "a\nb", "a\rb", "a\0b"])
def test_no_line_breaks_in_headers(text: str) -> None:
    """A header that would begin another line is not sent."""

    async def work() -> None:
        async with endpoint(lambda *_: asyncio.sleep(0)) as (client, target, connections):
            response = await client.post(target, {"A": text}, b"", timeout=1, max_response=1)
            assert (response.status, connections) == (None, [])
            assert "line break" in response.error

    asyncio.run(work())


def test_tls_with_an_authority_of_ones_own(tmp_path: Path) -> None:
    """Over one encrypted connection; not with another authority, and not for an address that the certificate lacks."""
    certificates = make_certificates(tmp_path)
    served = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    served.load_cert_chain(certificates / "server.pem", certificates / "server.key")
    bodies: list[bytes] = []

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                bodies.append((await request_of(reader)).partition(b"\r\n\r\n")[2])
                writer.write(OK)
        writer.close()

    async def outcomes(authority: str, host: str) -> list[Response]:
        trusted = ssl.create_default_context(cafile=str(certificates / f"{authority}.pem"))
        server = await asyncio.start_server(talk, host, 0, ssl=served)
        target = Target.of(URL(f"https://{host}:{server.sockets[0].getsockname()[1]}/in"))
        async with server, Client([ip_network("127.0.0.0/8"), ip_network("::1/128")], trusted) as client:
            return [await post(client, target, body) for body in (b"one", b"x" * 100_000)]

    assert [one.status for one in asyncio.run(outcomes("ca", "localhost"))] == [204, 204]
    assert bodies == [b"one", b"x" * 100_000]
    for authority, host, reason in (
        ("other", "localhost", "certificate verify failed"),
        ("ca", "127.0.0.2", "127.0.0.2"),
    ):
        refused = asyncio.run(outcomes(authority, host))
        assert [one.status for one in refused] == [None, None]
        assert reason in refused[0].error
    assert len(bodies) == 2


@given(st.binary(max_size=400), st.lists(st.integers(0, 400), max_size=5))
def test_any_bytes(data: bytes, cuts: list[int]) -> None:
    """Any bytes, in any pieces, are a response, a failure, or incomplete."""
    reader = ResponseReader()
    reader.begin(100)
    places = [0, *sorted(cuts), len(data)]
    for begin, end in pairwise(places):
        response = reader.feed(b"HTTP/1.1 200 OK\r\n" + data[begin:end] if begin == 0 else data[begin:end])
        if response is not None:
            assert response.status is None or response.status >= 200
            return


@pytest.mark.parametrize("url", ["http://a/ b", "http://a/\r\nX: y", "http://a/\x7fé", "ftp://a/", "/in"])
def test_bad_targets(url: str) -> None:
    """A URL that would break the request line has no target."""
    with pytest.raises(ValueError, match="expected"):
        Target.of(URL(url, encoded=True))


@pytest.mark.parametrize(
    ("url", "head"),
    [
        ("https://a", "POST / HTTP/1.1\r\nHost: a\r\n"),
        ("https://a?x=%20", "POST /?x=%20 HTTP/1.1\r\nHost: a\r\n"),
        ("http://[::1]:80/p", "POST /p HTTP/1.1\r\nHost: [::1]\r\n"),
        ("https://a:8443/p", "POST /p HTTP/1.1\r\nHost: a:8443\r\n"),
    ],
)
def test_targets(url: str, head: str) -> None:
    """The request line has path and query as they are written; Host has the port unless it is the usual one."""
    assert Target.of(URL(url, encoded=True)).head == head
