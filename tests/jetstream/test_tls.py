"""TLS: authorities that are trusted and that are not, clients that must show who they are, and a restart in between."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.certificates import make_certificates
from tests.jetstream.support import Errors, asynchronous, eventually, stream_of_messages

from turnout.embedded import NatsServer
from turnout.errors import ConnectionLostError, StreamError
from turnout.jetstream import JetStream, connect


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
    """Where clients must show a certificate, one of the authority is let in, and none other."""
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
