"""Addresses that requests may lead to."""

from __future__ import annotations

from ipaddress import ip_network

import pytest

from turnout.delivery.guard import AddressGuard

PRIVATE = (
    "127.0.0.1",
    "10.0.0.1",
    "172.16.0.1",
    "192.168.1.1",
    "169.254.169.254",
    "100.64.0.1",
    "0.0.0.0",
    "224.0.0.1",
    "240.0.0.1",
    "255.255.255.255",
    "::1",
    "::",
    "fe80::1",
    "fe80::1%eth0",
    "fc00::1",
    "ff02::1",
    "::ffff:127.0.0.1",
    "::ffff:10.0.0.1",
    "64:ff9b::7f00:1",
    "2002:7f00:1::",
    "2001:db8::1",
)


@pytest.mark.parametrize("address", PRIVATE)
def test_private(address: str) -> None:
    """No address of a private, loopback, link-local or otherwise special network is reached, also if embedded."""
    assert AddressGuard().problem(address) is not None


@pytest.mark.parametrize("address", ["1.1.1.1", "2606:4700:4700::1111", "::ffff:1.1.1.1", "64:ff9b::101:101"])
def test_public(address: str) -> None:
    """Public addresses are reached with TLS, and only then."""
    assert AddressGuard().problem(address) is None
    assert AddressGuard().problem(address, encrypted=False) is not None


@pytest.mark.parametrize("address", ["10.1.2.3", "::ffff:10.1.2.3"])
def test_allowed(address: str) -> None:
    """Addresses of allowed networks are reached, without TLS too; their neighbours are not."""
    guard = AddressGuard([ip_network("10.1.0.0/16")])

    assert guard.problem(address, encrypted=False) is None
    assert guard.problem("10.2.0.1") is not None
