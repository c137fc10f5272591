"""One HTTP exchange ends within its time and its size, whatever the server does."""

from __future__ import annotations

import gzip
import socket
import ssl
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.certificates import make_certificates
from tests.http_servers import server_of
from turnout.base.http_exchange import AnswerTooLargeError, exchange
from turnout.embedded import free_port


def answer_to(content: bytes | str, **limits: Any) -> Any:
    with server_of(lambda: content) as server:
        return exchange(server.url, **{"seconds": 5.0, "max_bytes": 1_000, **limits})


def test_an_answer() -> None:
    """Status, headers and body come back; the request asks for no encoding."""
    with server_of(lambda: b"HTTP/1.1 404 No\r\nA: b\r\nContent-Length: 2\r\n\r\nhi") as server:
        answer = exchange(
            f"{server.url}x?y=1", method="POST", headers={"B": "c", "accept-encoding": "gzip"}, body=b"z",
            seconds=5, max_bytes=2,
        )  # fmt: skip

    assert (answer.status, answer.reason, answer.body) == (404, "No", b"hi")
    assert answer.headers[0] == ("A", "b")
    assert server.requests[0].startswith(b"POST /x?y=1 HTTP/1.1\r\n")
    assert b"Accept-Encoding: identity" in server.requests[0]
    assert b"gzip" not in server.requests[0]
    assert b"B: c" in server.requests[0]


@pytest.mark.parametrize("behaviour", ["silent", "drip", "drip-head", "drip-heads"])
def test_a_total_time(behaviour: str) -> None:
    """A byte now and then does not prolong it."""
    with pytest.raises(TimeoutError, match="no whole answer within"):
        answer_to(behaviour, seconds=0.8, max_bytes=1 << 20)


@pytest.mark.parametrize("behaviour", ["endless", "endless-chunks", "endless-head", "endless-100", "long"])
def test_a_size(behaviour: str) -> None:
    """What does not end is not read to the end of the memory: the body has a limit, and so have the headers."""
    with pytest.raises(OSError, match=r"more (than 1,000 )?bytes|no HTTP answer: LineTooLong"):
        answer_to(behaviour, seconds=30)


def test_an_answer_of_the_limit() -> None:
    """As many bytes as are allowed are read, with a length and in chunks."""
    chunks = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3e8\r\n" + b"x" * 1000 + b"\r\n0\r\n\r\n"

    assert answer_to(b"x" * 1000).body == answer_to(chunks).body == b"x" * 1000
    with pytest.raises(AnswerTooLargeError):
        answer_to(b"x" * 1001)


def test_an_encoding_that_was_not_asked_for() -> None:
    """A kilobyte that becomes a gigabyte is refused before it does."""
    packed = gzip.compress(b" " * (1 << 24))
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(packed)
    with pytest.raises(ConnectionError, match="encoded as 'gzip'"):
        answer_to(head + packed, max_bytes=1 << 20)


@pytest.mark.parametrize(
    "content", [b"HTTP/1.1 2x0 OK\r\n\r\n", b"HTTP/9 garbage\r\n\r\n", b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 200]
)
def test_no_http(content: bytes) -> None:
    """Whatever else a server says is one kind of error."""
    with pytest.raises(OSError, match="no HTTP answer"):
        answer_to(content)


def test_no_server() -> None:
    """A refused connection, a name without addresses, and a URL that is none are errors of the same kind."""
    for url in (f"http://127.0.0.1:{free_port()}/", "http://nothing.invalid/", "file:///etc/passwd", "http:///x"):
        with pytest.raises(OSError, match=r"\S"):
            exchange(url, seconds=5, max_bytes=1, proxies=False)


def test_redirects() -> None:
    """They are followed as often as allowed, in the same time."""
    with server_of(lambda: b"there") as there:
        found = b"HTTP/1.1 302 Found\r\nLocation: %b\r\nContent-Length: 0\r\n\r\n" % there.url.encode()
        assert answer_to(found, redirects=1).body == b"there"
        assert answer_to(found).status == 302
    with server_of(lambda: b"HTTP/1.1 307 T\r\nLocation: /again\r\nContent-Length: 0\r\n\r\n") as loop:
        assert exchange(loop.url, seconds=5, max_bytes=1, redirects=3).status == 307
        assert len(loop.requests) == 4


def test_a_slow_name_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """The look-up of the name is part of the time."""
    ended = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: ended.wait(30))
    with pytest.raises(TimeoutError):
        exchange("http://slow.example/", seconds=0.3, max_bytes=1, proxies=False)
    ended.set()


def test_tls(tmp_path: Path) -> None:
    """A handshake that never ends is part of the time; a good one is verified, and no redirect leaves TLS."""
    certificates = make_certificates(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"https://127.0.0.1:{silent.getsockname()[1]}/"
        with pytest.raises(TimeoutError):
            exchange(url, seconds=0.5, max_bytes=1, proxies=False)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates / "server.pem", certificates / "server.key")
    away = b"HTTP/1.1 302 F\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n"
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            for _ in range(2):
                connection, _ = listening.accept()
                with context.wrap_socket(connection, server_side=True) as secure:
                    secure.recv(65536)
                    secure.sendall(away)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        trusted = ssl.create_default_context(cafile=str(certificates / "ca.pem"))
        url = f"https://localhost:{listening.getsockname()[1]}/"
        assert exchange(url, seconds=10, max_bytes=1, tls=trusted).status == 302
        with pytest.raises(ConnectionError, match="which is not https"):
            exchange(url, seconds=10, max_bytes=1, tls=trusted, redirects=5)
        thread.join(10)


def test_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment's proxy gets the whole URL with its login, unless proxies are left out."""
    with server_of(lambda: b"from the proxy") as proxy, server_of(lambda: b"itself") as server:
        monkeypatch.setenv("http_proxy", proxy.url.replace("http://", "http://ann:s%20x@"))
        monkeypatch.setenv("no_proxy", "")
        assert exchange("http://nothing.invalid/a?b", seconds=5, max_bytes=99).body == b"from the proxy"
        assert exchange(server.url, seconds=5, max_bytes=99, proxies=False).body == b"itself"

    assert proxy.requests[0].startswith(b"GET http://nothing.invalid/a?b HTTP/1.1\r\nHost: nothing.invalid\r\n")
    assert b"Proxy-Authorization: Basic YW5uOnMgeA==" in proxy.requests[0]
