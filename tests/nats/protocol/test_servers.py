"""Addresses of servers."""

from __future__ import annotations

import pytest

from turnout.nats.protocol.servers import Server


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("nats://a:1", Server("a", 1)),
        ("a", Server("a", 4222)),
        ("tls://a", Server("a", 4222, tls=True)),
        ("nats://[::1]:5", Server("::1", 5)),
        ("nats://u:p%40ss@a:1", Server("a", 1, user="u", password="p@ss")),
    ],
)
def test_addresses(url: str, expected: Server) -> None:
    """With and without scheme, port and credentials."""
    assert Server.parse(url) == expected
