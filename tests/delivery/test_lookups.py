"""Look-ups of names: slow name servers hold up their own hosts alone."""

from __future__ import annotations

import asyncio
import socket
import threading
from typing import Any

import pytest
from yarl import URL

from tests.delivery.test_client import OK, endpoint, request_of
from turnout.delivery import lookups
from turnout.delivery.lookups import LookupLimits, LookupResolver
from turnout.delivery.target import Target


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
            assert sum("slow" in host for host in slow) <= lookups._MAX_OWNER_LOOKUPS

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
