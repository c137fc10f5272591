"""Signing secrets of webhooks: plain, sealed as stores keep them, and hidden as callers see them."""

from __future__ import annotations

import re
import secrets
from base64 import b64decode, b64encode
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from turnout.errors import ConfigError, Mistake

SYMMETRIC: Final = "whsec_"
"""Prefix of a secret for HMAC-SHA256 (Standard Webhooks, "v1")."""

ASYMMETRIC: Final = "whsk_"
"""Prefix of a private key for Ed25519 (Standard Webhooks, "v1a"): 32 bytes of seed, or those and the public key."""

MAX_SECRETS: Final = 4
"""Secrets that may be valid at the same time, for rotation."""

_SIZES: Final = {SYMMETRIC: range(24, 65), ASYMMETRIC: (32, 64)}
_SEALED: Final = re.compile(r"sealed:([0-9a-f]{8}):([A-Za-z0-9_=-]{100,24000})")
_HIDDEN: Final = re.compile(r"hidden:([0-9a-f]{8})")


def secret_bytes(secret: str) -> tuple[str, bytes]:
    """Return the prefix and the bytes of a signing secret.

    Raises:
        ValueError: it is none; without the secret.
    """
    prefix, key = decoded_secret(secret, _SIZES)
    if not prefix:
        raise ValueError(f"expected {SYMMETRIC} (HMAC-SHA256) or {ASYMMETRIC} (Ed25519), and base64 behind it")
    if len(key) not in _SIZES[prefix]:
        expected = "24 to 64" if prefix == SYMMETRIC else "32 or 64"
        raise ValueError(f"expected {expected} bytes in base64 behind {prefix}, found {len(key):,} bytes")
    return prefix, key


def decoded_secret(secret: str, prefixes: Iterable[str]) -> tuple[str, bytes]:
    """Return which of the prefixes a secret has, and the bytes behind it; both empty if it has none.

    Raises:
        ValueError: no base64 is behind it; without the secret.
    """
    prefix = next(filter(secret.startswith, prefixes), "")
    try:
        return prefix, b64decode(secret.removeprefix(prefix), validate=True) if prefix else b""
    except ValueError:
        raise ValueError(f"expected base64 behind {prefix}") from None


def new_secret() -> str:
    """Return a new secret for HMAC-SHA256, of 256 random bits."""
    return f"{SYMMETRIC}{b64encode(secrets.token_bytes(32)).decode()}"


@dataclass(frozen=True, slots=True, repr=False)
class PlainSecret:
    """Secret as its owner gives it; no store keeps it, and only `text` shows it."""

    text: str

    def __repr__(self) -> str:
        return "***"


@dataclass(frozen=True, slots=True, repr=False)
class SealedSecret:
    """Encrypted secret, see `turnout.subscriptions.sealing`.

    Attributes:
        name: identifies it in views, also after it has been encrypted again; random.
        token: the encrypted text.
    """

    name: str
    token: str = field(repr=False)

    @property
    def text(self) -> str:
        """Form in which stores and exports have it."""
        return f"sealed:{self.name}:{self.token}"

    def __repr__(self) -> str:
        return HiddenSecret(self.name).text


@dataclass(frozen=True, slots=True, repr=False)
class HiddenSecret:
    """Marker in place of a stored secret; an update with it keeps the secret.

    >>> HiddenSecret("0f3a9c1e")
    hidden:0f3a9c1e
    """

    name: str

    @property
    def text(self) -> str:
        """Form in which callers see it."""
        return f"hidden:{self.name}"

    def __repr__(self) -> str:
        return self.text


SigningSecret: TypeAlias = PlainSecret | SealedSecret | HiddenSecret


def read_secrets(value: object) -> tuple[SigningSecret, ...]:
    """Return the secrets of a list of texts, or of secrets.

    Raises:
        ValueError: names the index and the expectation; without the value, which may be a secret.
    """
    if not isinstance(value, list | tuple):
        raise _unexpected(value, "a list of secrets")
    if len(value) > MAX_SECRETS:
        raise ValueError(f"expected at most {MAX_SECRETS} secrets, found {len(value):,}")
    return tuple(_read(index, one) for index, one in enumerate(value))


def _unexpected(value: object, expected: str) -> ValueError:
    return ValueError(f"expected {expected}, found {type(value).__name__}")


def _read(index: int, value: object) -> SigningSecret:
    if isinstance(value, PlainSecret | SealedSecret | HiddenSecret):
        return value
    if not isinstance(value, str):
        raise _unexpected(value, f"a text at {index}")
    if (stored := read_stored(value)) is not None:
        return stored
    try:
        secret_bytes(value)
    except ValueError as problem:
        raise ValueError(f"[{index}]: {problem}") from None
    return PlainSecret(value)


def read_stored(text: str) -> SealedSecret | HiddenSecret | None:
    """Return the stored secret that a text is, or the marker; None for another text."""
    if sealed := _SEALED.fullmatch(text):
        return SealedSecret(sealed[1], sealed[2])
    return HiddenSecret(hidden[1]) if (hidden := _HIDDEN.fullmatch(text)) else None


def stored_texts(secrets: Iterable[SigningSecret]) -> list[str]:
    """Return the texts that a store may keep.

    Raises:
        ConfigError: a secret is plain. `turnout.subscriptions.sealing.sealed_all` encrypts it.
    """
    texts = []
    for index, secret in enumerate(secrets):
        if isinstance(secret, PlainSecret):
            raise ConfigError([Mistake(f"secrets[{index}]", "it is not encrypted, and no store keeps it")])
        texts.append(secret.text)
    return texts
