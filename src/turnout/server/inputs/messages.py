"""Messages of a request, by the kind of its input."""

from __future__ import annotations

import hashlib
from base64 import b64decode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeVar
from urllib.parse import unquote

import msgspec

MOST_MESSAGES: Final = 1_000
"""Messages of one request."""

_MOST_ATTRIBUTES: Final = 64
T = TypeVar("T")
_REQUIRED: Final = ("id", "source", "specversion", "type")


class BodyError(ValueError):
    """Raised when a request has no messages.

    Attributes:
        status: status of the answer.
    """

    def __init__(self, problem: str, status: int = 400) -> None:
        super().__init__(problem)
        self.status = status


@dataclass(frozen=True, slots=True)
class Incoming:
    """Message to store.

    Attributes:
        body: its payload.
        headers: its headers, Content-Type included.
        identity: identity of its sender, the same when it is sent again; "" for none.
    """

    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)
    identity: str = ""

    def msg_id(self, name: str) -> str | None:
        """Return the ``Nats-Msg-Id``, of the same length for any identity; None without one.

        Args:
            name: name of the input.
        """
        return f"in:{name}:{hashlib.sha256(self.identity.encode()).hexdigest()[:32]}" if self.identity else None


def messages_of(kind: str, headers: Mapping[str, str], body: bytes) -> list[Incoming]:
    r"""Return the messages of a request.

    Args:
        kind: kind of the input.
        headers: by their names in lower case, or in any case where the mapping does not mind.
        body: body of the request.

    Raises:
        BodyError: names the expected form.

    >>> [message.body for message in messages_of("lines", {}, b'{"n": 1}\n\n{"n": 2}\n')]
    [b'{"n": 1}', b'{"n": 2}']
    """
    return _READERS[kind](headers, body)


def _forwarded(headers: Mapping[str, str], *names: str) -> dict[str, str]:
    return {name: headers[name.lower()] for name in ("Content-Type", *names) if headers.get(name.lower())}


def _standard(headers: Mapping[str, str], body: bytes) -> list[Incoming]:
    forwarded = _forwarded(headers, "webhook-id", "webhook-timestamp")
    return [Incoming(body, forwarded, headers["webhook-id"])]


def _github(headers: Mapping[str, str], body: bytes) -> list[Incoming]:
    forwarded = _forwarded(headers, "X-GitHub-Event", "X-GitHub-Delivery", "X-GitHub-Hook-ID")
    return [Incoming(body, forwarded, headers.get("x-github-delivery", ""))]


def _stripe(headers: Mapping[str, str], body: bytes) -> list[Incoming]:
    event = _json(body, dict[str, msgspec.Raw], "a JSON object")
    identity = _text(event.get("id"))
    if not identity:
        raise BodyError("id: expected the id of the event")
    return [Incoming(body, _forwarded(headers), identity)]


def _plain(headers: Mapping[str, str], body: bytes) -> list[Incoming]:
    _json(body, object, "a JSON text")
    return [Incoming(body, _forwarded(headers), headers.get("idempotency-key", ""))]


def _lines(headers: Mapping[str, str], body: bytes) -> list[Incoming]:
    if body.count(b"\n") > MOST_MESSAGES:
        raise BodyError(f"a request has at most {MOST_MESSAGES:,} lines", 413)
    key = headers.get("idempotency-key", "")
    messages = []
    for number, line in enumerate(body.split(b"\n"), 1):
        text = line.strip()
        if text:
            _json(text, object, f"line {number:,}: a JSON text")
            identity = f"{key}:{number}" if key else ""
            messages.append(Incoming(text, {"Content-Type": "application/json"}, identity))
    if not messages:
        raise BodyError("expected a JSON text on each line, found none")
    return messages


def _cloudevents(headers: Mapping[str, str], body: bytes) -> list[Incoming]:
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "application/cloudevents+json":
        return [_event(_json(body, dict[str, msgspec.Raw], "a CloudEvent"))]
    if kind == "application/cloudevents-batch+json":
        events = _json(body, list[dict[str, msgspec.Raw]], "a list of CloudEvents")
        if len(events) > MOST_MESSAGES:
            raise BodyError(f"a batch has at most {MOST_MESSAGES:,} events, found {len(events):,}", 413)
        return [_event(event, f"event {number:,}: ") for number, event in enumerate(events, 1)]
    attributes = {name[3:]: unquote(headers[name]) for name in map(str.lower, headers) if name.startswith("ce-")}
    return [_binary(attributes, headers.get("content-type", ""), body)]


def _event(event: Mapping[str, msgspec.Raw], where: str = "") -> Incoming:
    """Return the message of an event in JSON: attributes as headers, as in the binary mode."""
    if "data" in event and "data_base64" in event:
        raise BodyError(f"{where}expected data or data_base64, found both")
    body = bytes(event["data"]) if "data" in event else b""
    if "data_base64" in event:
        try:
            body = b64decode(_text(event["data_base64"]) or "", validate=True)
        except ValueError:
            raise BodyError(f"{where}data_base64: expected base64") from None
    attributes = {name: _text(value) for name, value in event.items() if name not in ("data", "data_base64")}
    wrong = next((name for name, text in attributes.items() if text is None and bytes(event[name]) != b"null"), None)
    if wrong is not None:
        raise BodyError(f"{where}{wrong!r:.60}: expected a text, a number, true or false")
    texts = {name: text for name, text in attributes.items() if text is not None}
    content_type = texts.pop("datacontenttype", "application/json" if "data" in event else "")
    if "data" in event and not _is_json(content_type):
        # A text of another type is a JSON string in JSON, and itself as the body (JSON format, 3.1).
        own = _text(event["data"])
        body = body if own is None or not body.startswith(b'"') else own.encode()
    return _binary(texts, content_type, body, where)


def _binary(attributes: Mapping[str, str], content_type: str, body: bytes, where: str = "") -> Incoming:
    missing = [name for name in _REQUIRED if not attributes.get(name)]
    if missing:
        raise BodyError(f"{where}a CloudEvent needs {', '.join(missing)}")
    if attributes["specversion"] != "1.0":
        raise BodyError(f"{where}specversion: expected 1.0")
    if len(attributes) > _MOST_ATTRIBUTES:
        raise BodyError(f"{where}expected at most {_MOST_ATTRIBUTES} attributes, found {len(attributes):,}")
    for name, text in (*attributes.items(), ("datacontenttype", content_type)):
        if not name.isascii() or not name.isalnum() or name != name.lower():
            raise BodyError(f"{where}{name!r:.60}: names of attributes have a to z and 0 to 9")
        if not text.isprintable():
            raise BodyError(f"{where}{name}: expected a text without control characters")
    headers = {f"ce-{name}": text for name, text in attributes.items()}
    if content_type:
        headers["Content-Type"] = content_type
    return Incoming(body, headers, f"{attributes['source']} {attributes['id']}")


def _is_json(content_type: str) -> bool:
    kind = content_type.partition(";")[0].strip().lower()
    return kind.endswith(("/json", "+json"))


def _json(body: bytes, kind: type[T], expected: str) -> T:
    try:
        return msgspec.json.decode(body, type=kind)
    except (ValueError, RecursionError):
        raise BodyError(f"expected {expected}") from None


def _text(value: msgspec.Raw | None) -> str | None:
    """Return the text of a JSON string, or that of a number or a boolean; None for anything else."""
    raw = b"" if value is None else bytes(value)
    if raw[:1] in (b"{", b"[", b"n", b""):
        return None
    try:
        return msgspec.json.decode(raw, type=str) if raw[:1] == b'"' else raw.decode()
    except ValueError:
        raise BodyError("expected JSON in UTF-8") from None


_READERS: Final[Mapping[str, Callable[[Mapping[str, str], bytes], list[Incoming]]]] = {
    "standard-webhooks": _standard,
    "github": _github,
    "stripe": _stripe,
    "cloudevents": _cloudevents,
    "json": _plain,
    "lines": _lines,
}
