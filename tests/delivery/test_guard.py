"""Addresses that requests may lead to."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from base64 import b64encode
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from ipaddress import IPv4Address, IPv6Address, ip_network
from pathlib import Path
from typing import Any

import pytest
from yarl import URL

from tests.certificates import make_certificates
from tests.delivery.test_client import OK, endpoint, request_of
from turnout.delivery.client import Client, Response, Target
from turnout.delivery.guard import _MAX_OWNER_LOOKUPS, AddressGuard, LookupLimits, LookupResolver, Proxies, Proxy

PRIVATE = (
    "127.0.0.1",
    "10.0.0.1",
    "172.16.0.1",
    "192.168.1.1",
    "169.254.169.254",
    "100.64.0.1",
    "0.0.0.0",
    "224.0.0.1",
    "240.0.0.1",
    "255.255.255.255",
    "::1",
    "::",
    "fe80::1",
    "fe80::1%eth0",
    "fc00::1",
    "ff02::1",
    "::ffff:127.0.0.1",
    "::ffff:10.0.0.1",
    "64:ff9b::7f00:1",
    "2002:7f00:1::",
    "2001:db8::1",
    "192.0.0.9",
    "192.0.0.255",
    "192.88.99.1",
    "192.175.48.1",
    "198.18.0.1",
    "203.0.113.1",
    "fec0::1",
    "feff::1",
    "3fff::1",
    "3fff:fff::1",
    "5f00::1",
    "100::1",
    "100:0:0:1::1",
    "64:ff9b:1::1",
    "2001::1",
    "2001:1::1",
    "2620:4f:8000::1",
    "::1.1.1.1",
    "::ffff:192.0.0.9",
    "64:ff9b::192.0.0.9",
    "2002:c000:9::1",
    "4000::1",
)


@pytest.mark.parametrize("address", PRIVATE)
def test_private(address: str) -> None:
    """No address of a private, loopback, link-local or otherwise special network is reached, also if embedded."""
    assert AddressGuard().problem(address) is not None


@pytest.mark.parametrize(
    "address",
    [
        "1.1.1.1",
        "192.0.1.1",
        "198.20.0.1",
        "223.255.255.255",
        "2001:200::1",
        "2606:4700:4700::1111",
        "3ffe::1",
        "3fff:1000::1",
        "::ffff:1.1.1.1",
        "64:ff9b::101:101",
        "2002:101:101::1",
    ],
)
def test_public(address: str) -> None:
    """Public addresses are reached with TLS, and only then."""
    assert AddressGuard().problem(address) is None
    assert AddressGuard().problem(address, encrypted=False) is not None


@pytest.mark.parametrize("address", PRIVATE[::3])
def test_python_has_no_say(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the running version of Python holds for global changes no answer: networks are compared with our table."""
    for kind in (IPv4Address, IPv6Address):
        monkeypatch.setattr(kind, "is_global", property(lambda _: True))
        for name in ("is_private", "is_reserved", "is_multicast"):
            monkeypatch.setattr(kind, name, property(lambda _: False))

    assert AddressGuard().problem(address) is not None
    assert AddressGuard().problem("1.1.1.1") is None


@pytest.mark.parametrize("host", ["127.1", "2130706433", "0177.0.0.1", "127.0.0.1", "[::1]", "[::ffff:127.0.0.1]"])
def test_hosts_that_are_addresses(host: str) -> None:
    """A URL whose host is an address, also in an unusual form, is judged before the request."""
    assert AddressGuard().url_problem(URL(f"https://{host}/", encoded=True)) is not None
    assert AddressGuard().url_problem(URL("https://a1.example/", encoded=True)) is None


@pytest.mark.parametrize("address", ["10.1.2.3", "::ffff:10.1.2.3"])
def test_allowed(address: str) -> None:
    """Addresses of allowed networks are reached, without TLS too; their neighbours are not."""
    guard = AddressGuard([ip_network("10.1.0.0/16")])

    assert guard.problem(address, encrypted=False) is None
    assert guard.problem("10.2.0.1") is not None


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Name servers that answer for names of .slow only after the test."""
    answers = threading.Event()
    usual = socket.getaddrinfo
    asked: list[str] = []

    def getaddrinfo(host: str, *args: Any, **named: Any) -> Any:
        asked.append(host)
        if not host.endswith("slow.example"):
            return usual(host, *args, **named)
        answers.wait(30)
        raise socket.gaierror(socket.EAI_AGAIN, "no answer")

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    yield asked
    answers.set()


@pytest.mark.parametrize("owner", ["acme", ""])
def test_slow_name_servers(slow: list[str], owner: str) -> None:
    """Hundreds of hosts of one tenant, or of one domain, that are not answered delay no other endpoint."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await request_of(reader)
            writer.write(OK)

    async def main() -> None:
        async with endpoint(talk) as (client, target, _):
            late: list[object] = []
            for number in range(300):
                host = f"h{number}.slow.example" if not owner else f"h.d{number}-slow.example"
                other = Target.of(URL(f"https://{host}/"))
                client.send(other, {}, b"x", timeout=20, max_response=1, done=late.append, owner=owner)
            named = Target.of(URL(f"http://localhost:{target.port}/in"))
            async with asyncio.timeout(10):
                outcomes = [await client.post(named, {}, b"x", timeout=5, max_response=9) for _ in range(40)]
            assert {outcome.status for outcome in outcomes} == {204}
            assert not late
            assert sum("slow" in host for host in slow) <= _MAX_OWNER_LOOKUPS

    asyncio.run(main())


def test_limits_are_forgotten() -> None:
    """What is looked up no more costs no memory."""

    async def main() -> None:
        limits = LookupLimits()
        for number in range(10):
            async with limits.slot("", f"h{number}.example"), limits.slot(f"t{number}", "h"):
                pass
        assert not limits._of

    asyncio.run(main())


def test_addresses() -> None:
    """A name has its addresses with the port, in the form of numbers; one without any is an OSError."""

    async def main() -> None:
        resolver = LookupResolver()
        found = await resolver.resolve("127.0.0.1", 80, socket.AF_UNSPEC)
        assert [(one["host"], one["port"], one["family"]) for one in found] == [("127.0.0.1", 80, socket.AF_INET)]
        with pytest.raises(OSError, match=r"\S"):
            await resolver.resolve("nothing.invalid", 80, socket.AF_UNSPEC)

    asyncio.run(main())


LOOPBACK = [ip_network("127.0.0.0/8"), ip_network("::1/128")]


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def served(talk: Talk, tls: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    """A server that talks so on each connection, whose connections end with the block; yields its port."""
    tasks: list[asyncio.Task[None]] = []

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await talk(reader, writer)
        except (asyncio.IncompleteReadError, asyncio.CancelledError, OSError):
            pass
        finally:
            writer.transport.abort()

    def begin(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.append(asyncio.create_task(connected(reader, writer)))

    server = await asyncio.start_server(begin, "127.0.0.1", 0, ssl=tls)
    async with server:
        yield server.sockets[0].getsockname()[1]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks)
        # Transports close with the next turns of the loop.
        await asyncio.sleep(0)


@asynccontextmanager
async def proxy(
    answer: bytes = b"HTTP/1.1 200 OK\r\n\r\n", tls: ssl.SSLContext | None = None
) -> AsyncIterator[tuple[str, list[bytes]]]:
    """A proxy that answers CONNECT so, and connects to loopback; yields its address and the heads that it had."""
    heads: list[bytes] = []

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(4_096):
            writer.write(data)
        writer.close()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        port = int(heads[-1].split()[1].rpartition(b":")[2])
        writer.write(answer)
        if b" 200 " not in answer:
            await writer.drain()
            return
        to_read, to_write = await asyncio.open_connection("127.0.0.1", port)
        try:
            await asyncio.gather(copy(reader, to_write), copy(to_read, writer))
        finally:
            to_write.transport.abort()

    async with served(talk, tls) as port:
        yield f"127.0.0.1:{port}", heads


@asynccontextmanager
async def web_server(tls: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    """An endpoint that takes every request; yields its port."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await reader.readuntil(b"\r\n\r\n"):
            await reader.readexactly(int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0]))
            writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")

    async with served(talk, tls) as port:
        yield port


async def post(
    url: str, proxies: Proxies, times: int = 1, allowed: object = LOOPBACK, seconds: float = 10
) -> list[Response]:
    async with Client(allowed, proxies=proxies) as client:  # type: ignore[arg-type]
        target = Target.of(URL(url))
        return [await client.post(target, {}, b"x", timeout=seconds, max_response=100) for _ in range(times)]


def test_a_tunnel_to_the_checked_address() -> None:
    """A tunnel leads to the address that was looked up and checked, with the proxy's login, and is kept."""

    async def main() -> None:
        async with proxy() as (where, heads), web_server() as port:
            responses = await post(f"http://localhost:{port}/in", Proxies(f"http://ann:p%40w@{where}"), 2, LOOPBACK[:1])

            assert [response.status for response in responses] == [204, 204], responses
            (head,) = heads
            assert head.startswith(b"CONNECT 127.0.0.1:%d HTTP/1.1\r\n" % port)
            assert b"Proxy-Authorization: Basic " + b64encode(b"ann:p@w") in head

    asyncio.run(main())


def test_tls_in_a_tunnel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The certificate of the endpoint is verified inside of the tunnel, also if the proxy itself has TLS."""
    made = make_certificates(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(made / "ca.pem"))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(made / "server.pem", made / "server.key")
    stranger = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    stranger.load_cert_chain(made / "stranger.pem", made / "stranger.key")

    async def main() -> None:
        async with proxy() as (where, _), proxy(tls=context) as (secure, heads), web_server(context) as port:
            for setting in (f"http://{where}", f"https://localhost:{secure.rpartition(':')[2]}"):
                (response,) = await post(f"https://localhost:{port}/", Proxies(setting), allowed=LOOPBACK[:1])
                assert response.status == 204, response
            assert len(heads) == 1
            async with web_server(stranger) as other:
                (response,) = await post(f"https://localhost:{other}/", Proxies(f"http://{where}"), 1, LOOPBACK[:1])
                assert "CERTIFICATE_VERIFY_FAILED" in response.error

    asyncio.run(main())


def test_the_guard_holds() -> None:
    """Private addresses get no tunnel; a proxy that looks names up gets names, but no private address."""

    async def main() -> None:
        async with proxy() as (where, heads):
            for resolves in (False, True):
                proxies = Proxies(f"http://{where}", resolves=resolves)
                (response,) = await post("https://127.0.0.1:9/", proxies, allowed=())
                assert "127.0.0.1 is no public address" in response.error
            (response,) = await post("https://localhost:9/", Proxies(f"http://{where}"), allowed=())
            assert "is no public address" in response.error
            assert heads == []
            resolving = Proxies(f"http://{where}", resolves=True)
            (response,) = await post("http://inside.example/", resolving, allowed=())
            assert "http:// leads to allowed networks alone" in response.error
            async with web_server() as port:
                # It is no server of TLS, and never answers.
                await post(f"https://inside.example:{port}/", resolving, allowed=(), seconds=1)
            assert heads[0].startswith(b"CONNECT inside.example:%d HTTP/1.1\r\n" % port)

    asyncio.run(main())


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n", "'407 Proxy Authentication Required'"),
        (b"no\r\n\r\n", "it sends no HTTP response"),
        (b"", "it sends no HTTP response"),
    ],
)
def test_refused_tunnels(answer: bytes, message: str) -> None:
    """What the proxy says is the failure, without its login."""

    async def main() -> None:
        async with proxy(answer) as (where, _):
            (response,) = await post("http://127.0.0.1:9/", Proxies(f"http://ann:secret@{where}"))
            assert response.error == f"the proxy 127.0.0.1 opens no tunnel to 127.0.0.1:9: {message}"

    asyncio.run(main())


def test_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment has proxies by scheme and hosts without one; a setting is for all other hosts."""
    monkeypatch.setenv("HTTPS_PROXY", "http://secure:3128")
    monkeypatch.setenv("HTTP_PROXY", "plain:3129")
    monkeypatch.setenv("NO_PROXY", "near.example")
    environment = Proxies("environment")

    assert environment.of("https", "a.example") == Proxy("secure", 3128, is_encrypted=False)
    assert environment.of("http", "a.example") == Proxy("plain", 3129, is_encrypted=False)
    assert environment.of("https", "near.example") is None
    assert environment.of("http", "127.0.0.1") is environment.of("http", "localhost") is None
    assert Proxies("https://own").of("http", "a.example") == Proxy("own", 443, is_encrypted=True)
    assert Proxies("https://own").of("http", "near.example") is None
    assert Proxies("none").of("https", "a.example") is None
    assert "secret" not in repr(Proxy.of("http://ann:secret@proxy:1"))
    with pytest.raises(ValueError, match="expected http://HOST:PORT"):
        Proxies("ftp://ann:secret@proxy")
