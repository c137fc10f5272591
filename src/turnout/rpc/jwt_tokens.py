"""JSON Web Tokens of an OpenID Connect issuer: verified by its published keys, and the callers of their claims."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path
from typing import Final, Self
from urllib.parse import urlsplit
from urllib.request import url2pathname

import grpc
import jwt
from pydantic import BaseModel, ConfigDict, model_validator
from pydantic.alias_generators import to_camel

from turnout.base.files import read_file
from turnout.base.http_exchange import exchange
from turnout.base.untrusted import JsonObject
from turnout.errors import SubscriptionInvalidError
from turnout.rpc.caller import Caller, Right
from turnout.rpc.status import RefusedError
from turnout.subjects.pattern import check_pattern
from turnout.subscriptions.tenants import Quota, check_tenant

_ALGORITHMS: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
"""Signatures that are accepted: of a private key that the issuer alone has. ``none`` and shared secrets are not."""

_REQUIRED: Final = ("exp", "iss", "aud", "sub")
_LEEWAY_SECONDS: Final = 30
_TIMEOUT_SECONDS: Final = 5.0
"""Seconds of one fetch in total."""

_LIFETIME_SECONDS: Final = 300.0
"""Seconds after which the keys are fetched again: a key that the issuer has withdrawn is refused then."""

_PAUSE_SECONDS: Final = 10.0
"""Seconds between two fetches for unknown keys: unknown tokens cause no more."""

_FIRST_PAUSE_SECONDS: Final = 1.0
"""The same while no key is known."""

_MAX_REDIRECTS: Final = 5
_MAX_KEY_SET_BYTES: Final = 1 << 20
"""Bytes of a key set that are read."""

_SHORTEST: Final = 3
"""Parts of a token between dots."""


class JwtSettings(BaseModel):
    """Issuer of tokens (OpenID Connect), and the claims that identify a caller.

    Attributes:
        issuer: its name, as in the tokens (``iss``).
        audience: required audience of tokens (``aud``).
        jwks: URL of its keys (``https://``; ``http://`` on this machine, ``file://``).
        tenant_claim: claim with the tenant, ``*`` for the whole store.
        rights_claim: claim with the rights, a list or a text with blanks between them; other values are ignored.
        destinations_claim: claim with patterns of the destinations that the caller may name; without it any.
        quota_claim: claim with the tenant's quota; without it none.

    Raises:
        ValidationError: a setting is missing, or keys would be fetched where others on the way can replace them.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel, hide_input_in_errors=True)

    issuer: str
    audience: str
    jwks: str
    tenant_claim: str = "tenant"
    rights_claim: str = "rights"
    destinations_claim: str = "destinations"
    quota_claim: str = "quota"

    @model_validator(mode="after")
    def _can_be_trusted(self) -> Self:
        given = {"issuer": self.issuer, "audience": self.audience, "jwks": self.jwks}
        problems = [f"jwt.{name}: is required and missing" for name, text in given.items() if not text]
        url = urlsplit(self.jwks)
        is_local = url.scheme == "http" and url.hostname in ("127.0.0.1", "::1", "localhost")
        if self.jwks and not is_local and url.scheme not in ("https", "file"):
            problems.append(f"jwt.jwks: expected an https:// URL, found {self.jwks!r:.80}")
        if problems:
            raise ValueError("; ".join(problems))
        return self


def _tenant(claim: object) -> str | None:
    """Return the tenant of a claim; None for the whole store.

    Raises:
        SubscriptionInvalidError: it names none.
    """
    if not isinstance(claim, str):
        raise SubscriptionInvalidError(f"expected a tenant or *, found {claim!r:.60}")
    return None if claim == "*" else check_tenant(claim)


class JwtVerifier:
    """Callers by the tokens of an issuer. Safe to use from several threads.

    Args:
        settings: settings of the issuer.
        clock: seconds that only grow.

    Attributes:
        settings: the same.
    """

    def __init__(self, settings: JwtSettings, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.settings = settings
        self._clock = clock
        self._lock = threading.Condition()
        self._is_fetching = False
        self._keys: dict[str, jwt.PyJWK] = {}
        self._problem = ""
        self._fetched = float("-inf")
        self._tried = float("-inf")

    @staticmethod
    def is_one(token: str) -> bool:
        """Return True if a token has the form of these."""
        return token.startswith("ey") and token.count(".") == _SHORTEST - 1

    def caller(self, token: str) -> Caller | None:
        """Return the caller of a token; None if it is not the issuer's, not for this audience, or has expired.

        Raises:
            RefusedError: with UNAVAILABLE if the issuer's keys cannot be fetched, with PERMISSION_DENIED if its claims
                name no tenant.
        """
        claims = self.claims(token)
        return None if claims is None else self._of(claims)

    def claims(self, token: str) -> JsonObject | None:
        """Return the verified claims of a token; None if it is not the issuer's, not for this audience, or has expired.

        Raises:
            RefusedError: with UNAVAILABLE if the issuer's keys cannot be fetched.
        """
        settings = self.settings
        try:
            header = jwt.get_unverified_header(token)
            key = self._key(str(header.get("kid", "")))
            if key is None or header.get("alg") not in _ALGORITHMS:
                return None
            claims: JsonObject = jwt.decode(
                token,
                key,
                algorithms=[str(header["alg"])],
                audience=settings.audience,
                issuer=settings.issuer,
                leeway=_LEEWAY_SECONDS,
                options={"require": list(_REQUIRED)},
            )
        except (jwt.PyJWTError, ValueError, RecursionError):
            return None
        return claims

    def _of(self, claims: JsonObject) -> Caller:
        settings = self.settings
        tenant, rights = claims.get(settings.tenant_claim), claims.get(settings.rights_claim, ())
        named = rights.split() if isinstance(rights, str) else rights
        granted = frozenset(right for right in Right if isinstance(named, list | tuple) and str(right) in named)
        patterns, quota = claims.get(settings.destinations_claim), claims.get(settings.quota_claim)
        try:
            allowed = None if patterns is None else tuple(check_pattern(str(one)) for one in patterns)
            return Caller(
                _tenant(tenant),
                granted,
                allowed,
                f"{claims['sub']}",
                None if quota is None else Quota.from_mapping(quota),
            )
        except (SubscriptionInvalidError, ValueError, TypeError) as problem:
            raise RefusedError(
                grpc.StatusCode.PERMISSION_DENIED, f"the token's claims name no caller of this server: {problem}"
            ) from None

    def _key(self, id_: str) -> jwt.PyJWK | None:
        """Return the key of an id; keys that the issuer has published meanwhile are fetched.

        One caller fetches, without the lock: callers with a known key do not wait for it, others do.
        """
        with self._lock:
            while True:
                now = self._clock()
                is_due = now - self._fetched > _LIFETIME_SECONDS or id_ not in self._keys
                if not is_due or (self._is_fetching and id_ in self._keys):
                    return self._keys[id_]
                if self._is_fetching:
                    self._lock.wait(_TIMEOUT_SECONDS)
                    continue
                if now - self._tried <= (_PAUSE_SECONDS if self._keys else _FIRST_PAUSE_SECONDS):
                    if self._problem and not self._keys:
                        raise self._unavailable()
                    return self._keys.get(id_)
                self._tried, self._is_fetching = now, True
                break
        keys: dict[str, jwt.PyJWK] | None = None
        problem = "the fetch was broken off"
        try:
            keys = self._fetch()
        except (OSError, ValueError, RecursionError, jwt.PyJWTError) as failure:
            problem = type(failure).__name__
        finally:
            with self._lock:
                self._is_fetching = False
                if keys is not None:
                    self._keys, self._fetched, self._problem = keys, now, ""
                else:
                    self._problem = problem
                self._lock.notify_all()
        if not self._keys and keys is None:
            raise self._unavailable()
        return self._keys.get(id_)

    def _unavailable(self) -> RefusedError:
        return RefusedError(grpc.StatusCode.UNAVAILABLE, f"the keys of the tokens' issuer: {self._problem}")

    def _fetch(self) -> dict[str, jwt.PyJWK]:
        url = urlsplit(self.settings.jwks)
        if url.scheme == "file":
            content = read_file(Path(url2pathname(url.path)), max_bytes=_MAX_KEY_SET_BYTES)
        else:
            answer = exchange(
                self.settings.jwks, seconds=_TIMEOUT_SECONDS, max_bytes=_MAX_KEY_SET_BYTES, redirects=_MAX_REDIRECTS
            )
            if answer.status != HTTPStatus.OK:
                raise ConnectionError(f"the issuer answered {answer.status}")
            content = answer.body
        document = json.loads(content)
        if not isinstance(document, dict):
            raise jwt.PyJWKSetError("a key set is an object")
        # A key of a kind that is not known here is of no use, and no reason to refuse the others.
        return {key.key_id or "": key for key in jwt.PyJWKSet.from_dict(document).keys}
