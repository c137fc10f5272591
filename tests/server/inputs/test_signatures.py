"""Signatures of inputs: published vectors, what a signer would send, and what is refused."""

from __future__ import annotations

import hashlib
import hmac
import json
from base64 import b64encode
from datetime import UTC, datetime
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from standardwebhooks import Webhook

from turnout.delivery.requests import Signer
from turnout.server.inputs.signatures import Signed, check_secret, problem_of

WHSEC = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
OTHER = f"whsec_{b64encode(bytes(range(32))).decode()}"
NOW = 1_614_265_330.0


def signed(body: bytes, now: float = NOW, **headers: Any) -> Signed:
    return Signed({name.replace("_", "-"): text for name, text in headers.items()}, body, now, 300.0)


STANDARD: dict[str, Any] = {
    "webhook_id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
    "webhook_timestamp": "1614265330",
    "webhook_signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
}
"""Example of the libraries of Standard Webhooks."""


@pytest.mark.parametrize("secrets", [[WHSEC], [OTHER, WHSEC], [WHSEC, OTHER]])
def test_standard_vector(secrets: list[str]) -> None:
    """The published signature is accepted, by any of the secrets."""
    assert problem_of("standard-webhooks", secrets, signed(b'{"test": 2432232314}', **STANDARD)) is None


def test_github_vector() -> None:
    """The published example: "Hello, World!" under a known secret gives a known digest."""
    digest = "757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
    request = signed(b"Hello, World!", x_hub_signature_256=f"sha256={digest}")

    assert problem_of("github", ["It's a Secret to Everybody"], request) is None
    assert problem_of("github", ["another secret, of that length"], request) is not None


def test_standard_library_and_ours() -> None:
    """Signatures of the reference library and of the dispatcher are accepted, with HMAC and with Ed25519."""
    moment = datetime.now(UTC)
    seconds = int(moment.timestamp())
    by_library = Webhook(WHSEC).sign("msg_1", moment, "body")
    private = Ed25519PrivateKey.generate()
    seed = private.private_bytes(Encoding.Raw, PrivateFormat.Raw, NoEncryption())
    public = private.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
    by_us = Signer([OTHER, f"whsk_{b64encode(seed).decode()}"]).signature("msg_1", seconds, b"body")
    whpk = f"whpk_{b64encode(public).decode()}"

    for signature, secret in ((by_library, WHSEC), (by_us, OTHER), (by_us, whpk)):
        headers = {"webhook_id": "msg_1", "webhook_timestamp": f"{seconds}", "webhook_signature": signature}
        assert problem_of("standard-webhooks", [secret], signed(b"body", seconds, **headers)) is None
        assert problem_of("standard-webhooks", [secret], signed(b"bodY", seconds, **headers)) is not None


def stripe(body: bytes, secret: str = "whsec_of_an_endpoint", seconds: int = int(NOW)) -> str:
    digest = hmac.new(secret.encode(), b"%d.%b" % (seconds, body), hashlib.sha256).hexdigest()
    return f"t={seconds},v1={'0' * 64},v1={digest},v0=x"


def test_stripe() -> None:
    """One of several v1 signatures is enough; time, body and secret have to be those that were signed."""
    header = stripe(b"{}")
    secrets = ["whsec_of_an_endpoint"]

    assert problem_of("stripe", secrets, signed(b"{}", stripe_signature=header)) is None
    assert problem_of("stripe", ["whsec_of_another_one"], signed(b"{}", stripe_signature=header)) is not None
    assert problem_of("stripe", secrets, signed(b"{ }", stripe_signature=header)) is not None
    assert problem_of("stripe", secrets, signed(b"{}", stripe_signature=header.replace("v1=", "v0="))) is not None
    assert problem_of("stripe", secrets, signed(b"{}", stripe_signature=header.replace("t=16", "t=17"))) is not None


def test_stripe_vector() -> None:
    """The signed event of Stripe's own libraries is accepted; their v0 is no signature, and a blank more is refused."""
    invoice = {
        "id": "ii_123",
        "object": "invoiceitem",
        "amount": 1000,
        "currency": "usd",
        "customer": "cus_123",
        "date": 1533204620,
        "description": "Test Invoice Item",
        "discountable": False,
        "invoice": "in_123",
        "livemode": False,
        "metadata": {},
        "period": {"start": 1533204620, "end": 1533204620},
        "plan": None,
        "proration": False,
        "quantity": None,
        "subscription": None,
    }
    event = {
        "id": "evt_123",
        "object": "event",
        "account": "acct_123",
        "api_version": "2017-05-25",
        "created": 1533204620,
        "data": {"object": invoice},
        "livemode": False,
        "pending_webhooks": 1,
        "request": {"id": "req_123", "idempotency_key": "idempotency-key-123"},
        "type": "invoiceitem.created",
    }
    body = json.dumps(event, indent=2).encode() + b"\n"
    v1 = "f0bdba6d4eacbd8ad8a3bbadd7248e633ec1477f7899c124c51b39405fa36613"
    v0 = "63f3a72374a733066c4be69ed7f8e5ac85c22c9f0a6a612ab9a025a9e4ee7eef"

    def problem(sent: bytes, signature: str) -> str | None:
        return problem_of("stripe", ["webhook_secret"], signed(sent, 1_533_204_720, stripe_signature=signature))

    assert problem(body, f"t=1533204620,v1={v1},v0={v0}") is None
    assert problem(body, f"t=1533204620,v0={v1}") is not None
    assert problem(body, f"t=1533204620,v1={v0}") is not None
    assert problem(body + b" ", f"t=1533204620,v1={v1}") is not None


@pytest.mark.parametrize("away", [-301.0, 301.0, -300.0, 300.0])
def test_tolerance(away: float) -> None:
    """A signature holds as long as the tolerance says, into the future too."""
    standard = problem_of("standard-webhooks", [WHSEC], signed(b'{"test": 2432232314}', NOW + away, **STANDARD))
    striped = problem_of("stripe", ["whsec_of_an_endpoint"], signed(b"", NOW + away, stripe_signature=stripe(b"")))

    for problem in (standard, striped):
        assert (problem is None) == (abs(away) <= 300)
        assert problem is None or "more than 300 s away" in problem


@pytest.mark.parametrize(
    ("kind", "headers"),
    [
        ("standard-webhooks", {}),
        ("standard-webhooks", {**STANDARD, "webhook_id": ""}),
        ("standard-webhooks", {**STANDARD, "webhook_id": "msg_2"}),
        ("standard-webhooks", {**STANDARD, "webhook_timestamp": "9" * 5_000}),
        ("standard-webhooks", {**STANDARD, "webhook_timestamp": "²"}),
        ("standard-webhooks", {**STANDARD, "webhook_signature": "v1,"}),
        ("standard-webhooks", {**STANDARD, "webhook_signature": " " * 8 + STANDARD["webhook_signature"]}),
        ("standard-webhooks", {**STANDARD, "webhook_signature": "v1,ü"}),
        ("github", {}),
        ("github", {"x_hub_signature_256": "sha1=00"}),
        ("github", {"x_hub_signature_256": "ü"}),
        ("stripe", {}),
        ("stripe", {"stripe_signature": ","}),
        ("stripe", {"stripe_signature": "t=,v1="}),
        ("stripe", {"stripe_signature": f"t={int(NOW)}"}),
        ("json", {}),
        ("lines", {"authorization": "Basic eA=="}),
        ("cloudevents", {"authorization": "Bearer"}),
        ("json", {"authorization": f"Bearer {WHSEC}x"}),
    ],
)
def test_refused(kind: str, headers: dict[str, Any]) -> None:
    """An invalid proof is refused with a message that shows no secret and no expected signature."""
    request = signed(b'{"test": 2432232314}', **headers)
    problem = problem_of(kind, [WHSEC], request)

    assert problem is not None
    assert WHSEC[6:] not in problem
    assert "g0hM9SsE" not in problem


@pytest.mark.parametrize(
    ("kind", "secret"),
    [
        ("standard-webhooks", "secret-without-prefix"),
        ("standard-webhooks", "whsec_c2hvcnQ="),
        ("standard-webhooks", "whpk_c2hvcnQ="),
        ("standard-webhooks", "whsec_!"),
        ("github", "short"),
        ("json", "with a space inside it"),
        ("json", "mit-ümlaut-ümlaut-ümlaut"),
    ],
)
def test_bad_secrets(kind: str, secret: str) -> None:
    """An invalid secret of its kind is refused, and not shown."""
    with pytest.raises(ValueError, match="expected") as raised:
        check_secret(kind, secret)

    assert secret not in str(raised.value)
