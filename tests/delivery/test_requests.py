"""Forms of requests: the message as it is, and CloudEvents in their HTTP modes."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from datetime import UTC, datetime
from typing import Any
from urllib.parse import unquote

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks import Webhook

from turnout.delivery.requests import Signer, message_id, order_key, request_of
from turnout.subscriptions.credentials import secret_bytes
from turnout.subscriptions.delivery_settings import BodyFormat, DeliverySettings

STORED = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
HEADERS = {"ce_type": ["order.new"], "ce_subject": ['a "b" % ü'], "ce_data": ["x"], "Other": ["y"]}


def request(format_: BodyFormat, body: bytes, headers: dict[str, list[str]] | None = None) -> tuple[Any, bytes]:
    settings = DeliverySettings(format=format_, headers={"X-Team": "desk"})
    return request_of(settings, "msg_1", HEADERS if headers is None else headers, body, lambda: STORED, "s 1")


def test_standard() -> None:
    """The body is sent as it is, with its content type, or one that its first byte suggests."""
    headers, body = request("standard", b'{"n": 1}')

    assert body == b'{"n": 1}'
    assert headers["Content-Type"] == "application/json"
    assert headers["X-Team"] == "desk"
    assert headers["webhook-id"] == "msg_1"
    assert request("standard", b"\xff")[0]["Content-Type"] == "application/octet-stream"
    assert request("standard", b"x", {"content-type": ["text/x"]})[0]["Content-Type"] == "text/x"


def test_headers_of_the_settings() -> None:
    """They are sent in place of turnout's own of the same name, whose case does not matter; a CloudEvent has its
    own type."""
    own = {"user-agent": "desk", "content-type": "text/x"}

    def names(format_: BodyFormat) -> dict[str, list[str]]:
        headers, _ = request_of(DeliverySettings(format=format_, headers=own), "m", {}, b"{}", lambda: STORED, "s")
        found: dict[str, list[str]] = {}
        for name, text in headers.items():
            found.setdefault(name.lower(), []).append(text)
        return found

    assert names("standard") == {"user-agent": ["desk"], "content-type": ["text/x"], "webhook-id": ["m"]}
    assert names("cloudevents-binary")["content-type"] == ["text/x"]
    assert names("cloudevents-structured")["content-type"] == ["application/cloudevents+json"]


def test_binary() -> None:
    """Attributes are headers, percent-encoded where the HTTP binding asks for it."""
    headers, body = request("cloudevents-binary", b'{"n": 1}')
    attributes = {name[3:]: unquote(value) for name, value in headers.items() if name.startswith("ce-")}

    assert body == b'{"n": 1}'
    assert headers["ce-subject"] == "a%20%22b%22%20%25%20%C3%BC"
    assert attributes == {
        "specversion": "1.0",
        "id": "msg_1",
        "source": "/subscriptions/s%201",
        "type": "order.new",
        "time": "2026-01-02T03:04:05Z",
        "subject": 'a "b" % ü',
    }


@pytest.mark.parametrize(("format_", "content_type"), [("structured", "cloudevents"), ("batched", "cloudevents-batch")])
def test_structured(format_: str, content_type: str) -> None:
    """JSON stands in the event as it is, other bytes in base64; what claims to be JSON and is none does, too."""
    for body, kind in ((b'{"n": 1}', "application/json"), (b"\xff\x00", "application/octet-stream"), (b"{", None)):
        headers, sent = request(f"cloudevents-{format_}", body)  # type: ignore[arg-type]
        decoded = json.loads(sent)
        event = decoded[0] if format_ == "batched" else decoded

        assert headers["Content-Type"] == f"application/{content_type}+json"
        assert (event["id"], event["type"], event["specversion"]) == ("msg_1", "order.new", "1.0")
        assert kind is None or event["datacontenttype"] == kind
        assert (json.dumps(event["data"]).encode() if "data" in event else b64decode(event["data_base64"])) == body


def test_ids() -> None:
    """The id depends on the message's own id, and without one on its position."""
    assert message_id("a", "S:1") == message_id("a", "S:2") != message_id("b", "S:1")
    assert message_id("", "S:1") != message_id("", "S:2")


@pytest.mark.parametrize(
    ("order_by", "body", "expected"),
    [
        ("value.a.b", b'{"a": {"b": "x"}}', "x"),
        ("value.a.b", b'{"a": {"b": [1]}}', "[1]"),
        ("value.a.b", b'{"a": 1}', ""),
        ("value.a", b"[" * 100_000, ""),
        ("value.a", b"\xff", ""),
        ("header.Other", b"", "y"),
        ("header.oTHER", b"", "y"),
        ("header.None", b"", ""),
    ],
)
def test_order_keys(order_by: str, body: bytes, expected: str) -> None:
    """Keys are values of JSON fields or headers; what has none has the key ""."""
    assert order_key(order_by, HEADERS, body) == expected


@pytest.mark.parametrize(
    "body", [b'{"a":"\xff"}', b'{"\xff":1}', b"[" * 100_000, b'{"a":' * 3_000 + b"1" + b"}" * 3_000]
)
@pytest.mark.parametrize("format_", ["cloudevents-structured", "cloudevents-batched"])
def test_a_body_that_only_looks_like_json(format_: BodyFormat, body: bytes) -> None:
    """What is not UTF-8, or nested too deep, stands in the event in base64."""
    _, sent = request(format_, body)
    event = json.loads(sent)
    event = event[0] if format_ == "cloudevents-batched" else event

    assert b64decode(event["data_base64"]) == body


@pytest.mark.parametrize(
    "body",
    [b'{"a":"\xff"}', b'{"\xff":1}', b"[" * 100_000, b'{"a":' * 3_000 + b"1" + b"}" * 3_000, b'{"a":1e999}', b""],
)
def test_no_order_key(body: bytes) -> None:
    """A body without a readable value has no order key."""
    assert order_key("value.b", {}, body) == ""


def test_an_order_key_of_any_size() -> None:
    """A number beyond 64 bits, and a value that is not UTF-8, are no errors."""
    assert order_key("value.a", {}, b'{"a":"\xff"}') == ""
    assert order_key("value.a", {}, b'{"a":%s}' % (b"9" * 40)) in ("", "9" * 40, "1e40", "1e+40")


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
