"""Bearer tokens: the token file, JSON Web Tokens of an issuer, the callers of tokens, and creation of new tokens."""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import secrets
import threading
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from hmac import compare_digest
from http import HTTPStatus
from pathlib import Path
from typing import Annotated, Final, Self
from urllib.parse import urlsplit
from urllib.request import url2pathname

import grpc
import jwt
import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    TypeAdapter,
    ValidationError,
    model_validator,
)
from pydantic.alias_generators import to_camel

from turnout.base.caches import LruCache
from turnout.base.files import FileChanges, read_file
from turnout.base.http_exchange import exchange
from turnout.base.untrusted import JsonObject
from turnout.base.yaml_values import load, position_of
from turnout.errors import ConfigError, Mistake, SubscriptionInvalidError
from turnout.rpc.caller import USUAL_RIGHTS, Caller, Right
from turnout.rpc.status import RefusedError, Slots
from turnout.subjects.pattern import check_pattern
from turnout.subscriptions.tenants import Quota, check_tenant

_log = logging.getLogger(__name__)

_MEMORY = 64 << 20
_FORMS = "scrypt:N:r:p:SALT:DIGEST or sha256:DIGEST, with salt and digest in hexadecimal"


@dataclass(frozen=True, slots=True)
class Sha256:
    """SHA-256 digest of a token; sufficient for unguessable tokens of 128 random bits or more."""

    digest: bytes

    @classmethod
    def of(cls, token: str) -> Self:
        """The digest of a token."""
        return cls(hashlib.sha256(token.encode()).digest())

    def fits(self, token: str) -> bool:
        """Return True if this is the token; the time taken does not depend on the token."""
        return compare_digest(self.digest, Sha256.of(token).digest)


@dataclass(frozen=True, slots=True)
class Scrypt:
    """Salted scrypt digest (RFC 7914) of a token; also suitable for tokens chosen by humans.

    Attributes:
        cost: N, a power of two; times *block* it gives memory and time.
        block: r.
        lanes: p.
    """

    cost: int
    block: int
    lanes: int
    salt: bytes
    digest: bytes

    @classmethod
    def of(cls, token: str) -> Self:
        """The digest of a token with a new salt: 4 MB and some 10 ms."""
        salt = secrets.token_bytes(16)
        return cls(4096, 8, 1, salt, _scrypt(token, 4096, 8, 1, salt))

    def fits(self, token: str) -> bool:
        """Return True if this is the token; the time taken does not depend on the token."""
        return compare_digest(self.digest, _scrypt(token, self.cost, self.block, self.lanes, self.salt))

    def __str__(self) -> str:
        return f"scrypt:{self.cost}:{self.block}:{self.lanes}:{self.salt.hex()}:{self.digest.hex()}"


Digest = Sha256 | Scrypt


def digest_of_text(text: str) -> Digest:
    """Parse a digest in the form of a token file.

    Raises:
        ValueError: it is none; the message does not repeat the text, which may be a token.
    """
    kind, _, rest = text.partition(":")
    parts = rest.split(":")
    try:
        if kind == "sha256" and len(bytes.fromhex(rest)) == hashlib.sha256().digest_size:
            return Sha256(bytes.fromhex(rest))
        if kind == "scrypt" and len(parts) == 5:
            cost, block, lanes = map(int, parts[:3])
            digest = Scrypt(cost, block, lanes, bytes.fromhex(parts[3]), bytes.fromhex(parts[4]))
            # What OpenSSL refuses, or what takes too much memory, is reported now and not at the first call.
            digest.fits("")
            return digest
    except ValueError:
        pass
    raise ValueError(f"expected {_FORMS}")


def _scrypt(token: str, cost: int, block: int, lanes: int, salt: bytes) -> bytes:
    return hashlib.scrypt(token.encode(), salt=salt, n=cost, r=block, p=lanes, maxmem=_MEMORY, dklen=32)


EVERY_TENANT = "*"
"""In place of a tenant: the whole store."""

_WRONG_TOKENS = 1_000
"""Wrong tokens that are remembered."""


@dataclass(frozen=True, slots=True)
class AcceptedToken:
    """Accepted token.

    Attributes:
        digest: digest of the token.
        caller: its tenant and rights.
        id: the part of it before the first dot, which is no secret: a token of another name is not compared with
            this one. "" for tokens without.
    """

    digest: Digest = field(repr=False)
    caller: Caller = field(default_factory=Caller)
    id: str = ""

    @classmethod
    def plain(cls, token: str) -> AcceptedToken:
        """A token that may do everything."""
        return cls(Sha256.of(token), Caller(name="token"))


class Tokens:
    """Lookup of callers by token. Safe to use from several threads.

    Recognised tokens, and the last wrong ones, are remembered by a keyed digest: only the first call with a token
    pays for scrypt. That is computed for one token at a time, and few may wait for it, as a caller without a token
    could occupy every thread otherwise.

    Args:
        tokens: the accepted ones.
        waiting: number of calls that may compute scrypt or wait for it.
        jwt: the issuer of tokens that are no secrets of this server; None for none.
    """

    def __init__(self, tokens: Iterable[AcceptedToken], *, waiting: int = 8, jwt: JwtSettings | None = None) -> None:
        self._verifier = None if jwt is None else JwtVerifier(jwt)
        self._key = secrets.token_bytes(32)
        self._accept(tuple(tokens))
        self._file = tokens.path if isinstance(tokens, FileTokens) else None
        self._changes = FileChanges([] if self._file is None else [self._file])
        self._slots = Slots(waiting, "too many unknown tokens are being checked: try again")
        self._computing = threading.Lock()

    def _accept(self, tokens: tuple[AcceptedToken, ...]) -> None:
        """Accept these tokens, and no other ones any more."""
        self._tokens = tokens
        # New objects: a comparison that is under way keeps its result in the former ones.
        self._known: dict[bytes, Caller] = {}
        self._wrong = LruCache[bytes, None](_WRONG_TOKENS)

    def _follow_file(self) -> None:
        """Read the file again if it has changed; the former tokens hold while it cannot be used."""
        if self._file is None or not self._changes.found():
            return
        try:
            tokens = read_tokens(self._file)
        except (ConfigError, OSError) as failure:
            _log.error("the changed file of tokens cannot be used, and the former tokens hold: %s", failure)
            return
        self._accept(tokens)
        _log.info("the tokens of %s were read again: %s", self._file, len(tokens))

    def __bool__(self) -> bool:
        return bool(self._tokens) or self._verifier is not None

    def remembered(self, token: str) -> Caller | None:
        """Return the caller of a token that was recognised before; None if that is not known without computing."""
        self._follow_file()
        return self._known.get(self._mark(token))

    def caller(self, token: str) -> Caller | None:
        """Return the caller of the token; None for an unknown token.

        Raises:
            RefusedError: too many unknown tokens are being checked, or a token of the issuer cannot be.
        """
        if self._verifier is not None and JwtVerifier.is_one(token):
            # Not remembered: it expires.
            return self._verifier.caller(token)
        self._follow_file()
        mark = self._mark(token)
        known = self._known.get(mark)
        if known is not None or mark in self._wrong:
            return known
        possible = [accepted for accepted in self._tokens if not accepted.id or accepted.id == token.partition(".")[0]]
        if any(isinstance(accepted.digest, Scrypt) for accepted in possible):
            with self._slots, self._computing:
                # Several calls with a new token arrive together, as those of a page: one of them computes.
                known = self._known.get(mark)
                return known if known is not None or mark in self._wrong else self._compare(possible, token, mark)
        return self._compare(possible, token, mark)

    def _mark(self, token: str) -> bytes:
        return hmac.digest(self._key, token.encode(), "sha256")

    def _compare(self, possible: Iterable[AcceptedToken], token: str, mark: bytes) -> Caller | None:
        # Those of now: the file may change while scrypt is computed.
        known, wrong = self._known, self._wrong
        for accepted in possible:
            if accepted.digest.fits(token):
                return known.setdefault(mark, accepted.caller)
        wrong.add(mark, None)
        return None


class FileTokens(tuple[AcceptedToken, ...]):
    """Tokens of a file, whose changes `Tokens` follows.

    Attributes:
        path: the file.
    """

    path: Path


def _tenant(name: str) -> str:
    try:
        return name if name == EVERY_TENANT else check_tenant(name)
    except SubscriptionInvalidError as problem:
        raise ValueError(f"{problem}, or {EVERY_TENANT!r} for the whole store") from problem


def _quota(written: object) -> Quota:
    try:
        return Quota.from_mapping(written)
    except SubscriptionInvalidError as problem:
        raise ValueError(str(problem)) from problem


class _Entry(BaseModel):
    """Entry of the token file."""

    model_config = ConfigDict(extra="forbid", arbitrary_types_allowed=True, hide_input_in_errors=True)

    id: str = ""
    hash: Annotated[Sha256 | Scrypt, BeforeValidator(lambda text: digest_of_text(str(text)))]
    tenant: Annotated[str, AfterValidator(_tenant)]
    rights: list[Right] = list(USUAL_RIGHTS)
    destinations: list[Annotated[str, AfterValidator(check_pattern)]] | None = None
    quota: Annotated[Quota, BeforeValidator(_quota)] | None = None

    def token(self) -> AcceptedToken:
        """The token of this entry."""
        tenant = None if self.tenant == EVERY_TENANT else self.tenant
        allowed = None if self.destinations is None else tuple(self.destinations)
        name = f"token {self.id}" if self.id else "token"
        return AcceptedToken(self.hash, Caller(tenant, frozenset(self.rights), allowed, name, self.quota), self.id)


_ENTRIES = TypeAdapter(list[_Entry])


def read_tokens(path: Path) -> FileTokens:
    """The tokens of a file: YAML entries where its name ends in .yaml or .yml, else a token a line for everything.

    Of the latter blank lines and those that begin with ``#`` are passed over.

    Raises:
        ConfigError: it has no tokens, or entries that mean nothing. No message repeats a token or a digest.
        OSError: it cannot be read.
    """
    text = path.read_text("utf-8")
    tokens = _entries(text, path) if path.suffix in (".yaml", ".yml") else _lines(text, path)
    if not tokens:
        # A server that reads this as "no tokens are needed" would be open to all clients.
        raise ConfigError([Mistake("tokens", f"{path} has no tokens: add one, or start without a token file")])
    read = FileTokens(tokens)
    read.path = path
    return read


def _lines(text: str, path: Path) -> tuple[AcceptedToken, ...]:
    stripped = (line.strip() for line in text.splitlines())
    lines = [line for line in stripped if line and not line.startswith("#")]
    short = [number for number, line in enumerate(lines, 1) if line.startswith("-") or ": " in line]
    if short:
        raise ConfigError([Mistake("tokens", f"{path} looks like YAML: name it {path.stem}.yaml")])
    return tuple(map(AcceptedToken.plain, lines))


def _entries(text: str, path: Path) -> tuple[AcceptedToken, ...]:
    try:
        entries = _ENTRIES.validate_python(load(text) or [])
    except yaml.YAMLError as problem:
        # Other problems quote the text, which has secrets.
        reason, line = position_of(problem)
        twice = f": {reason}" if "occurs twice" in reason else " is not YAML"
        raise ConfigError([Mistake("tokens", f"{path}{twice}", line)], what="bad tokens") from None
    except ValidationError as problem:
        mistakes = [
            Mistake(".".join(["tokens", *map(str, error["loc"])]), error["msg"].removeprefix("Value error, "))
            for error in problem.errors(include_input=False, include_url=False)
        ]
        raise ConfigError(mistakes, what=f"bad tokens in {path}") from None
    return tuple(entry.token() for entry in entries)


def new_token() -> tuple[str, AcceptedToken]:
    """A new token of 256 random bits, and its digest."""
    name = secrets.token_hex(4)
    token = f"{name}.{secrets.token_urlsafe(32)}"
    return token, AcceptedToken(Scrypt.of(token), id=name)


def entry_of(token: AcceptedToken, tenant: str, rights: Collection[Right], destinations: Collection[str]) -> str:
    """The entry of the token file for a token that `new_token` has made."""
    entry = {"id": token.id, "hash": str(token.digest), "tenant": tenant, "rights": sorted(map(str, rights))}
    if destinations:
        entry["destinations"] = list(destinations)
    return yaml.safe_dump([entry], sort_keys=False, width=200)


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


def _claimed_tenant(claim: object) -> str | None:
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
                _claimed_tenant(tenant),
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
