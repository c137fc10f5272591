"""Signing secrets and credentials of an endpoint, and the headers of requests to it.

A subscription has them in its delivery settings, where stores keep them encrypted as one secret; an endpoint of a route
has them in plain, from variables. No message repeats a value.
"""

from __future__ import annotations

import json
import re
import secrets
from base64 import b64decode, b64encode
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final, Literal, NamedTuple, Self, TypeAlias, cast
from urllib.parse import quote_plus

from turnout.base.options import REQUIRED, Kind, Option, read_options
from turnout.base.terminal import guesses
from turnout.base.untrusted import JsonObject
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


def _entries(value: object, known: Collection[str] = ()) -> tuple[dict[str, object], list[Mistake]]:
    """Return the entries of an object, and mistakes: it is none, or too large, or has other names than those known."""
    if not isinstance(value, Mapping):
        return {}, [Mistake("", f"expected an object, found {type(value).__name__}")]
    found = {str(key): item for key, item in value.items()}
    if len(json.dumps(found, default=str)) > MAX_CREDENTIALS:
        return {}, [Mistake("", f"they have more than {MAX_CREDENTIALS:,} characters")]
    unknown = [key for key in found if known and key not in known]
    return found, [Mistake(key[:60], f"unknown key{guess}") for key, guess in guesses(unknown, known)]


def _read_options(options: Mapping[str, Option], value: object, path: str = "") -> JsonObject:
    """Return the values of an object of options; one that is missing and has no default is read as a null.

    Raises:
        ConfigError: lists every mistake with its path, and without a value.
    """
    entries, mistakes = _entries(value, [one.name for one in options.values()])
    required = dict.fromkeys(one.name for one in options.values() if one.default is REQUIRED)
    values = read_options(options, required | entries, mistakes)
    if mistakes:
        below = [replace(one, path=".".join(filter(None, (path, one.path)))) for one in mistakes]
        raise ConfigError(below, what="credentials")
    return values


def _of_each(name: str, value: object, most: int, check: Callable[[str, object], None]) -> tuple[tuple[str, str], ...]:
    """Return the names and texts of an object.

    Raises:
        ConfigError: lists those that *check* refuses.
    """
    part, wrong_whole = _entries({} if value is None else value)
    mistakes = [Mistake(name, one.problem) for one in wrong_whole]
    if len(part) > most:
        mistakes.append(Mistake(name, f"expected at most {most} {name}, found {len(part):,}"))
    for key, text in part.items():
        try:
            check(key, text)
        except ConfigError as wrong:
            mistakes += wrong.mistakes
        except ValueError as problem:
            mistakes.append(Mistake(name, str(problem)))
    if mistakes:
        raise ConfigError(mistakes)
    return tuple((key, str(text)) for key, text in part.items())


def _text_problem(value: object) -> str:
    is_visible = isinstance(value, str) and _VISIBLE.fullmatch(value) and len(value) <= _MAX_TEXT
    return "" if is_visible else f"expected a text of 1 to {_MAX_TEXT:,} visible ASCII characters"


def _text(value: object) -> str:
    if problem := _text_problem(value):
        raise ValueError(problem)
    return str(value)


def _user(value: object) -> str:
    if ":" in _text(value):
        raise ValueError("it has a colon, which ends the name (RFC 7617)")
    return _text(value)


def _token_url(value: object) -> str:
    url = _text(value)
    problem = webhook_problem(url) if is_url(url) else "is no URL: expected https://…"
    if problem is not None:
        raise ValueError(problem)
    return url


def _check_parameter(name: str, text: object) -> None:
    problem = "is set by the other keys of oauth2" if name in _OWN_PARAMETERS else _text_problem(text)
    if problem:
        raise ConfigError([Mistake(f"parameters.{name}", problem)])


def _authentication(value: object) -> Literal["basic", "body"]:
    if value not in ("basic", "body"):
        raise ValueError("expected basic or body")
    return "body" if value == "body" else "basic"


def _chain(value: object) -> str:
    if isinstance(value, str) and _CERTIFICATE.fullmatch(value):
        return value
    raise ValueError("expected certificates in PEM, the client's first")


def _key(value: object) -> str:
    if isinstance(value, str) and _is_key(value):
        return value
    raise ValueError("expected a private key in PEM, not encrypted")


def _check_secret(name: str, text: object) -> None:
    check_header(name, text)
    if not text:
        raise ValueError(f"{name} is empty: is its variable set?")


def _secret_headers(value: object) -> tuple[tuple[str, str], ...]:
    headers = _of_each("headers", value, _MAX_HEADERS, _check_secret)
    check_header_names(name for name, _ in headers)
    return headers


_TEXT: Final = Kind(_text)
_MAYBE_EMPTY: Final = Kind(lambda value: "" if value == "" else _text(value))
_LOGIN: Final = {
    "user": Option("user", Kind(_user)),
    "password": Option("password", _MAYBE_EMPTY, default="", secret=True),
}
_PARAMETERS: Final = Kind(lambda value: _of_each("parameters", value, _MAX_PARAMETERS, _check_parameter))
_OAUTH2: Final = {
    "token_url": Option("tokenUrl", Kind(_token_url)),
    "client_id": Option("clientId", _TEXT),
    "client_secret": Option("clientSecret", _TEXT, secret=True),
    "scope": Option("scope", _MAYBE_EMPTY, default=""),
    "parameters": Option("parameters", _PARAMETERS, default=()),
    "authentication": Option("authentication", Kind(_authentication), default="basic"),
}
_PEM: Final = {"chain": Option("chain", Kind(_chain)), "key": Option("key", Kind(_key), secret=True)}


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


def _of(options: Mapping[str, Option], path: str) -> Kind[JsonObject | None]:
    return Kind(lambda value: None if value is None else _read_options(options, value, path))


_PARTS: Final = {
    "headers": Option("headers", Kind(_secret_headers), default=(), secret=True),
    "basic": Option("basic", _of(_LOGIN, "basic"), default=None),
    "oauth2": Option("oauth2", _of(_OAUTH2, "oauth2"), default=None),
    "certificate": Option("certificate", _of(_PEM, "certificate"), default=None),
}


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
        parts = _read_options(_PARTS, value)
        headers, login, pem = list(parts.get("headers", ())), parts.get("basic"), parts.get("certificate")
        oauth2 = None if parts.get("oauth2") is None else ClientCredentials(**parts["oauth2"])
        certificate = None if pem is None else (pem["chain"], pem["key"])
        secrets = {text for _, text in headers} | {text.rpartition(" ")[2] for _, text in headers}
        if login is not None:
            password = login.get("password", "")
            basic = basic_authentication(login["user"], password)
            headers.append(("Authorization", basic))
            secrets |= {password, basic.rpartition(" ")[2]}
        if oauth2 is not None:
            secrets |= {oauth2.client_secret, basic_authentication(*_form_encoded(oauth2)).rpartition(" ")[2]}
        ways = [name for name, _ in headers if name.lower() == "authorization"] + ["oauth2"] * (oauth2 is not None)
        problem = ""
        if len(ways) > 1:
            problem = "more than one of headers.Authorization, basic and oauth2 sets Authorization: keep one"
        elif not headers and oauth2 is None and certificate is None:
            problem = "expected one of headers, basic, oauth2 and certificate"
        if problem:
            raise ConfigError([Mistake("", problem)], what="credentials")
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


def _form_encoded(client: ClientCredentials) -> tuple[str, str]:
    """Return id and secret as basic authentication has them at a token endpoint (RFC 6749, 2.3.1)."""
    return quote_plus(client.client_id), quote_plus(client.client_secret)


def client_authentication(client: ClientCredentials) -> str:
    """Return the value of Authorization for a token endpoint."""
    return basic_authentication(*_form_encoded(client))
