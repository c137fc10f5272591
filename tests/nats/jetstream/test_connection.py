"""TLS: authorities that are trusted and that are not, clients that must show who they are, and a restart in between."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.certificates import make_certificates
from tests.nats.jetstream.support import Errors, asynchronous, eventually, stream_of_messages
from tests.nats.wire.proxy import CuttingProxy

from turnout.embedded import NatsServer
from turnout.errors import ConnectionLostError, StreamError
from turnout.nats.jetstream import JetStream, connect
from turnout.nats.wire import Connection, ConnectionOptions


@pytest.fixture(scope="module")
def pems(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_certificates(tmp_path_factory.mktemp("tls"))


def secured(pems: Path, more: str = "") -> str:
    return f'tls {{ cert_file: "{pems}/server.pem", key_file: "{pems}/server.key", timeout: 5 {more} }}'


@pytest.fixture(scope="module")
def tls_server(pems: Path) -> Iterator[NatsServer]:
    with NatsServer(config=secured(pems)) as server:
        yield server


@pytest.fixture(scope="module")
def mutual_server(pems: Path) -> Iterator[NatsServer]:
    with NatsServer(config=secured(pems, f', ca_file: "{pems}/ca.pem", verify: true')) as server:
        yield server


def trust(pems: Path, authority: str = "ca", own: str | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(pems / f"{authority}.pem"))
    if own:
        context.load_cert_chain(pems / f"{own}.pem", pems / f"{own}.key")
    return context


async def use(js: JetStream) -> int:
    """Publish, and read it all again."""
    _, subject = await stream_of_messages(js, 300, size=20_000)
    async with await js.ordered(f"{subject}.>") as messages:
        return len([await messages.next() for _ in range(300)])


@asynchronous
async def test_a_trusted_server(pems: Path, tls_server: NatsServer) -> None:
    """With the server's authority everything works as in the clear, in frames over the size of a TLS record too."""
    async with connect(f"tls://localhost:{tls_server.port}", tls=trust(pems)) as js:
        assert await use(js) == 300


@asynchronous
async def test_a_server_that_is_not_trusted(pems: Path, tls_server: NatsServer) -> None:
    """Another authority, or another name than the certificate's, is no connection, and the reason is told."""
    for settings in ({"tls": trust(pems, "other")}, {"tls": trust(pems), "tls_hostname": "elsewhere"}):
        with pytest.raises(ConnectionLostError, match="certificate verify failed"):
            async with connect(f"tls://localhost:{tls_server.port}", connect_timeout=1.5, **settings):
                pass


@asynchronous
async def test_a_server_that_wants_tls(pems: Path, tls_server: NatsServer) -> None:
    """A plain address becomes TLS where the server asks for it."""
    async with connect(f"nats://localhost:{tls_server.port}", tls=trust(pems)) as js:
        assert (await js.account_info()).extra is not None


@asynchronous
async def test_mutual_tls(pems: Path, mutual_server: NatsServer) -> None:
    """If client certificates are required, only one of the authority is accepted."""
    url = f"tls://localhost:{mutual_server.port}"
    async with connect(url, tls=trust(pems, own="client")) as js:
        assert await use(js) == 300
    for own in (None, "stranger"):
        with pytest.raises((ConnectionLostError, StreamError)):
            async with connect(url, tls=trust(pems, own=own), connect_timeout=1.5) as js:
                await js.account_info()


@asynchronous
async def test_handshake_first(pems: Path) -> None:
    """A server that greets only inside TLS, for clients that are told to begin with the handshake."""
    with NatsServer(config=secured(pems, ", handshake_first: 300ms")) as server:
        url = f"tls://localhost:{server.port}"
        async with connect(url, tls=trust(pems), tls_handshake_first=True) as js:
            assert await use(js) == 300


@asynchronous
async def test_reconnecting(pems: Path) -> None:
    """A server that is killed and comes back is connected to by TLS again, and an ordered consumer goes on."""
    with NatsServer(config=secured(pems)) as server:
        errors = Errors()
        url = f"tls://localhost:{server.port}"
        async with connect(url, tls=trust(pems), error_callback=errors, timeout=2) as js:
            _, subject = await stream_of_messages(js, 3, storage="file")
            messages = await js.ordered(f"{subject}.>")
            first = [(await messages.next()).sequence for _ in range(3)]
            server.restart(kill=True)

            async def stored() -> bool:
                try:
                    await js.publish(f"{subject}.a", msg_id="4", timeout=1)
                except (StreamError, ConnectionLostError):
                    return False
                return True

            await eventually(stored, 20)

            assert [*first, (await messages.next(20)).sequence] == [1, 2, 3, 4]


@asynchronous
async def test_a_renewed_certificate_is_that_of_the_next_connection(
    pems: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The server comes back with another authority for clients: both clients show the certificate that is there now.

    Files that do not fit are not used: the certificates that were read first are.
    """

    def put(name: str) -> None:
        for kind in ("pem", "key"):
            (tmp_path / f"own.{kind}").write_text((pems / f"{name}.{kind}").read_text())

    trusted = tmp_path / "trusted.pem"
    trusted.write_text((pems / "ca.pem").read_text())
    put("client")
    with NatsServer(config=secured(pems, f', ca_file: "{trusted}", verify: true')) as server:
        files = {"tlsCa": pems / "ca.pem", "tlsCert": tmp_path / "own.pem", "tlsKey": tmp_path / "own.key"}
        texts = {name: str(path) for name, path in files.items()}
        options = ConnectionOptions.from_mapping({"servers": f"tls://localhost:{server.port}", **texts})
        async with connect(options) as js:
            (tmp_path / "own.pem").write_text("half a")
            with Connection.open(options) as wire:
                wire.request("$JS.API.INFO", b"")
            put("stranger")
            trusted.write_text((pems / "other.pem").read_text())
            server.restart()

            async def answers() -> bool:
                try:
                    await js.account_info()
                except (StreamError, ConnectionLostError):
                    return False
                return True

            await eventually(answers, 20)
            with Connection.open(options) as wire:
                wire.request("$JS.API.INFO", b"")

    assert "the certificates that were read at the start are used" in caplog.text


@pytest.mark.parametrize("way", ["scheme", "scheme with credentials", "second of two", "tls option", "token"])
@asynchronous
async def test_no_password_crosses_in_the_clear(nats_server: NatsServer, way: str) -> None:
    """TLS that is asked for and not offered ends the attempt before anything is sent: no byte of ours crosses."""
    with CuttingProxy(nats_server.port) as proxy:
        place = f"127.0.0.1:{proxy.port}"
        login: dict[str, Any] = {"user": "ann", "password": "s3cr3t-pw"}
        ways: dict[str, tuple[str | list[str], dict[str, Any]]] = {
            "scheme": (f"tls://{place}", login),
            "scheme with credentials": (f"tls://ann:s3cr3t-pw@{place}", {}),
            "second of two": ([f"nats://{place}", f"tls://{place}"], login),
            "tls option": (f"nats://{place}", {**login, "tls": ssl.create_default_context()}),
            "token": (f"tls://{place}", {"token": "s3cr3t-token"}),
        }
        servers, options = ways[way]
        with pytest.raises(StreamError, match="offers no TLS, and TLS is required") as refusal:
            async with connect(servers, **options):
                pass

        assert bytes(proxy.sent) == b""
        assert "s3cr3t" not in str(refusal.value)


@asynchronous
async def test_a_server_that_only_offers_tls(pems: Path) -> None:
    """If the server accepts both, TLS is used when requested, and otherwise plain text."""
    config = f"{secured(pems)}\nallow_non_tls: true"
    with NatsServer(config=config) as server, CuttingProxy(server.port) as proxy:
        async with connect(f"tls://localhost:{proxy.port}", tls=trust(pems)) as js:
            assert await use(js) == 300
        assert b"CONNECT" not in proxy.sent
        async with connect(f"nats://localhost:{proxy.port}") as js:
            await js.account_info()
        assert b"CONNECT" in proxy.sent


@asynchronous
async def test_a_server_that_comes_back_without_tls(pems: Path) -> None:
    """A reconnect is as careful as the first connection: it reports the refusal and waits for a server with TLS."""
    with NatsServer(config=secured(pems)) as server, CuttingProxy(server.port) as proxy:
        errors = Errors()
        url = f"tls://localhost:{proxy.port}"
        async with connect(url, tls=trust(pems), error_callback=errors, user="ann", password="s3cr3t-pw") as js:
            await js.account_info()
            server.stop()
            proxy.sent.clear()
            with NatsServer(port=server.port):
                await errors.expect(StreamError, 30)
                assert b"s3cr3t" not in proxy.sent
                assert b"CONNECT" not in proxy.sent
            server.start()

            async def answered() -> bool:
                try:
                    await js.account_info()
                except (StreamError, ConnectionLostError):
                    return False
                return True

            await eventually(answered, 30)
