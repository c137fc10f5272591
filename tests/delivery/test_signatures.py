"""Signatures of Standard Webhooks: the published example, the reference library, and an independent verification."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from datetime import UTC, datetime

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks import Webhook

from turnout.delivery.signatures import Signer
from turnout.subscriptions.signing_secrets import secret_bytes

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


def test_published_vector() -> None:
    """The example of the specification's libraries gives the signature that they publish."""
    signature = Signer([SECRET]).signature("msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}')

    assert signature == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


@given(st.binary(min_size=24, max_size=64), st.text("abc_0.", min_size=1), st.dictionaries(st.text(), st.text()))
def test_as_the_reference_library(key: bytes, identity: str, content: dict[str, str]) -> None:
    """Any secret gives the signature of the ``standardwebhooks`` library, for any id and body."""
    secret, moment = f"whsec_{b64encode(key).decode()}", datetime.now(UTC)
    body = json.dumps(content)
    expected = Webhook(secret).sign(identity, moment, body)

    assert Signer([secret]).signature(identity, int(moment.timestamp()), body.encode()) == expected


@pytest.mark.parametrize("with_public_key", [False, True])
def test_asymmetric(with_public_key: bool) -> None:
    """A v1a signature verifies with the public key over id, time and body; a second secret adds its own."""
    private = Ed25519PrivateKey.generate()
    seed = private.private_bytes(Encoding.Raw, PrivateFormat.Raw, NoEncryption())
    public = private.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
    secret = f"whsk_{b64encode(seed + public if with_public_key else seed).decode()}"
    first, second = Signer([secret, SECRET]).signature("msg_1", 17, b"body").split(" ")

    assert first.startswith("v1a,")
    private.public_key().verify(b64decode(first.removeprefix("v1a,")), b"msg_1.17.body")
    assert second == Signer([SECRET]).signature("msg_1", 17, b"body")


@pytest.mark.parametrize("secret", ["hidden", "whsec_hidden!", "whsec_aGlkZGVu", "whsk_aGlkZGVu", ""])
def test_bad_secrets(secret: str) -> None:
    """An invalid secret is refused, and the error does not show it."""
    with pytest.raises(ValueError, match="expected") as raised:
        secret_bytes(secret)

    assert not secret or secret not in str(raised.value)
