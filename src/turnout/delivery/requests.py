"""Requests of deliveries: headers and body in the form of the settings."""

from __future__ import annotations

import hashlib
import re
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from time import time_ns
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.hmac import HMAC

from turnout._built import version as __version__
from turnout.nats.protocol.headers import Headers
from turnout.subscriptions.credentials import STANDARD_NAMES, SYMMETRIC, HeaderNames, secret_bytes
from turnout.subscriptions.delivery_settings import DeliverySettings
from turnout.traces.spans import Span, TraceSettings, forwarded, headers_of

if TYPE_CHECKING:
    from turnout.delivery.client import Response, Target

_AGENT: Final = f"turnout/{__version__}"
_JSON: Final = re.compile(r"application/(?:[^;]+\+)?json\s*(?:;.*)?")
_SPEC: Final = "1.0"
_TYPE: Final = "turnout.delivery"
_UNSAFE: Final = ' "%'
_CONTENT_TYPE_LENGTH: Final = len("content-type")


def message_id(msg_id: str, position: str) -> str:
    """Return the ``webhook-id`` of a delivery, the same for each attempt.

    Args:
        msg_id: ``Nats-Msg-Id`` of the delivery, the same when a route repeats it; empty for none.
        position: ``STREAM:SEQUENCE``, for a delivery without one.

    >>> message_id("orders:17:A", "DELIVERIES:3") == message_id("orders:17:A", "DELIVERIES:4")
    True
    """
    return f"msg_{hashlib.sha256((msg_id or position).encode()).hexdigest()[:32]}"


def request_of(
    settings: DeliverySettings,
    identity: str,
    headers: Headers,
    body: bytes,
    stored: Callable[[], datetime],
    source: str,
    names: HeaderNames = STANDARD_NAMES,
) -> tuple[dict[str, str], bytes]:
    """Return the headers and the body of a request, which every attempt has; `sign` adds the others.

    Args:
        settings: say the form.
        identity: the ``webhook-id``.
        headers: headers of the stored message.
        body: body of the stored message.
        stored: returns the time of the delivery, which a CloudEvent has.
        source: source of a CloudEvent that has none: the subscription.
        names: names of the request's own headers.
    """
    content_type = _content_type(headers) or (
        "application/json" if body[:1] in (b"{", b"[") else "application/octet-stream"
    )
    own = {"User-Agent": _AGENT, names.id: identity, "Content-Type": content_type}
    own |= forwarded((name, values[-1]) for name, values in headers.items() if values)
    if settings.headers:
        own = merged_headers(own, settings.headers)
    if settings.format == "standard":
        return own, body
    attributes = _attributes(identity, headers, stored(), source)
    if settings.format == "cloudevents-binary":
        named = {f"ce-{name}": quote(value, safe=_safe()) for name, value in attributes.items()}
        return {**own, **named}, body
    event: dict[str, object] = {**attributes, "datacontenttype": content_type, **_data(content_type, body)}
    if settings.format == "cloudevents-structured":
        kind = "application/cloudevents+json"
        return merged_headers(own, {"Content-Type": kind}), msgspec.json.encode(event)
    kind = "application/cloudevents-batch+json"
    return merged_headers(own, {"Content-Type": kind}), msgspec.json.encode([event])


def traced_post(
    traces: TraceSettings, target: Target, headers: dict[str, str], done: Callable[[Response], None]
) -> tuple[dict[str, str], Callable[[Response], None]]:
    """Return headers and callback of a request with a span, whose context the headers then have.

    The span names the receiver without the path, which many receivers take for the proof of the sender.
    """
    sampled = traces.sampled({name.lower(): text for name, text in headers.items()})
    if sampled is None:
        return headers, done
    parent, context = sampled
    begun = time_ns()

    def finished(response: Response) -> None:
        facts: dict[str, str | int] = {
            "http.request.method": "POST",
            "server.address": target.host,
            "server.port": target.port,
            "url.full": f"{target.url.origin()}/",
        }
        if response.status is not None:
            facts["http.response.status_code"] = response.status
        error = "" if response.is_success else f"{response.status or 'no response'}"
        facts |= {"error.type": error} if error else {}
        traces.exporter.emit([Span("POST", context, parent, begun, 0, "CLIENT", facts, error=error)])
        done(response)

    return merged_headers(headers, headers_of(context, traces.propagators)), finished


def merged_headers(headers: Mapping[str, str], others: Mapping[str, str]) -> dict[str, str]:
    """Return headers with others in place of those of the same name, whose case does not matter.

    >>> merged_headers({"User-Agent": "a", "X": "b"}, {"user-agent": "c"})
    {'X': 'b', 'user-agent': 'c'}
    """
    replaced = {name.lower() for name in others}
    return {**{name: text for name, text in headers.items() if name.lower() not in replaced}, **others}


def signed(
    headers: Mapping[str, str],
    signer: Signer,
    body: bytes,
    seconds: int,
    receiver: str,
    names: HeaderNames = STANDARD_NAMES,
) -> dict[str, str]:
    """Return the headers of one attempt: with its time, and its signatures if there are secrets."""
    attempt = {**headers, names.timestamp: f"{seconds}"}
    if signature := signer.signature(headers[names.id], seconds, body):
        attempt[names.signature] = signature
        attempt[names.receiver] = receiver
        attempt[names.receiver_signature] = signer.receiver_signature(receiver, signature)
    return attempt


def _attributes(identity: str, headers: Headers, stored: datetime, source: str) -> dict[str, str]:
    """Return the attributes of a CloudEvent: those of its record, by their headers ``ce_NAME`` or ``ce-NAME``."""
    own = {
        "specversion": _SPEC,
        "id": identity,
        "source": f"/subscriptions/{quote(source, safe='')}",
        "type": _TYPE,
        "time": stored.astimezone(UTC).isoformat().replace("+00:00", "Z"),
    }
    for name, values in headers.items():
        lowered = name.lower()
        attribute = lowered[3:]
        if lowered.startswith(("ce_", "ce-")) and attribute.isascii() and attribute.isalnum() and attribute != "data":
            own[attribute] = values[0]
    return {**own, "specversion": _SPEC}


def _data(content_type: str, body: bytes) -> dict[str, object]:
    if _JSON.fullmatch(content_type):
        try:
            msgspec.json.decode(body)
        except (ValueError, RecursionError):
            # Bytes that are not UTF-8 are a UnicodeDecodeError, and no DecodeError.
            pass
        else:
            return {"data": msgspec.Raw(body)}
    return {"data_base64": b64encode(body).decode()}


def _safe() -> str:
    """Return the characters of a CloudEvents header that are not percent-encoded (HTTP binding, 3.1.3.2)."""
    return "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) not in _UNSAFE)


def _content_type(headers: Headers) -> str:
    for name, values in headers.items():
        # The length is compared first: this is done for each request.
        if len(name) == _CONTENT_TYPE_LENGTH and name.lower() == "content-type" and values:
            return values[0]
    return ""


def order_key(order_by: str, headers: Headers, body: bytes) -> str:
    """Return the value of an order key, ``value.PATH`` or ``header.NAME``; "" for a message without one.

    >>> order_key("value.account.id", {}, b'{"account": {"id": 7}}'), order_key("header.City", {"City": ["Oulu"]}, b"")
    ('7', 'Oulu')
    """
    kind, _, path = order_by.partition(".")
    if kind == "header":
        lowered = path.lower()
        return next((values[0] for name, values in headers.items() if name.lower() == lowered and values), "")
    try:
        value = msgspec.json.decode(body)
        for step in path.split("."):
            value = value.get(step) if isinstance(value, dict) else None
        return "" if value is None else value if isinstance(value, str) else msgspec.json.encode(value).decode()
    except (ValueError, OverflowError, RecursionError):
        return ""


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
