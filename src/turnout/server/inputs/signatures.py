"""Proofs that the sender of a request knows a secret: signatures of three schemes, and bearer tokens.

Standard Webhooks ("Signature scheme"), GitHub ("Validating webhook deliveries") and Stripe ("Verify webhook
signatures manually"). Everything is compared in constant time.
"""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from turnout.base.untrusted import decimal
from turnout.subscriptions.signing_secrets import SYMMETRIC, decoded_secret

_MOST_SIGNATURES: Final = 8
"""Maximum number of signatures of one request: each may cost a verification."""

_SHORTEST: Final = 16
_PUBLIC: Final = "whpk_"
_KEY_BYTES: Final = {SYMMETRIC: range(24, 65), _PUBLIC: (32,)}


@dataclass(frozen=True, slots=True)
class Signed:
    """Request to verify.

    Attributes:
        headers: by their names in lower case, or in any case where the mapping does not mind.
        body: as it was received.
        now: seconds since 1970.
        tolerance: longest difference to a signature's time in seconds.
    """

    headers: Mapping[str, str]
    body: bytes
    now: float
    tolerance: float

    def late(self, seconds: int | None, name: str) -> str | None:
        """Return the problem of a signature's time; None for a time that is near."""
        if seconds is None:
            return f"{name}: expected a time in seconds since 1970"
        distance = abs(self.now - seconds)
        return f"{name} is more than {self.tolerance:g} s away from now" if distance > self.tolerance else None


def check_secret(kind: str, secret: str) -> None:
    """Refuse a secret that cannot be one of a kind of input.

    Raises:
        ValueError: names the expected form, without the secret.
    """
    if kind == "standard-webhooks":
        _key(secret)
    elif len(secret) < _SHORTEST or not secret.isascii() or not secret.isprintable() or " " in secret:
        raise ValueError(f"expected a secret of at least {_SHORTEST} visible ASCII characters")


def problem_of(kind: str, secrets: Sequence[str], request: Signed) -> str | None:
    """Return the reason that a request is not accepted; None for one with a valid proof.

    >>> request = Signed({"authorization": "Bearer 0123456789abcdef"}, b"", 0, 300)
    >>> problem_of("json", ["0123456789abcdef"], request), problem_of("json", ["another-of-a-length"], request)
    (None, 'the token is not one of this input')
    """
    return _PROBLEMS.get(kind, _token_problem)(secrets, request)


def _key(secret: str) -> tuple[str, bytes]:
    prefix, key = decoded_secret(secret, _KEY_BYTES)
    if prefix and len(key) in _KEY_BYTES[prefix]:
        return prefix, key
    raise ValueError(f"expected {SYMMETRIC} and 24 to 64 bytes in base64, or {_PUBLIC} and the 32 of a public key")


def _standard_problem(secrets: Sequence[str], request: Signed) -> str | None:
    identity, stamp = (request.headers.get(f"webhook-{name}", "") for name in ("id", "timestamp"))
    if not identity:
        return "webhook-id is missing"
    late = request.late(decimal(stamp), "webhook-timestamp")
    if late is not None:
        return late
    signatures = request.headers.get("webhook-signature", "").split(" ")[:_MOST_SIGNATURES]
    content = b"%b.%b.%b" % (identity.encode(), stamp.encode(), request.body)
    is_valid = False
    for prefix, key in map(_key, secrets):
        verify = _by_hmac if prefix == SYMMETRIC else _by_ed25519
        is_valid |= verify(key, content, signatures)
    return None if is_valid else "no signature of webhook-signature is one of this input's secrets"


def _by_hmac(key: bytes, content: bytes, signatures: Sequence[str]) -> bool:
    expected = b"v1," + b64encode(hmac.digest(key, content, hashlib.sha256))
    return _is_among(expected, signatures)


def _by_ed25519(key: bytes, content: bytes, signatures: Sequence[str]) -> bool:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    public = Ed25519PublicKey.from_public_bytes(key)
    for signature in signatures:
        if signature.startswith("v1a,"):
            try:
                public.verify(b64decode(signature[4:], validate=True), content)
            except (InvalidSignature, ValueError):
                continue
            return True
    return False


def _github_problem(secrets: Sequence[str], request: Signed) -> str | None:
    signature = request.headers.get("x-hub-signature-256", "")
    if not signature:
        return "X-Hub-Signature-256 is missing"
    is_valid = False
    for secret in secrets:
        expected = b"sha256=" + hmac.new(secret.encode(), request.body, hashlib.sha256).hexdigest().encode()
        is_valid |= _is_among(expected, [signature])
    return None if is_valid else "X-Hub-Signature-256 is no signature by this input's secrets"


def _stripe_problem(secrets: Sequence[str], request: Signed) -> str | None:
    pairs = [pair.strip().partition("=") for pair in request.headers.get("stripe-signature", "").split(",")]
    stamp = next((value for name, _, value in pairs if name == "t"), "")
    late = request.late(decimal(stamp), "the time t of Stripe-Signature")
    if late is not None:
        return late
    signatures = [value for name, _, value in pairs if name == "v1"][:_MOST_SIGNATURES]
    content = b"%b.%b" % (stamp.encode(), request.body)
    is_valid = False
    for secret in secrets:
        expected = hmac.new(secret.encode(), content, hashlib.sha256).hexdigest().encode()
        is_valid |= _is_among(expected, signatures)
    return None if is_valid else "no v1 of Stripe-Signature is a signature by this input's secrets"


def _token_problem(secrets: Sequence[str], request: Signed) -> str | None:
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer":
        return "a token is needed: Authorization: Bearer …"
    # Their digests have one length, which a comparison would reveal otherwise.
    digest = hashlib.sha256(token.strip().encode()).digest()
    is_valid = False
    for secret in secrets:
        is_valid |= hmac.compare_digest(hashlib.sha256(secret.encode()).digest(), digest)
    return None if is_valid else "the token is not one of this input"


def _is_among(expected: bytes, signatures: Sequence[str]) -> bool:
    is_among = False
    for signature in signatures:
        is_among |= hmac.compare_digest(expected, signature.encode())
    return is_among


_PROBLEMS: Final[Mapping[str, Callable[[Sequence[str], Signed], str | None]]] = {
    "standard-webhooks": _standard_problem,
    "github": _github_problem,
    "stripe": _stripe_problem,
}
