"""Digests of tokens: a token itself is never stored."""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass
from hmac import compare_digest
from typing import Self

_MEMORY = 64 << 20
_FORMS = "scrypt:N:r:p:SALT:DIGEST or sha256:DIGEST, with salt and digest in hexadecimal"


@dataclass(frozen=True, slots=True)
class Sha256:
    """SHA-256 digest of a token; sufficient for unguessable tokens of 128 random bits or more."""

    digest: bytes

    @classmethod
    def of(cls, token: str) -> Self:
        """The digest of a token."""
        return cls(hashlib.sha256(token.encode()).digest())

    def fits(self, token: str) -> bool:
        """Return True if this is the token; the time taken does not depend on the token."""
        return compare_digest(self.digest, Sha256.of(token).digest)


@dataclass(frozen=True, slots=True)
class Scrypt:
    """Salted scrypt digest (RFC 7914) of a token; also suitable for tokens chosen by humans.

    Attributes:
        cost: N, a power of two; times *block* it gives memory and time.
        block: r.
        lanes: p.
    """

    cost: int
    block: int
    lanes: int
    salt: bytes
    digest: bytes

    @classmethod
    def of(cls, token: str) -> Self:
        """The digest of a token with a new salt: 4 MB and some 10 ms."""
        salt = secrets.token_bytes(16)
        return cls(4096, 8, 1, salt, _scrypt(token, 4096, 8, 1, salt))

    def fits(self, token: str) -> bool:
        """Return True if this is the token; the time taken does not depend on the token."""
        return compare_digest(self.digest, _scrypt(token, self.cost, self.block, self.lanes, self.salt))

    def __str__(self) -> str:
        return f"scrypt:{self.cost}:{self.block}:{self.lanes}:{self.salt.hex()}:{self.digest.hex()}"


Digest = Sha256 | Scrypt


def digest_of_text(text: str) -> Digest:
    """Parse a digest in the form of a token file.

    Raises:
        ValueError: it is none; the message does not repeat the text, which may be a token.
    """
    kind, _, rest = text.partition(":")
    parts = rest.split(":")
    try:
        if kind == "sha256" and len(bytes.fromhex(rest)) == hashlib.sha256().digest_size:
            return Sha256(bytes.fromhex(rest))
        if kind == "scrypt" and len(parts) == 5:
            cost, block, lanes = map(int, parts[:3])
            digest = Scrypt(cost, block, lanes, bytes.fromhex(parts[3]), bytes.fromhex(parts[4]))
            # What OpenSSL refuses, or what takes too much memory, is reported now and not at the first call.
            digest.fits("")
            return digest
    except ValueError:
        pass
    raise ValueError(f"expected {_FORMS}")


def _scrypt(token: str, cost: int, block: int, lanes: int, salt: bytes) -> bytes:
    return hashlib.scrypt(token.encode(), salt=salt, n=cost, r=block, p=lanes, maxmem=_MEMORY, dklen=32)
