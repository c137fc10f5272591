"""Addresses that requests may lead to."""

from __future__ import annotations

import asyncio
import socket
import threading
from ipaddress import IPv4Address, IPv6Address, ip_network
from typing import Any

import pytest
from yarl import URL

from tests.delivery.test_client import OK, endpoint, request_of
from turnout.delivery.client import Target
from turnout.delivery.guard import _MAX_OWNER_LOOKUPS, AddressGuard, LookupLimits, LookupResolver

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
