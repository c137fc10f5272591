"""Credentials of an endpoint: secret headers, basic authentication, OAuth 2 and the certificate of a client.

A subscription has them in its delivery settings, where stores keep them encrypted as one secret; an endpoint of a route
has them in plain, from variables. No message repeats a value.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal, Self, cast
from urllib.parse import quote_plus

from turnout.base.terminal import guesses
from turnout.errors import ConfigError, Mistake
from turnout.subscriptions.request_headers import check_header, check_header_names
from turnout.subscriptions.signing_secrets import HiddenSecret, PlainSecret, SigningSecret, read_stored
from turnout.subscriptions.webhooks import is_url, webhook_problem

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
