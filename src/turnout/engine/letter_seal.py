"""Seal of a dead letter or of a note: an HMAC-SHA256 with the route's secret over its headers and value."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Sequence
from typing import Final

from turnout.engine.messages import VALUE_DIGEST, VALUE_LEFT_OUT

SEAL: Final = "__turnout.seal"
"""The header with the seal."""

_NOT_SEALED: Final = frozenset({SEAL, VALUE_LEFT_OUT, VALUE_DIGEST})
"""Headers behind the seal: they may be cut if a server refuses a letter for its size."""

_VERSION: Final = "1"

HeaderPairs = Sequence[tuple[str, bytes | None]]


def seal(secret: str, headers: HeaderPairs, value: bytes | None) -> str:
    """Return the seal of a message.

    Args:
        secret: the route's.
        headers: in their order. Those that a server or a publisher adds (``Nats-*``) are not part of it, nor are blanks
            before a value, which NATS drops.
        value: None is written as an empty one. Where it was left out of a letter, a header has its digest.
    """
    mac = hmac.new(secret.encode(), digestmod="sha256")
    for part in _parts(headers):
        mac.update(len(part).to_bytes(8, "big"))
        mac.update(part)
    mac.update(_digest(headers, value or b""))
    return f"{_VERSION}:{mac.hexdigest()}"


def is_sealed(secret: str, headers: HeaderPairs, value: bytes | None, found: str | None) -> bool:
    """Return whether a message has its seal.

    Args:
        secret: as for `seal`.
        headers: likewise.
        value: likewise.
        found: the seal that the message brings.
    """
    return found is not None and hmac.compare_digest(seal(secret, headers, value).encode(), found.encode())


def _parts(headers: HeaderPairs) -> Iterable[bytes]:
    for name, value in headers:
        if name not in _NOT_SEALED and not name.lower().startswith("nats-"):
            yield name.encode("utf-8", "surrogatepass")
            yield (value or b"").lstrip(b" \t")


def _digest(headers: HeaderPairs, value: bytes) -> bytes:
    written = dict(headers)
    if not value and VALUE_LEFT_OUT in written:
        return (written.get(VALUE_DIGEST) or b"").lower()
    return hashlib.sha256(value).hexdigest().encode()
