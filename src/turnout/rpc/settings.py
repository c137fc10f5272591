"""Settings of the subscriptions service, read once from the environment, by the original's names where it has them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Final, Self

from pydantic import ValidationError
from pydantic.alias_generators import to_camel

from turnout.base.http_exchange import is_loopback
from turnout.base.options import Option, of_text, option, options_of, read_options
from turnout.base.untrusted import decimal
from turnout.errors import ConfigError, Mistake
from turnout.rpc.tokens import AcceptedToken, JwtSettings, read_tokens
from turnout.subjects.pattern import check_pattern

_FEWEST_WORKERS: Final = 2
_LEVELS: Final = ("debug", "info", "warning", "error")


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
        given = json.loads(text)
        return JwtSettings.model_validate({to_camel(name): value for name, value in given.items()})
    except ValidationError as failure:
        texts = [(*map(str, one["loc"]), one["msg"].removeprefix("Value error, ")) for one in failure.errors()]
        problem: object = "; ".join(map(": ".join, texts))
    except (AttributeError, json.JSONDecodeError) as failure:
        problem = failure
    raise ValueError(f"expected a JSON object of an issuer's settings: {problem}")


def _tokens(text: str) -> tuple[AcceptedToken, ...]:
    return read_tokens(Path(text))


def _patterns(text: str) -> tuple[str, ...]:
    return tuple(check_pattern(pattern.strip()) for pattern in text.split(",") if pattern.strip())


_TEXT: Final = of_text(str)
_PORT: Final = of_text(_port)
_COUNT: Final = of_text(_positive)
_SECONDS: Final = of_text(_seconds)
_TRUTH: Final = of_text(_truth)
_FILE: Final = of_text(Path)


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """Settings of a server, independent of its services.

    Off loopback there is TLS or an explicit *insecure*, and no token without TLS: others on the network could
    use it.

    Attributes:
        port: gRPC port.
        host: address to listen on, also for metrics; loopback if not given.
        workers: threads that answer calls.
        max_page: largest page of a search.
        max_message_bytes: largest request.
        max_value: characters of one value of a message that is matched.
        max_calls: calls at once; more are refused with RESOURCE_EXHAUSTED.
        max_connections: connections at once; more are closed.
        handshake_seconds: time for a new connection's TLS and HTTP/2 handshakes.
        grace_seconds: time for running calls at shutdown.
        metrics_port: HTTP port of the Prometheus metrics; none: no metrics.
        tls_certificate: certificate chain (PEM).
        tls_key: private key (PEM).
        tls_client_ca: clients must show a certificate of this authority (PEM).
        jwt: issuer of JSON Web Tokens, as JSON: issuer, audience, jwks (URL of its keys), ….
        tokens: accepted bearer tokens: tokens.yaml, or one a line.
        insecure: true: serve without TLS to other machines, and without tokens.
        reflection: false: no server reflection.
        allow_destinations: subjects that destinations may be, wildcards allowed, with commas; none: all but $…,
            _INBOX.….
        log_level: debug, info, warning or error.
    """

    port: int = option(_PORT, 8080)
    host: str = option(_TEXT, "127.0.0.1")
    workers: int = option(_COUNT, 16)
    max_page: int = option(_COUNT, 1_000)
    max_message_bytes: int = option(_COUNT, 4 << 20)
    max_value: int = option(_COUNT, 65_536)
    max_calls: int = option(_COUNT, 1_000)
    max_connections: int = option(_COUNT, 1_000)
    handshake_seconds: float = option(_SECONDS, 10.0)
    grace_seconds: float = option(_SECONDS, 10.0)
    metrics_port: int | None = option(_PORT, None)
    tls_certificate: Path | None = option(_FILE, None, name="API_TLS_CERT")
    tls_key: Path | None = option(_FILE, None, secret=True)
    tls_client_ca: Path | None = option(_FILE, None)
    jwt: JwtSettings | None = option(of_text(_jwt), None)
    tokens: tuple[AcceptedToken, ...] = option(of_text(_tokens), (), name="API_TOKENS_FILE", secret=True)
    insecure: bool = option(_TRUTH, False)
    reflection: bool = option(_TRUTH, True)
    allow_destinations: tuple[str, ...] = option(of_text(_patterns), ())
    log_level: str = option(of_text(str.lower), "info", name="LOG_LEVEL")

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
        mistakes: list[Mistake] = []
        values = read_options(options_of(cls, _variable), environment, mistakes)
        if mistakes:
            raise ConfigError(mistakes, what="bad environment")
        known = {setting.name for setting in fields(cls)}
        values |= {name: value for name, value in flags.items() if value is not None and name in known}
        return cls(**values)


def _variable(name: str) -> str:
    return f"API_{name.upper()}"


OPTIONS: Final = (
    Option("DB_URI", _TEXT, "where subscriptions are kept: sqlite:///file.db, mongodb://host"),
    Option("DB_NAME", _TEXT, "database name (MongoDB)"),
    Option("DB_TABLE_NAME", _TEXT, "collection name (MongoDB)"),
    Option(
        "API_KIWI_TREE_COMPLETE_URI",
        _TEXT,
        "kiwi-tree service for patterns of whole values; none: the embedded index",
    ),
    Option("API_KIWI_TREE_PARTIAL_URI", _TEXT, "kiwi-tree service for patterns of lexemes; none: the embedded index"),
    *options_of(ServerSettings, _variable).values(),
)
"""Every variable that a server reads; the first six are the original's."""
