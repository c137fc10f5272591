"""Addresses that no other machine reaches."""

from __future__ import annotations

from ipaddress import ip_address
from urllib.parse import urlsplit


def is_loopback(host: str) -> bool:
    """Return True if *host* is this machine's loopback. Of names, ``localhost`` alone is trusted.

    >>> [is_loopback(host) for host in ("127.0.0.1", "[::1]", "localhost", "0.0.0.0", "[::]", "127.0.0.1.example")]
    [True, True, True, False, False, False]
    """
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def host_of(address: str) -> str:
    """Return the host of ``host:port``.

    >>> host_of("[::1]:8080"), host_of("db.example:8080")
    ('::1', 'db.example')
    """
    return urlsplit(f"//{address}").hostname or ""
