"""Credentials of endpoints: what real receivers get, and that no secret comes back out."""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
from base64 import b64encode
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from tests.certificates import make_certificates
from tests.delivery.receiver import Hooks, Receiver, Request, fine, run
from turnout.delivery import access
from turnout.delivery.access import CertificateError, TokenError, TokenSource, client_context
from turnout.delivery.client import Client
from turnout.embedded import NatsServer
from turnout.subscriptions.credentials import Credentials
from turnout.subscriptions.sealing import SECRET_KEY, new_key

LOGIN = {"tokenUrl": "", "clientId": "a b", "clientSecret": "s:e+c", "scope": "post all"}
LOOPBACK = [ip_network("127.0.0.0/8")]


def test_headers_of_an_endpoint(nats_server: NatsServer) -> None:
    """Secret headers of an endpoint of the route are sent, in place of others of the same name in any case."""

    async def work(hooks: Hooks, _: Receiver) -> None:
        await hooks.publish(b"1")
        assert (await hooks.deliver()).delivered == 1

    headers = {"Authorization": "Bearer open sesame", "X-Api-Key": "k1"}
    (request,) = run(
        nats_server, fine, work, credentials={"headers": headers}, delivery={"headers": {"x-team": "a"}}
    ).requests

    assert request.headers["Authorization"] == "Bearer open sesame"
    assert request.headers["X-Api-Key"] == "k1"
    assert request.headers["X-Team"] == "a"


def test_own_credentials_of_a_subscription(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """They are used in place of the endpoint's, and no letter, attempt or log has them, even if the endpoint repeats
    what it was sent, and cuts it off."""
    monkeypatch.setenv(SECRET_KEY, new_key())
    caplog.set_level(logging.DEBUG)
    password = "correct-horse-battery"

    def answer(request: Request) -> web.Response:
        sent = request.headers["Authorization"]
        return web.Response(status=403, text=f"{sent} {password}" + "." * (170 - len(sent) - len(password)) + sent)

    async def work(hooks: Hooks, _: Receiver) -> None:
        hooks.subscribe("s", retry=[], credentials={"basic": {"user": "ann", "password": password}})
        await hooks.publish(b"1", subscription="s")
        await hooks.deliver()
        ((_body, headers),) = await hooks.dead()
        (attempt,) = json.loads(headers["Turnout-Attempts"])
        assert attempt["error"].startswith("Basic *** ***")
        shown = f"{headers}{caplog.text}{hooks.store.read('s')!r}{hooks.route!r}"
        assert password not in shown
        assert b64encode(f"ann:{password}".encode()).decode()[:10] not in shown
        assert "endpoint's own" not in shown

    (request,) = run(nats_server, answer, work, credentials={"headers": {"Authorization": "endpoint's own"}}).requests

    assert request.headers["Authorization"] == f"Basic {b64encode(f'ann:{password}'.encode()).decode()}"


def test_without_the_key(nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Credentials that no key decrypts keep the request from being sent; the attempt names the variable."""
    monkeypatch.setenv(SECRET_KEY, new_key())

    async def work(hooks: Hooks, _: Receiver) -> None:
        hooks.subscribe("s", retry=[], credentials={"headers": {"X-Api-Key": "k"}})
        monkeypatch.setenv(SECRET_KEY, new_key())
        await hooks.publish(b"1", subscription="s")
        await hooks.deliver()
        ((_body, headers),) = await hooks.dead()
        assert "none of the keys in TURNOUT_SECRET_KEY decrypts it" in headers["Turnout-Attempts"]

    assert run(nats_server, fine, work).requests == []


def tokens(issued: list[Request], *, seconds: float = 3_600) -> Callable[[Request], web.Response]:
    """An authorization server at /token, and an endpoint that takes the last token alone."""

    def answer(request: Request) -> web.Response:
        if request.path == "/token":
            issued.append(request)
            return web.json_response({"access_token": f"t{len(issued)}", "expires_in": seconds, "token_type": "bearer"})
        known = request.headers.get("Authorization") == f"Bearer t{len(issued)}"
        return web.Response(status=204 if known else 401)

    return answer


def test_one_token_for_all_requests(nats_server: NatsServer) -> None:
    """A token is obtained once for requests that begin together, with id and secret as RFC 6749 encodes them."""
    issued: list[Request] = []

    async def work(hooks: Hooks, receiver: Receiver) -> None:
        login = {**LOGIN, "tokenUrl": receiver.url.replace("/in", "/token"), "parameters": {"audience": "x"}}
        hooks.endpoint["credentials"] = {"oauth2": login}
        await hooks.publish(*(b"%d" % number for number in range(40)))
        counts = await hooks.deliver()
        assert (counts.delivered, counts.requests, counts.failed) == (40, 40, 0)

    run(nats_server, tokens(issued), work)

    (request,) = issued
    assert request.headers["Authorization"] == f"Basic {b64encode(b'a+b:s%3Ae%2Bc').decode()}"
    assert request.body == b"grant_type=client_credentials&audience=x&scope=post+all"


@asynccontextmanager
async def source(answer: Callable[[Request], Any], **login: Any) -> AsyncIterator[tuple[TokenSource, Receiver]]:
    receiver = Receiver(answer)
    async with receiver.serving(), Client(LOOPBACK) as client:
        credentials = Credentials.from_mapping({"oauth2": {**LOGIN, "tokenUrl": receiver.url, **login}})
        assert credentials.oauth2 is not None
        yield TokenSource(credentials.oauth2, client, credentials), receiver


def test_tokens_are_renewed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before its end a token is replaced; after a 401 as well, but not more than once in some seconds."""
    clock = [1_000.0]
    monkeypatch.setattr("turnout.delivery.access.monotonic", lambda: clock[0])

    async def main() -> None:
        def answer(request: Request) -> web.Response:
            return web.json_response({"access_token": f"t{request.number}", "expires_in": "100"})

        async with source(answer) as (tokens, _):
            assert await tokens.token("") == "t1" == tokens.current()
            tokens.refused()
            assert tokens.current() == "t1"
            clock[0] += 79
            assert tokens.current() == "t1"
            clock[0] += 2
            assert tokens.current() == ""
            assert await tokens.token("") == "t2"
            clock[0] += 11
            tokens.refused()
            assert await tokens.token("") == "t3"

    asyncio.run(main())


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda _: web.json_response({"error": "invalid_client", "error_description": "s:e+c?"}, status=401),
         "status 401, invalid_client: ***?"),
        (lambda _: web.Response(text="<html>"), "status 200, and no answer of OAuth 2"),
        (lambda _: web.json_response({"access_token": "a", "token_type": "mac"}), "of the type 'mac', expected Bearer"),
        (lambda _: web.json_response({"access_token": "a\r\nX: y"}), "that no header can carry"),
        (lambda _: web.Response(body=b" " * 70_000 + b"{}"), "no answer of OAuth 2"),
    ],
)  # fmt: skip
def test_refused_tokens(answer: Callable[[Request], Any], message: str) -> None:
    """What is no token is an error with the reason and without a secret, which holds for a while without a request."""

    async def main() -> None:
        async with source(answer) as (tokens, receiver):
            for _ in range(3):
                with pytest.raises(TokenError) as raised:
                    await tokens.token("")
                assert message in str(raised.value)
                assert "s:e+c" not in str(raised.value)
            assert len(receiver.requests) == 1

    asyncio.run(main())


def test_the_token_endpoint_is_guarded() -> None:
    """A tenant's token endpoint may not be a private address, either."""

    async def main() -> None:
        async with Client() as client:
            login = {**LOGIN, "tokenUrl": "https://169.254.169.254/token"}
            credentials = Credentials.from_mapping({"oauth2": login})
            assert credentials.oauth2 is not None
            with pytest.raises(TokenError, match=r"169\.254\.169\.254 is no public address"):
                await TokenSource(credentials.oauth2, client, credentials).token("")

    asyncio.run(main())


def test_a_late_token(monkeypatch: pytest.MonkeyPatch) -> None:
    """An authorization server that does not answer in time costs the attempt, and not more."""
    monkeypatch.setattr(access, "_EXCHANGE_SECONDS", 0.05)
    never = asyncio.Event

    async def main() -> None:
        async def answer(_: Request) -> web.Response:
            await never().wait()
            return web.Response()

        async with source(answer) as (tokens, _):
            with pytest.raises(TokenError, match=r"gives no token: no response within 0\.05 s"):
                await tokens.token("")

    asyncio.run(main())


def test_client_certificates(nats_server: NatsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that asks for a certificate gets the endpoint's; without one the request fails."""
    made = make_certificates(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(made / "ca.pem"))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=made / "ca.pem")
    context.load_cert_chain(made / "server.pem", made / "server.key")
    context.verify_mode = ssl.CERT_REQUIRED
    seen: list[Any] = []

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(writer.get_extra_info("peercert"))
        head = await reader.readuntil(b"\r\n\r\n")
        await reader.readexactly(int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0]))
        writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")
        await writer.drain()
        writer.close()

    async def work(hooks: Hooks, _: Receiver) -> None:
        server = await asyncio.start_server(talk, "127.0.0.1", 0, ssl=context)
        async with server:
            url = f"https://localhost:{server.sockets[0].getsockname()[1]}/"
            hooks.endpoint = {"url": url, "delivery": {"retry": []}}
            hooks.allow = ["127.0.0.0/8", "::1/128"]
            await hooks.publish(b"1")
            assert (await hooks.deliver()).dead == 1
            chain, key = (made / "client.pem").read_text(), (made / "client.key").read_text()
            hooks.endpoint["credentials"] = {"certificate": {"chain": chain, "key": key}}
            await hooks.publish(b"2")
            assert (await hooks.deliver()).delivered == 1

    run(nats_server, fine, work)

    assert seen[-1]["subject"] == ((("commonName", "client"),),)


def test_certificates_that_cannot_be_used(tmp_path: Path) -> None:
    """A key of another certificate, or none, is refused without the key, and no file stays."""
    made = make_certificates(tmp_path)
    chain, key = (made / "client.pem").read_text(), (made / "stranger.key").read_text()
    for bad_key in (key, key.replace("PRIVATE KEY-----\n", "PRIVATE KEY-----\nAAAA", 1)):
        with pytest.raises(CertificateError) as raised:
            client_context((chain, bad_key))
        assert key[40:60] not in str(raised.value)
