"""Credentials in use: secret headers of requests, tokens of OAuth 2, and connections with a client's certificate."""

from __future__ import annotations

import asyncio
import secrets
import ssl
import tempfile
from collections.abc import Mapping
from pathlib import Path
from time import monotonic
from typing import Final
from urllib.parse import urlencode

import msgspec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)
from yarl import URL

from turnout.delivery.client import Client, Target
from turnout.errors import TurnoutError
from turnout.subscriptions.credentials import ClientCredentials, Credentials, client_authentication

_EXCHANGE_SECONDS: Final = 15.0
_ANSWER_BYTES: Final = 65_536
_USUAL_SECONDS: Final = 300.0
"""Life of a token whose server does not name any."""

_MARGIN_SECONDS: Final = 30.0
"""A token is renewed so long before its end, or a fifth of its life, if that is shorter."""

_LEAST_SECONDS: Final = 10.0
"""Seconds between two exchanges: an endpoint that refuses each token cannot cause more."""

_PAUSE_SECONDS: Final = 5.0
"""Seconds after a failed exchange in which its failure is the answer."""


NO_HEADERS: Final[Mapping[str, str]] = {}


class TokenError(TurnoutError):
    """Raised when an authorization server gives no token; without a secret."""


class _Answer(msgspec.Struct):
    """Answer of a token endpoint (RFC 6749, 5.1 and 5.2)."""

    access_token: str = ""
    token_type: str = "Bearer"  # noqa: S105 - the name of a type
    expires_in: float | str | None = None
    error: str = ""
    error_description: str = ""


class TokenSource:
    """Token of one client, which is kept until shortly before its end.

    Args:
        login: names the server, and proves who asks.
        client: sends the requests; it refuses private addresses here as well.
        credentials: the endpoint's, whose secrets are hidden in failures.
    """

    def __init__(self, login: ClientCredentials, client: Client, credentials: Credentials) -> None:
        self._login = login
        self._client = client
        self._credentials = credentials
        self._target = Target.of(URL(login.token_url, encoded=True))
        self._token = ""
        self._renewed_at = 0.0
        self._ends_at = 0.0
        self._problem = ""
        self._exchange: asyncio.Task[str] | None = None

    def current(self) -> str:
        """Return the token; "" if the next one has to be awaited."""
        return self._token if monotonic() < self._ends_at else ""

    def refused(self) -> None:
        """Have a new token obtained: the endpoint has answered 401 to this one."""
        if monotonic() > self._renewed_at + _LEAST_SECONDS:
            self._ends_at = 0.0

    async def token(self, owner: str) -> str:
        """Return the token, a new one if need be; callers share one exchange.

        Args:
            owner: tenant of the request; "" for none.

        Raises:
            TokenError: the server gives none; also for some seconds after such a failure.
        """
        if current := self.current():
            return current
        if self._exchange is None:
            if self._problem and monotonic() < self._renewed_at + _PAUSE_SECONDS:
                raise TokenError(self._problem)
            self._exchange = asyncio.create_task(self._obtained(owner))
            self._exchange.add_done_callback(self._ended)
        return await asyncio.shield(self._exchange)

    def _ended(self, exchange: asyncio.Task[str]) -> None:
        self._exchange = None
        # The caller may have given up before it fails.
        if not exchange.cancelled():
            exchange.exception()

    async def _obtained(self, owner: str) -> str:
        self._problem = ""
        try:
            answer = await self._answer(owner)
        except TokenError as failure:
            self._problem = f"{failure}"
            raise
        finally:
            self._renewed_at = monotonic()
        life = _seconds(answer.expires_in)
        self._token = answer.access_token
        self._ends_at = self._renewed_at + life - min(_MARGIN_SECONDS, life / 5)
        return self._token

    async def _answer(self, owner: str) -> _Answer:
        """Ask the token endpoint once.

        Raises:
            TokenError: it gives no token that a request could carry.
        """
        login = self._login
        form = {"grant_type": "client_credentials", **dict(login.parameters)}
        if login.scope:
            form["scope"] = login.scope
        headers = {"Accept": "application/json", "Content-Type": "application/x-www-form-urlencoded"}
        if login.authentication == "basic":
            headers["Authorization"] = client_authentication(login)
        else:
            form |= {"client_id": login.client_id, "client_secret": login.client_secret}
        response = await self._client.post(
            self._target,
            headers,
            urlencode(form).encode(),
            timeout=_EXCHANGE_SECONDS,
            max_response=_ANSWER_BYTES,
            owner=owner,
            wants_content=True,
        )
        where = f"the token endpoint {self._target.url.host}"
        if response.status is None:
            raise TokenError(self._credentials.masked(f"{where} gives no token: {response.error}"))
        try:
            answer = msgspec.json.decode(response.body, type=_Answer)
        except (ValueError, RecursionError):
            raise TokenError(f"{where} gives no token: status {response.status}, and no answer of OAuth 2") from None
        if not response.is_success or not answer.access_token:
            # Not the body itself, which may repeat the request.
            reason = ": ".join(filter(None, (answer.error[:60], answer.error_description[:120]))) or "no reason"
            text = f"{where} gives no token: status {response.status}, {reason}"
            raise TokenError(self._credentials.masked(text))
        if answer.token_type.lower() != "bearer":
            raise TokenError(f"{where} gives a token of the type {answer.token_type!a:.40}, expected Bearer")
        if not answer.access_token.isascii() or not answer.access_token.isprintable() or " " in answer.access_token:
            raise TokenError(f"{where} gives a token that no header can carry")
        return answer


def _seconds(expires_in: float | str | None) -> float:
    try:
        seconds = _USUAL_SECONDS if expires_in is None else float(expires_in)
    except ValueError:
        return _USUAL_SECONDS
    return max(1.0, seconds) if seconds == seconds and seconds < float("inf") else _USUAL_SECONDS


class Access:
    """Credentials of an endpoint, as its requests carry them.

    Args:
        credentials: of the endpoint.
        tokens: gives tokens, if the credentials are a client of an authorization server.
    """

    def __init__(self, credentials: Credentials, tokens: TokenSource | None) -> None:
        self._credentials = credentials
        self._fixed = dict(credentials.headers)
        self.tokens = tokens

    def headers(self) -> Mapping[str, str] | None:
        """Return the secret headers; None if a token has to be awaited first."""
        if self.tokens is None:
            return self._fixed
        token = self.tokens.current()
        return {**self._fixed, "Authorization": f"Bearer {token}"} if token else None

    async def awaited_headers(self, owner: str) -> Mapping[str, str]:
        """Return the secret headers, after an exchange for a token.

        Raises:
            TokenError: there is none.
        """
        token = "" if self.tokens is None else await self.tokens.token(owner)
        return {**self._fixed, "Authorization": f"Bearer {token}"} if token else self._fixed

    def masked(self, text: str) -> str:
        """Return the text of a response without the secrets that it repeats."""
        token = "" if self.tokens is None else self.tokens.current()
        return self._credentials.masked(text, *filter(None, [token]))


class CertificateError(TurnoutError):
    """Raised when a client's certificate cannot be used; without its key."""


def client_context(certificate: tuple[str, str]) -> ssl.SSLContext:
    """Return the context of connections with a client's certificate; it takes some milliseconds.

    OpenSSL reads files alone. The key's file is encrypted with a password of this call, and deleted at once.

    Args:
        certificate: certificates and private key, in PEM.

    Raises:
        CertificateError: they cannot be read, or do not belong together.
    """
    chain, key = certificate
    password = secrets.token_hex(32).encode()
    try:
        private = load_pem_private_key(key.encode(), None)
        encrypted = private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(password))
    except (ValueError, TypeError):
        raise CertificateError("the client's private key cannot be read: expected PEM, not encrypted") from None
    context = ssl.create_default_context()
    with tempfile.TemporaryDirectory(prefix="turnout-") as folder:
        files = Path(folder, "chain.pem"), Path(folder, "key.pem")
        files[0].write_text(chain, encoding="ascii", errors="replace")
        files[1].write_bytes(encrypted)
        try:
            context.load_cert_chain(*files, password=password)
        except (ssl.SSLError, OSError) as problem:
            reason = getattr(problem, "reason", None) or "no certificate in PEM"
            raise CertificateError(f"the client's certificate cannot be used with its key: {reason}") from None
    return context
