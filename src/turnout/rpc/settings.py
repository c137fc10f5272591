"""Settings of the subscriptions service, read once from the environment, by the original's names where it has them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Self

from turnout.base.http_exchange import is_loopback
from turnout.base.untrusted import decimal
from turnout.errors import ConfigError, Mistake
from turnout.rpc.jwt_tokens import JwtSettings
from turnout.rpc.tokens import AcceptedToken, read_tokens
from turnout.subjects.pattern import check_pattern


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """Settings of a server, independent of its services.

    Off loopback there is TLS or an explicit *insecure*, and no token without TLS: others on the network could
    use it.
    """

    host: str = "127.0.0.1"
    port: int = 8080
    workers: int = 16
    max_page: int = 1_000
    max_message_bytes: int = 4 << 20
    max_value: int = 65_536
    max_calls: int = 1_000
    max_connections: int = 1_000
    handshake_seconds: float = 10.0
    grace_seconds: float = 10.0
    metrics_port: int | None = None
    tls_certificate: Path | None = None
    tls_key: Path | None = None
    tls_client_ca: Path | None = None
    tokens: tuple[AcceptedToken, ...] = field(default=(), repr=False)
    jwt: JwtSettings | None = None
    insecure: bool = False
    reflection: bool = True
    log_level: str = "info"
    allow_destinations: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        mistakes: list[Mistake] = []
        if (self.tls_certificate is None) != (self.tls_key is None):
            mistakes.append(Mistake("API_TLS_CERT, API_TLS_KEY", "TLS needs both, one was given"))
        if self.tls_client_ca is not None and self.tls_certificate is None:
            mistakes.append(Mistake("API_TLS_CLIENT_CA", "client certificates need API_TLS_CERT and API_TLS_KEY"))
        paths = (self.tls_certificate, self.tls_key, self.tls_client_ca)
        missing = (path for path in paths if path is not None and not path.is_file())
        mistakes += [Mistake("TLS", f"there is no file {str(path)!r}") for path in missing]
        if self.tls_certificate is None and not is_loopback(self.host):
            mistakes += self._in_the_open()
        if self.workers < _FEWEST_WORKERS:
            mistakes.append(Mistake("API_WORKERS", f"expected {_FEWEST_WORKERS} or more, found {self.workers}"))
        if self.log_level not in _LEVELS:
            mistakes.append(Mistake("LOG_LEVEL", f"expected one of {', '.join(_LEVELS)}, found {self.log_level!r}"))
        if mistakes:
            raise ConfigError(mistakes, what="bad server settings")

    def _in_the_open(self) -> list[Mistake]:
        """Return the mistakes of an address that is reachable from outside without TLS."""
        cure = "give --tls-cert and --tls-key (API_TLS_CERT, API_TLS_KEY)"
        if not self.insecure:
            risk = "would serve in the clear to other machines"
            choice = "--insecure (API_INSECURE=true), as in a container whose port is published on 127.0.0.1 alone"
            return [Mistake("API_HOST", f"{self.host} {risk}: {cure}, or {choice}")]
        if self.tokens or self.jwt is not None:
            return [Mistake("API_TOKENS_FILE", f"tokens without TLS can be read by others on the way: {cure}")]
        return []

    @property
    def large(self) -> int:
        """Number of large messages matched at once, on threads beside the *workers*."""
        return max(1, self.workers // 4)

    def tenants(self) -> set[str | None]:
        """Return the tenants of the tokens; None (the whole store) without a tenant or without tokens."""
        # Tenants of an issuer's tokens are not known before they call.
        return {token.caller.tenant for token in self.tokens} or (set() if self.jwt else {None})

    @classmethod
    def from_environment(cls, environment: Mapping[str, str], **flags: object) -> Self:
        """Return the settings of the variables; *flags* that are not None take precedence.

        Raises:
            ConfigError: lists every variable that cannot be read.
        """
        values: dict[str, Any] = {}
        mistakes: list[Mistake] = []
        for option in OPTIONS:
            written = environment.get(option.variable, "")
            if option.field is None or not written:
                continue
            try:
                values[option.field] = option.read(written)
            except ConfigError as problem:
                mistakes += problem.mistakes
            except (ValueError, OSError) as problem:
                mistakes.append(Mistake(option.variable, f"{problem}" or f"cannot read {written!r}"))
        if mistakes:
            raise ConfigError(mistakes, what="bad environment")
        known = {setting.name for setting in fields(cls)}
        values |= {name: value for name, value in flags.items() if value is not None and name in known}
        return cls(**values)


_FEWEST_WORKERS = 2
_LEVELS = ("debug", "info", "warning", "error")


@dataclass(frozen=True, slots=True)
class EnvironmentOption:
    """Environment variable of the server.

    Attributes:
        variable: its name.
        doc: description of the setting.
        field: the field of `ServerSettings` that it sets; none if only the command line uses it.
        read: text to value.
    """

    variable: str
    doc: str
    field: str | None = None
    read: Callable[[str], object] = str


def _port(text: str) -> int:
    if decimal(text, 65535) is None:
        raise ValueError(f"expected a port from 0 to 65535, found {text!r}")
    return int(text)


def _positive(text: str) -> int:
    if not decimal(text):
        raise ValueError(f"expected a whole number above 0, found {text!r}")
    return int(text)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < 1e6:
        raise ValueError(f"expected a number of seconds, found {text!r}")
    return seconds


def _truth(text: str) -> bool:
    truth = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}.get(text.lower())
    if truth is None:
        raise ValueError(f"expected true or false, found {text!r}")
    return truth


def _jwt(text: str) -> JwtSettings:
    try:
        return JwtSettings(**json.loads(text))
    except (TypeError, json.JSONDecodeError) as problem:
        raise ValueError(f"expected a JSON object of an issuer's settings: {problem}") from problem


def _tokens(text: str) -> tuple[AcceptedToken, ...]:
    return read_tokens(Path(text))


def _patterns(text: str) -> tuple[str, ...]:
    return tuple(check_pattern(pattern.strip()) for pattern in text.split(",") if pattern.strip())


OPTIONS = (
    EnvironmentOption("API_PORT", "gRPC port", "port", _port),
    EnvironmentOption("DB_URI", "where subscriptions are kept: sqlite:///file.db, mongodb://host"),
    EnvironmentOption("DB_NAME", "database name (MongoDB)"),
    EnvironmentOption("DB_TABLE_NAME", "collection name (MongoDB)"),
    EnvironmentOption(
        "API_KIWI_TREE_COMPLETE_URI", "kiwi-tree service for patterns of whole values; none: the embedded index"
    ),
    EnvironmentOption(
        "API_KIWI_TREE_PARTIAL_URI", "kiwi-tree service for patterns of lexemes; none: the embedded index"
    ),
    EnvironmentOption("API_HOST", "address to listen on, also for metrics; loopback if not given", "host"),
    EnvironmentOption("API_WORKERS", "threads that answer calls", "workers", _positive),
    EnvironmentOption("API_MAX_PAGE", "largest page of a search", "max_page", _positive),
    EnvironmentOption("API_MAX_MESSAGE_BYTES", "largest request", "max_message_bytes", _positive),
    EnvironmentOption("API_MAX_VALUE", "characters of one value of a message that is matched", "max_value", _positive),
    EnvironmentOption(
        "API_MAX_CALLS", "calls at once; more are refused with RESOURCE_EXHAUSTED", "max_calls", _positive
    ),
    EnvironmentOption("API_MAX_CONNECTIONS", "connections at once; more are closed", "max_connections", _positive),
    EnvironmentOption(
        "API_HANDSHAKE_SECONDS", "time for a new connection's TLS and HTTP/2 handshakes", "handshake_seconds", _seconds
    ),
    EnvironmentOption("API_GRACE_SECONDS", "time for running calls at shutdown", "grace_seconds", _seconds),
    EnvironmentOption(
        "API_METRICS_PORT", "HTTP port of the Prometheus metrics; none: no metrics", "metrics_port", _port
    ),
    EnvironmentOption("API_TLS_CERT", "certificate chain (PEM)", "tls_certificate", Path),
    EnvironmentOption("API_TLS_KEY", "private key (PEM)", "tls_key", Path),
    EnvironmentOption(
        "API_TLS_CLIENT_CA", "clients must show a certificate of this authority (PEM)", "tls_client_ca", Path
    ),
    EnvironmentOption(
        "API_JWT", "issuer of JSON Web Tokens, as JSON: issuer, audience, jwks (URL of its keys), …", "jwt", _jwt
    ),
    EnvironmentOption("API_TOKENS_FILE", "accepted bearer tokens: tokens.yaml, or one a line", "tokens", _tokens),
    EnvironmentOption(
        "API_INSECURE", "true: serve without TLS to other machines, and without tokens", "insecure", _truth
    ),
    EnvironmentOption("API_REFLECTION", "false: no server reflection", "reflection", _truth),
    EnvironmentOption(
        "API_ALLOW_DESTINATIONS",
        "subjects that destinations may be, wildcards allowed, with commas; none: all but $…, _INBOX.…",
        "allow_destinations",
        _patterns,
    ),
    EnvironmentOption("LOG_LEVEL", "debug, info, warning or error", "log_level", str.lower),
)
"""Every variable that a server reads; the first six are the original's."""
