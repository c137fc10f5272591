"""Proofs that the sender of a request knows a secret: signatures of three schemes, and bearer tokens.

Standard Webhooks ("Signature scheme"), GitHub ("Validating webhook deliveries") and Stripe ("Verify webhook
signatures manually"). Everything is compared in constant time.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import time
from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, TypeVar
from urllib.parse import unquote

import msgspec

from turnout.base.background import Background, Tasks
from turnout.base.untrusted import decimal
from turnout.errors import TurnoutError, message_of
from turnout.server.config import InputPart, webhook_key
from turnout.subscriptions.credentials import SYMMETRIC
from turnout.traces.spans import forwarded

if TYPE_CHECKING:
    from turnout.nats.jetstream import JetStream


_MOST_SIGNATURES: Final = 8
"""Maximum number of signatures of one request: each may cost a verification."""


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


def problem_of(kind: str, secrets: Sequence[str], request: Signed) -> str | None:
    """Return the reason that a request is not accepted; None for one with a valid proof.

    >>> request = Signed({"authorization": "Bearer 0123456789abcdef"}, b"", 0, 300)
    >>> problem_of("json", ["0123456789abcdef"], request), problem_of("json", ["another-of-a-length"], request)
    (None, 'the token is not one of this input')
    """
    return _PROBLEMS.get(kind, _token_problem)(secrets, request)


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
    for prefix, key in map(webhook_key, secrets):
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
    r"""Return the messages of a request, each with its trace context.

    Args:
        kind: kind of the input.
        headers: by their names in lower case, or in any case where the mapping does not mind.
        body: body of the request.

    Raises:
        BodyError: names the expected form.

    >>> [message.body for message in messages_of("lines", {}, b'{"n": 1}\n\n{"n": 2}\n')]
    [b'{"n": 1}', b'{"n": 2}']
    """
    messages, context = _READERS[kind](headers, body), forwarded(headers.items())
    return [replace(one, headers={**one.headers, **context}) for one in messages] if context else messages


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


_log = logging.getLogger("turnout.server")
_CLOSE_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer to a request.

    Attributes:
        status: status of the response.
        detail: the problem; "" for a success.
        stored: messages that the stream has now, of this request.
        duplicates: number of these that it had before.
        retry_after: seconds after which the request should be sent again; 0 for none.
    """

    status: int
    detail: str = ""
    stored: int = 0
    duplicates: int = 0
    retry_after: float = 0.0


class Rate:
    """Limit of requests per second; a burst may have one second's requests.

    Args:
        limit: requests a second.
        clock: returns seconds.

    >>> now = [0.0]
    >>> rate = Rate(2, lambda: now[0])
    >>> rate.wait(), rate.wait(), rate.wait()
    (0.0, 0.0, 0.5)
    """

    def __init__(self, limit: float, clock: Callable[[], float]) -> None:
        self._limit = limit
        self._clock = clock
        self._tokens = max(1.0, limit)
        self._at = clock()

    def wait(self) -> float:
        """Count a request; return 0, or the seconds after which it would be allowed."""
        now = self._clock()
        self._tokens = min(max(1.0, self._limit), self._tokens + (now - self._at) * self._limit)
        self._at = now
        if self._tokens < 1.0:
            return (1.0 - self._tokens) / self._limit
        self._tokens -= 1.0
        return 0.0


class Intake:
    """Inputs of a server, with a connection to NATS for each that is used.

    Connections live in a thread of their own, so that their work does not depend on the callers.

    Args:
        inputs: by name.
        clock: returns seconds, for rates.
        now: returns seconds since 1970, for signatures.

    Attributes:
        counts: of requests by input and outcome.
        messages: messages stored, by input.
    """

    def __init__(
        self,
        inputs: Mapping[str, InputPart],
        *,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.inputs = inputs
        self.counts: Counter[tuple[str, str]] = Counter()
        self.messages: Counter[str] = Counter()
        self._now = now
        self._rates = {name: Rate(part.rate, clock) for name, part in inputs.items() if part.rate is not None}
        self._loop = asyncio.new_event_loop()
        self._background = Background("connections of the inputs", self._loop.run_forever)
        self._connections: dict[str, asyncio.Task[JetStream]] = {}
        self._keepers = Tasks("a connection of the inputs")

    def start(self) -> None:
        """Start the thread; connections are made when the first request needs them."""
        self._background.start()

    def close(self) -> None:
        """Close all connections."""
        if self._background.is_alive():
            asyncio.run_coroutine_threadsafe(self._closed(), self._loop).result(_CLOSE_SECONDS)
            self._background.stop()
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._background.join()
        self._loop.close()

    async def take(self, name: str, headers: Mapping[str, str], body: bytes) -> Answer | None:
        """Return the answer to a request, after its messages are stored; None if there is no such input."""
        part = self.inputs.get(name)
        if part is None:
            return None
        answer = await self._answer(name, part, headers, body)
        self.counts[name, _OUTCOMES.get(answer.status, "invalid")] += 1
        self.messages[name] += answer.stored - answer.duplicates
        return answer

    async def _answer(self, name: str, part: InputPart, headers: Mapping[str, str], body: bytes) -> Answer:
        if len(body) > part.max_body:
            return Answer(413, f"a request has at most {part.max_body:,} bytes")
        problem = problem_of(part.kind, part.secrets, Signed(headers, body, self._now(), part.tolerance))
        if problem is not None:
            return Answer(401, problem)
        wait = self._rates[name].wait() if name in self._rates else 0.0
        if wait:
            return Answer(429, f"this input takes {part.rate:g} requests a second", retry_after=wait)
        try:
            messages = messages_of(part.kind, headers, body)
        except BodyError as wrong:
            return Answer(wrong.status, str(wrong))
        storing = asyncio.run_coroutine_threadsafe(self._store(name, part, messages), self._loop)
        return await asyncio.wrap_future(storing)

    # -- in the thread of the connections

    async def _store(self, name: str, part: InputPart, messages: Sequence[Incoming]) -> Answer:
        from turnout.nats.jetstream import Expect

        expect = Expect(stream=part.sink.stream) if part.sink.stream else None
        try:
            js = await self._connection(name, part)
            most = js.connection.max_payload - _HEADERS
            if any(len(message.body) > most for message in messages):
                return Answer(413, f"a message has at most {most:,} bytes")
            publishing = (
                js.publish(
                    part.subject, one.body, headers=one.headers, msg_id=one.msg_id(name), expect=expect, retries=0
                )
                for one in messages
            )
            outcomes = await asyncio.gather(*publishing, return_exceptions=True)
        except (TurnoutError, OSError) as failure:
            return self._unavailable(name, failure)
        for one in outcomes:
            if isinstance(one, TurnoutError | OSError):
                return self._unavailable(name, one)
            if isinstance(one, BaseException):
                raise one
        duplicates = sum(not isinstance(one, BaseException) and one.duplicate for one in outcomes)
        return Answer(200, stored=len(outcomes), duplicates=duplicates)

    def _unavailable(self, name: str, failure: TurnoutError | OSError) -> Answer:
        _log.warning("input %s: not stored: %s", name, message_of(failure))
        return Answer(503, "the stream cannot be reached, or has not confirmed everything: send the same again")

    async def _connection(self, name: str, part: InputPart) -> JetStream:
        """Return the connection of an input; concurrent callers share one attempt."""
        connecting = self._connections.get(name)
        if connecting is None:
            connecting = self._connections[name] = self._loop.create_task(self._connect(name, part))
        try:
            return await asyncio.shield(connecting)
        except Exception:
            if self._connections.get(name) is connecting:
                del self._connections[name]
            raise

    async def _connect(self, name: str, part: InputPart) -> JetStream:
        from turnout.nats.jetstream import connect

        ready: asyncio.Future[JetStream] = self._loop.create_future()

        async def keep() -> None:
            closed = asyncio.Event()
            try:
                async with connect(part.sink.connection) as js:
                    js.connection.on_closed.append(closed.set)
                    ready.set_result(js)
                    await closed.wait()
            except Exception as failure:
                if ready.done():
                    raise
                # The requests that wait for the connection would otherwise wait for ever.
                ready.set_exception(failure)
            finally:
                self._connections.pop(name, None)

        self._keepers.start(keep())
        return await ready

    async def _closed(self) -> None:
        await self._keepers.cancel()


_HEADERS = 32 << 10
"""Bytes of a message that its headers may have."""

_OUTCOMES = {200: "stored", 401: "refused", 429: "limited", 503: "unavailable"}

OUTCOMES = (*_OUTCOMES.values(), "invalid")
"""Outcomes of requests, as metrics name them."""
