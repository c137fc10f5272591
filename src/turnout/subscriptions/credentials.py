"""Signing secrets and credentials of an endpoint, and the headers of requests to it.

A subscription has them in its delivery settings, where stores keep them encrypted as one secret; an endpoint of a route
has them in plain, from variables. No message repeats a value.
"""

from __future__ import annotations

import json
import re
import secrets
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, Literal, NamedTuple, Self, TypeAlias, cast
from urllib.parse import quote_plus

from turnout.base.terminal import guesses
from turnout.errors import ConfigError, Mistake
from turnout.subscriptions.destinations import is_url, webhook_problem

MAX_HEADER: Final = 4_096
"""Longest value of a header."""

_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_TEXT: Final = re.compile(r"[\x20-\x7e\t]*")
_OWN_HEADERS: Final = ("webhook-", "ce-", "nats-", "turnout-")
_CONNECTION_HEADERS: Final = frozenset(
    {"host", "content-length", "transfer-encoding", "connection", "keep-alive", "te", "trailer", "upgrade", "expect"}
)


def check_header_names(names: Iterable[str]) -> None:
    """Refuse names of one header in two spellings, of which a receiver would see both, or one.

    Raises:
        ValueError: names both.
    """
    known: dict[str, str] = {}
    for name in names:
        other = known.setdefault(name.lower(), name)
        if other != name:
            raise ValueError(f"{other} and {name} are one header: case does not matter in its name")


def check_header(name: object, text: object) -> None:
    """Refuse an additional header that cannot be sent, or that is set by the dispatcher.

    Raises:
        ValueError: says what was expected; without the text, which may be a secret.
    """
    if not isinstance(name, str) or not _TOKEN.fullmatch(name) or len(name) > 100:
        raise ValueError(f"expected the name of a header, found {name!r:.60}")
    if _is_reserved(name):
        raise ValueError(f"{name} is set by turnout")
    if not isinstance(text, str) or len(text) > MAX_HEADER or not _HEADER_TEXT.fullmatch(text):
        raise ValueError(f"{name}: expected a text of at most {MAX_HEADER:,} visible ASCII characters")


def _is_reserved(name: str) -> bool:
    return name.lower() in _CONNECTION_HEADERS or name.lower().startswith(_OWN_HEADERS)


class HeaderNames(NamedTuple):
    """Names of the headers that identify and sign a request; those of Standard Webhooks by default."""

    id: str = "webhook-id"
    timestamp: str = "webhook-timestamp"
    signature: str = "webhook-signature"
    receiver: str = "webhook-receiver"
    receiver_signature: str = "webhook-receiver-signature"

    @classmethod
    def of(cls, chosen: Mapping[str, str]) -> HeaderNames:
        """Return the names with others in place of some, by the keys of the setting."""
        return STANDARD_NAMES._replace(**{_NAME_KEYS[key]: name for key, name in chosen.items()})


STANDARD_NAMES: Final = HeaderNames()

_NAME_KEYS: Final[Mapping[str, str]] = {
    "id": "id",
    "timestamp": "timestamp",
    "signature": "signature",
    "receiver": "receiver",
    "receiverSignature": "receiver_signature",
}


def read_header_names(value: object) -> Mapping[str, str]:
    """Return the chosen names of a request's own headers.

    Raises:
        ValueError: names the key and the expectation.
    """
    if not isinstance(value, Mapping):
        raise _unexpected(value, f"an object with some of {', '.join(_NAME_KEYS)}")
    for key, name in value.items():
        if key not in _NAME_KEYS:
            raise ValueError(f"found {key!r:.60}, expected one of {', '.join(_NAME_KEYS)}")
        if not isinstance(name, str) or not _TOKEN.fullmatch(name) or len(name) > 100:
            raise ValueError(f"{key}: expected the name of a header, found {name!r:.60}")
        if _is_reserved(name) and not name.lower().startswith("webhook-"):
            raise ValueError(f"{key}: {name} is set by turnout")
    names = [name.lower() for name in HeaderNames.of(value)]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ValueError(f"two of the headers would be {twice}")
    return MappingProxyType(dict(value))


SYMMETRIC: Final = "whsec_"
"""Prefix of a secret for HMAC-SHA256 (Standard Webhooks, "v1")."""

ASYMMETRIC: Final = "whsk_"
"""Prefix of a private key for Ed25519 (Standard Webhooks, "v1a"): 32 bytes of seed, or those and the public key."""

MAX_SECRETS: Final = 4
"""Secrets that may be valid at the same time, for rotation."""

_SIZES: Final = {SYMMETRIC: range(24, 65), ASYMMETRIC: (32, 64)}
_SEALED: Final = re.compile(r"sealed:([0-9a-f]{8}):([A-Za-z0-9_=-]{100,24000})")
_HIDDEN: Final = re.compile(r"hidden:([0-9a-f]{8})")


def secret_bytes(secret: str) -> tuple[str, bytes]:
    """Return the prefix and the bytes of a signing secret.

    Raises:
        ValueError: it is none; without the secret.
    """
    prefix, key = decoded_secret(secret, _SIZES)
    if not prefix:
        raise ValueError(f"expected {SYMMETRIC} (HMAC-SHA256) or {ASYMMETRIC} (Ed25519), and base64 behind it")
    if len(key) not in _SIZES[prefix]:
        expected = "24 to 64" if prefix == SYMMETRIC else "32 or 64"
        raise ValueError(f"expected {expected} bytes in base64 behind {prefix}, found {len(key):,} bytes")
    return prefix, key


def decoded_secret(secret: str, prefixes: Iterable[str]) -> tuple[str, bytes]:
    """Return which of the prefixes a secret has, and the bytes behind it; both empty if it has none.

    Raises:
        ValueError: no base64 is behind it; without the secret.
    """
    prefix = next(filter(secret.startswith, prefixes), "")
    try:
        return prefix, b64decode(secret.removeprefix(prefix), validate=True) if prefix else b""
    except ValueError:
        raise ValueError(f"expected base64 behind {prefix}") from None


def new_secret() -> str:
    """Return a new secret for HMAC-SHA256, of 256 random bits."""
    return f"{SYMMETRIC}{b64encode(secrets.token_bytes(32)).decode()}"


@dataclass(frozen=True, slots=True, repr=False)
class PlainSecret:
    """Secret as its owner gives it; no store keeps it, and only `text` shows it."""

    text: str

    def __repr__(self) -> str:
        return "***"


@dataclass(frozen=True, slots=True, repr=False)
class SealedSecret:
    """Encrypted secret, see `turnout.subscriptions.sealing`.

    Attributes:
        name: identifies it in views, also after it has been encrypted again; random.
        token: the encrypted text.
    """

    name: str
    token: str = field(repr=False)

    @property
    def text(self) -> str:
        """Form in which stores and exports have it."""
        return f"sealed:{self.name}:{self.token}"

    def __repr__(self) -> str:
        return HiddenSecret(self.name).text


@dataclass(frozen=True, slots=True, repr=False)
class HiddenSecret:
    """Marker in place of a stored secret; an update with it keeps the secret.

    >>> HiddenSecret("0f3a9c1e")
    hidden:0f3a9c1e
    """

    name: str

    @property
    def text(self) -> str:
        """Form in which callers see it."""
        return f"hidden:{self.name}"

    def __repr__(self) -> str:
        return self.text


SigningSecret: TypeAlias = PlainSecret | SealedSecret | HiddenSecret


def read_secrets(value: object) -> tuple[SigningSecret, ...]:
    """Return the secrets of a list of texts, or of secrets.

    Raises:
        ValueError: names the index and the expectation; without the value, which may be a secret.
    """
    if not isinstance(value, list | tuple):
        raise _unexpected(value, "a list of secrets")
    if len(value) > MAX_SECRETS:
        raise ValueError(f"expected at most {MAX_SECRETS} secrets, found {len(value):,}")
    return tuple(_read(index, one) for index, one in enumerate(value))


def _unexpected(value: object, expected: str) -> ValueError:
    return ValueError(f"expected {expected}, found {type(value).__name__}")


def _read(index: int, value: object) -> SigningSecret:
    if isinstance(value, PlainSecret | SealedSecret | HiddenSecret):
        return value
    if not isinstance(value, str):
        raise _unexpected(value, f"a text at {index}")
    if (stored := read_stored(value)) is not None:
        return stored
    try:
        secret_bytes(value)
    except ValueError as problem:
        raise ValueError(f"[{index}]: {problem}") from None
    return PlainSecret(value)


def read_stored(text: str) -> SealedSecret | HiddenSecret | None:
    """Return the stored secret that a text is, or the marker; None for another text."""
    if sealed := _SEALED.fullmatch(text):
        return SealedSecret(sealed[1], sealed[2])
    return HiddenSecret(hidden[1]) if (hidden := _HIDDEN.fullmatch(text)) else None


def stored_texts(secrets: Iterable[SigningSecret]) -> list[str]:
    """Return the texts that a store may keep.

    Raises:
        ConfigError: a secret is plain. `turnout.subscriptions.sealing.sealed_all` encrypts it.
    """
    texts = []
    for index, secret in enumerate(secrets):
        if isinstance(secret, PlainSecret):
            raise ConfigError([Mistake(f"secrets[{index}]", "it is not encrypted, and no store keeps it")])
        texts.append(secret.text)
    return texts


MAX_CREDENTIALS: Final = 16_384
"""Longest text of the credentials of one endpoint as JSON: a chain of certificates and a key have room."""

_MAX_HEADERS: Final = 16
_MAX_TEXT: Final = 4_096
_MAX_PARAMETERS: Final = 16
_VISIBLE: Final = re.compile(r"[\x20-\x7e]+")
_CERTIFICATE: Final = re.compile(r"\s*-----BEGIN CERTIFICATE-----[\s\S]+-----END CERTIFICATE-----\s*")
_KEY_LINE: Final = re.compile(r"-----(BEGIN|END) (?:[A-Z]+ )?PRIVATE KEY-----")
_OWN_PARAMETERS: Final = ("grant_type", "client_id", "client_secret", "scope")


def _is_key(text: str) -> bool:
    """Return True for a private key in PEM, with other blocks before it or without."""
    marks = [_KEY_LINE.fullmatch(line) for line in text.strip().splitlines()]
    return bool(marks) and marks[-1] is not None and [mark[1] for mark in marks if mark][-2:] == ["BEGIN", "END"]


@dataclass(frozen=True, slots=True, repr=False)
class ClientCredentials:
    """Client of an authorization server, which gives it tokens for requests (RFC 6749, 4.4).

    Attributes:
        token_url: URL of the token endpoint.
        client_id: id of the client.
        client_secret: its secret.
        scope: scopes of the token, separated by spaces; "" for the server's default.
        parameters: further parameters of the request, as ``audience`` or ``resource``.
        authentication: whether id and secret are sent as basic authentication, or in the body.
    """

    token_url: str
    client_id: str
    client_secret: str
    scope: str = ""
    parameters: tuple[tuple[str, str], ...] = ()
    authentication: Literal["basic", "body"] = "basic"


@dataclass(frozen=True, slots=True, repr=False)
class Credentials:
    """Proofs that requests to one endpoint carry.

    Attributes:
        headers: secret headers, those of basic authentication included.
        oauth2: client that gets tokens for the header Authorization; None for none.
        certificate: the client's certificate with its chain, and its private key, both in PEM; None for none.
        secrets: texts that no log, letter or answer may show.
    """

    headers: tuple[tuple[str, str], ...] = ()
    oauth2: ClientCredentials | None = None
    certificate: tuple[str, str] | None = None
    secrets: tuple[str, ...] = ()

    @classmethod
    def from_mapping(cls, value: object) -> Self:
        """Read credentials: ``headers``, ``basic``, ``oauth2`` and ``certificate``, each of which may be missing.

        Raises:
            ConfigError: lists every mistake with its key, and without a value.

        >>> Credentials.from_mapping({"basic": {"user": "ann", "password": "pw"}}).headers
        (('Authorization', 'Basic YW5uOnB3'),)
        """
        reader = _Reader()
        parts = reader.mapping(value, "", ("headers", "basic", "oauth2", "certificate"))
        headers = reader.headers(parts.get("headers"))
        login = reader.login(parts.get("basic"))
        oauth2 = reader.oauth2(parts.get("oauth2"))
        certificate = reader.certificate(parts.get("certificate"))
        secrets = {text for _, text in headers} | {text.rpartition(" ")[2] for _, text in headers}
        if login is not None:
            basic = basic_authentication(*login)
            headers.append(("Authorization", basic))
            secrets |= {login[1], basic.rpartition(" ")[2]}
        if oauth2 is not None:
            secrets |= {oauth2.client_secret, basic_authentication(*_form_encoded(oauth2)).rpartition(" ")[2]}
        ways = [name for name, _ in headers if name.lower() == "authorization"] + ["oauth2"] * (oauth2 is not None)
        if len(ways) > 1:
            reader.add("", "more than one of headers.Authorization, basic and oauth2 sets Authorization: keep one")
        elif not headers and oauth2 is None and certificate is None and not reader.mistakes:
            reader.add("", "expected one of headers, basic, oauth2 and certificate")
        if reader.mistakes:
            raise ConfigError(reader.mistakes, what="credentials")
        return cls(tuple(headers), oauth2, certificate, tuple(sorted(filter(None, secrets), key=len, reverse=True)))

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Read credentials as a store has them, decrypted.

        Raises:
            ConfigError: they are none.
        """
        try:
            value = json.loads(text)
        except ValueError:
            raise ConfigError([Mistake("", "they are no JSON")], what="credentials") from None
        return cls.from_mapping(value)

    def masked(self, text: str, *others: str) -> str:
        """Return a text of the endpoint without the secrets that it repeats, also if its end cuts one off.

        Args:
            text: the text.
            others: further secrets, as tokens.

        >>> Credentials.from_mapping({"headers": {"X-Api-Key": "open sesame"}}).masked("wrong key: open sesame")
        'wrong key: ***'
        """
        for secret in (*others, *self.secrets):
            text = text.replace(secret, "***")
            cut = next((size for size in range(len(secret) - 1, 3, -1) if text.endswith(secret[:size])), 0)
            text = f"{text[:-cut]}***" if cut else text
        return text


def basic_authentication(user: str, password: str) -> str:
    """Return the value of Authorization for a name and a password (RFC 7617)."""
    return f"Basic {b64encode(f'{user}:{password}'.encode()).decode()}"


def read_credentials(value: object) -> SigningSecret | None:
    """Return the credentials of a subscription as one secret: an object in plain, a stored text, or a marker.

    Raises:
        ValueError: they are none of these; without a value.
    """
    if value is None or isinstance(value, SigningSecret):
        return value
    if isinstance(value, str) and (stored := read_stored(value)) is not None:
        return stored
    try:
        Credentials.from_mapping(value)
    except ConfigError as problem:
        raise ValueError("; ".join(map(str, problem.mistakes))) from None
    return PlainSecret(json.dumps(value, sort_keys=True))


def plain_credentials(credentials: SigningSecret) -> object:
    """Return credentials as callers send them: an object, or the text of a stored one."""
    if isinstance(credentials, PlainSecret):
        return cast("dict[str, object]", json.loads(credentials.text))
    return credentials.text


def hidden_credentials(credentials: SigningSecret | None) -> SigningSecret | None:
    """Return the marker of stored credentials."""
    if credentials is None or isinstance(credentials, PlainSecret):
        return credentials
    return HiddenSecret(credentials.name)


class _Reader:
    """Reads the parts of credentials, and collects mistakes."""

    def __init__(self) -> None:
        self.mistakes: list[Mistake] = []

    def add(self, path: str, problem: str) -> None:
        self.mistakes.append(Mistake(path, problem))

    def mapping(self, value: object, path: str, known: tuple[str, ...]) -> dict[str, object]:
        """Return an object that has no other keys."""
        if not isinstance(value, Mapping):
            self.add(path, f"expected an object, found {type(value).__name__}")
            return {}
        found = {str(key): item for key, item in value.items()}
        if len(json.dumps(found, default=str)) > MAX_CREDENTIALS:
            self.add(path, f"they have more than {MAX_CREDENTIALS:,} characters")
            return {}
        unknown = [key for key in found if known and key not in known]
        for key, guess in guesses(unknown, known):
            self.add(".".join(filter(None, (path, key[:60]))), f"unknown key{guess}")
        return found

    def text(self, part: Mapping[str, object], path: str, name: str, otherwise: str | None = None) -> str:
        value = part.get(name, otherwise)
        if isinstance(value, str) and (value == otherwise or (_VISIBLE.fullmatch(value) and len(value) <= _MAX_TEXT)):
            return value
        self.add(f"{path}.{name}", f"expected a text of 1 to {_MAX_TEXT:,} visible ASCII characters")
        return ""

    def headers(self, value: object) -> list[tuple[str, str]]:
        if value is None:
            return []
        part = self.mapping(value, "headers", ())
        if len(part) > _MAX_HEADERS:
            self.add("headers", f"expected at most {_MAX_HEADERS} headers, found {len(part):,}")
        found = []
        try:
            check_header_names(part)
        except ValueError as problem:
            self.add("headers", str(problem))
        for name, text in part.items():
            try:
                check_header(name, text)
            except ValueError as problem:
                self.add("headers", str(problem))
            else:
                if text:
                    found.append((name, cast("str", text)))
                else:
                    self.add("headers", f"{name} is empty: is its variable set?")
        return found

    def login(self, value: object) -> tuple[str, str] | None:
        if value is None:
            return None
        part = self.mapping(value, "basic", ("user", "password"))
        user, password = self.text(part, "basic", "user"), self.text(part, "basic", "password", "")
        if ":" in user:
            self.add("basic.user", "it has a colon, which ends the name (RFC 7617)")
        return user, password

    def oauth2(self, value: object) -> ClientCredentials | None:
        if value is None:
            return None
        path = "oauth2"
        known = ("tokenUrl", "clientId", "clientSecret", "scope", "parameters", "authentication")
        part = self.mapping(value, path, known)
        url = self.text(part, path, "tokenUrl")
        problem = None if not url else webhook_problem(url) if is_url(url) else "is no URL: expected https://…"
        if problem is not None:
            self.add(f"{path}.tokenUrl", problem)
        authentication = part.get("authentication", "basic")
        if authentication not in ("basic", "body"):
            self.add(f"{path}.authentication", "expected basic or body")
        return ClientCredentials(
            url,
            self.text(part, path, "clientId"),
            self.text(part, path, "clientSecret"),
            self.text(part, path, "scope", ""),
            tuple(self.parameters(part.get("parameters"))),
            "body" if authentication == "body" else "basic",
        )

    def parameters(self, value: object) -> Iterator[tuple[str, str]]:
        path = "oauth2.parameters"
        part = {} if value is None else self.mapping(value, path, ())
        if len(part) > _MAX_PARAMETERS:
            self.add(path, f"expected at most {_MAX_PARAMETERS} parameters, found {len(part):,}")
        for name in part:
            if name in _OWN_PARAMETERS:
                self.add(f"{path}.{name}", "is set by the other keys of oauth2")
            yield name, self.text(part, path, name)

    def certificate(self, value: object) -> tuple[str, str] | None:
        if value is None:
            return None
        part = self.mapping(value, "certificate", ("chain", "key"))
        chain, key = part.get("chain"), part.get("key")
        if not isinstance(chain, str) or not _CERTIFICATE.fullmatch(chain):
            self.add("certificate.chain", "expected certificates in PEM, the client's first")
        if not isinstance(key, str) or not _is_key(key):
            self.add("certificate.key", "expected a private key in PEM, not encrypted")
        return f"{chain}", f"{key}"


def _form_encoded(client: ClientCredentials) -> tuple[str, str]:
    """Return id and secret as basic authentication has them at a token endpoint (RFC 6749, 2.3.1)."""
    return quote_plus(client.client_id), quote_plus(client.client_secret)


def client_authentication(client: ClientCredentials) -> str:
    """Return the value of Authorization for a token endpoint."""
    return basic_authentication(*_form_encoded(client))
