"""Subjects that carry an API prefix, and subjects that never do (ADR-19)."""

from __future__ import annotations

import re
from dataclasses import dataclass

from turnout.errors import ConfigError, Mistake

_DEFAULT = "$JS.API."
_DOMAIN = re.compile(r"\$JS\.([^\s.*>]+)\.API")
_TOKENS = re.compile(r"[^\s.*>]+(\.[^\s.*>]+)*")


@dataclass(frozen=True, slots=True)
class Prefix:
    """Prefix of the JetStream API and of the views on top of it; no other module handles it.

    Subjects inside a request (filters, the key of a direct get) never carry it, nor do plain publishes, inboxes,
    acks and flow control answers: those are the server's, verbatim.

    Attributes:
        text: the prefix with its final dot.
        objects: whether writes of the object store carry it. nats.go and nats-py never prefix ``$O``; ADR-19 requires
            it. Under a custom prefix it is on (the account must import ``$O.>``); under a domain it is off, because a
            server maps ``$KV`` but not ``$O`` across a leaf node. The hub can be given that mapping: ``mappings {
            "$JS.HUB.API.$O.>": "$O.>" }``; then say ``prefix_objects=True``.

    >>> Prefix.of(domain="hub").api("STREAM.INFO.ORDERS")
    '$JS.hub.API.STREAM.INFO.ORDERS'
    >>> Prefix.of(prefix="fromA").api("STREAM.INFO.ORDERS")
    'fromA.STREAM.INFO.ORDERS'
    >>> Prefix().is_default
    True
    """

    text: str = _DEFAULT
    objects: bool = False

    @classmethod
    def of(cls, *, prefix: str | None = None, domain: str | None = None, prefix_objects: bool | None = None) -> Prefix:
        """The prefix for the caller's arguments: a prefix, a domain, or neither.

        A prefix that is written as a domain is written, ``$JS.hub.API``, means the domain.

        Raises:
            ConfigError: both were given, or one that has other than plain subject tokens.
        """
        if prefix is not None and domain is not None:
            raise ConfigError([Mistake("prefix", f"give a prefix ({prefix!r}) or a domain ({domain!r}), not both")])
        if domain is not None:
            if not _TOKENS.fullmatch(domain) or "." in domain:
                raise ConfigError([Mistake("domain", f"{domain!r} is not one plain subject token")])
            return cls(f"$JS.{domain}.API.", bool(prefix_objects))
        if prefix is None:
            return cls()
        bare = prefix.removesuffix(".")
        if not _TOKENS.fullmatch(bare):
            raise ConfigError([Mistake("prefix", f"{prefix!r} does not consist of plain subject tokens")])
        if spelled := _DOMAIN.fullmatch(bare):
            return cls.of(domain=spelled[1], prefix_objects=prefix_objects)
        text = f"{bare}."
        return cls(text, text != _DEFAULT if prefix_objects is None else prefix_objects)

    @property
    def bare(self) -> str:
        """The prefix without its final dot."""
        return self.text.removesuffix(".")

    @property
    def is_default(self) -> bool:
        """True for the prefix of the local JetStream."""
        return self.text == _DEFAULT

    def api(self, subject: str) -> str:
        """The subject of an API request: ``STREAM.INFO.S`` under the prefix."""
        return f"{self.text}{subject}"

    def view(self, subject: str) -> str:
        """Return the subject for a KV write of *subject* (``$KV.bucket.key``)."""
        return subject if self.is_default else f"{self.text}{subject}"

    def object(self, subject: str) -> str:
        """Return the subject for an object store write of *subject* (``$O.bucket...``)."""
        return f"{self.text}{subject}" if self.objects and not self.is_default else subject
