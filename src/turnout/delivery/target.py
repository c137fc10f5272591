"""Target of requests: a URL, taken apart once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from yarl import URL


@dataclass(frozen=True, slots=True)
class Target:
    """URL of an endpoint, and what each request to it begins with.

    Attributes:
        url: as it was given.
        host: name or address, without brackets.
        port: the port.
        head: request line and Host.
    """

    url: URL
    host: str
    port: int
    head: str

    @classmethod
    def of(cls, url: URL) -> Self:
        """Take a URL apart.

        Raises:
            ValueError: it has no host, or a character that would end the request line.
        """
        host, port = url.raw_host, url.port
        if not host or port is None or url.scheme not in ("http", "https"):
            raise ValueError("expected http:// or https:// and a host")
        path = url.raw_path_qs
        head = f"POST {path if path.startswith('/') else f'/{path}'} HTTP/1.1\r\nHost: {url.host_port_subcomponent}\r\n"
        if not head.isascii() or head.count(" ") != 3 or _breaks(head) != 2:
            raise ValueError("expected visible ASCII characters, and others percent-encoded")
        return cls(url, host.rstrip("."), port, head)

    @property
    def is_encrypted(self) -> bool:
        """True for TLS."""
        return self.url.scheme == "https"

    @property
    def origin(self) -> tuple[bool, str, int]:
        """Key of the connections that may be used for it."""
        return self.is_encrypted, self.host, self.port

    def request(self, headers: Mapping[str, str], body: bytes) -> bytes:
        r"""Return the bytes of a request.

        Args:
            headers: all but Host and Content-Length.
            body: its body.

        Raises:
            ValueError: a header has a line break.

        >>> Target.of(URL("https://hooks.example/in?x=1")).request({"Content-Type": "text/plain"}, b"hi")
        b'POST /in?x=1 HTTP/1.1\r\nHost: hooks.example\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\nhi'
        """
        lines = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
        if _breaks(lines) != len(headers):
            raise ValueError("a header with a line break is not sent")
        return b"%bContent-Length: %d\r\n\r\n%b" % ((self.head + lines).encode(), len(body), body)


def _breaks(text: str) -> int:
    """Return the number of line breaks, or -1 for a control character that is none of them."""
    count = text.count("\r\n")
    return count if text.count("\r") == text.count("\n") == count and "\0" not in text else -1
