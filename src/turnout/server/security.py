"""Authentication and browser security (CSRF, foreign hosts, framing): one gate before every request.

Permissions of the caller are checked by `server.rest.dependencies`.

A browser sends requests for any page that it shows. So a request that changes something has to carry a part that the
page of another site cannot add: a JSON content type or an Authorization header (both need a preflight, which this
server never grants), and where there is an Origin it has to be ours. The Host has to be ours as well: a foreign name
that resolves to a loopback address is not.
"""

from __future__ import annotations

import asyncio
import re
import zlib
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, runtime_checkable
from urllib.parse import quote, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import RedirectResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from turnout.rpc.caller import Caller
from turnout.rpc.status import RefusedError
from turnout.rpc.tokens import JwtSettings, JwtVerifier, Tokens, read_tokens
from turnout.server.errors import problem

MAX_BODY = 4 << 20
"""Bytes of one body."""

_DIGITS = re.compile(r"[0-9]{1,19}")

Refuse = Callable[[int, str], Awaitable[None]]
"""Answers the request with a status and a reason."""


def declared_length(headers: Headers) -> int | None:
    """Return the declared length of a request's body, 0 without one; None if the declaration is invalid.

    >>> [declared_length(Headers({"content-length": text})) for text in ("17", "", "-1", "+1", "1_0", "²", "9" * 5_000)]
    [17, None, None, None, None, None, None]
    """
    written = set(headers.getlist("content-length"))
    if not written:
        return 0
    text = written.pop()
    return int(text) if not written and _DIGITS.fullmatch(text) else None


class Bodies:
    """Reads bodies for an application, so that one beyond a limit is answered and not cut off.

    Args:
        total: bytes of all bodies that are held at once.

    Attributes:
        total: the same.
    """

    def __init__(self, total: int = 64 << 20) -> None:
        self.total = total
        self._held_bytes = 0

    async def forward(
        self, app: ASGIApp, scope: Scope, receive: Receive, send: Send, refuse: Refuse, limit: int = MAX_BODY
    ) -> None:
        """Have *app* answer the request once its body of at most *limit* bytes is complete, or *refuse* it.

        A body that gzip has compressed is decompressed, within the same limit.
        """
        encoding = Headers(scope=scope).get("content-encoding", "identity").strip().lower()
        if encoding not in ("identity", "gzip"):
            await refuse(415, f"Content-Encoding: expected gzip, found {encoding!r:.60}")
            return
        body = bytearray()
        try:
            more = True
            while more:
                message = await receive()
                if message["type"] == "http.disconnect":
                    return
                part = message.get("body", b"")
                more = message.get("more_body", False)
                self._held_bytes += len(part)
                body += part
                if len(body) > limit:
                    await refuse(413, f"a request has at most {limit:,} bytes")
                    return
                if self._held_bytes > self.total:
                    await refuse(503, "too many request bodies are held at once: try again later")
                    return
            if encoding == "gzip":
                try:
                    whole = await asyncio.to_thread(_decompressed, bytes(body), limit)
                except (ValueError, zlib.error) as failure:
                    await refuse(400, f"Content-Encoding: the body is not of gzip: {failure}")
                    return
                if len(whole) > limit:
                    await refuse(413, f"a request has at most {limit:,} bytes when it is decompressed")
                    return
                self._held_bytes += len(whole) - len(body)
                body[:] = whole
                others = [header for header in scope["headers"] if header[0] not in _OF_ENCODED]
                scope = {**scope, "headers": [*others, (b"content-length", b"%d" % len(body))]}
            await app(scope, replay(bytes(body), receive), send)
        finally:
            self._held_bytes -= len(body)


_OF_ENCODED = (b"content-encoding", b"content-length", b"transfer-encoding")


def _decompressed(body: bytes, limit: int) -> bytes:
    """Return the content of gzip, or more than *limit* bytes of it.

    Raises:
        ValueError: it ends too early, or has more behind it.
        zlib.error: it is something else.
    """
    member = zlib.decompressobj(16 + zlib.MAX_WBITS)
    content = member.decompress(body, limit + 1)
    if len(content) <= limit and (not member.eof or member.unused_data):
        raise ValueError("it has more than one member" if member.eof else "it ends too early")
    return content


def replay(body: bytes, receive: Receive) -> Receive:
    """Receive the body as one message, then what follows it."""
    rest: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replaying() -> Message:
        return rest.pop() if rest else await receive()

    return replaying


@dataclass(frozen=True, slots=True)
class Principal:
    """Authenticated principal of a request.

    Attributes:
        name: name recorded with changes.
        caller: tenant and rights, as in the gRPC service.
    """

    name: str
    caller: Caller = field(default_factory=Caller)


ANONYMOUS = Principal("anonymous")
"""Principal of every request to a server without tokens."""


class Authenticator(Protocol):
    """Authenticator of bearer tokens."""

    def principal(self, token: str | None) -> Principal | None:
        """Return the principal of a token; None if it is unknown. *token* is None if the request has none."""
        ...


@runtime_checkable
class SlowAuthenticator(Authenticator, Protocol):
    """Authenticator that needs milliseconds to verify a token, and caches the tokens that it has verified."""

    def remembered(self, token: str) -> Principal | None:
        """Return the bearer of a token that was recognised before; None if that is not known without computing."""
        ...


class TokenFile:
    """Bearer tokens of a file, or of an issuer, the same that the gRPC service takes.

    Raises:
        ConfigError: the file has no token, or entries that mean nothing.
        OSError: it cannot be read.
    """

    def __init__(self, file: Path | None, jwt: JwtSettings | None = None) -> None:
        self._tokens = Tokens(read_tokens(file) if file is not None else (), jwt=jwt)

    def principal(self, token: str | None) -> Principal | None:
        """Return the principal of a token; None if it is unknown.

        Raises:
            RefusedError: too many unknown tokens are being checked, or the issuer's keys are away.
        """
        return None if token is None else _principal_of(token, self._tokens.caller(token))

    def remembered(self, token: str) -> Principal | None:
        """See `SlowAuthenticator.remembered`."""
        return _principal_of(token, self._tokens.remembered(token))


def _principal_of(token: str, caller: Caller | None) -> Principal | None:
    if caller is None:
        return None
    if JwtVerifier.is_one(token):
        return Principal(caller.name, caller)
    # The part before the first dot is no secret.
    id_, dot, _ = token.partition(".")
    return Principal(f"token {id_}" if dot else "token", caller)


_SAFE = ("GET", "HEAD", "OPTIONS")
_INTERFACES = ("/v1/", "/connectors", "/connector-plugins", "/metrics")
"""Paths that programs call: they answer 401, whatever content is requested."""
_DOCS = "/v1/docs"
"""Page of the description, which people read."""


def is_for_programs(path: str) -> bool:
    """Return True if programs call this path: errors there are no pages, whatever content is requested.

    >>> [is_for_programs(path) for path in ("/v1/routes", "/v1/docs", "/routes/orders", "/metrics")]
    [True, False, False, True]
    """
    return path != _DOCS and path.startswith(_INTERFACES)


MAX_HEADERS = 16 << 10
"""Bytes of the path, the query and the headers of a request together."""
INPUTS = "/v1/in/"
"""Path of the inputs, without their names."""
_PUBLIC_PATHS = ("/live", "/ready")
"""Paths that need no token: orchestrators have none for their probes."""

_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self';"
        " connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cache-Control": "no-store",
}
_MAX_STRANGERS_BODY = 64 << 10


def allowed_hosts(listen_host: str, more: Collection[str]) -> frozenset[str] | None:
    """Host names under which the server may be addressed; None for any, if it listens on all addresses without names.

    >>> sorted(allowed_hosts("127.0.0.1", ["switch.example"]))
    ['127.0.0.1', '::1', 'localhost', 'switch.example']
    """
    everywhere = listen_host in ("0.0.0.0", "::")  # noqa: S104 - told apart, not listened on
    if everywhere and not more:
        return None
    return frozenset(name.lower() for name in {listen_host, "localhost", "127.0.0.1", "::1", *more})


@dataclass(frozen=True, slots=True)
class Entrance:
    """Sign-in of browsers, which send no Authorization header for pages.

    Attributes:
        public: paths that need no token; what ends with ``/`` has all below.
        sign_in: the path of the page to sign in with, public as well; "" for none.
        cookie: the cookie that holds the token then. It has to be HttpOnly and SameSite=Strict; requests that change
            something need a JSON content type all the same.
    """

    public: tuple[str, ...] = ()
    sign_in: str = ""
    cookie: str = ""


class Gate:
    """ASGI middleware that forwards a request with its principal in ``scope["state"]``, or answers it.

    Args:
        app: the application behind the gate.
        authenticator: None gives all rights to every client.
        hosts: names that a Host and an Origin may have; None takes any.
        public: more paths that need no token, as those of a page to sign in with; what ends with ``/`` has all below.
        entrance: sign-in of browsers.
        bodies: reads the bodies of requests.
        inputs: names of inputs, which verify their requests themselves, with the bytes that one may have.
        origins: other origins whose pages may change something.
    """

    def __init__(
        self,
        app: ASGIApp,
        authenticator: Authenticator | None = None,
        hosts: Collection[str] | None = None,
        public: Collection[str] = (),
        entrance: Entrance | None = None,
        bodies: Bodies | None = None,
        inputs: Mapping[str, int] | None = None,
        origins: Collection[str] = (),
    ) -> None:
        self._app = app
        self._origins = frozenset(origins)
        self._bodies = bodies or Bodies()
        self._inputs = {f"{INPUTS}{name}": most for name, most in (inputs or {}).items()}
        # Their bodies are read before authentication: they have their own limit of bytes.
        self._input_bodies = Bodies(self._bodies.total)
        self._authenticator = authenticator
        self._slow = authenticator if isinstance(authenticator, SlowAuthenticator) else None
        self._hosts = hosts
        self._entrance = entrance or Entrance()
        sign_in = [self._entrance.sign_in] if self._entrance.sign_in else []
        self._public = (*_PUBLIC_PATHS, *public, *self._entrance.public, *sign_in)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or have it answered."""
        if scope["type"] == "websocket":
            await self._open_websocket(scope, receive, send)
            return
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        send = _with_headers(send)
        headers = Headers(scope=scope)
        refusal = _too_long(scope) or self._stranger(scope["method"], headers)
        principal = None
        if refusal is None:
            principal, refusal = await self._authenticated(scope, headers)
        is_input = scope["method"] == "POST" and scope["path"] in self._inputs
        refusal = refusal or _unacceptable(scope, headers, verified_later=is_input)
        if refusal is not None:
            if refusal[0] == 401 and self._shows_pages(scope, headers):
                await self._to_sign_in(scope)(scope, receive, send)
                return
            answer = problem(*refusal)
            if refusal[0] == 401:
                answer.headers["WWW-Authenticate"] = "Bearer"
            await answer(scope, receive, send)
            return
        scope.setdefault("state", {})["principal"] = principal
        if scope["method"] in _SAFE or not _has_body(headers):
            await self._app(scope, receive, send)
            return

        async def refuse(status: int, reason: str) -> None:
            await problem(status, reason)(scope, receive, send)

        if is_input:
            limit = self._inputs[scope["path"]]
            await self._input_bodies.forward(self._app, scope, receive, send, refuse, limit)
            return
        # Bodies of strangers must not use up the bytes that all bodies share.
        stranger = self._authenticator is not None and _is_under(scope["path"], self._public)
        limit = _MAX_STRANGERS_BODY if stranger else MAX_BODY
        await self._bodies.forward(self._app, scope, receive, send, refuse, limit)

    async def _open_websocket(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Accept a WebSocket of our own origin, or refuse it: a browser opens one for any page."""
        headers = Headers(scope=scope)
        refusal = _too_long(scope) or self._stranger("CONNECT", headers)
        principal = None
        if refusal is None:
            principal, refusal = await self._authenticated(scope, headers)
        if refusal is not None:
            await problem(*refusal)(scope, receive, send)
            return
        scope.setdefault("state", {})["principal"] = principal
        await self._app(scope, receive, send)

    async def _authenticated(self, scope: Scope, headers: Headers) -> tuple[Principal | None, tuple[int, str] | None]:
        """Return the principal of a request, or status and reason of its refusal."""
        try:
            principal = await self._principal(scope, headers)
        except RefusedError as refused:
            return None, (403 if refused.is_denied else 503, refused.details)
        return principal, None if principal else (401, "a bearer token is needed: Authorization: Bearer …")

    async def _principal(self, scope: Scope, headers: Headers) -> Principal | None:
        if self._authenticator is None or scope["path"] in self._inputs or _is_under(scope["path"], self._public):
            return ANONYMOUS if self._authenticator is None else Principal("anonymous", Caller(rights=frozenset()))
        scheme, _, token = headers.get("authorization", "").partition(" ")
        if not scheme and self._entrance.cookie:
            return await self._bearer(cookie_of(headers.get("cookie", ""), self._entrance.cookie))
        return await self._bearer(token.strip() if scheme.lower() == "bearer" and token else None)

    async def _bearer(self, token: str | None) -> Principal | None:
        """Return the principal of a token; computing is left to a thread, as all requests share this one."""
        assert self._authenticator is not None
        if token is None or self._slow is None:
            return self._authenticator.principal(token)
        return self._slow.remembered(token) or await asyncio.to_thread(self._slow.principal, token)

    def _shows_pages(self, scope: Scope, headers: Headers) -> bool:
        """Return True if the request expects a page, so that a person can sign in."""
        wants_page = scope["method"] == "GET" and "text/html" in headers.get("accept", "")
        return bool(self._entrance.sign_in) and wants_page and not is_for_programs(scope["path"])

    def _to_sign_in(self, scope: Scope) -> RedirectResponse:
        query = scope["query_string"].decode("latin-1")
        target = f"{scope['path']}?{query}" if query else scope["path"]
        return RedirectResponse(f"{self._entrance.sign_in}?next={quote(target, safe='')}", 303)

    def _stranger(self, method: str, headers: Headers) -> tuple[int, str] | None:
        """Return status and reason if the request is for another host or from another origin; else None."""
        host = headers.get("host", "")
        if self._hosts is not None and _name(f"//{host}") not in self._hosts:
            return 421, f"this server is not {host!r}; hosts in turnout.yaml has its names"
        if method in _SAFE:
            return None
        origin = headers.get("origin")
        if origin in self._origins:
            return None
        if origin is not None and not self._is_own(origin, host):
            return 403, f"a page of {origin} may not change anything here"
        if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            return 403, "a page of another site may not change anything here"
        return None

    @staticmethod
    def _is_own(origin: str, host: str) -> bool:
        try:
            return urlsplit(origin).netloc.lower() == host.lower()
        except ValueError:
            return False


def _too_long(scope: Scope) -> tuple[int, str] | None:
    """Return status and reason if path and headers are too long.

    The HTTP parser has the same limit, but for headers of which a part is still missing alone.
    """
    size = len(scope.get("raw_path") or b"") + len(scope["query_string"])
    size += sum(len(name) + len(value) for name, value in scope["headers"])
    return (400, f"path and headers have at most {MAX_HEADERS:,} bytes") if size > MAX_HEADERS else None


def _has_body(headers: Headers) -> bool:
    return headers.get("content-length", "0") != "0" or "transfer-encoding" in headers


def _unacceptable(scope: Scope, headers: Headers, *, verified_later: bool) -> tuple[int, str] | None:
    """Return the problem of a changing request's body, from its headers alone.

    Args:
        scope: scope of the request.
        headers: headers of the request.
        verified_later: True if the page of another site could not have signed it.
    """
    if scope["method"] in _SAFE:
        return None
    length = declared_length(headers)
    if length is None:
        return 400, f"Content-Length: expected a number of bytes, found {headers['content-length'][:40]!r}"
    if length > MAX_BODY:
        return 413, f"a request has at most {MAX_BODY:,} bytes"
    return None if verified_later else _needs_json(scope["method"], headers)


def _needs_json(method: str, headers: Headers) -> tuple[int, str] | None:
    """Return status and reason if another site's page could have caused this change; else None."""
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    bodiless = method != "POST" and not kind and headers.get("content-length", "0") == "0"
    # None of these is what a form of another site can send.
    if kind in ("application/json", JSON_LINES) or kind.endswith("+json") or "authorization" in headers or bodiless:
        return None
    return 415, "what changes something needs Content-Type: application/json, or an Authorization header"


JSON_LINES = "application/x-ndjson"
"""Content type of JSON lines."""


def _name(url: str) -> str:
    try:
        return (urlsplit(url).hostname or "").lower()
    except ValueError:
        return ""


def _is_under(path: str, public: Iterable[str]) -> bool:
    return any(path == open_path or (open_path.endswith("/") and path.startswith(open_path)) for open_path in public)


def _with_headers(send: Callable[[Message], Awaitable[None]]) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in _missing(headers, _HEADERS).items():
                headers[name] = value
        await send(message)

    return sending


def _missing(headers: Headers, defaults: Mapping[str, str]) -> Mapping[str, str]:
    """Return the default headers that an answer has not set itself."""
    return {name: value for name, value in defaults.items() if name not in headers}


_ESCAPED = re.compile(r"\\(?:([0-3][0-7]{2})|(.))", re.DOTALL)


def cookie_of(header: str, name: str) -> str | None:
    r"""Return the value of a cookie; of several with the name the last. The time grows as the length does.

    Some releases of Python take the square of it for a value with many escapes, and this is read before any token.

    >>> cookie_of(r'a=1; turnout="b\"\073"', "turnout")
    'b";'
    """
    for pair in reversed(header.split(";")):
        key, _, value = pair.partition("=")
        if key.strip() == name:
            value = value.strip()
            is_quoted = len(value) > 1 and value[0] == value[-1] == '"'
            return _ESCAPED.sub(lambda m: chr(int(m[1], 8)) if m[1] else m[2], value[1:-1]) if is_quoted else value
    return None
