"""Connections: who may come in, by which door, and what is said to those who may not."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import os
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nkeys
import pytest
from tests.nats.wire.proxy import CuttingProxy

from turnout.embedded import NatsServer, free_port
from turnout.errors import ConfigError, ConnectionLostError, StreamError
from turnout.nats.protocol.errors import PermissionDeniedError
from turnout.nats.protocol.options import Server
from turnout.nats.wire import Connection, ConnectionOptions, Publisher, PullReader, Range, create_stream, stream_info
from turnout.nats.wire.connection import RetryWindow
from turnout.nats.wire.direct import DirectReader

# Requests of half a second, and freezes that are over at any point of a request and of the PING behind it.
_TIMES = {"timeout": 0.5, "connect_timeout": 0.5, "reconnect_timeout": 60.0}
_FREEZES = (0.55, 1.3, *(pytest.param(seconds, marks=pytest.mark.heavy) for seconds in (0.3, 0.8, 2.6)))
_COUNT = 20_000


@pytest.fixture
def server() -> Iterator[NatsServer]:
    with NatsServer() as running:
        with Connection.open(running.url) as connection:
            create_stream(connection, {"name": "F", "subjects": ["f.>"], "storage": "file", "allow_direct": True})
        yield running


@contextlib.contextmanager
def frozen(server: NatsServer, seconds: float) -> Iterator[None]:
    """Freeze the server now, and let it go on after *seconds*."""
    server.pause()
    timer = threading.Timer(seconds, server.resume)
    timer.start()
    try:
        yield
    finally:
        timer.join()


def fill(server: NatsServer) -> None:
    """Put messages into the stream."""
    with Connection.open(server.url) as connection:
        publisher = Publisher(connection)
        for number in range(_COUNT):
            publisher.publish("f.a", b"%d" % number)
        publisher.flush()


@pytest.mark.parametrize("seconds", _FREEZES)
def test_a_request_waits(server: NatsServer, seconds: float) -> None:
    """A request is answered when the server goes on, however long that is after its limit."""
    with Connection.open(server.url, **_TIMES) as connection, frozen(server, seconds):
        assert stream_info(connection, "F")["config"]["name"] == "F"


@pytest.mark.parametrize("seconds", [1.3, 2.6])
def test_connecting_waits(server: NatsServer, seconds: float) -> None:
    """A connection that is opened again waits for a greeting that a frozen server does not send."""
    with Connection.open(server.url, **_TIMES) as connection:
        connection.close()
        with frozen(server, seconds):
            assert stream_info(connection, "F")["config"]["name"] == "F"


def test_longer_than_the_limit(server: NatsServer) -> None:
    """A server that stays frozen is one that is away, by the same limit and the same error."""
    options = {**_TIMES, "timeout": 0.2, "connect_timeout": 0.2, "reconnect_timeout": 1.0}
    with Connection.open(server.url, **options) as connection:
        server.pause()
        try:
            with pytest.raises(ConnectionLostError):
                stream_info(connection, "F")
        finally:
            server.resume()


@pytest.mark.parametrize("direct", [False, True], ids=["consumer", "direct"])
@pytest.mark.parametrize("seconds", _FREEZES)
def test_a_reader_waits(server: NatsServer, seconds: float, direct: bool) -> None:
    """A reader whose server freezes at its beginning and in the middle brings each message once."""
    fill(server)
    part = Range("F", 1, _COUNT + 1)
    with Connection.open(server.url, **_TIMES) as connection:
        reader = DirectReader(connection, part) if direct else PullReader(connection, part)
        offsets: list[int] = []
        with frozen(server, seconds):
            batches = reader.batches()
            offsets += next(batches).column("offset").to_pylist()
        with frozen(server, seconds):
            for batch in batches:
                offsets += batch.column("offset").to_pylist()

    assert offsets == list(range(1, _COUNT + 1))


def counted_reconnects(monkeypatch: pytest.MonkeyPatch, connection: Connection) -> list[float]:
    """Return the list that each call of the connection's `reconnect` extends."""
    calls: list[float] = []
    reconnect = connection.reconnect
    monkeypatch.setattr(connection, "reconnect", lambda deadline: (calls.append(deadline), reconnect(deadline)))
    return calls


@pytest.mark.parametrize("seconds", [0.8, 5.0])
def test_a_publisher_waits(server: NatsServer, seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """A publisher whose server freezes stores each message, once where messages have ids."""
    monkeypatch.setattr("turnout.nats.wire.publisher._SILENCE_SECONDS", 2.0)
    with Connection.open(server.url, **{**_TIMES, "reconnect_timeout": 180.0}) as connection:
        publisher = Publisher(connection)
        reconnected = counted_reconnects(monkeypatch, connection)
        with frozen(server, seconds):
            for number in range(2_000):
                publisher.publish("f.a", b"x", message_id=str(number))
            publisher.flush()

        assert stream_info(connection, "F")["state"]["messages"] == 2_000
    # Not once for each line that is no acknowledgement.
    assert len(reconnected) <= 3


def new_seed(kind: int) -> tuple[bytes, str]:
    """A fresh seed, and the public key that belongs to it."""
    seed = nkeys.encode_seed(os.urandom(32), kind)
    return seed, nkeys.from_seed(seed).public_key.decode()


def test_requests_and_the_api(nats_server: NatsServer) -> None:
    """An answer comes back to its question; errors carry the server's codes."""
    with Connection.open(nats_server.url) as connection:
        create_stream(connection, {"name": "CONN", "subjects": ["conn.>"], "storage": "memory"})
        assert json.loads(connection.request("conn.a", b"x").payload)["stream"] == "CONN"
        assert stream_info(connection, "CONN")["state"]["messages"] == 1
        with pytest.raises(StreamError) as missing:
            connection.api("STREAM.INFO.NO")
        with pytest.raises(StreamError, match=r"no responders on 'nothing.here'") as refused:
            connection.request("nothing.here")

    assert (missing.value.code, missing.value.err_code, refused.value.code) == (404, 10059, 503)


def test_a_request_that_is_not_answered(nats_server: NatsServer) -> None:
    """A server that is alive and a subject that is silent: an error that says so, not a reconnect for a minute."""
    with Connection.open(nats_server.url) as silent, Connection.open(nats_server.url, timeout=0.3) as connection:
        silent.subscribe("silent")
        assert silent.ping()
        with pytest.raises(StreamError, match="no answer on") as failure:
            connection.request("silent")

    assert failure.value.code == 408


def test_the_second_server_is_tried(nats_server: NatsServer) -> None:
    """One address that answers is enough; if none does, each is named with its reason."""
    dead = f"nats://127.0.0.1:{free_port()}"
    with Connection.open(f"{dead},{nats_server.url}") as connection:
        assert connection.ping()

    with pytest.raises(ConnectionLostError, match="Connection refused"):
        Connection.open(dead)


def test_a_request_outlives_a_restart() -> None:
    """The connection opens itself again and asks again."""
    with NatsServer() as server, Connection.open(server.url) as connection:
        create_stream(connection, {"name": "S", "subjects": ["s"], "storage": "file"})
        server.restart()

        assert stream_info(connection, "S")["config"]["name"] == "S"


def test_something_that_is_not_nats() -> None:
    """An HTTP server, say: the message tells, and nothing hangs."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            client, _ = listener.accept()
            with client:
                client.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        thread = threading.Thread(target=serve)
        thread.start()
        with pytest.raises(ConnectionLostError, match="is not a NATS server"):
            Connection.open(f"127.0.0.1:{listener.getsockname()[1]}")
        thread.join(5)


USERS = """
authorization { users: [ {user: me, password: "pa ss"}, {nkey: %s} ] }
"""


@pytest.fixture(scope="module")
def guarded() -> Iterator[tuple[NatsServer, bytes]]:
    """A server that knows one user and one nkey."""
    seed, public = new_seed(nkeys.PREFIX_BYTE_USER)
    with NatsServer(config=USERS % public, jetstream=False) as server:
        yield server, seed


def test_user_and_password(guarded: tuple[NatsServer, bytes]) -> None:
    """They may be options or part of the address."""
    server, _ = guarded
    for options in (
        {"servers": server.url, "user": "me", "password": "pa ss"},
        {"servers": server.url.replace("//", "//me:pa%20ss@")},
    ):
        with Connection.open(ConnectionOptions.from_mapping(options)) as connection:
            assert connection.ping()


def test_an_nkey(guarded: tuple[NatsServer, bytes], tmp_path: Path) -> None:
    """The seed itself, or the file that holds it."""
    server, seed = guarded
    path = tmp_path / "user.nk"
    path.write_bytes(seed + b"\n")
    for options in ({"nkeySeed": seed.decode()}, {"nkeySeedFile": str(path)}):
        with Connection.open(ConnectionOptions.from_mapping({"servers": server.url, **options})) as connection:
            assert connection.ping()


@pytest.mark.parametrize("options", [{}, {"user": "me", "password": "hunter2"}, {"token": "hunter2"}])
def test_the_wrong_credentials(guarded: tuple[NatsServer, bytes], options: dict[str, str]) -> None:
    """Refused at once with the server's word, and without ours."""
    server, _ = guarded
    with pytest.raises(StreamError, match="Authorization Violation") as failure:
        Connection.open(ConnectionOptions.from_mapping({"servers": server.url, **options}))

    assert failure.value.code == 403
    assert "hunter2" not in str(failure.value)


def test_a_seed_that_is_none(guarded: tuple[NatsServer, bytes]) -> None:
    """The seed is not repeated, and no cause that holds it is attached."""
    server, _ = guarded
    with pytest.raises(ConfigError, match="is not an nkey seed") as failure:
        Connection.open(ConnectionOptions.from_mapping({"servers": server.url, "nkeySeed": "SUNOSEED"}))

    assert "SUNOSEED" not in str(failure.value)
    assert failure.value.__suppress_context__


def test_a_token() -> None:
    """It may be an option or part of the address."""
    with NatsServer(config='authorization { token: "t0k" }') as server:
        for options in ({"servers": server.url, "token": "t0k"}, {"servers": server.url.replace("//", "//t0k@")}):
            with Connection.open(ConnectionOptions.from_mapping(options)) as connection:
                assert connection.ping()


def jwt(claims: dict[str, Any], seed: bytes, subject: str) -> str:
    """A NATS JWT (version 2) signed by *seed*."""

    def part(value: object) -> bytes:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=")

    signer = nkeys.from_seed(seed)
    body = {"iat": int(time.time()), "iss": signer.public_key.decode(), "sub": subject, **claims}
    digest = hashlib.sha256(json.dumps(body).encode()).digest()
    body["jti"] = base64.b32encode(digest).rstrip(b"=").decode()
    text = part({"typ": "JWT", "alg": "ed25519-nkey"}) + b"." + part(body)
    return (text + b"." + base64.urlsafe_b64encode(signer.sign(text)).rstrip(b"=")).decode()


def test_a_credentials_file(tmp_path: Path) -> None:
    """An operator, an account and a user, as nsc would make them: the user's file opens the door."""
    limits = {"subs": -1, "data": -1, "payload": -1, "imports": -1, "exports": -1, "wildcards": True, "conn": -1}
    operator_seed, operator = new_seed(nkeys.PREFIX_BYTE_OPERATOR)
    account_seed, account = new_seed(nkeys.PREFIX_BYTE_ACCOUNT)
    user_seed, user = new_seed(nkeys.PREFIX_BYTE_USER)
    operator_jwt = jwt({"name": "O", "nats": {"type": "operator", "version": 2}}, operator_seed, operator)
    account_jwt = jwt(
        {"name": "A", "nats": {"limits": {**limits, "leaf": -1}, "type": "account", "version": 2}},
        operator_seed,
        account,
    )
    user_jwt = jwt(
        {
            "name": "U",
            "nats": {"pub": {}, "sub": {}, "subs": -1, "data": -1, "payload": -1, "type": "user", "version": 2},
        },
        account_seed,
        user,
    )
    config = f"operator: {operator_jwt}\nresolver: MEMORY\nresolver_preload {{ {account}: {account_jwt} }}\n"
    creds = tmp_path / "user.creds"
    creds.write_text(
        f"-----BEGIN NATS USER JWT-----\n{user_jwt}\n------END NATS USER JWT------\n\n"
        "************************* IMPORTANT *************************\n"
        f"-----BEGIN USER NKEY SEED-----\n{user_seed.decode()}\n------END USER NKEY SEED------\n",
        encoding="utf-8",
    )
    with NatsServer(config=config, jetstream=False) as server:
        options = ConnectionOptions.from_mapping({"servers": server.url, "credentials": str(creds)})
        with Connection.open(options) as connection:
            assert connection.ping()
        assert user_seed.decode() not in repr(options)
        with pytest.raises(StreamError, match="Authorization Violation"):
            Connection.open(server.url)


@pytest.fixture(scope="module")
def pems(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An authority, a server's certificate for localhost and a client's, all for a day."""
    folder = tmp_path_factory.mktemp("tls")

    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)

    new = ("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    openssl(*new, "-x509", "-keyout", "ca.key", "-out", "ca.pem", "-days", "1", "-subj", "/CN=test authority")
    for name, extension in (("server", "subjectAltName=DNS:localhost"), ("client", "extendedKeyUsage=clientAuth")):
        openssl(*new, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
        (folder / f"{name}.ext").write_text(extension, encoding="utf-8")
        openssl(
            "x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial",
            "-days", "1", "-out", f"{name}.pem", "-extfile", f"{name}.ext",
        )  # fmt: skip
    return folder


@pytest.mark.parametrize("first", [False, True])
def test_tls_with_both_certificates(pems: Path, first: bool) -> None:
    """The server is checked against the authority, and checks us; with and without the handshake first."""
    # A server that waits this long for a handshake before it greets in the clear takes both kinds of client.
    handshake = "300ms" if first else "false"
    config = (
        f'tls {{ cert_file: "{pems}/server.pem", key_file: "{pems}/server.key", ca_file: "{pems}/ca.pem",'
        f" verify: true, timeout: 5, handshake_first: {handshake} }}"
    )
    with NatsServer(config=config) as server:
        options = {
            "servers": f"tls://localhost:{server.port}",
            "tlsCa": f"{pems}/ca.pem",
            "tlsCert": f"{pems}/client.pem",
            "tlsKey": f"{pems}/client.key",
            "tlsFirst": str(first).lower(),
        }
        parsed = ConnectionOptions.from_mapping(options)
        assert "PRIVATE KEY" not in repr(parsed)
        with Connection.open(parsed) as connection:
            create_stream(connection, {"name": "T", "subjects": ["t"], "storage": "memory"})
            for _ in range(100):
                connection.request("t", b"x" * 50_000)
            assert sum(batch.num_rows for batch in PullReader(connection, Range("T", 1, 101)).batches()) == 100


def test_a_server_that_is_not_trusted(pems: Path) -> None:
    """Neither an unknown authority nor another name is let through; without checks it is."""
    config = f'tls {{ cert_file: "{pems}/server.pem", key_file: "{pems}/server.key" }}'
    with NatsServer(config=config) as server:
        with pytest.raises(StreamError, match="is not trusted"):
            Connection.open(ConnectionOptions.from_mapping({"servers": f"tls://localhost:{server.port}"}))
        with pytest.raises(StreamError, match="is not trusted"):
            Connection.open(
                ConnectionOptions.from_mapping({"servers": f"tls://127.0.0.1:{server.port}", "tlsCa": f"{pems}/ca.pem"})
            )
        options = {"servers": f"tls://127.0.0.1:{server.port}", "tlsInsecure": "true"}
        with Connection.open(ConnectionOptions.from_mapping(options)) as connection:
            assert connection.ping()


@pytest.mark.parametrize(
    "options",
    [
        {"servers": "tls://ann:s3cr3t-pw@{}"},
        {"servers": "nats://{}", "tls": "true", "token": "s3cr3t-token"},
        {"servers": "nats://{0},tls://{0}", "user": "ann", "password": "s3cr3t-pw"},
    ],
)
def test_no_password_crosses_in_the_clear(nats_server: NatsServer, options: dict[str, str]) -> None:
    """TLS that is asked for and not offered ends the attempt before anything is sent: no byte of ours crosses."""
    with CuttingProxy(nats_server.port) as proxy:
        place = f"127.0.0.1:{proxy.port}"
        filled = {name: value.format(place) for name, value in options.items()}
        with pytest.raises(StreamError, match="offers no TLS, and TLS is required") as refusal:
            Connection.open(ConnectionOptions.from_mapping(filled))

        assert bytes(proxy.sent) == b""
        assert "s3cr3t" not in str(refusal.value)


def test_one_address_with_tls_is_enough_to_ask_for_it(nats_server: NatsServer) -> None:
    """Options that were put together by hand are as careful as those that were read."""
    with CuttingProxy(nats_server.port) as proxy:
        with pytest.raises(StreamError, match="offers no TLS"):
            Connection.open(ConnectionOptions((Server("127.0.0.1", proxy.port, tls=True),)))

        assert bytes(proxy.sent) == b""


def test_a_prefix_through_an_account_import() -> None:
    """ADR-19: the API of account A as seen from account I, reading included."""
    config = """
    jetstream: enabled
    accounts: {
      A: { users: [ {user: a, password: a} ], jetstream: enabled,
           exports: [ {service: '$JS.API.>', response_type: stream}, {service: 'orders.>'} ] },
      I: { users: [ {user: i, password: i} ],
           imports: [ {service: {account: A, subject: '$JS.API.>'}, to: 'fromA.>'},
                      {service: {account: A, subject: 'orders.>'}} ] }
    }
    no_auth_user: i
    """
    with NatsServer(config=config, jetstream=False) as server:
        with Connection.open(server.url, api_prefix="fromA") as connection:
            create_stream(connection, {"name": "ORDERS", "subjects": ["orders.>"], "storage": "memory"})
            publisher = Publisher(connection)
            for n in range(500):
                publisher.publish("orders.x", b"%d" % n, message_id=str(n))
            assert publisher.flush().stored == 500
        with Connection.open(server.url, api_prefix="fromA") as connection:
            batches = list(PullReader(connection, Range("ORDERS", 1, 501)).batches())

        assert [int(v) for batch in batches for v in batch.column("value").to_pylist()] == list(range(500))


def test_retry_window(monkeypatch: pytest.MonkeyPatch) -> None:
    """It opens with the first failure, is unchanged by the next, and progress closes it."""
    clock = 100.0
    monkeypatch.setattr("turnout.nats.wire.connection.time.monotonic", lambda: clock)
    window = RetryWindow(10)

    clock = 105.0
    assert window.until == 115.0
    clock = 114.0
    seen = [window.is_over]
    clock = 115.0
    seen.append(window.is_over)
    window.progress()
    seen.append(window.is_over)

    assert seen == [False, True, False]
    assert window.until == 125.0


@pytest.mark.parametrize(
    ("permissions", "operation", "subject"),
    [
        ('publish: {deny: "$JS.API.CONSUMER.MSG.NEXT.>"}', "publish", "$JS.API.CONSUMER.MSG.NEXT.Orders."),
        ('publish: {deny: "$JS.API.CONSUMER.CREATE.>"}', "publish", "$JS.API.CONSUMER.CREATE.Orders."),
        ('subscribe: {deny: "_INBOX.>"}', "subscription", "_INBOX."),
    ],
)
def test_a_denial_is_raised_while_reading(permissions: str, operation: str, subject: str) -> None:
    """A reader that may not pull raises the denial, with the subject as it is written, and reads nothing."""
    config = f"""jetstream: enabled
    authorization {{ users: [
      {{user: a, password: pw}}, {{user: b, password: pw, permissions: {{ {permissions} }} }} ] }}"""
    with NatsServer(config=config) as server:
        with Connection.open(server.url.replace("//", "//a:pw@")) as connection:
            create_stream(connection, {"name": "Orders", "subjects": ["orders.>"]})
            connection.request("orders.Eu", b"x")
        with Connection.open(server.url.replace("//", "//b:pw@")) as connection:
            with pytest.raises(PermissionDeniedError) as denied:
                list(PullReader(connection, Range("Orders", 1, 2)).batches())

            assert denied.value.operation == operation
            assert denied.value.subject.startswith(subject)
