"""Numbers and IP addresses in values."""

from __future__ import annotations

import re
from functools import lru_cache
from ipaddress import ip_address, ip_network

NUMBER = r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?"
"""Pattern of a number in a value, in a syntax that Python and Java read alike."""

_NUMBER = re.compile(NUMBER)


def parsed_number(value: str) -> float | None:
    """Parse a number, without white space around it; None if the text is not one."""
    return float(value) if _NUMBER.fullmatch(value) else None


def address_text(value: str) -> str | None:
    """Return an IP address as text that sorts: the version, then its bits in hexadecimal; None for other texts."""
    # The standard library takes a zone ("fe80::1%eth0"); an address in a message has no interface.
    if "%" in value:
        return None
    try:
        address = ip_address(value)
    except ValueError:
        return None
    return f"{address.version}:{address.packed.hex()}"


@lru_cache(maxsize=4096)
def address_prefix(value: str, length: int) -> str:
    """Return the version and first *length* bits of an IP address as text; "" for other texts and shorter addresses.

    >>> address_prefix("10.1.2.3", 8), address_prefix("10.1.2.3", 0), address_prefix("10.1.2", 8)
    ('4:a', '4:0', '')
    """
    # Most values are no addresses, which is known from how they look.
    text = address_text(value) if 2 <= len(value) <= _LONGEST_ADDRESS and value[0] in _ADDRESS_BEGINS else None
    return "" if text is None else _prefix(text, length)


def _prefix(address: str, length: int) -> str:
    version, bits = address.split(":")
    rest = len(bits) * 4 - length
    return "" if rest < 0 else f"{version}:{int(bits, 16) >> rest:x}"


def span_prefix(first: str, last: str) -> tuple[int, str]:
    """Return the length of the prefix that all addresses of a `network_span` have, and the prefix as text.

    >>> span_prefix(*network_span("10.0.0.0/8"))
    (8, '4:a')
    """
    bits = first.partition(":")[2]
    length = len(bits) * 4 - (int(bits, 16) ^ int(last.partition(":")[2], 16)).bit_length()
    return length, _prefix(first, length)


_LONGEST_ADDRESS = 45
_ADDRESS_BEGINS = frozenset("0123456789abcdefABCDEF:")


@lru_cache(maxsize=4096)
def network_span(network: str) -> tuple[str, str]:
    """Return the first and the last address of a network, as `address_text` writes them."""
    net = ip_network(network)
    return (f"{net.version}:{net.network_address.packed.hex()}", f"{net.version}:{net.broadcast_address.packed.hex()}")


known_number = lru_cache(maxsize=4096)(parsed_number)
"""`parsed_number`, remembered: one message's price is compared with many subscriptions' limits."""
