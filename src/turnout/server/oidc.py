"""Sign-in by OpenID Connect: the authorisation code flow with PKCE (RFC 7636), and the sessions that it opens.

Nothing is kept for a browser before it comes back: what the callback compares is in a sealed cookie of that browser.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
import threading
import time
from base64 import b64encode, urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from http import HTTPStatus
from typing import Final
from urllib.parse import quote_plus, urlencode, urlsplit

from turnout.base.http_exchange import exchange
from turnout.base.untrusted import JsonObject
from turnout.errors import TurnoutError
from turnout.rpc.caller import Caller, Right
from turnout.rpc.status import RefusedError
from turnout.rpc.tokens import JwtSettings, JwtVerifier
from turnout.server.config import OidcPart, is_safe
from turnout.server.security import Authenticator, Principal, SlowAuthenticator

_EXCHANGE_SECONDS: Final = 5.0
_MAX_DOCUMENT_BYTES: Final = 1 << 20
_DISCOVERY_SECONDS: Final = 3600.0
"""Seconds after which the provider's description is read again."""

_SIGN_IN_SECONDS: Final = 600
"""Seconds that a user has to sign in at the provider."""

_MAX_SESSIONS: Final = 10_000
_CONCURRENT_EXCHANGES: Final = 4
"""Requests that wait for the provider at a time: unknown clients can cause one."""

_PREFIX: Final = "oidc-"
"""Beginning of the cookies of sessions."""


class SignInRefusedError(TurnoutError):
    """Raised when the answer of a provider, or of a browser that comes back from it, proves no identity."""


def _caller_of(settings: OidcPart, claims: JsonObject) -> Caller:
    """Return the caller of an id token.

    Raises:
        SignInRefusedError: none of its roles has a right here.
    """
    found: object = claims
    for step in settings.roles_claim.split("."):
        found = found.get(step) if isinstance(found, dict) else None
    named = found.split() if isinstance(found, str) else found if isinstance(found, list) else []
    texts = [role for role in named if isinstance(role, str)]
    rights = frozenset[Right]().union(*(settings.roles.get(role, ()) for role in texts))
    name = claims.get(settings.name_claim)
    if not rights:
        raise SignInRefusedError(f"{claims['sub']!r:.80} has no role of this server: {settings.roles_claim} has none")
    return Caller(None, rights, None, str(name if isinstance(name, str) and name else claims["sub"])[:200])


@dataclass(frozen=True, slots=True)
class _Provider:
    """Description of a provider, and the verifier of its tokens."""

    authorization_endpoint: str
    token_endpoint: str
    takes_basic: bool
    verifier: JwtVerifier


@dataclass(frozen=True, slots=True)
class _Pending:
    """A sign-in that has begun, as its browser keeps it."""

    state: str
    nonce: str
    verifier: str
    next: str
    until: int


class OidcSignIn:
    """Sign-in of browsers at a provider. Safe to use from several threads.

    Args:
        settings: settings of the provider.
        clock: seconds since 1970.
    """

    def __init__(self, settings: OidcPart, *, clock: Callable[[], float] = time.time) -> None:
        self.settings = settings
        self.sessions = Sessions(settings.session, clock)
        self._clock = clock
        self._key = secrets.token_bytes(32)
        self._lock = threading.Lock()
        self._provider: tuple[float, _Provider] | None = None
        self._used: dict[str, int] = {}
        self._exchanges = threading.BoundedSemaphore(_CONCURRENT_EXCHANGES)

    def begin(self, target: str) -> tuple[str, str]:
        """Return the provider's address for a browser, and the cookie that the browser has to bring back.

        Args:
            target: path of this server to go to afterwards.

        Raises:
            SignInRefusedError: the provider cannot be reached, or its description cannot be used.
        """
        with self._exchange():
            provider = self._described()
        until = int(self._clock()) + _SIGN_IN_SECONDS
        state, nonce, verifier = (secrets.token_urlsafe(32) for _ in range(3))
        pending = _Pending(state, nonce, verifier, target, until)
        challenge = urlsafe_b64encode(hashlib.sha256(pending.verifier.encode()).digest()).rstrip(b"=").decode()
        query = {
            "response_type": "code",
            "client_id": self.settings.client_id,
            "redirect_uri": self.settings.redirect_url,
            "scope": " ".join(self.settings.scopes),
            "state": pending.state,
            "nonce": pending.nonce,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
        }
        joint = "&" if urlsplit(provider.authorization_endpoint).query else "?"
        return f"{provider.authorization_endpoint}{joint}{urlencode(query)}", self._sealed(pending)

    def finish(self, query: Mapping[str, str], cookie: str | None) -> tuple[str, str]:
        """Return the cookie of a new session, and the path to go to.

        Args:
            query: parameters of the callback.
            cookie: what `begin` gave the browser.

        Raises:
            SignInRefusedError: the answer is not one to this browser's request, or its token proves nothing.
        """
        pending = self._opened(cookie)
        if pending is None or not hmac.compare_digest(query.get("state", "").encode(), pending.state.encode()):
            raise SignInRefusedError("this sign-in was not begun in this browser, or took too long: begin again")
        if query.get("iss", self.settings.issuer) != self.settings.issuer:
            raise SignInRefusedError("the answer is another provider's (RFC 9207)")
        if "error" in query:
            raise SignInRefusedError(f"{query['error'][:80]} {query.get('error_description', '')[:200]}".strip())
        if not query.get("code"):
            raise SignInRefusedError("the answer has no code")
        self._use(pending)
        with self._exchange():
            provider = self._described()
            claims = self._claims(provider, self._id_token(provider, query["code"], pending), pending)
        caller = _caller_of(self.settings, claims)
        return self.sessions.open(Principal(caller.name, caller)), pending.next

    @contextmanager
    def _exchange(self) -> Iterator[None]:
        """Ask the provider, unless too many do."""
        if not self._exchanges.acquire(blocking=False):
            raise SignInRefusedError("too many sign-ins at a time: begin again in a few seconds")
        try:
            yield
        finally:
            self._exchanges.release()

    def _use(self, pending: _Pending) -> None:
        """Note that a sign-in was finished: its state is not taken twice."""
        now = self._clock()
        with self._lock:
            self._used = {state: until for state, until in self._used.items() if until > now}
            if pending.state in self._used:
                raise SignInRefusedError("this sign-in was finished before: begin again")
            self._used[pending.state] = pending.until

    def _sealed(self, pending: _Pending) -> str:
        text = urlsafe_b64encode(json.dumps(asdict(pending)).encode()).decode()
        return f"{text}.{self._seal(text)}"

    def _seal(self, text: str) -> str:
        return hmac.new(self._key, text.encode(), hashlib.sha256).hexdigest()

    def _opened(self, cookie: str | None) -> _Pending | None:
        text, _, seal = (cookie or "").partition(".")
        if not hmac.compare_digest(self._seal(text).encode(), seal.encode()):
            return None
        pending = _Pending(**json.loads(urlsafe_b64decode(text)))
        return pending if pending.until > self._clock() else None

    def _claims(self, provider: _Provider, token: str, pending: _Pending) -> JsonObject:
        """Return the verified claims of an id token (OpenID Connect Core, 3.1.3.7)."""
        try:
            claims = provider.verifier.claims(token)
        except RefusedError as away:
            raise SignInRefusedError(away.details) from away
        if claims is None:
            raise SignInRefusedError("the id token is not the provider's, not for this server, or has expired")
        if not hmac.compare_digest(str(claims.get("nonce", "")).encode(), pending.nonce.encode()):
            raise SignInRefusedError("the id token was made for another sign-in (nonce)")
        several = isinstance(claims["aud"], list) and len(claims["aud"]) > 1
        if claims.get("azp", None if several else self.settings.client_id) != self.settings.client_id:
            raise SignInRefusedError("the id token was issued to another client (azp)")
        return claims

    def _id_token(self, provider: _Provider, code: str, pending: _Pending) -> str:
        settings = self.settings
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": settings.redirect_url,
            "client_id": settings.client_id,
            "code_verifier": pending.verifier,
        }
        headers = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json"}
        secret = settings.client_secret.get_secret_value()
        if secret and provider.takes_basic:
            pair = f"{quote_plus(settings.client_id)}:{quote_plus(secret)}"
            headers["Authorization"] = f"Basic {b64encode(pair.encode()).decode()}"
        elif secret:
            form["client_secret"] = secret
        answer = _asked(provider.token_endpoint, "POST", headers, urlencode(form).encode())
        token = answer.get("id_token")
        if not isinstance(token, str):
            raise SignInRefusedError("the provider gave no id token: is openid among the scopes?")
        return token

    def _described(self) -> _Provider:
        """Return the provider's description, which is read again after a while."""
        now = self._clock()
        known = self._provider
        if known is not None and now - known[0] < _DISCOVERY_SECONDS:
            return known[1]
        issuer = self.settings.issuer
        document = _asked(f"{issuer.rstrip('/')}/.well-known/openid-configuration", "GET", {}, None)
        if document.get("issuer") != issuer:
            raise SignInRefusedError(f"the provider at {issuer} calls itself {document.get('issuer')!r:.120}")
        urls = [document.get(name) for name in ("authorization_endpoint", "token_endpoint", "jwks_uri")]
        texts = [url for url in urls if isinstance(url, str) and is_safe(url)]
        if len(texts) < len(urls):
            raise SignInRefusedError(f"the provider at {issuer} has no https:// addresses")
        methods = document.get("token_endpoint_auth_methods_supported", ["client_secret_basic"])
        settings = JwtSettings(issuer=issuer, audience=self.settings.client_id, jwks=texts[2])
        # One that is known has the provider's keys.
        is_same = known is not None and known[1].verifier.settings == settings
        verifier = known[1].verifier if known is not None and is_same else JwtVerifier(settings)
        takes_basic = isinstance(methods, list) and "client_secret_basic" in methods
        provider = _Provider(texts[0], texts[1], takes_basic, verifier)
        self._provider = (now, provider)
        return provider


def _asked(url: str, method: str, headers: Mapping[str, str], body: bytes | None) -> JsonObject:
    """Return the JSON object that a provider answers.

    Raises:
        SignInRefusedError: it does not.
    """
    host = urlsplit(url).netloc
    try:
        answer = exchange(
            url, seconds=_EXCHANGE_SECONDS, max_bytes=_MAX_DOCUMENT_BYTES, method=method, headers=headers, body=body
        )
        document = json.loads(answer.body)
    except OSError as failure:
        raise SignInRefusedError(f"the provider {host} cannot be reached: {failure}") from failure
    except (ValueError, RecursionError) as failure:
        raise SignInRefusedError(f"the provider {host} answered {answer.status} without JSON") from failure
    if answer.status != HTTPStatus.OK or not isinstance(document, dict):
        error = document.get("error", "") if isinstance(document, dict) else ""
        raise SignInRefusedError(f"the provider {host} answered {answer.status} {error!s:.80}".strip())
    return document


class Sessions:
    """Sessions of people who have signed in, in this process: a restart ends them. Safe to use from several threads.

    Args:
        seconds: duration of a session.
        clock: seconds since 1970.
    """

    def __init__(self, seconds: float, clock: Callable[[], float] = time.time) -> None:
        self._seconds = seconds
        self._clock = clock
        self._lock = threading.Lock()
        self._open: dict[bytes, tuple[Principal, float]] = {}

    def open(self, principal: Principal) -> str:
        """Begin a session, and return its cookie; beyond ten thousand the oldest ends."""
        cookie = f"{_PREFIX}{secrets.token_urlsafe(32)}"
        with self._lock:
            if len(self._open) >= _MAX_SESSIONS:
                del self._open[next(iter(self._open))]
            self._open[_digest(cookie)] = principal, self._clock() + self._seconds
        return cookie

    def principal(self, cookie: str) -> Principal | None:
        """Return whose session a cookie is; None if it is none, or has ended."""
        with self._lock:
            found = self._open.get(_digest(cookie))
            if found is None:
                return None
            if found[1] > self._clock():
                return found[0]
            del self._open[_digest(cookie)]
        return None

    def close(self, cookie: str) -> None:
        """End a session."""
        with self._lock:
            self._open.pop(_digest(cookie), None)


def _digest(cookie: str) -> bytes:
    return hashlib.sha256(cookie.encode()).digest()


class SessionAuthenticator:
    """Authenticator of sessions, and of what another one knows.

    Args:
        sign_in: has the sessions.
        tokens: authenticator of all else; None if there are no tokens.
    """

    def __init__(self, sign_in: OidcSignIn, tokens: SlowAuthenticator | None) -> None:
        self.sign_in = sign_in
        self.tokens = tokens

    def principal(self, token: str | None) -> Principal | None:
        """See `Authenticator.principal`."""
        if token is not None and token.startswith(_PREFIX):
            return self.sign_in.sessions.principal(token)
        return None if self.tokens is None else self.tokens.principal(token)

    def remembered(self, token: str) -> Principal | None:
        """See `SlowAuthenticator.remembered`."""
        if token.startswith(_PREFIX):
            return self.sign_in.sessions.principal(token)
        return None if self.tokens is None else self.tokens.remembered(token)


def with_sessions(tokens: SlowAuthenticator | None, settings: OidcPart | None) -> Authenticator | None:
    """Return the authenticator of a server; None if it has neither tokens nor a provider."""
    return tokens if settings is None else SessionAuthenticator(OidcSignIn(settings), tokens)
