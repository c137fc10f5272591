"""Targets of requests: the parts of a URL that a client needs, and the head of a request."""

from __future__ import annotations

import pytest
from yarl import URL

from turnout.delivery.target import Target


@pytest.mark.parametrize("url", ["http://a/ b", "http://a/\r\nX: y", "http://a/\x7fé", "ftp://a/", "/in"])
def test_bad_targets(url: str) -> None:
    """A URL that would break the request line has no target."""
    with pytest.raises(ValueError, match="expected"):
        Target.of(URL(url, encoded=True))


@pytest.mark.parametrize(
    ("url", "head"),
    [
        ("https://a", "POST / HTTP/1.1\r\nHost: a\r\n"),
        ("https://a?x=%20", "POST /?x=%20 HTTP/1.1\r\nHost: a\r\n"),
        ("http://[::1]:80/p", "POST /p HTTP/1.1\r\nHost: [::1]\r\n"),
        ("https://a:8443/p", "POST /p HTTP/1.1\r\nHost: a:8443\r\n"),
    ],
)
def test_targets(url: str, head: str) -> None:
    """The request line has path and query as they are written; Host has the port unless it is the usual one."""
    assert Target.of(URL(url, encoded=True)).head == head
