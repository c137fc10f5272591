"""IP addresses of a network."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from ipaddress import ip_network
from typing import TYPE_CHECKING, Final

from turnout.conditions.anchor import Anchor, Kind, Lookups, address_text, network_span, span_prefix
from turnout.conditions.leaf import (
    TEXT,
    VALUE,
    Atom,
    AtomKind,
    Check,
    Choice,
    Leaf,
    LeafField,
    LeafKind,
    LeafSpec,
    Literal,
    Sign,
    ValueTest,
    key_text,
    need_key,
)
from turnout.errors import ConditionError

if TYPE_CHECKING:
    from turnout.conditions.model import Condition
    from turnout.conditions.pattern import Piece
    from turnout.conditions.text import ConditionReader

ADDRESS: Final = 3
"""Rank of the atom that a value is an address of a network."""


@dataclass(frozen=True, slots=True)
class Cidr(Leaf):
    """True when the key's value is an IP address inside *network*, of IPv4 or IPv6.

    The network is kept in its canonical form; host bits that are set in it are refused.

    >>> Cidr("client", "2001:DB8::/32").network
    '2001:db8::/32'
    >>> Cidr("client", "10.1.2.3/16")
    Traceback (most recent call last):
        ...
    turnout.errors.ConditionError: not a network: 10.1.2.3/16 has host bits set
    """

    key: str
    network: str
    negated: bool = False
    id: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        need_key(self.key)
        try:
            object.__setattr__(self, "network", str(ip_network(self.network)))
        except ValueError as problem:
            raise ConditionError(f"not a network: {problem}", text=self.network) from None

    def holds(self, value: str) -> bool:
        """Return True if a value is an address of the network."""
        return _is_within(self.network, value)

    def text(self) -> str:
        """Return the leaf as text."""
        return f"{key_text(self.key)} in {self.network}"

    def check(self) -> Check:
        """Return the leaf as data: the first and the last address."""
        first, last = network_span(self.network)
        return Check(self.key, "cidr", first, last, negated=self.negated)

    def anchors(self) -> Iterator[Anchor]:
        """Yield the first bits of the addresses."""
        length, prefix = span_prefix(*network_span(self.network))
        yield Anchor(self.key, Kind("net", length), prefix)

    def is_decided_by(self, anchor: Anchor) -> bool:
        """Return True: the addresses with these first bits are those of the network."""
        return anchor.kind.op == "net"

    def literals(self) -> tuple[Literal, ...]:
        """Return the atom that the value is an address of the network."""
        return ((Atom(self.key, ADDRESS, text=self.network), True),)


def cidr(key: str, network: str) -> Cidr:
    """True when the key's value is an IP address inside *network*.

    >>> from turnout.conditions import evaluate
    >>> [evaluate(cidr("client", "10.1.0.0/16"), {"client": text}) for text in ("10.1.2.3", "10.2.0.1", "host")]
    [True, False, False]
    """
    return Cidr(key, network)


def _is_within(network: str, value: str) -> bool:
    address = address_text(value)
    if address is None:
        return False
    first, last = network_span(network)
    return first <= address <= last


def _read(reader: ConditionReader, key: str, _sign: str) -> Condition:
    """Return the leaf of a network, or the leaves of a list."""
    reader.skip()
    if reader.text.startswith("(", reader.at):
        return reader.items(key)
    return Cidr(key, reader.require(VALUE, "a network, as in 10.0.0.0/8"))


def _passes(check: Check, value: str) -> bool:
    address = address_text(value)
    return address is not None and check.text <= address <= check.last


def _lookups(check: Check, _pieces: tuple[Piece, ...] | None) -> Lookups:
    length, prefix = span_prefix(check.text, check.last)
    return [(Kind("net", length), (prefix,))]


def _relation(premise: Atom, conclusion: Atom) -> bool | None:
    one, other = ip_network(premise.text), ip_network(conclusion.text)
    if one.version != other.version or not one.overlaps(other):
        return False
    return True if one.prefixlen >= other.prefixlen else None


def _values(atom: Atom) -> Iterator[str]:
    network = ip_network(atom.text)
    yield str(network.network_address)
    yield str(network.broadcast_address)


CIDR: Final = LeafSpec(
    Cidr,
    (LeafKind("cidrCondition", Cidr, (LeafField("network", "network", TEXT, ""),)),),
    signs=(Sign("in", _read),),
    tests=(ValueTest("cidr", 6, _passes, _lookups),),
    # No number is an address.
    atoms=(AtomKind(ADDRESS, lambda atom, value: _is_within(atom.text, value), _relation, _values, family="address"),),
    choices={"network": Choice("is an address in", Cidr)},
)
