"""JWTs of an operator, its accounts and users, as nsc makes them."""

from __future__ import annotations

import json
import time
from base64 import urlsafe_b64encode
from typing import Any

import nkeys
from nacl.signing import SigningKey

__all__ = ["Key", "claim", "decorated", "token"]


class Key:
    """Key pair of an operator (O), an account (A) or a user (U)."""

    def __init__(self, prefix: str) -> None:
        kinds = {"O": nkeys.PREFIX_BYTE_OPERATOR, "A": nkeys.PREFIX_BYTE_ACCOUNT, "U": nkeys.PREFIX_BYTE_USER}
        raw = bytes(SigningKey.generate())
        self.seed = nkeys.encode_seed(raw, kinds[prefix])
        self.pair = nkeys.from_seed(self.seed)
        self.public = self.pair.public_key.decode()


def claim(subject: Key, issuer: Key, name: str, kind: str, **more: Any) -> dict[str, Any]:
    """The claim about a key."""
    body = {"type": kind, "version": 2, **more}
    return {
        "jti": name,
        "iat": int(time.time()),
        "iss": issuer.public,
        "name": name,
        "sub": subject.public,
        "nats": body,
    }


def token(issuer: Key, claims: dict[str, Any]) -> str:
    """The claim, signed by its issuer."""
    parts = [{"typ": "JWT", "alg": "ed25519-nkey"}, claims]
    text = ".".join(urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts)
    return f"{text}.{urlsafe_b64encode(issuer.pair.sign(text.encode())).decode().rstrip('=')}"


def decorated(jwt: str, kind: str = "ACCOUNT") -> str:
    """The file that nsc writes."""
    return f"-----BEGIN NATS {kind} JWT-----\n{jwt}\n------END NATS {kind} JWT------\n"
