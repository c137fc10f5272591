"""Limits of HTTP clients, on real sockets: slow ones, numerous ones, and those that stop reading."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import resource
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import aiohttp
import pytest

from tests.certificates import make_certificates
from tests.feeds import FedRoute
from tests.server.conftest import wait_for
from tests.server.test_serving import get, serving
from turnout.server.config import LimitsPart
from turnout.server.listener import Connections, Notices, OnceAMinute
from turnout.server.serving import RouteServer

POST = b"POST /v1/subjects/map HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
LIVE = b"GET /live HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
QUICK = {"headerTimeout": "200ms", "bodyTimeout": "200ms", "sendTimeout": "200ms"}


@contextmanager
def connected(port: int, sent: bytes = b"", source: str = "127.0.0.1") -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", port), timeout=30, source_address=(source, 0)) as client:
        client.sendall(sent)
        yield client


def answer(client: socket.socket) -> str:
    """Everything that the server sends until it closes the connection; "" for a reset."""
    received = b""
    try:
        while part := client.recv(65_536):
            received += part
    except ConnectionError:
        pass
    return received.decode()


def is_served(client: socket.socket) -> bool:
    """Whether the next answer is that of LIVE, which is read to its end."""
    received = b""
    while not received.endswith(b"}"):
        part = client.recv(65_536)
        if not part:
            return False
        received += part
    return received.startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("sent", [b"", b"GET /live HTT", LIVE.removesuffix(b"\r\n"), POST])
def test_a_request_without_complete_headers_is_ended(tmp_path: Path, sent: bytes) -> None:
    """A connection without complete headers within limits.headerTimeout is answered with 408 and closed."""
    with serving(tmp_path, limits=QUICK) as server, connected(server.port, sent) as client:
        assert answer(client).startswith("HTTP/1.1 408 ")


def test_a_further_request_without_complete_headers_is_ended(tmp_path: Path) -> None:
    """The limit holds for each request of a connection; an idle connection may stay as long as it did."""
    with serving(tmp_path, limits=QUICK) as server, connected(server.port, LIVE) as client:
        assert is_served(client)
        time.sleep(0.6)
        client.sendall(LIVE)
        assert is_served(client)
        client.sendall(b"GET ")
        assert answer(client).startswith("HTTP/1.1 408 ")


@pytest.mark.parametrize("body", [b"Content-Length: 100\r\n\r\n{", b"Transfer-Encoding: chunked\r\n\r\n5\r\n{    \r\n"])
def test_a_request_without_complete_body_is_ended(tmp_path: Path, body: bytes) -> None:
    """A body that is not complete within limits.bodyTimeout is answered with 408."""
    with serving(tmp_path, limits=QUICK) as server, connected(server.port, POST + body) as client:
        assert answer(client).startswith("HTTP/1.1 408 ")


def test_a_body_that_goes_on_after_its_answer_is_ended(tmp_path: Path) -> None:
    """Bytes of a refused body do not keep the connection open for ever."""
    refused = POST + b"Content-Length: 9000000\r\n\r\n{"
    with serving(tmp_path, limits=QUICK) as server, connected(server.port, refused) as client:
        assert answer(client).startswith("HTTP/1.1 413 ")


def test_a_client_that_stops_reading_is_ended(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A response that is not read is closed after limits.sendTimeout, and the connection is no longer counted."""
    with serving(tmp_path, limits=QUICK) as server, socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        client.connect(("127.0.0.1", server.port))
        client.settimeout(0.2)
        with caplog.at_level(logging.WARNING, "turnout.server"):
            asked = b"GET /v1/openapi.json HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"

            def given_up() -> bool:
                try:
                    client.sendall(asked)
                except TimeoutError:
                    pass
                except ConnectionError:
                    return True
                return "limits.sendTimeout" in caplog.text

            wait_for(given_up)
        assert get(server, "/live")[0] == 200


def test_too_many_connections_of_one_address_leave_room_for_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """One more than limits.connectionsPerAddress is answered with 429; others are served; one line is logged."""
    limits = {"connections": 40, "connectionsPerAddress": 20, "headerTimeout": "1m"}
    with serving(tmp_path, limits=limits) as server, ExitStack() as clients:
        caplog.set_level(logging.WARNING, "turnout.server")
        for _ in range(20):
            clients.enter_context(connected(server.port))
        for _ in range(30):
            with connected(server.port, LIVE) as refused:
                assert answer(refused).startswith("HTTP/1.1 429 ")
        with connected(server.port, LIVE, "127.0.0.2") as served:
            assert is_served(served)
        clients.close()
        wait_for(lambda: live_status(server) == 200)

    assert [record.levelname for record in caplog.records if record.name == "turnout.server"] == ["WARNING"]
    assert "limits.connectionsPerAddress" in caplog.text


def test_too_many_connections_are_refused(tmp_path: Path) -> None:
    """One more than limits.connections is answered with 503, and served again once there is room."""
    with serving(tmp_path, limits={"connections": 8, "headerTimeout": "1m"}) as server, ExitStack() as clients:
        for number in range(8):
            clients.enter_context(connected(server.port, b"", f"127.0.0.{number + 10}"))
        with connected(server.port, LIVE) as refused:
            assert answer(refused).startswith("HTTP/1.1 503 ")
        clients.close()
        wait_for(lambda: live_status(server) == 200)


def live_status(server: RouteServer) -> int:
    """The status of a short request on a connection of its own."""
    with connected(server.port, LIVE.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")) as client:
        return int(answer(client).split()[1])


def test_many_refused_at_once_are_told(tmp_path: Path) -> None:
    """Each of several hundred clients above the limit gets the refusal, also one that is still sending its body."""

    async def ask(port: int) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(POST + b"Content-Length: 20000\r\n\r\n" + b"x" * 20_000)
        await writer.drain()
        answer = await asyncio.wait_for(reader.read(), 60)
        writer.close()
        return answer.partition(b"\r\n")[0]

    async def ask_all(port: int) -> set[bytes]:
        return set(await asyncio.gather(*(ask(port) for _ in range(400))))

    with (
        serving(tmp_path, limits={"connectionsPerAddress": 2}) as server,
        connected(server.port),
        connected(server.port),
    ):
        assert asyncio.run(ask_all(server.port)) == {b"HTTP/1.1 429 Too Many Requests"}


def test_websockets_count_as_connections_until_they_end(tmp_path: Path, fed: FedRoute) -> None:
    """Of one address two may be open; a refused one and one that its client has closed count no more."""
    (tmp_path / "routes").mkdir()
    (tmp_path / "routes" / "orders.yaml").write_text(fed.text, encoding="utf-8")
    limits = {"connectionsPerAddress": 2}

    async def follow(server: RouteServer) -> None:
        async with aiohttp.ClientSession(server.url, connector=aiohttp.TCPConnector(force_close=True)) as session:
            for _ in range(5):
                with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
                    await session.ws_connect("/v1/feeds/nobody")
                assert refused.value.status == 404
            for _ in range(5):
                async with session.ws_connect("/v1/feeds/oulu?after=5") as one, session.ws_connect("/v1/feeds/turku"):
                    assert (await one.receive_json())["cursor"] == 7
                    with pytest.raises(aiohttp.ClientError):
                        await session.ws_connect("/v1/feeds/oulu")
            async with session.ws_connect("/v1/feeds/oulu") as one:
                await one.send_str("x" * 100_000)
                while not (message := await one.receive()).type.name.startswith("CLOS"):
                    pass
                assert message.data == 1009

    with serving(tmp_path / "routes", limits=limits) as server:
        wait_for(lambda: get(server, "/v1/routes")[1]["items"])
        asyncio.run(follow(server))


def test_a_tls_handshake_that_does_not_go_on_is_ended(tmp_path: Path) -> None:
    """A connection counts before its handshake, and has limits.headerTimeout for it."""
    certificates = make_certificates(tmp_path)
    tls = {"cert": f"{certificates}/server.pem", "key": f"{certificates}/server.key"}
    (tmp_path / "routes").mkdir()
    limits = {"connections": 2, "headerTimeout": "300ms"}
    with serving(tmp_path / "routes", tls=tls, limits=limits) as server:
        with connected(server.port) as first, connected(server.port) as second, connected(server.port) as third:
            assert answer(third) == ""
            assert (answer(first), answer(second)) == ("", "")
        with connected(server.port) as again:
            again.settimeout(0.1)
            with pytest.raises(TimeoutError):
                again.recv(1)


def test_a_request_over_tls_without_complete_headers_is_ended(tmp_path: Path) -> None:
    """The limits below TLS hold above it as well."""
    certificates = make_certificates(tmp_path)
    tls = {"cert": f"{certificates}/server.pem", "key": f"{certificates}/server.key"}
    (tmp_path / "routes").mkdir()
    trusting = ssl.create_default_context(cafile=f"{certificates}/ca.pem")
    with (
        serving(tmp_path / "routes", tls=tls, limits={**QUICK, "headerTimeout": "1s"}) as server,
        connected(server.port) as plain,
        trusting.wrap_socket(plain, server_hostname="localhost") as client,
    ):
        client.sendall(b"GET /live")
        assert client.recv(65_536).startswith(b"HTTP/1.1 408 ")


SERVER = """
import os, sys, time
from pathlib import Path
from tests.server.test_serving import serving
with serving(Path(sys.argv[1]), interval="1h", limits={"connectionsPerAddress": 50, "headerTimeout": "1h"}) as server:
    print(server.port, flush=True)
    taken = []
    for line in sys.stdin:
        if line == "take\\n":
            # Refused connections are closed after a second, which leaves descriptors once more.
            ending = time.monotonic() + 3
            while time.monotonic() < ending:
                try:
                    taken.append(os.dup(0))
                except OSError:
                    time.sleep(0.001)
            print("taken", flush=True)
        else:
            for number in taken:
                os.close(number)
            print("left", flush=True)
"""


def test_connections_beyond_the_limit_of_open_files_print_no_tracebacks(tmp_path: Path) -> None:
    """Hundreds of half-open connections leave descriptors to routes; without any, one line is logged."""
    with subprocess.Popen(
        [sys.executable, "-c", SERVER, str(tmp_path)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        cwd=Path(__file__).parents[2], env=os.environ,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (200, 200)),
    ) as process, ExitStack() as clients:  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        answers = process.stdout
        port = int(answers.readline())

        def tell(word: str) -> None:
            print(word, file=process.stdin, flush=True)
            answers.readline()

        for _ in range(350):
            clients.enter_context(connected(port))
        with connected(port, LIVE, "127.0.0.2") as client:
            assert is_served(client)
        tell("take")
        with connected(port, LIVE, "127.0.0.3") as waiting:
            waiting.settimeout(0.5)
            with pytest.raises(TimeoutError):
                waiting.recv(65_536)
            tell("leave")
            waiting.settimeout(30)
            assert is_served(waiting)
        clients.close()
        _, errors = process.communicate(timeout=240)

    assert "Traceback" not in errors
    assert len(errors.splitlines()) < 10


def test_notices_are_one_line_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    """The first is logged at once, and the others of its minute are counted in the next line."""
    notices = Notices()
    for second in range(60):
        notices.add("refused", "10.0.0.1", 100.0 + second)
    notices.report(160.0)

    messages = [record.getMessage() for record in caplog.records]
    assert messages == [f"HTTP connections: {count} refused; the last one from 10.0.0.1" for count in (1, 59)]


def test_warnings_that_clients_cause_pass_once_a_minute() -> None:
    """Errors pass always, and each warning again after a minute."""
    quieter = OnceAMinute()

    def passes(level: int, text: str, at: float) -> bool:
        record = logging.LogRecord("uvicorn.error", level, "f", 1, text, (), None)
        record.created = at
        return bool(quieter.filter(record))

    assert [passes(logging.WARNING, "bad", at) for at in (0.0, 1.0, 59.0, 61.0)] == [True, False, False, True]
    assert passes(logging.WARNING, "other", 1.0)
    assert passes(logging.ERROR, "bad", 1.0)


def test_a_closed_connection_is_counted_once() -> None:
    """A handshake and a protocol may both say that a connection has ended."""
    connections = Connections(2, 1)
    closed = connections.opened("a")
    connections.opened("b")
    assert connections.refusal("a") == (429, "refused: more than 1 of one address (limits.connectionsPerAddress)")
    assert connections.refusal("c") == (503, "refused: more than 2 at once (limits.connections)")

    closed()
    closed()

    assert connections.refusal("a") is None
    assert connections.refusal("b") is not None


def test_limits_are_in_the_schema() -> None:
    """Each limit has a default that is positive, by its name in turnout.yaml."""
    schema = LimitsPart.model_json_schema(by_alias=True)["properties"]
    assert {"connections", "connectionsPerAddress", "headerTimeout", "bodyTimeout", "sendTimeout"} <= set(schema)
    assert all(value["default"] > 0 for value in json.loads(json.dumps(schema)).values())
