"""Signatures of requests: Standard Webhooks, "Signature scheme", symmetric (v1) and asymmetric (v1a)."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Sequence

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.hmac import HMAC

from turnout.subscriptions.signing_secrets import SYMMETRIC, secret_bytes

_SEED = 32
"""Bytes of an Ed25519 private key, which the public key may follow."""


class Signer:
    """Signs requests with each of an endpoint's secrets, so that receivers may know any one of them.

    Args:
        secrets: ``whsec_…`` or ``whsk_…``.

    >>> signer = Signer(["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"])
    >>> signer.signature("msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}')
    'v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE='
    """

    def __init__(self, secrets: Sequence[str]) -> None:
        self._signers = [_signer(*secret_bytes(secret)) for secret in secrets]

    def signature(self, message_id: str, timestamp: int, body: bytes) -> str:
        """Return the value of ``webhook-signature``; empty without secrets.

        Args:
            message_id: the value of ``webhook-id``.
            timestamp: the value of ``webhook-timestamp``, in seconds since 1970.
            body: body of the request.
        """
        if not self._signers:
            return ""
        content = b"%b.%d.%b" % (message_id.encode(), timestamp, body)
        return " ".join([sign(content) for sign in self._signers])

    def receiver_signature(self, receiver: str, signature: str) -> str:
        """Return the value of ``webhook-receiver-signature``; empty without secrets.

        It binds a signature to the URL that it was made for: who receives a request cannot pass it on to another
        receiver that knows the same secret. The signed text has a line break before its first dot, which the id of a
        message cannot have, so that neither kind of signature can be taken for the other.

        Args:
            receiver: the value of ``webhook-receiver``, the URL of the request.
            signature: the value of ``webhook-signature``.
        """
        content = f"receiver\n{receiver}\n{signature}".encode()
        return " ".join([sign(content) for sign in self._signers])


def _signer(prefix: str, key: bytes) -> Callable[[bytes], str]:
    if prefix == SYMMETRIC:
        # The pads of the key are hashed once, and not for each request.
        keyed = HMAC(key, SHA256())

        def by_hmac(content: bytes) -> str:
            digest = keyed.copy()
            digest.update(content)
            return f"v1,{b64encode(digest.finalize()).decode()}"

        return by_hmac
    private = Ed25519PrivateKey.from_private_bytes(key[:_SEED])
    return lambda content: f"v1a,{b64encode(private.sign(content)).decode()}"
